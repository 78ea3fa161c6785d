// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package feedback

import (
	"fmt"
	"reflect"
	"slices"

	"k8s.io/client-go/util/jsonpath"
	workv1 "open-cluster-management.io/api/work/v1"
)

// Bounds of one path. Every ".." and every member of a union multiplies what is
// walked; nesting is a recursion of the parser.
const (
	maxPathLength = 2048
	maxRecursions = 1
	maxBranches   = 16
)

var (
	errPathLength = fmt.Errorf("path is longer than %d bytes", maxPathLength)
	errRecursions = fmt.Errorf("more than %d recursive descent", maxRecursions)
	errBranches   = fmt.Errorf("unions have more than %d combinations", maxBranches)
)

// path is one value to be read.
type path struct {
	name, version string
	text          string
	query         *jsonpath.JSONPath
	err           error
}

// parse takes kubectl's JSONPath without the braces.
func parse(j workv1.JsonPath) path {
	p := path{name: j.Name, version: j.Version, text: "{" + j.Path + "}"}
	if len(j.Path) > maxPathLength {
		p.err = fmt.Errorf("json path of %s: %w", j.Name, errPathLength)
		return p
	}
	tree, err := jsonpath.Parse(j.Name, p.text)
	if err == nil {
		err = (&bounds{}).check(tree.Root)
	}
	if err != nil {
		p.err = fmt.Errorf("failed to parse json path %s of %s with error: %w", j.Path, j.Name, err)
		return p
	}
	if !loops(tree.Root) {
		p.query, p.err = p.prepare()
	}
	return p
}

func (p path) prepare() (*jsonpath.JSONPath, error) {
	q := jsonpath.New(p.name).AllowMissingKeys(true)
	if err := q.Parse(p.text); err != nil {
		return nil, fmt.Errorf("failed to parse json path of %s with error: %w", p.name, err)
	}
	return q, nil
}

// find returns what the first action of the template yields; nothing, and no
// error, where keys are missing.
func (p path) find(obj map[string]any) ([]any, error) {
	query, err := p.query, p.err
	if query == nil && err == nil {
		// A template with a range is changed by its own evaluation.
		query, err = p.prepare()
	}
	if err != nil {
		return nil, err
	}
	results, err := query.FindResults(obj)
	if err != nil {
		return nil, fmt.Errorf("failed to find value for %s with error: %w", p.name, err)
	}
	if len(results) == 0 {
		return nil, nil
	}
	found := make([]any, 0, len(results[0]))
	for _, v := range results[0] {
		found = append(found, plain(v))
	}
	return found, nil
}

// plain unwraps a result; the zero Value stands for null.
func plain(v reflect.Value) any {
	if !v.IsValid() || !v.CanInterface() {
		return nil
	}
	return v.Interface()
}

// bounds counts what makes a path expensive.
type bounds struct {
	recursions int
	branches   int
}

func (b *bounds) check(n jsonpath.Node) error {
	switch n := n.(type) {
	case *jsonpath.ListNode:
		return b.all(n.Nodes)
	case *jsonpath.RecursiveNode:
		b.recursions++
		if b.recursions > maxRecursions {
			return errRecursions
		}
	case *jsonpath.UnionNode:
		b.branches = max(b.branches, 1) * len(n.Nodes)
		if b.branches > maxBranches {
			return errBranches
		}
		for _, member := range n.Nodes {
			if err := b.check(member); err != nil {
				return err
			}
		}
	case *jsonpath.FilterNode:
		return b.all(append(append([]jsonpath.Node(nil), n.Left.Nodes...), n.Right.Nodes...))
	}
	return nil
}

func (b *bounds) all(nodes []jsonpath.Node) error {
	for _, n := range nodes {
		if err := b.check(n); err != nil {
			return err
		}
	}
	return nil
}

// loops tells whether a template has a range or an end, which keep state.
func loops(n jsonpath.Node) bool {
	list, ok := n.(*jsonpath.ListNode)
	if !ok {
		_, identifier := n.(*jsonpath.IdentifierNode)
		return identifier
	}
	return slices.ContainsFunc(list.Nodes, loops)
}
