// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package control_test

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	rpcv1 "github.com/spokelet/spokelet/api/rpc/v1"
	"github.com/spokelet/spokelet/tunnel/control"
)

// goldenFrames are the frames of protocol 1, whose bytes are in testdata for
// good: a later build must still read them, and while it speaks protocol 1 must
// still write what its first build can read.
func goldenFrames() map[string]proto.Message {
	return map[string]proto.Message{
		"hub-hello": &rpcv1.ControlRequest{Message: &rpcv1.ControlRequest_Hello{Hello: &rpcv1.Hello{
			MinProtocol: 1, MaxProtocol: 1, Features: []string{"a", "b"}, Version: "v0.1.0",
			ProcessId: "6b1f7f5e-1c8a-4c5e-9a55-0d4a6e2b1c3d",
		}}},
		"hub-certificate": &rpcv1.ControlRequest{Message: &rpcv1.ControlRequest_Certificate{Certificate: &rpcv1.CertificateIssued{
			CertificateChain: []byte("chain"), TrustBundle: []byte("bundle"),
		}}},
		"hub-certificate-refused": &rpcv1.ControlRequest{Message: &rpcv1.ControlRequest_Certificate{Certificate: &rpcv1.CertificateIssued{
			Error: "no right",
		}}},
		"hub-trust-bundle": &rpcv1.ControlRequest{Message: &rpcv1.ControlRequest_TrustBundle{TrustBundle: &rpcv1.TrustBundle{
			TrustBundle: []byte("bundle"),
		}}},
		"hub-drain": &rpcv1.ControlRequest{Message: &rpcv1.ControlRequest_Drain{Drain: &rpcv1.Drain{Reason: "restart"}}},
		"agent-hello": &rpcv1.ControlResponse{Message: &rpcv1.ControlResponse_Hello{Hello: &rpcv1.Hello{
			MinProtocol: 1, MaxProtocol: 1, Features: []string{"b", "c"}, Version: "v0.1.0",
			ProcessId: "0e8f4bd4-95b6-4f06-9f27-1f0a3f0f5f11", KubeSystemUid: "c0ffee00-0000-4000-8000-000000000001",
		}}},
		"agent-csr": &rpcv1.ControlResponse{Message: &rpcv1.ControlResponse_Csr{Csr: &rpcv1.CertificateSigningRequest{
			Csr: []byte("request"),
		}}},
		"agent-hello-standby": &rpcv1.ControlResponse{Message: &rpcv1.ControlResponse_Hello{Hello: &rpcv1.Hello{
			MinProtocol: 1, MaxProtocol: 1, Features: []string{"role"}, Version: "v0.1.0",
			ProcessId: "0e8f4bd4-95b6-4f06-9f27-1f0a3f0f5f11", KubeSystemUid: "c0ffee00-0000-4000-8000-000000000001",
			Standby: true,
		}}},
		"agent-role-standby":  &rpcv1.ControlResponse{Message: &rpcv1.ControlResponse_Role{Role: &rpcv1.Role{Standby: true}}},
		"agent-role-executor": &rpcv1.ControlResponse{Message: &rpcv1.ControlResponse_Role{Role: &rpcv1.Role{}}},
		"agent-drain":         &rpcv1.ControlResponse{Message: &rpcv1.ControlResponse_Drain{Drain: &rpcv1.Drain{Reason: "rollout"}}},
	}
}

func TestFramesOfProtocol1(t *testing.T) {
	for name, want := range goldenFrames() {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join("testdata", "protocol1", name+".hex")
			if *rewrite {
				writeGolden(t, path, want)
			}
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			raw, err := hex.DecodeString(strings.TrimSpace(string(text)))
			if err != nil {
				t.Fatal(err)
			}
			got := want.ProtoReflect().New().Interface()
			if err := proto.Unmarshal(raw, got); err != nil {
				t.Fatalf("bytes of protocol 1 are not read: %v", err)
			}
			if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
				t.Errorf("bytes of protocol 1 mean something else (-want +got):\n%s", diff)
			}
			now, err := proto.MarshalOptions{Deterministic: true}.Marshal(want)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(raw, now); diff != "" {
				t.Errorf("other bytes are written (-want +got):\n%s", diff)
			}
		})
	}
}

func writeGolden(t *testing.T, path string, m proto.Message) {
	t.Helper()
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(hex.EncodeToString(raw)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestNeighbouringProtocols(t *testing.T) {
	for name, tc := range map[string]struct {
		reason       string
		hub, agent   [2]uint32
		wantProtocol uint32
	}{
		"the same":                 {"nothing to negotiate", [2]uint32{1, 1}, [2]uint32{1, 1}, 1},
		"hub is one ahead":         {"N works with N-1", [2]uint32{1, 2}, [2]uint32{1, 1}, 1},
		"agent is one ahead":       {"N works with N+1", [2]uint32{1, 1}, [2]uint32{1, 2}, 1},
		"both speak two":           {"the highest wins", [2]uint32{1, 2}, [2]uint32{1, 3}, 2},
		"hub has dropped protocol": {"no number is common", [2]uint32{2, 3}, [2]uint32{1, 1}, 0},
		"agent has dropped it":     {"no number is common", [2]uint32{1, 1}, [2]uint32{2, 3}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			hub, hello := control.NewHub(control.Local{MinProtocol: tc.hub[0], MaxProtocol: tc.hub[1]})
			agent := control.NewAgent(control.Local{MinProtocol: tc.agent[0], MaxProtocol: tc.agent[1], ProcessID: "p"})
			answer, atAgent, agentErr := agent.Receive(hello)
			atHub, hubErr := hub.Receive(answer)
			if tc.wantProtocol == 0 {
				if agentErr == nil || hubErr == nil {
					t.Fatalf("agent %v, hub %v, want errors at both: %s", agentErr, hubErr, tc.reason)
				}
				return
			}
			for who, event := range map[string]control.Event{"agent": atAgent, "hub": atHub} {
				agreed, ok := event.(control.Agreed)
				if !ok || agreed.Agreement.Protocol != tc.wantProtocol {
					t.Errorf("%s: %+v, want protocol %d: %s", who, event, tc.wantProtocol, tc.reason)
				}
			}
		})
	}
}

// TestFramesOfANewerProtocol has the peer send fields and frames that this build
// has never heard of.
func TestFramesOfANewerProtocol(t *testing.T) {
	unknown := protowire.AppendTag(nil, 77, protowire.BytesType)
	unknown = protowire.AppendBytes(unknown, []byte("future"))
	hello := goldenFrames()["agent-hello"]
	raw, err := proto.Marshal(hello)
	if err != nil {
		t.Fatal(err)
	}
	hub, _ := control.NewHub(control.Local{MinProtocol: 1, MaxProtocol: 1})
	if event, err := receive(hub, append(raw, unknown...)); err != nil || event == nil {
		t.Fatalf("a hello with a new field: %v, %v, want an agreement", event, err)
	}
	if event, err := receive(hub, unknown); err != nil || event != nil {
		t.Errorf("a new frame: %v, %v, want it to be ignored", event, err)
	}
}

func receive(hub *control.Hub, raw []byte) (control.Event, error) {
	var frame rpcv1.ControlResponse
	if err := proto.Unmarshal(raw, &frame); err != nil {
		return nil, err
	}
	return hub.Receive(&frame)
}
