// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package control_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	rpcv1 "github.com/spokelet/spokelet/api/rpc/v1"
	"github.com/spokelet/spokelet/tunnel/control"
)

// FuzzHub has an agent send any two frames. The hub must keep its order: no
// event before the hello, no second hello, bounded texts.
func FuzzHub(f *testing.F) {
	seed(f, &rpcv1.ControlResponse{})
	f.Fuzz(func(t *testing.T, first, second []byte) {
		hub, _ := control.NewHub(control.Local{MinProtocol: 1, MaxProtocol: 1})
		agreed := false
		for _, raw := range [][]byte{first, second, first} {
			event, err := receive(hub, raw)
			if err != nil {
				return
			}
			switch e := event.(type) {
			case control.Agreed:
				if agreed || e.Agreement.Protocol != 1 || e.Agreement.ProcessID == "" {
					t.Fatalf("agreed on %+v, before %v", e.Agreement, agreed)
				}
				agreed = true
			case control.RenewalRequested:
				if !agreed || len(e.CSR) == 0 || len(e.CSR) > control.MaxCSR {
					t.Fatalf("request of %d bytes, agreed %v", len(e.CSR), agreed)
				}
			case control.RoleChanged:
				t.Fatal("a role from a side that did not name the feature")
			case control.Draining:
				if !agreed || len(e.Reason) > control.MaxReason {
					t.Fatalf("drain %q, agreed %v", e.Reason, agreed)
				}
			}
		}
	})
}

// FuzzAgent has a hub send any two frames.
func FuzzAgent(f *testing.F) {
	seed(f, &rpcv1.ControlRequest{})
	f.Fuzz(func(t *testing.T, first, second []byte) {
		agent := control.NewAgent(control.Local{MinProtocol: 1, MaxProtocol: 1, ProcessID: "p"})
		agreed := false
		for _, raw := range [][]byte{first, second, first} {
			var frame rpcv1.ControlRequest
			if err := proto.Unmarshal(raw, &frame); err != nil {
				return
			}
			_, event, err := agent.Receive(&frame)
			if err != nil {
				return
			}
			switch event.(type) {
			case nil:
			case control.Agreed:
				if agreed {
					t.Fatal("agreed twice")
				}
				agreed = true
			case control.RenewalIssued, control.RenewalRefused:
				t.Fatalf("%T without a request", event)
			default:
				if !agreed {
					t.Fatalf("%T before the hello", event)
				}
			}
		}
	})
}

// seed adds the golden frames of one direction, in pairs.
func seed(f *testing.F, kind proto.Message) {
	f.Helper()
	var frames [][]byte
	for _, m := range goldenFrames() {
		if m.ProtoReflect().Descriptor() != kind.ProtoReflect().Descriptor() {
			continue
		}
		raw, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		frames = append(frames, raw)
	}
	for _, a := range frames {
		for _, b := range frames {
			f.Add(a, b)
		}
	}
}
