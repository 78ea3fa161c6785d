// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/spokelet/spokelet/api/sync/v1alpha1"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/quota"
	tunnel "github.com/spokelet/spokelet/tunnel/resource"
)

// newQuota returns a quota of so many objects and bytes.
func newQuota(objects int32, bytes string) *v1alpha1.SharedQuota {
	q := resource.MustParse(bytes)
	return &v1alpha1.SharedQuota{Objects: objects, Bytes: &q}
}

// newQuotaRig shares widgets with c1, within a quota.
func newQuotaRig(t *testing.T, q *v1alpha1.SharedQuota) (*rig, *agent) {
	t.Helper()
	r := newRig(t, sharedResource("s", func(s *v1alpha1.SharedResource) { s.Spec.Quota = q }))
	r.start(t)
	return r, r.connect(t, "c1")
}

// made are the widgets of c1: how many, and the bytes of their contents.
func (r *rig) made(t *testing.T) (n int, bytes int) {
	t.Helper()
	r.api.mu.Lock()
	defer r.api.mu.Unlock()
	for key, obj := range r.api.objects {
		if !strings.HasPrefix(key, widgets) || obj.GetNamespace() != "c1" {
			continue
		}
		o, err := newObject(obj)
		if err != nil {
			t.Fatal(err)
		}
		n, bytes = n+1, bytes+o.size
	}
	return n, bytes
}

// text is a content of so many bytes.
func text(size int) string {
	return fmt.Sprintf(`{"spec":{"text":%q}}`, strings.Repeat("x", size-len(`{"spec":{"text":""}}`)))
}

func (r *rig) quotaReached(t *testing.T) string {
	t.Helper()
	return short(stored(t, r, sharedResource("s")).Status.Clusters[0].Conditions, v1alpha1.ConditionQuotaReached)
}

// An agent that does not care for the quota, and asks for many objects at once.
func TestQuotaLimitsObjects(t *testing.T) {
	tests := map[string]struct {
		reason         string
		quota          *v1alpha1.SharedQuota
		asked, size    int
		slow           time.Duration
		objects, bytes int
	}{
		"the default": {reason: "nobody has to set it", asked: 1500, size: 100, objects: 1000, bytes: 100_000},
		"of objects":  {reason: "their number has a bound", quota: newQuota(7, "1Mi"), asked: 100, size: 100, objects: 7, bytes: 700},
		"while many are being made": {
			reason: "what is under way counts", quota: newQuota(7, "1Mi"), asked: 100, size: 100, slow: time.Second, objects: 7, bytes: 700,
		},
		"of bytes while many are being made": {
			reason: "what is under way counts", quota: newQuota(100, "10k"), asked: 50, size: 3000, slow: time.Second, objects: 3, bytes: 9000,
		},
		"of bytes":         {reason: "their sum has a bound", quota: newQuota(100, "10k"), asked: 50, size: 3000, objects: 3, bytes: 9000},
		"one that is less": {reason: "it does not fit at all", quota: newQuota(100, "1k"), asked: 5, size: 2000},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, a := newQuotaRig(t, tc.quota)
				r.api.before = func(string) { time.Sleep(tc.slow) }
				body := []byte(`{"part":"Object","content":` + text(tc.size) + `}`)
				for i := range tc.asked {
					a.put(a.writes, tunnel.Resource{Key: fmt.Sprintf("s/w%04d", i), Generation: 7, Body: body})
				}
				r.settle()
				if n, bytes := r.made(t); n != tc.objects || bytes != tc.bytes {
					t.Errorf("%s: %d objects of %d bytes, want %d of %d", tc.reason, n, bytes, tc.objects, tc.bytes)
				}
			})
		})
	}
}

func TestQuotaLimitsGrowth(t *testing.T) {
	const status = `{"spec":{"size":1},"status":{"text":%q}}`
	tests := map[string]struct {
		reason   string
		part     wire.SharedPart
		to       string
		answered bool
	}{
		"the object":                  {reason: "it would be larger", part: wire.PartObject, to: text(3000)},
		"the status":                  {reason: "it is as much a part of it", part: wire.PartStatus, to: fmt.Sprintf(status, strings.Repeat("x", 3000))},
		"a status that names no spec": {reason: "the spec stays", part: wire.PartStatus, to: fmt.Sprintf(`{"status":{"text":%q}}`, strings.Repeat("x", 1990))},
		"a text of escapes":           {reason: "its size is that of what is kept", part: wire.PartObject, to: `{"spec":{"text":"` + strings.Repeat("<", 600) + `"}}`},
		"within the quota":            {reason: "there is room", part: wire.PartObject, to: text(1500), answered: true},
		"the same size":               {reason: "it is not larger", part: wire.PartObject, to: `{"spec":{"size":2}}`, answered: true},
		"a deletion":                  {reason: "it makes room", part: wire.PartDeletion, answered: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, a := newQuotaRig(t, newQuota(10, "2k"))
				r.api.set(widgets, widget("c1", "a", 1))
				r.settle()
				generation := a.requestWrite("s/a", tc.part, tc.to)
				r.settle()
				if _, bytes := r.made(t); bytes > 2000 {
					t.Errorf("%s: %d bytes", tc.reason, bytes)
				}
				if o, _ := a.getObject("s/a"); o.Applied == generation != tc.answered || o.Refused == generation == tc.answered {
					t.Errorf("%s: %+v", tc.reason, o)
				}
			})
		})
	}
}

func TestLoweredQuotaDeletesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a := newQuotaRig(t, nil)
		for i := range 5 {
			r.api.set(widgets, widget("c1", fmt.Sprintf("w%d", i), 1))
		}
		r.settle()
		a.takeLog()
		edit(t, r, sharedResource("s"), func(s *v1alpha1.SharedResource) { s.Spec.Quota = newQuota(2, "1k") })
		if share, _ := a.getShare("s"); share.Quota != (wire.SharedSize{Objects: 2, Bytes: 1000}) {
			t.Errorf("the agent was told %+v", share.Quota)
		}
		if diff := cmp.Diff([]string(nil), a.takeLog()); diff != "" {
			t.Errorf("what the agent was told (-want +got):\n%s", diff)
		}
		refused := a.requestWrite("s/new", wire.PartObject, `{"spec":{"size":1}}`)
		changed := a.requestWrite("s/w1", wire.PartObject, `{"spec":{"size":2}}`)
		r.settle()
		if o, _ := a.getObject("s/new"); o.Refused != refused || o.Reason != `hub: the quota of 2 objects is reached (SharedResource "s")` {
			t.Errorf("a new one: %+v", o)
		}
		if o, _ := a.getObject("s/w1"); o.Applied != changed {
			t.Errorf("one that there is: %+v", o)
		}
		if n, _ := r.made(t); n != 5 {
			t.Errorf("%d objects", n)
		}
	})
}

// The status says so for as long as it is so, whatever the agent says.
func TestStatusShowsWritesBeyondQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a := newQuotaRig(t, newQuota(1, "1Mi"))
		r.api.set(widgets, widget("c1", "a", 1))
		r.settle()
		for _, name := range []string{"w", "v", "u", "x", "y"} {
			a.requestWrite("s/"+name, wire.PartObject, `{"spec":{"size":1}}`)
		}
		r.settle()
		want := "True TooManyObjects hub: the quota of 1 objects is reached, and these wait: u, v, w and 2 more"
		if got := r.quotaReached(t); got != want {
			t.Errorf("condition %q, want %q", got, want)
		}
		before := r.statuses.Load()
		a.requestWrite("s/w", wire.PartObject, `{"spec":{"size":2}}`)
		r.settle()
		if got := r.statuses.Load(); got != before {
			t.Errorf("the same was written %d times", got-before)
		}
		a.reportState("s", wire.ShareState{Generation: 1})
		r.api.remove(widgets, "c1", "a")
		r.settle()
		if got := r.quotaReached(t); got != "" {
			t.Errorf("condition %q, and there is room", got)
		}
	})
}

func TestStatusShowsQuotaReachedInCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a := newQuotaRig(t, nil)
		a.reportState("s", wire.ShareState{Generation: 1, QuotaReached: wire.QuotaReached(v1alpha1.ReasonTooManyBytes, "cluster", "32Mi", []string{"a"})})
		r.settle()
		want := "True TooManyBytes cluster: the quota of 32Mi is reached, and these wait: a"
		if got := r.quotaReached(t); got != want {
			t.Errorf("condition %q, want %q", got, want)
		}
		r.stop()
		r.start(t)
		if got := r.quotaReached(t); got != want {
			t.Errorf("after a restart %q, want %q", got, want)
		}
		b := r.connect(t, "c1")
		b.reportState("s", wire.ShareState{Generation: 1})
		r.settle()
		if got := r.quotaReached(t); got != "" {
			t.Errorf("condition %q, and nothing waits", got)
		}
	})
}

func TestSharedObjectsCountAgainstClusterMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, sharedResource("s"), sharedResource("t", func(s *v1alpha1.SharedResource) {
			s.Spec.HubNamespace, s.Spec.SpokeNamespace = "$(cluster)-t", "t"
		}), namespaceNamed("c1-t"))
		r.shared = quota.NewMemory(8<<10, 64<<10)
		r.start(t)
		a := r.connect(t, "c1")
		first := a.requestWrite("s/a", wire.PartObject, text(4<<10))
		r.settle()
		second := a.requestWrite("t/b", wire.PartObject, text(4<<10))
		r.settle()
		if o, _ := a.getObject("s/a"); o.Applied != first {
			t.Errorf("what fits: %+v", o)
		}
		if o, _ := a.getObject("t/b"); o.Refused != second || !strings.Contains(o.Reason, "memory") {
			t.Errorf("what does not fit beside it: %+v", o)
		}
		a.requestWrite("s/a", wire.PartDeletion, "")
		r.settle()
		a.writes.Delete("s/a")
		r.settle()
		third := a.requestWrite("t/b", wire.PartObject, text(4<<10))
		r.settle()
		if o, _ := a.getObject("t/b"); o.Applied != third {
			t.Errorf("once there is room: %+v", o)
		}
		remove(t, r, clusterNamed("c1"))
		if held := r.shared.Held(); held != 0 {
			t.Errorf("%d bytes are held for a cluster that is no more", held)
		}
	})
}

// What grows too large to be shared was not deleted.
func TestTooLargeObjectIsNotDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a := sharing(t)
		large := func(w *unstructured.Unstructured) {
			_ = unstructured.SetNestedField(w.Object, strings.Repeat("x", wire.MaxSharedContent), "spec", "text")
		}
		r.api.edit(t, widgets, "c1", "a", large)
		r.settle()
		if o, ok := a.getObject("s/a"); !ok || !o.Unselected {
			t.Errorf("known as %+v, %t", o.SharedObject, ok)
		}
		r.stop()
		r.start(t)
		if o, ok := r.connect(t, "c1").getObject("s/a"); !ok || !o.Unselected {
			t.Errorf("after a restart known as %+v, %t", o.SharedObject, ok)
		}
	})
}
