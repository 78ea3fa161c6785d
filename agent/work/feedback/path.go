// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package feedback

import (
	"errors"
	"fmt"

	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/agent/work/jsonpath"
)

const maxPathLength = 2048

var (
	errPathLength = fmt.Errorf("path is longer than %d bytes", maxPathLength)
	errName       = errors.New("a value has no name") // which the hub's API refuses
)

// path selects the value that is reported under a name.
type path struct {
	name, version string
	jsonpath.Path
	err error
}

// parsePath parses kubectl's JSONPath without the braces. Its error is reported by find.
func parsePath(j workv1.JsonPath) path {
	p := path{name: j.Name, version: j.Version}
	switch {
	case j.Name == "":
		p.err = errName
	case len(j.Path) > maxPathLength:
		p.err = fmt.Errorf("json path of %s: %w", j.Name, errPathLength)
	default:
		var err error
		if p.Path, err = jsonpath.Parse(j.Path); err != nil {
			p.err = fmt.Errorf("failed to parse json path %s of %s with error: %w", j.Path, j.Name, err)
		}
	}
	return p
}

// find returns what the path selects, and subtracts what it visits from steps.
func (p path) find(obj map[string]any, steps *int) ([]any, error) {
	if p.err != nil {
		return nil, p.err
	}
	values, err := p.Find(obj, steps)
	if err != nil {
		return nil, fmt.Errorf("failed to find value for %s with error: %w", p.name, err)
	}
	return values, nil
}
