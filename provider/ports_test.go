// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"errors"
	"fmt"
	"testing"
)

func TestPortsAreDistinctStableAndReleased(t *testing.T) {
	p := newPorts(20000, 20009)
	p.reserve("old", 20003)
	p.reserve("thief", 20003)
	p.reserve("outside", 1)
	seen := map[int32]string{}
	for i := range 10 {
		name := "old"
		if i > 0 {
			name = fmt.Sprintf("n%d", i)
		}
		port, err := p.allocate(name)
		if err != nil {
			t.Fatalf("take(%s): %v", name, err)
		}
		if again, _ := p.allocate(name); again != port {
			t.Errorf("take(%s) twice: %d and %d", name, port, again)
		}
		if other, taken := seen[port]; taken || port < 20000 || port > 20009 {
			t.Errorf("take(%s): %d is %s's or outside", name, port, other)
		}
		seen[port] = name
	}
	if seen[20003] != "old" {
		t.Errorf("port 20003 is %s's, not its Node's", seen[20003])
	}
	if _, err := p.allocate("one too many"); !errors.Is(err, errPorts) {
		t.Errorf("take() from a full range: got %v, want errPorts", err)
	}
	p.release("old")
	if port, err := p.allocate("one too many"); err != nil || port != 20003 {
		t.Errorf("take() after a release: got %d, %v", port, err)
	}
}

func TestDeletedNodeKeepsPort(t *testing.T) {
	p := newPorts(20000, 29999)
	first, err := p.allocate("spoke1")
	if err != nil {
		t.Fatal(err)
	}
	p.release("spoke1")
	again, err := p.allocate("spoke1")
	if err != nil || again != first {
		t.Errorf("take() again: got %d, %v, want %d", again, err, first)
	}
}
