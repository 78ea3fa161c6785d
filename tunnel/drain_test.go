// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel_test

import (
	"errors"
	"io"
	"testing"
	"testing/synctest"

	"github.com/spokelet/spokelet/internal/testing/tunneltest"
	"github.com/spokelet/spokelet/tunnel"
)

func TestAgentDrainLetsStreamsEnd(t *testing.T) {
	// More than once: the agent is told to stop while it still learns that the
	// hub has its session.
	for range 30 {
		synctest.Test(t, agentDrainLetsStreamsEnd)
	}
}

func agentDrainLetsStreamsEnd(t *testing.T) {
	hub := tunneltest.NewHub(t, nil)
	door := newHold()
	agent := hub.Connect(t, "spoke1", holding(door))
	session := hub.Session(t, "spoke1")
	body := open(t, session)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		agent.Stop()
	}()
	synctest.Wait()
	if _, err := hub.Server.Sessions().Get(t.Context(), "spoke1"); !errors.Is(err, tunnel.ErrDraining) {
		t.Errorf("Get() error = %v, want ErrDraining", err)
	}
	close(door.release)
	if rest, err := io.ReadAll(body); err != nil || string(rest) != "done" {
		t.Errorf("stream in flight: %q, %v, want done", rest, err)
	}
	<-stopped
	<-session.Done()
}
