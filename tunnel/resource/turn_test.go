// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"errors"
	"strconv"
	"testing"

	rpcv1 "github.com/spokelet/spokelet/api/rpc/v1"
)

// tape is a conn that keeps the kinds of what is sent, and is cut after so many.
type tape struct {
	kinds []string
	most  int
}

var errTapeEnds = errors.New("tape ends")

func (c *tape) Send(m *rpcv1.SyncMessage) error {
	if len(c.kinds) == c.most {
		return errTapeEnds
	}
	c.kinds = append(c.kinds, m.GetPut().GetRef().GetKind())
	return nil
}

func (c *tape) Receive() (*rpcv1.SyncMessage, error) { return nil, errTapeEnds }

func TestStreamAlternatesKinds(t *testing.T) {
	c := &tape{most: 20}
	s := &stream{conn: c, wake: make(chan struct{}, 1)}
	for kind, many := range map[string]int{"pods": 1000, "summary": 1} {
		src := NewSource(kind)
		f := src.open(nil, s.wakeWriter)
		t.Cleanup(f.close)
		s.order = append(s.order, f)
		for i := range many {
			if err := src.Put(Resource{Key: strconv.Itoa(i), Body: []byte(kind)}); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.handleInventory(&rpcv1.Inventory{Kind: kind}); err != nil {
			t.Fatal(err)
		}
	}
	// The burst comes first, whatever the order of a map.
	if s.order[0].source.kind != "pods" {
		s.order[0], s.order[1] = s.order[1], s.order[0]
	}
	if err := s.write(t.Context()); !errors.Is(err, errTapeEnds) {
		t.Fatal(err)
	}
	if c.kinds[1] != "summary" {
		t.Errorf("sent %v: what is said of nodes waits behind pods", c.kinds)
	}
}
