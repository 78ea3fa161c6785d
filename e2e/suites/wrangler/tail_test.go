// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package wrangler

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/spokelet/spokelet/e2e/testbed"
)

// traced is one event as wrangler prints it as JSON.
type traced struct {
	Outcome    string
	ScriptName string
	Event      *struct{ Request struct{ Method, URL string } }
	Logs       []struct {
		Level   string
		Message []any
	}
	Exceptions []struct{ Name, Message string }
}

// events reads what wrangler has printed so far.
func events(text string) []traced {
	var all []traced
	at := strings.Index(text, "{")
	if at < 0 {
		return nil
	}
	decoder := json.NewDecoder(strings.NewReader(text[at:]))
	for {
		var e traced
		if decoder.Decode(&e) != nil {
			return all
		}
		all = append(all, e)
	}
}

// testTail: events of the named script alone come, from both clusters.
func (s *tests) testTail(t *testing.T) {
	p := s.newEchoProject(t)
	following := testbed.Follow(t, p.as, "tail", "kept", "--format", "json")
	for _, spoke := range s.Spokes {
		mark := "from-" + spoke.Name
		testbed.Until(t, "an event of "+spoke.Name, testbed.Settle, func(ctx context.Context) error {
			// A tail begins a moment after wrangler does.
			if err := s.ask(ctx, spoke, "kept", "?"+mark); err != nil {
				return err
			}
			if err := s.ask(ctx, spoke, "old", "?"+mark); err != nil {
				return err
			}
			for _, e := range events(following.Text()) {
				if e.Event != nil && strings.Contains(e.Event.Request.URL, mark) {
					return nil
				}
			}
			return fmt.Errorf("wrangler prints %.2000s", following.Text())
		})
	}
	if err := s.ask(t.Context(), s.Spokes[0], "kept", "?throw"); err == nil {
		t.Error("the script did not throw")
	}
	testbed.Until(t, "the exception", testbed.Patience, func(context.Context) error {
		for _, e := range events(following.Text()) {
			if e.Outcome == "exception" && len(e.Exceptions) == 1 && e.Exceptions[0].Message == "thrown on purpose" {
				return nil
			}
		}
		return fmt.Errorf("wrangler prints %.2000s", following.Text())
	})
	for _, e := range events(following.Text()) {
		if e.ScriptName != "kept" || len(e.Logs) != 1 || len(e.Logs[0].Message) != 3 || e.Logs[0].Message[0] != "asked" {
			t.Errorf("an event is %+v", e)
		}
	}
	if err := following.Cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	following.Ended(t, testbed.Patience)
	s.testPrettyTail(t)
}

// testPrettyTail: what people see, and a filter.
func (s *tests) testPrettyTail(t *testing.T) {
	p := s.newEchoProject(t)
	following := testbed.Follow(t, p.as, "tail", "kept", "--format", "pretty", "--status", "error")
	following.Until(t, "waiting for logs")
	testbed.Until(t, "the error", testbed.Settle, func(ctx context.Context) error {
		if err := s.ask(ctx, s.Spokes[1], "kept", "?fine"); err != nil {
			return err
		}
		if err := s.ask(ctx, s.Spokes[1], "kept", "?throw"); err == nil {
			return fmt.Errorf("the script did not throw")
		}
		if text := following.Text(); !strings.Contains(text, "thrown on purpose") {
			return fmt.Errorf("wrangler prints %.2000s", text)
		}
		return nil
	})
	if text := following.Text(); strings.Contains(text, "?fine") {
		t.Errorf("the filter lets through %s", text)
	}
	// A client that is gone is followed for no more: the API closes what it has in the clusters.
	if err := following.Cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
}

// ask sends a request to a script in a cluster.
func (s *tests) ask(ctx context.Context, spoke *testbed.Site, name, query string) error {
	path := strings.Replace(testbed.ProxyPath, "spoke1", spoke.Name, 1) + "/api/v1/namespaces/workers-" + s.account +
		"/services/worker-" + name + ":http/proxy/"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Hub.REST.Host+path+query, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := s.asker.Do(req)
	if err != nil {
		return err
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %d", name, resp.StatusCode)
	}
	return nil
}
