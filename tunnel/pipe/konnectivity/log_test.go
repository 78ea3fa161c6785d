// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"fmt"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"

	"github.com/spokelet/spokelet/tunnel/pipe"
)

// errorSink keeps what is logged as an error.
type errorSink struct {
	mu     sync.Mutex
	errors []string
}

func (*errorSink) Init(logr.RuntimeInfo)            {}
func (*errorSink) Enabled(int) bool                 { return true }
func (*errorSink) Info(int, string, ...any)         {}
func (s *errorSink) WithValues(...any) logr.LogSink { return s }
func (s *errorSink) WithName(string) logr.LogSink   { return s }
func (s *errorSink) Error(err error, msg string, _ ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.errors = append(s.errors, fmt.Sprintf("%s: %v", msg, err))
}

func (s *errorSink) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.errors)
}

// upstream has what the proxy server and agent log. klog has one logger, which
// cannot be set while they run.
var upstream = &errorSink{}

func TestEndOfConnectionIsNotLoggedAsError(t *testing.T) {
	// What an earlier test left logs why it ends, such as an agent that was refused.
	goleak.VerifyNone(t)
	before := upstream.count()
	for name, end := range map[string]func(pipe.Pipe, pipe.Link) error{
		"the hub closes the pipe":   func(p pipe.Pipe, _ pipe.Link) error { return p.Close() },
		"the agent closes the link": func(_ pipe.Pipe, l pipe.Link) error { return l.Close() },
	} {
		// When the subtest has ended, so have the servers with all that they log.
		t.Run(name, func(t *testing.T) {
			h := startHub(t, nil)
			connected, link := h.connect(t, h.agentConfig(t, nil))
			openStream(t, connected.Pipe, link)
			if err := end(connected.Pipe, link); err != nil {
				t.Fatal(err)
			}
			<-connected.Done()
			<-link.Done()
		})
	}
	if now := upstream.count(); now != before {
		t.Errorf("upstream logged errors: %q", upstream.errors[before:])
	}
}
