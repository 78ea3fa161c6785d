// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"errors"
	"testing"

	"go.uber.org/goleak"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/hub/registration"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestInvalidSummaryKeepsLastOne(t *testing.T) {
	var node wire.NodeSummary
	var record registration.Summary
	told := 0
	take := func(body string) error {
		return applySummary([]byte(body),
			func(s wire.NodeSummary) { node = s; told++ },
			func(s registration.Summary) { record = s; told++ })
	}
	if err := take(`{"kubernetesVersion":"v1.36.3","capacity":{"cpu":"4"},"allocatable":{"cpu":"3"}}`); err != nil {
		t.Fatal(err)
	}
	if err := take(`{"capacity":{"cpu":"4"},"kubernetesVersion":"v1.36.3","split":{"label":"pool","groups":["gpu"],"capacity":{"cpu":"9"},"allocatable":{"cpu":"3"}}}`); err != nil {
		t.Fatal(err)
	}
	if record.Capacity.Cpu().String() != "9" || node.Capacity["cpu"] != "4" {
		t.Errorf("of a cluster in groups the record has %v and the node %v, want the whole and the rest", record.Capacity, node.Capacity)
	}
	for name, body := range map[string]string{
		"a label that is not the agent's": `{"split":{"label":"type","groups":["gpu"]}}`,
		"a quantity with an exponent":     `{"capacity":{"cpu":"1e999999999"}}`,
		"what is no JSON":                 `{`,
	} {
		t.Run(name, func(t *testing.T) {
			if err := take(body); !errors.Is(err, wire.ErrNodeSummary) {
				t.Errorf("show() = %v, want %v", err, wire.ErrNodeSummary)
			}
		})
	}
	if told != 4 || node.Capacity["cpu"] != "4" || record.KubernetesVersion != "v1.36.3" || record.Allocatable.Cpu().String() != "3" {
		t.Errorf("after %d tellings node = %+v, record = %+v; want what was valid, told once to each", told, node, record)
	}
}
