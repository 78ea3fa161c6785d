// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package feedback

import (
	"errors"
	"fmt"

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
	// errName: the hub's API takes no value without a name.
	errName = errors.New("a value has no name")
)

// path is one value to be read.
type path struct {
	name, version string
	nodes         []jsonpath.Node
	err           error
}

// parse takes kubectl's JSONPath without the braces.
func parse(j workv1.JsonPath) path {
	p := path{name: j.Name, version: j.Version}
	switch {
	case j.Name == "":
		p.err = errName
		return p
	case len(j.Path) > maxPathLength:
		p.err = fmt.Errorf("json path of %s: %w", j.Name, errPathLength)
		return p
	}
	tree, err := jsonpath.Parse(j.Name, "{"+j.Path+"}")
	if err == nil {
		err = (&bounds{}).check(tree.Root)
	}
	if err != nil {
		p.err = fmt.Errorf("failed to parse json path %s of %s with error: %w", j.Path, j.Name, err)
		return p
	}
	p.nodes = tree.Root.Nodes
	return p
}

// find returns what the first action of the template yields; nothing, and no
// error, where keys are missing. Steps are taken off left.
func (p path) find(obj map[string]any, left *int) ([]any, error) {
	if p.err != nil {
		return nil, p.err
	}
	w := &walk{nodes: p.nodes, left: left}
	if err := w.from(0, []any{obj}); err != nil {
		return nil, fmt.Errorf("failed to find value for %s with error: %w", p.name, err)
	}
	return w.found, nil
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
