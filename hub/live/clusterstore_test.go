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

// fixedSession is a session that is never used.
type fixedSession struct {
	Session
	info SessionInfo
}

func (s *fixedSession) Info() SessionInfo { return s.info }

var (
	noon   = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	all    = selection{labels: labels.Everything(), fields: fields.Everything()}
	inProd = selection{labels: labels.SelectorFromSet(labels.Set{"env": "prod"}), fields: fields.Everything()}
)

func newTestClusterStore() *clusterStore { return newClusterStore(func() time.Time { return noon }) }

func joined(name string, env string) RecordEvent {
	return RecordEvent{Record: Record{Name: name, UID: "uid-1", Labels: map[string]string{"env": env}, KubernetesVersion: "v1.36.3"}}
}

// nextEvents are the events that are ready, in short.
func nextEvents(t *testing.T, w watch.Interface) []string {
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

func TestClusterStoreJoinsRecordAndSession(t *testing.T) {
	b := newTestClusterStore()
	s := &fixedSession{info: SessionInfo{ConnectedAt: noon, RTT: time.Millisecond, AgentVersion: "v1", Protocol: "1", ProcessID: "p", KubeSystemUID: "u"}}
	b.handleSession(SessionEvent{Cluster: "a", Session: s})
	if _, ok := b.get("a"); ok {
		t.Error("a session without a record is shown")
	}
	b.handleRecord(joined("a", "prod"))
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
	b.handleSession(SessionEvent{Cluster: "a", Reason: errors.New("connection lost")})
	got, _ = b.get("a")
	want = livev1alpha1.ClusterStatus{DisconnectedSince: &metav1.Time{Time: noon}, Reason: "connection lost", KubernetesVersion: "v1.36.3"}
	if diff := cmp.Diff(want, got.Status); diff != "" {
		t.Errorf("disconnected (-want +got):\n%s", diff)
	}
	b.handleRecord(RecordEvent{Record: Record{Name: "a"}, Deleted: true})
	if _, ok := b.get("a"); ok || b.exists("a") {
		t.Error("a deleted record is shown")
	}
}

func TestClusterStoreListsSelectedSorted(t *testing.T) {
	b := newTestClusterStore()
	for _, e := range []RecordEvent{joined("c", "prod"), joined("a", "test"), joined("b", "prod")} {
		b.handleRecord(e)
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

func TestClusterWatchSendsEveryChange(t *testing.T) {
	b := newTestClusterStore()
	b.handleRecord(joined("a", "prod"))
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
		{"connect", func() { b.handleSession(SessionEvent{Cluster: "a", Session: &fixedSession{}}) }, []string{"MODIFIED a true"}},
		{"record without news", func() { b.handleRecord(joined("a", "prod")) }, nil},
		{"leave the selection", func() { b.handleRecord(joined("a", "test")) }, []string{"DELETED a true"}},
		{"change outside of it", func() { b.handleSession(SessionEvent{Cluster: "a", Reason: errors.New("lost")}) }, nil},
		{"enter it again", func() { b.handleRecord(joined("a", "prod")) }, []string{"ADDED a false"}},
		{"delete", func() { b.handleRecord(RecordEvent{Record: Record{Name: "a"}, Deleted: true}) }, []string{"DELETED a false"}},
		{"session of a stranger", func() { b.handleSession(SessionEvent{Cluster: "x", Session: &fixedSession{}}) }, nil},
		{"stop", w.Stop, []string{"end"}},
	}
	for _, s := range steps {
		s.do()
		if diff := cmp.Diff(s.want, nextEvents(t, w)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", s.name, diff)
		}
	}
	w.Stop()
}

func TestClusterWatchResumesAtVersion(t *testing.T) {
	b := newTestClusterStore()
	b.handleRecord(joined("a", "prod"))
	version := parseVersion(t, b.list(all).ResourceVersion)
	b.handleRecord(joined("b", "prod"))
	b.handleRecord(RecordEvent{Record: Record{Name: "a"}, Deleted: true})
	w, err := b.watch(all, version, false)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if diff := cmp.Diff([]string{"ADDED b false", "DELETED a false"}, nextEvents(t, w)); diff != "" {
		t.Errorf("missed events (-want +got):\n%s", diff)
	}
}

func TestClusterWatchOfUnknownVersionExpires(t *testing.T) {
	b := newTestClusterStore()
	first := parseVersion(t, b.list(all).ResourceVersion)
	for i := range historySize + 1 {
		b.handleRecord(joined("a", strconv.Itoa(i)))
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

func TestClusterWatchBookmarksEndOfInitialEvents(t *testing.T) {
	b := newTestClusterStore()
	b.handleRecord(joined("a", "prod"))
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

func TestClusterWatchOfSlowClientCloses(t *testing.T) {
	b := newTestClusterStore()
	slow, err := b.watch(all, 0, false)
	if err != nil {
		t.Fatal(err)
	}
	for i := range watchBuffer + 1 {
		b.handleRecord(joined("a", strconv.Itoa(i)))
	}
	events := nextEvents(t, slow)
	if len(events) != watchBuffer+1 || events[watchBuffer] != "end" {
		t.Errorf("%d events, the last %q; want %d and the end", len(events), events[len(events)-1], watchBuffer)
	}
	slow.Stop()
	b.stopWatches()
}

func TestClusterStoreReturnsCopies(t *testing.T) {
	b := newTestClusterStore()
	b.handleRecord(joined("a", "prod"))
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
