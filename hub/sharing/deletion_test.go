// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/spokelet/spokelet/api/sync/v1alpha1"
	"github.com/spokelet/spokelet/api/wire"
)

// deleting marks a definition as being deleted.
func deleting(d *unstructured.Unstructured) {
	d.SetDeletionTimestamp(&metav1.Time{Time: time.Unix(1, 0)})
}

func TestVerifiedDeletionIsPublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a := sharing(t)
		before, _ := a.getObject("s/a")
		a.takeLog()
		r.api.remove(widgets, "c1", "a")
		r.settle()
		o, _ := a.getObject("s/a")
		if !o.Deleted || o.uid != before.uid || o.generation <= before.generation {
			t.Errorf("known %+v", o)
		}
		r.api.set(widgets, widget("c1", "a", 2))
		r.settle()
		if again, _ := a.getObject("s/a"); again.Deleted || again.Version == "" || again.uid == o.uid {
			t.Errorf("known %+v", again)
		}
		if diff := cmp.Diff([]string{"put a", "put a"}, a.takeLog()); diff != "" {
			t.Errorf("log (-want +got):\n%s", diff)
		}
	})
}

// What goes with its namespace or its definition was not deleted by anybody.
func TestDeletionWithNamespaceOrDefinitionIsNotPublished(t *testing.T) {
	tests := map[string]struct {
		reason string
		goes   func(t *testing.T, r *rig)
		want   string
	}{
		"the namespace is being deleted": {
			reason: "its objects are, too", want: v1alpha1.ReasonNamespaceTerminating,
			goes: func(t *testing.T, r *rig) {
				if err := r.kube.Delete(t.Context(), namespaceNamed("c1")); err != nil {
					t.Fatal(err)
				}
			},
		},
		"the definition is being deleted": {
			reason: "its objects are, too", want: v1alpha1.ReasonDefinitionNotReady,
			goes: func(t *testing.T, r *rig) { r.api.edit(t, definitionResource, "", widgets, deleting) },
		},
		"the definition is gone": {
			reason: "its objects are, too", want: v1alpha1.ReasonDefinitionMissing,
			goes: func(_ *testing.T, r *rig) { r.api.remove(definitionResource, "", widgets) },
		},
	}
	for name, tc := range tests {
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, seen late %t", name, late), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r, a := sharing(t)
					a.takeLog()
					if late {
						// The watch of the object is ahead of those of namespaces and definitions.
						r.live.asked = func() {
							r.live.asked = nil
							tc.goes(t, r)
						}
					} else {
						tc.goes(t, r)
					}
					r.api.remove(widgets, "c1", "a")
					r.settle()
					s, _ := a.getShare("s")
					if s.Problem == nil || s.Problem.Reason != tc.want && !late {
						t.Errorf("%s: problem %+v, want %s", tc.reason, s.Problem, tc.want)
					}
					for _, line := range a.takeLog() {
						if !strings.HasPrefix(line, "delete #") {
							t.Errorf("%s: told %q", tc.reason, line)
						}
					}
				})
			})
		}
	}
}

func TestObjectAbsentAfterProblemIsWithdrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a := sharing(t)
		r.api.set(widgets, widget("c1", "b", 1))
		r.settle()
		first, _ := a.getShare("s")
		r.api.edit(t, definitionResource, "", widgets, deleting)
		r.api.remove(widgets, "c1", "a")
		r.settle()
		r.api.set(definitionResource, func() *unstructured.Unstructured {
			d := definitionOf(true)
			d.SetUID("another")
			return d
		}())
		r.settle()
		s, _ := a.getShare("s")
		if s.Problem != nil || s.Fence == first.Fence || !a.hasFence("s") {
			t.Errorf("share %+v", s)
		}
		_, hasA := a.getObject("s/a")
		if _, hasB := a.getObject("s/b"); hasA || !hasB {
			t.Errorf("a is known: %t, b: %t", hasA, hasB)
		}
		log := a.takeLog()
		if fence := slices.Index(log, "fence "+s.Fence); fence < slices.Index(log, "delete a") || fence < 0 {
			t.Errorf("log %v", log)
		}
	})
}

func TestRecreatedNamespaceIsListedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, sharedResource("s", func(s *v1alpha1.SharedResource) { s.Spec.ClusterSelector = metav1.LabelSelector{} }))
		r.api.set(widgets, widget("c1", "a", 1))
		r.start(t)
		a := r.connect(t, "c1")
		ns := stored(t, r, namespaceNamed("c1"))
		ns.Finalizers = nil
		if err := r.kube.Update(t.Context(), ns); err != nil {
			t.Fatal(err)
		}
		remove(t, r, ns)
		if s, _ := a.getShare("s"); s.Problem == nil || s.Problem.Reason != v1alpha1.ReasonNamespaceMissing {
			t.Errorf("problem %+v", s.Problem)
		}
		r.api.remove(widgets, "c1", "a")
		r.api.set(widgets, widget("c1", "b", 1))
		again := namespaceNamed("c1")
		again.UID = "another"
		if err := r.kube.Create(t.Context(), again); err != nil {
			t.Fatal(err)
		}
		r.settle()
		_, hasA := a.getObject("s/a")
		if _, hasB := a.getObject("s/b"); hasA || !hasB || !a.hasFence("s") {
			t.Errorf("a is known: %t, b: %t", hasA, hasB)
		}
	})
}

// The watch could not be resumed: what is absent may have been deleted, or not.
func TestObjectAbsentFromListIsWithdrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a := sharing(t)
		r.api.set(widgets, widget("c1", "b", 1))
		r.settle()
		first, _ := a.getShare("s")
		a.takeLog()
		r.api.pause()
		r.api.remove(widgets, "c1", "a")
		r.api.expire(widgets)
		r.api.resume()
		r.settle()
		s, _ := a.getShare("s")
		if diff := cmp.Diff([]string{"delete a", "fence " + s.Fence, "delete #" + first.Fence}, a.takeLog()); diff != "" {
			t.Errorf("log (-want +got):\n%s", diff)
		}
		if s.Fence == first.Fence || !a.hasFence("s") {
			t.Errorf("share %+v", s)
		}
	})
}

func TestMissingRightsStopShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a := sharing(t)
		first, _ := a.getShare("s")
		forbidden := apierrors.NewForbidden(schema.ParseGroupResource(widgets), "", errors.New("no"))
		r.api.mu.Lock()
		r.api.refuse = func(request string) error {
			if strings.Contains(request, widgets) {
				return forbidden
			}
			return nil
		}
		r.api.mu.Unlock()
		r.api.expire(widgets)
		r.settle()
		if s, _ := a.getShare("s"); s.Problem == nil || s.Problem.Reason != v1alpha1.ReasonRightsMissing {
			t.Errorf("problem %+v", s.Problem)
		}
		generation := a.requestWrite("s/a", wire.PartObject, `{"spec":{"size":2}}`)
		r.settle()
		if o, _ := a.getObject("s/a"); o.Refused != generation || o.Version == "" {
			t.Errorf("a write meanwhile: %+v", o)
		}
		r.api.mu.Lock()
		r.api.refuse = nil
		r.api.mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		if s, _ := a.getShare("s"); s.Problem != nil || s.Fence == first.Fence || !a.hasFence("s") {
			t.Errorf("share %+v", s)
		}
	})
}

func TestTombstonesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = maxTombstones + 10
		r := newRig(t, sharedResource("s"))
		for i := range many {
			r.api.set(widgets, widget("c1", fmt.Sprintf("w%05d", i), 1))
		}
		r.start(t)
		a := r.connect(t, "c1")
		for i := range many {
			r.api.remove(widgets, "c1", fmt.Sprintf("w%05d", i))
			if i%100 == 0 {
				r.settle()
			}
		}
		r.settle()
		if _, ok := a.getObject("s/w00000"); ok || len(a.objects) != maxTombstones+1 {
			t.Errorf("%d are known", len(a.objects))
		}
		if o, _ := a.getObject(fmt.Sprintf("s/w%05d", many-1)); !o.Deleted {
			t.Errorf("the last is %+v", o)
		}
	})
}

// Nobody can tell what becomes of objects as long as the API server cannot be asked.
func TestVerificationOfDeletionIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a := sharing(t)
		r.live.Reader = unavailable{r.live.Reader}
		r.api.remove(widgets, "c1", "a")
		r.settle()
		if o, _ := a.getObject("s/a"); o.Version == "" {
			t.Errorf("known %+v", o)
		}
		r.mu.Lock()
		r.live.Reader = r.kube
		r.mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		if o, _ := a.getObject("s/a"); !o.Deleted {
			t.Errorf("known %+v", o)
		}
	})
}

// A server that was restored has older versions than those that were seen.
func TestRestoredAPIServerReplacesNewerObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a := sharing(t)
		r.api.edit(t, widgets, "c1", "a", resize(7))
		r.settle()
		r.api.mu.Lock()
		old := r.api.objects[widgets+"/c1/a"].DeepCopy()
		resize(3)(old)
		old.SetResourceVersion("50")
		r.api.version = 60
		r.api.objects[widgets+"/c1/a"] = old
		r.api.mu.Unlock()
		r.api.expire(widgets)
		r.settle()
		if o, _ := a.getObject("s/a"); string(o.Content) != `{"spec":{"size":3}}` || o.generation != 50 {
			t.Errorf("known %+v", o)
		}
		if s, _ := a.getShare("s"); a.objects[wire.FenceKey("s", s.Fence).String()].generation != 60 {
			t.Errorf("fence %+v", a.objects)
		}
	})
}
