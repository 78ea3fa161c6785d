// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package control_test

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	rpcv1 "github.com/spokelet/spokelet/api/rpc/v1"
	"github.com/spokelet/spokelet/tunnel/control"
)

var rewrite = flag.Bool("rewrite", false, "write what happens into testdata/stories")

// TestStories replays testdata/stories. A line "> who does what" is an order to
// one side; the lines below it are what follows. A frame that one side sends is
// handed to the other.
func TestStories(t *testing.T) {
	paths, err := filepath.Glob("testdata/stories/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no stories: %v", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			got := tell(string(want))
			if *rewrite {
				if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// teller runs one story.
type teller struct {
	out   strings.Builder
	hub   *control.Hub
	agent *control.Agent
}

// tell repeats a story's comments and orders, with what follows from each.
func tell(story string) string {
	t := &teller{}
	lines := bufio.NewScanner(strings.NewReader(story))
	for lines.Scan() {
		line := lines.Text()
		if order, ok := strings.CutPrefix(line, "> "); ok {
			fmt.Fprintln(&t.out, line)
			t.obey(strings.Fields(order))
		} else if strings.HasPrefix(line, "#") || line == "" {
			fmt.Fprintln(&t.out, line)
		}
	}
	return t.out.String()
}

func (t *teller) obey(words []string) {
	switch words[0] + " " + words[1] {
	case "agent protocols":
		t.agent = control.NewAgent(local(words[2:], "agent"))
	case "hub protocols":
		hub, hello := control.NewHub(local(words[2:], "hub"))
		t.hub = hub
		t.toAgent(hello, nil)
	case "agent renews":
		t.toHub(t.agent.Renew([]byte("request")))
	case "agent drains":
		t.toHub(t.agent.Drain("rollout"), nil)
	case "agent stands":
		t.toHub(t.agent.Role(true), nil)
	case "agent executes":
		t.toHub(t.agent.Role(false), nil)
	case "hub issues":
		t.toAgent(t.hub.Issue([]byte("chain"), []byte("bundle")))
	case "hub refuses":
		t.toAgent(t.hub.Refuse("no right"))
	case "hub trusts":
		t.toAgent(t.hub.Trust([]byte("bundle")))
	case "hub drains":
		t.toAgent(t.hub.Drain("restart"), nil)
	case "hub repeats":
		_, hello := control.NewHub(local([]string{"1", "1"}, "hub"))
		t.toAgent(hello, nil)
	case "hub says":
		t.toAgent(&rpcv1.ControlRequest{}, nil)
	case "agent says":
		t.toHub(&rpcv1.ControlResponse{}, nil)
	default:
		fmt.Fprintln(&t.out, "unknown order")
	}
}

func local(words []string, who string) control.Local {
	l := control.Local{Version: "v1", ProcessID: who + "-process"}
	fmt.Sscan(strings.Join(words, " "), &l.MinProtocol, &l.MaxProtocol)
	l.Features = words[2:]
	if who == "agent" {
		l.KubeSystemUID = "uid"
	}
	return l
}

func (t *teller) toAgent(frame *rpcv1.ControlRequest, err error) {
	if err != nil || frame == nil {
		t.report("hub", nil, err)
		return
	}
	answer, event, err := t.agent.Receive(frame)
	t.report("agent", event, err)
	if answer != nil {
		t.toHub(answer, nil)
	}
}

func (t *teller) toHub(frame *rpcv1.ControlResponse, err error) {
	if err != nil || frame == nil {
		t.report("agent", nil, err)
		return
	}
	event, err := t.hub.Receive(frame)
	t.report("hub", event, err)
}

func (t *teller) report(who string, event control.Event, err error) {
	if err != nil {
		fmt.Fprintf(&t.out, "%s fails: %v\n", who, err)
		return
	}
	fmt.Fprintf(&t.out, "%s: %s\n", who, strings.TrimSpace(describe(event)))
}

func describe(event control.Event) string {
	switch e := event.(type) {
	case control.Agreed:
		a := e.Agreement
		text := fmt.Sprintf("agreed on protocol %d, features %v, with %s %s %s", a.Protocol, a.Features, a.ProcessID, a.Version, a.KubeSystemUID)
		if a.Standby {
			text += ", a standby"
		}
		return text
	case control.RenewalRequested:
		return fmt.Sprintf("asked for a certificate: %s", e.CSR)
	case control.RenewalIssued:
		return fmt.Sprintf("got %s and %s", e.Chain, e.Bundle)
	case control.RenewalRefused:
		return "refused: " + e.Reason
	case control.TrustReplaced:
		return fmt.Sprintf("trusts %s", e.Bundle)
	case control.RoleChanged:
		return fmt.Sprintf("the agent stands by: %v", e.Standby)
	case control.Draining:
		return "the other side drains: " + e.Reason
	default:
		return "nothing"
	}
}

func TestHellosOutOfBoundsAreRefused(t *testing.T) {
	for name, change := range map[string]func(*rpcv1.Hello){
		"no protocol":            func(h *rpcv1.Hello) { h.MinProtocol = 0 },
		"an inverted range":      func(h *rpcv1.Hello) { h.MinProtocol, h.MaxProtocol = 2, 1 },
		"no process id":          func(h *rpcv1.Hello) { h.ProcessId = "" },
		"a long process id":      func(h *rpcv1.Hello) { h.ProcessId = strings.Repeat("x", control.MaxName+1) },
		"a long version":         func(h *rpcv1.Hello) { h.Version = strings.Repeat("x", control.MaxVersion+1) },
		"a long UID":             func(h *rpcv1.Hello) { h.KubeSystemUid = strings.Repeat("x", control.MaxName+1) },
		"control characters":     func(h *rpcv1.Hello) { h.Version = "v1\x1b[31m" },
		"too many features":      func(h *rpcv1.Hello) { h.Features = make([]string, control.MaxFeatures+1) },
		"a long feature":         func(h *rpcv1.Hello) { h.Features = []string{strings.Repeat("x", control.MaxName+1)} },
		"a process id of spaces": func(h *rpcv1.Hello) { h.ProcessId = "\n" },
	} {
		t.Run(name, func(t *testing.T) {
			hub, _ := control.NewHub(control.Local{MinProtocol: 1, MaxProtocol: 1})
			hello := &rpcv1.Hello{MinProtocol: 1, MaxProtocol: 1, ProcessId: "p"}
			change(hello)
			_, err := hub.Receive(&rpcv1.ControlResponse{Message: &rpcv1.ControlResponse_Hello{Hello: hello}})
			if !errors.Is(err, control.ErrFrame) {
				t.Errorf("Receive() error = %v, want ErrFrame", err)
			}
		})
	}
}

func TestReasonIsCutToItsLimit(t *testing.T) {
	for name, in := range map[string]string{
		"long":            strings.Repeat("x", 2*control.MaxReason),
		"cut in a letter": strings.Repeat("é", control.MaxReason),
		"not UTF-8":       "bad \xff",
	} {
		t.Run(name, func(t *testing.T) {
			frame := &rpcv1.Drain{Reason: control.Reason(in)}
			if _, err := proto.Marshal(frame); err != nil || len(frame.GetReason()) > control.MaxReason {
				t.Errorf("%d bytes, %v, want at most %d that can be sent", len(frame.GetReason()), err, control.MaxReason)
			}
		})
	}
}
