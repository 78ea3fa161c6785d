// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/spokelet/spokelet/e2e/env"
)

// script is a command that answers by a script.
func script(text string) env.Command {
	return env.Command{Path: "/bin/sh", Args: []string{"-c", text}}
}

func TestOnlyACutIsTriedAgain(t *testing.T) {
	const right = "echo one; echo two; exit 3"
	cases := map[string]struct {
		reason     string
		hub, spoke string
		again      bool
	}{
		"the end is lost through the hub":       {reason: "the client says so: a user tries again", hub: "echo one; echo unexpected EOF >&2; exit 1", spoke: right, again: true},
		"the exit code is lost through the hub": {reason: "the output came before it", hub: "echo one; echo two; echo connection reset by peer >&2; exit 1", spoke: right, again: true},
		"a success through the hub":             {reason: "who believes it loses data", hub: "echo one", spoke: right},
		"another output with the right code":    {reason: "a cut has no right code", hub: "echo one; exit 3", spoke: right},
		"another output with another code":      {reason: "what is lost is the end", hub: "echo other; echo unexpected EOF >&2; exit 1", spoke: right},
		"an error of the hub's":                 {reason: "nothing was cut", hub: "echo error dialing backend >&2; exit 1", spoke: right},
		"a success at the spoke":                {reason: "there some clients take a cut for one", hub: right, spoke: "echo one", again: true},
		"an error at the spoke":                 {reason: "the hub has no part in it", hub: right, spoke: "exit 1", again: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := Client{Hub: script(tc.hub), Spoke: script(tc.spoke)}
			_, err := c.compare(t.Context(), Verb{Code: 3, Out: "two\n"})
			if err == nil || errors.Is(err, ErrCut) != tc.again {
				t.Errorf("error %v; tried again: want %t: %s", err, tc.again, tc.reason)
			}
		})
	}
}

func TestACutIsTriedThreeTimes(t *testing.T) {
	for failures, want := range map[string]error{"": nil, "x": nil, "xx": nil, "xxx": ErrCut, "xxxx": ErrCut} {
		count := filepath.Join(t.TempDir(), "count")
		if err := os.WriteFile(count, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		hub := "printf x >>" + count + "; [ $(wc -c <" + count + ") -gt " + strconv.Itoa(len(failures)) + " ] || { echo EOF >&2; exit 1; }; echo right"
		c := Client{Hub: script(hub), Spoke: script("echo right")}
		_, err := Retry(t, "a command", func(int) (Answer, error) { return c.compare(t.Context(), Verb{Out: "right"}) })
		if !errors.Is(err, want) || want == nil && err != nil {
			t.Errorf("after %d failures: error %v, want %v", len(failures), err, want)
		}
		calls, err := os.ReadFile(count)
		if err != nil {
			t.Fatal(err)
		}
		if most := min(len(failures)+1, 3); strings.TrimSpace(string(calls)) != strings.Repeat("x", most) {
			t.Errorf("after %d failures: %d tries, want %d", len(failures), len(calls), most)
		}
	}
}

func TestAContainerThatTheKubeletRemovedIsMadeAgain(t *testing.T) {
	answers := []Answer{{Out: "unable to retrieve container logs for containerd://654cab0e"}, {Out: "first\n"}}
	got, err := Retry(t, "a pod that was restarted", func(try int) (Answer, error) { return answers[try-1], answers[try-1].Collected() })
	if err != nil || got.Out != "first\n" {
		t.Errorf("got %q, error %v, want what was printed first", got.Out, err)
	}
	if err := (Answer{Out: "error: stream was cut: unable to retrieve container logs for containerd://654cab0e"}).Collected(); err != nil {
		t.Errorf("error %v of an answer that is another's", err)
	}
}
