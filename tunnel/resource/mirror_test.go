// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// takes feeds a mirror as a peer does.
func takes(t *testing.T, m *Mirror, key, body string) error {
	t.Helper()
	r := Resource{Key: key, Body: []byte(body)}
	return m.open().put(put(m.kind, RefOf(r), r.Body, 0).GetPut(), nil, time.Time{})
}

// remembered are the keys of which the mirror tells its peer.
func remembered(m *Mirror) []string {
	var out []string
	for _, message := range m.open().inventory() {
		for _, ref := range message.GetInventory().GetRefs() {
			out = append(out, ref.GetKey())
		}
	}
	return out
}

func TestMirrorStoresKnownKeysOnly(t *testing.T) {
	known, handed := map[string]bool{"a": true, "b": true}, 0
	m := NewMirror("k", Receiver{Put: func(Resource) { handed++ }, Known: func(key string) bool { return known[key] }})
	for _, key := range []string{"a", "b", "unknown"} {
		if err := takes(t, m, key, "1"); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"a", "b"}, remembered(m)); diff != "" || handed != 3 {
		t.Errorf("%d handed over, remembered (-want +got):\n%s", handed, diff)
	}
	known["b"] = false
	if diff := cmp.Diff([]string{"a"}, remembered(m)); diff != "" {
		t.Errorf("after b is known no more (-want +got):\n%s", diff)
	}
}

func TestMirrorPrunesUnknownKeysWithinAStream(t *testing.T) {
	current := ""
	m := NewMirror("k", Receiver{Known: func(key string) bool { return key == current }})
	for i := range 10 * minPruneAt {
		current = strconv.Itoa(i)
		if err := takes(t, m, current, "1"); err != nil {
			t.Fatal(err)
		}
		if len(m.held) > minPruneAt {
			t.Fatalf("%d names are held of which one is known", len(m.held))
		}
	}
}

func TestMirrorIsBounded(t *testing.T) {
	m := NewMirror("k", Receiver{})
	for i := range MaxResources {
		m.held[strconv.Itoa(i)] = Ref{}
	}
	if err := takes(t, m, "more", "1"); !errors.Is(err, ErrTooMany) {
		t.Errorf("put = %v, want ErrTooMany", err)
	}
	if err := takes(t, m, "0", "1"); err != nil {
		t.Errorf("a newer version of what is held: %v", err)
	}
}

// TestHubMirrorStoresKeysThatItPublishes tells by what a second stream
// brings again.
func TestHubMirrorStoresKeysThatItPublishes(t *testing.T) {
	up := NewSource("up")
	for _, key := range []string{"published", "made-up"} {
		if err := up.Put(Resource{Key: key, Body: []byte("1")}); err != nil {
			t.Fatal(err)
		}
	}
	up.Complete()
	agent, err := NewAgent([]*Source{up}, []*Mirror{NewMirror("down", Receiver{})})
	if err != nil {
		t.Fatal(err)
	}
	session := sessionTo(t, agent)
	h, handed := NewHub(), map[string]int{}
	synced := make(chan struct{})
	h.Publish("down", nil)
	h.Mirror("up", HubReceiver{
		Put: func(_ string, r Resource) { handed[r.Key]++ }, Synced: func(string) { synced <- struct{}{} }, About: "down",
	})
	if err := h.Source("c", "down").Put(Resource{Key: "published", Body: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- h.Run(ctx, "c", session) }()
		<-synced
		cancel()
		<-ended
	}
	if diff := cmp.Diff(map[string]int{"published": 1, "made-up": 2}, handed); diff != "" {
		t.Errorf("handed over (-want +got):\n%s", diff)
	}
}

func TestHubMirrorWaitsForCompleteSource(t *testing.T) {
	up, probe := NewSource("up"), NewSource("probe")
	if err := up.Put(Resource{Key: "a", Body: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	agent, err := NewAgent([]*Source{up, probe}, []*Mirror{NewMirror("down", Receiver{})})
	if err != nil {
		t.Fatal(err)
	}
	h, heard := NewHub(), make(chan string, 10)
	h.Publish("down", nil)
	put := func(_ string, r Resource) { heard <- r.Key }
	h.Mirror("up", HubReceiver{Put: put, After: "down"})
	h.Mirror("probe", HubReceiver{Put: put})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- h.Run(ctx, "c", sessionTo(t, agent)) }()
	for i := range 500 {
		if err := probe.Put(Resource{Key: strconv.Itoa(i), Body: []byte("x")}); err != nil {
			t.Fatal(err)
		}
		if got := <-heard; got != strconv.Itoa(i) {
			t.Errorf("heard of %q before what it is about is complete", got)
		}
	}
	h.Source("c", "down").Complete()
	if got := <-heard; got != "a" {
		t.Errorf("heard of %q, want %q", got, "a")
	}
	cancel()
	<-ended
}
