// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pipetest

import (
	"io"
	"testing"
)

func checkBytes(t *testing.T, kind Kind) {
	h := Start(t, kind, nil)
	p, link := h.Connect(t, h.Agent(t, nil))
	hub, agent := Open(t, p, link)
	if _, err := hub.Write([]byte("ping")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 4)
	if _, err := io.ReadFull(agent, got); err != nil || string(got) != "ping" {
		t.Fatalf("agent read %q, %v", got, err)
	}
	if _, err := agent.Write([]byte("pong")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(hub, got); err != nil || string(got) != "pong" {
		t.Fatalf("hub read %q, %v", got, err)
	}
}
