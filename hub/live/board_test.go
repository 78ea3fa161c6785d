// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"

	livev1alpha1 "github.com/spokelet/spokelet/api/live/v1alpha1"
)

// still is a session that is never used.
type still struct {
	Session
	info SessionInfo
}

func (s *still) Info() SessionInfo { return s.info }

var (
	noon   = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	all    = selection{labels: labels.Everything(), fields: fields.Everything()}
	inProd = selection{labels: labels.SelectorFromSet(labels.Set{"env": "prod"}), fields: fields.Everything()}
)

func newTestBoard() *board { return newBoard(func() time.Time { return noon }) }

func joined(name string, env string) RecordEvent {
	return RecordEvent{Record: Record{Name: name, UID: "uid-1", Labels: map[string]string{"env": env}, KubernetesVersion: "v1.36.3"}}
}

// next are the events that are ready, in short.
func next(t *testing.T, w watch.Interface) []string {
	t.Helper()
	var events []string
	for {
		select {
		case e, ok := <-w.ResultChan():
			if !ok {
				return append(events, "end")
			}
			c, ok := e.Object.(*livev1alpha1.Cluster)
			if !ok {
				t.Fatalf("event of a %T", e.Object)
			}
			events = append(events, fmt.Sprintf("%s %s %v", e.Type, c.Name, c.Status.Connected))
		default:
			return events
		}
	}
}

func TestBoardShowsRecordAndSession(t *testing.T) {
	b := newTestBoard()
	s := &still{info: SessionInfo{ConnectedAt: noon, RTT: time.Millisecond, AgentVersion: "v1", Protocol: "1", ProcessID: "p", KubeSystemUID: "u"}}
	b.onSession(SessionEvent{Cluster: "a", Session: s})
	if _, ok := b.get("a"); ok {
		t.Error("a session without a record is shown")
	}
	b.onRecord(joined("a", "prod"))
	got, _ := b.get("a")
	want := livev1alpha1.ClusterStatus{
		Connected: true, ConnectedSince: &metav1.Time{Time: noon}, RTT: &metav1.Duration{Duration: time.Millisecond},
		AgentVersion: "v1", KubernetesVersion: "v1.36.3", Protocol: "1", ProcessID: "p", KubeSystemUID: "u",
	}
	if diff := cmp.Diff(want, got.Status); diff != "" {
		t.Errorf("connected (-want +got):\n%s", diff)
	}
	s.info.RTT = 2 * time.Millisecond
	if got, _ = b.get("a"); got.Status.RTT.Duration != 2*time.Millisecond {
		t.Errorf("RTT = %v, want the present one", got.Status.RTT)
	}
	b.onSession(SessionEvent{Cluster: "a", Reason: errors.New("connection lost")})
	got, _ = b.get("a")
	want = livev1alpha1.ClusterStatus{DisconnectedSince: &metav1.Time{Time: noon}, Reason: "connection lost", KubernetesVersion: "v1.36.3"}
	if diff := cmp.Diff(want, got.Status); diff != "" {
		t.Errorf("disconnected (-want +got):\n%s", diff)
	}
	b.onRecord(RecordEvent{Record: Record{Name: "a"}, Deleted: true})
	if _, ok := b.get("a"); ok || b.known("a") {
		t.Error("a deleted record is shown")
	}
}

func TestBoardListsSortedAndSelected(t *testing.T) {
	b := newTestBoard()
	for _, e := range []RecordEvent{joined("c", "prod"), joined("a", "test"), joined("b", "prod")} {
		b.onRecord(e)
	}
	cases := map[string]struct {
		reason string
		match  selection
		want   []string
	}{
		"all":     {reason: "sorted by name", match: all, want: []string{"a", "b", "c"}},
		"label":   {reason: "labels are those of the record", match: inProd, want: []string{"b", "c"}},
		"by name": {reason: "as kubectl get -w asks", match: selection{labels: labels.Everything(), fields: fields.OneTermEqualSelector("metadata.name", "a")}, want: []string{"a"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, c := range b.list(tc.match).Items {
				got = append(got, c.Name)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestWatchTellsOfEveryChange(t *testing.T) {
	b := newTestBoard()
	b.onRecord(joined("a", "prod"))
	w, err := b.watch(inProd, 0, false)
	if err != nil {
		t.Fatal(err)
	}
	steps := []struct {
		name string
		do   func()
		want []string
	}{
		{"nothing yet", func() {}, []string{"ADDED a false"}},
		{"connect", func() { b.onSession(SessionEvent{Cluster: "a", Session: &still{}}) }, []string{"MODIFIED a true"}},
		{"record without news", func() { b.onRecord(joined("a", "prod")) }, nil},
		{"leave the selection", func() { b.onRecord(joined("a", "test")) }, []string{"DELETED a true"}},
		{"change outside of it", func() { b.onSession(SessionEvent{Cluster: "a", Reason: errors.New("lost")}) }, nil},
		{"enter it again", func() { b.onRecord(joined("a", "prod")) }, []string{"ADDED a false"}},
		{"delete", func() { b.onRecord(RecordEvent{Record: Record{Name: "a"}, Deleted: true}) }, []string{"DELETED a false"}},
		{"session of a stranger", func() { b.onSession(SessionEvent{Cluster: "x", Session: &still{}}) }, nil},
		{"stop", w.Stop, []string{"end"}},
	}
	for _, s := range steps {
		s.do()
		if diff := cmp.Diff(s.want, next(t, w)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", s.name, diff)
		}
	}
	w.Stop()
}

func TestWatchGoesOnWhereItWas(t *testing.T) {
	b := newTestBoard()
	b.onRecord(joined("a", "prod"))
	version := parseVersion(t, b.list(all).ResourceVersion)
	b.onRecord(joined("b", "prod"))
	b.onRecord(RecordEvent{Record: Record{Name: "a"}, Deleted: true})
	w, err := b.watch(all, version, false)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if diff := cmp.Diff([]string{"ADDED b false", "DELETED a false"}, next(t, w)); diff != "" {
		t.Errorf("missed events (-want +got):\n%s", diff)
	}
}

func TestWatchOfAnUnknownVersionIsExpired(t *testing.T) {
	b := newTestBoard()
	first := parseVersion(t, b.list(all).ResourceVersion)
	for i := range historySize + 1 {
		b.onRecord(joined("a", strconv.Itoa(i)))
	}
	now := parseVersion(t, b.list(all).ResourceVersion)
	for name, version := range map[string]uint64{"forgotten": first, "of an earlier process": 5, "of the future": now + 1} {
		t.Run(name, func(t *testing.T) {
			if _, err := b.watch(all, version, false); !apierrors.IsResourceExpired(err) {
				t.Errorf("error = %v, want expired", err)
			}
		})
	}
	w, err := b.watch(all, now, false)
	if err != nil {
		t.Fatalf("present version: %v", err)
	}
	w.Stop()
}

func TestWatchEndsTheInitialEventsWithABookmark(t *testing.T) {
	b := newTestBoard()
	b.onRecord(joined("a", "prod"))
	w, err := b.watch(all, 0, true)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	<-w.ResultChan()
	e := <-w.ResultChan()
	c, ok := e.Object.(*livev1alpha1.Cluster)
	if !ok || e.Type != watch.Bookmark || c.Annotations[metav1.InitialEventsAnnotationKey] != "true" || c.ResourceVersion != b.list(all).ResourceVersion {
		t.Errorf("event = %+v", e)
	}
}

func TestWatchOfASlowClientEnds(t *testing.T) {
	b := newTestBoard()
	slow, err := b.watch(all, 0, false)
	if err != nil {
		t.Fatal(err)
	}
	for i := range watchBuffer + 1 {
		b.onRecord(joined("a", strconv.Itoa(i)))
	}
	events := next(t, slow)
	if len(events) != watchBuffer+1 || events[watchBuffer] != "end" {
		t.Errorf("%d events, the last %q; want %d and the end", len(events), events[len(events)-1], watchBuffer)
	}
	slow.Stop()
	b.end()
}

func TestBoardIsNotChangedByItsReaders(t *testing.T) {
	b := newTestBoard()
	b.onRecord(joined("a", "prod"))
	w, err := b.watch(all, 0, false)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	got, _ := b.get("a")
	got.Labels["env"] = "changed"
	b.list(all).Items[0].Labels["env"] = "changed"
	if c, ok := (<-w.ResultChan()).Object.(*livev1alpha1.Cluster); ok {
		c.Labels["env"] = "changed"
	}
	if got, _ = b.get("a"); got.Labels["env"] != "prod" {
		t.Errorf("label = %q", got.Labels["env"])
	}
}

func parseVersion(t *testing.T, s string) uint64 {
	t.Helper()
	v, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}
