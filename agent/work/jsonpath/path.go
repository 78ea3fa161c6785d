// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package jsonpath finds and removes the fields of an unstructured object that kubectl's
// JSONPath, or a JSON pointer, selects.
//
// client-go parses the paths. Its evaluation is not used, because it cannot be bounded,
// makes a value of every byte of a string, returns the members of a map in random order,
// and tells no places from which a value could be removed. Otherwise a path selects what it
// selects with kubectl, and fails with the same errors; ranges are not supported.
//
// A [Path] is immutable. The number of recursive descents and of combinations of unions in
// it is bounded, and what evaluations visit is taken off a budget of steps.
package jsonpath

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/client-go/util/jsonpath"
)

// Bounds of one path: each recursive descent, and each member of a union, multiplies what
// is visited.
const (
	maxRecursions = 1
	maxBranches   = 16
)

var (
	errExpressions = errors.New("path has more than one expression")
	errRecursions  = fmt.Errorf("more than %d recursive descent", maxRecursions)
	errBranches    = fmt.Errorf("unions have more than %d combinations", maxBranches)

	errNotPointer = errors.New("pointer must begin with '/'")
	errWhole      = errors.New("pointer names the whole document")
	errEscape     = errors.New("'~' must be followed by '0' or '1'")
)

// Path is a parsed JSONPath or JSON pointer.
type Path struct{ nodes []jsonpath.Node }

// Parse parses kubectl's JSONPath, without the braces around it.
func Parse(text string) (Path, error) {
	tree, err := jsonpath.Parse("path", "{"+text+"}")
	if err != nil {
		return Path{}, err
	}
	if len(tree.Root.Nodes) > 1 {
		return Path{}, errExpressions
	}
	p := Path{nodes: flatten(tree.Root.Nodes)}
	return p, (&cost{}).addAll(p.nodes)
}

// ParsePointer parses a JSON pointer (RFC 6901), which must not name the whole document.
func ParsePointer(text string) (Path, error) {
	switch {
	case text == "":
		return Path{}, errWhole
	case text[0] != '/':
		return Path{}, errNotPointer
	}
	var p Path
	for token := range strings.SplitSeq(text[1:], "/") {
		if strings.Contains(strings.NewReplacer("~0", "", "~1", "").Replace(token), "~") {
			return Path{}, errEscape
		}
		// The replacer works from left to right: ~01 is ~1, not /.
		p.nodes = append(p.nodes, tokenNode(strings.NewReplacer("~1", "/", "~0", "~").Replace(token)))
	}
	return p, nil
}

// IsRoot reports whether a path names no field, but the object itself.
func (p Path) IsRoot() bool { return len(p.nodes) == 0 }

// flatten removes the lists in which the parser groups nodes, and fields without a name:
// "." is the object itself.
func flatten(nodes []jsonpath.Node) []jsonpath.Node {
	var out []jsonpath.Node
	for _, n := range nodes {
		switch n := n.(type) {
		case *jsonpath.ListNode:
			out = append(out, flatten(n.Nodes)...)
		case *jsonpath.FieldNode:
			if n.Value != "" {
				out = append(out, n)
			}
		default:
			out = append(out, n)
		}
	}
	return out
}

// cost counts what multiplies the values that a path visits.
type cost struct{ recursions, branches int }

func (c *cost) addAll(nodes []jsonpath.Node) error {
	for _, n := range nodes {
		if err := c.add(n); err != nil {
			return err
		}
	}
	return nil
}

func (c *cost) add(n jsonpath.Node) error {
	switch n := n.(type) {
	case *jsonpath.ListNode:
		return c.addAll(n.Nodes)
	case *jsonpath.IdentifierNode:
		return fmt.Errorf("unrecognized identifier %s", n.Name)
	case *jsonpath.RecursiveNode:
		if c.recursions++; c.recursions > maxRecursions {
			return errRecursions
		}
	case *jsonpath.UnionNode:
		if c.branches = max(c.branches, 1) * len(n.Nodes); c.branches > maxBranches {
			return errBranches
		}
		for _, member := range n.Nodes {
			if err := c.addAll(member.Nodes); err != nil {
				return err
			}
		}
	case *jsonpath.FilterNode:
		return c.addAll(slices.Concat(n.Left.Nodes, n.Right.Nodes))
	}
	return nil
}

// tokenNode is a token of a JSON pointer: the name of a field or the index of an element.
type tokenNode string

// Type is unknown to client-go, whose evaluation never meets one.
func (tokenNode) Type() jsonpath.NodeType { return -1 }

func (t tokenNode) String() string { return string(t) }

// index returns the index of an element: digits without leading zeros. "-", the element
// after the last, never exists.
func (t tokenNode) index(length int) (int, bool) {
	if len(t) > 1 && t[0] == '0' {
		return 0, false
	}
	i, err := strconv.ParseUint(string(t), 10, 31)
	return int(i), err == nil && i < uint64(length) //nolint:gosec // 31 bits, and a length is not negative
}
