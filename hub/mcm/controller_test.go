// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package mcm

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	actionv1beta1 "github.com/spokelet/spokelet/api/action/v1beta1"
	"github.com/spokelet/spokelet/api/mcm/v1alpha1"
	viewv1beta1 "github.com/spokelet/spokelet/api/view/v1beta1"
	"github.com/spokelet/spokelet/api/wire"
)

var podsResult = wire.ViewResult{Result: json.RawMessage(`{"kind":"List","items":[{"kind":"Pod"}]}`)}

func TestConfigValidate(t *testing.T) {
	r := newRig(t)
	for name, spoil := range map[string]func(*Config){
		"no Sync":     func(c *Config) { c.Sync = nil },
		"no client":   func(c *Config) { c.Client = nil },
		"no reader":   func(c *Config) { c.Live = nil },
		"no cache":    func(c *Config) { c.Informers = nil },
		"no events":   func(c *Config) { c.Events = nil },
		"no access":   func(c *Config) { c.Access = nil },
		"no rights":   func(c *Config) { c.Rights = nil },
		"no sessions": func(c *Config) { c.Sessions = nil },
	} {
		c := r.cfg
		spoil(&c)
		if _, err := New(c); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if r.cfg.MaxResultBytes != 512<<10 {
		t.Errorf("results of %d bytes by default", r.cfg.MaxResultBytes)
	}
}

func TestWorkMayTargetClusterOfAnotherNamespace(t *testing.T) {
	w := resourceWork("w", func(w *v1alpha1.Work) { w.Namespace = "team" })
	a := actionWork("a", func(w *v1alpha1.Work) { w.Namespace = "team" })
	r := newRig(t, w, a)
	r.reconcileObjects(t, w, a)
	r.answerView(t, managed, podsResult)
	r.answerAction(t, managed, a, wire.ActionResult{})
	for _, got := range []*v1alpha1.Work{stored(t, r, w), stored(t, r, a)} {
		if got.Status.Type != v1alpha1.WorkCompleted || got.Status.ObservedGeneration != 1 {
			t.Errorf("%s: %+v", got.Name, got.Status)
		}
	}
	if len(r.patches) != 2 {
		t.Errorf("%d writes, want the first to be the answer: %v", len(r.patches), r.patches)
	}
}

func TestPublishedRequestNamesRequester(t *testing.T) {
	w, a := resourceWork("w"), actionWork("a")
	r := newRig(t, w, a)
	r.reconcileObjects(t, w, a)
	for _, s := range r.views.byCluster[managed] {
		view, err := wire.DecodeView(s.body)
		if diff := cmp.Diff(wire.Requester{User: "alice", Groups: []string{"dev"}}, view.Requester); diff != "" || err != nil {
			t.Errorf("view: %v (-want +got):\n%s", err, diff)
		}
	}
	sent, ok := r.loadAction(managed, objectKeyOf(a).String())
	if !ok {
		t.Fatal("the action is not sent")
	}
	action, err := wire.DecodeAction(sent.Body)
	if diff := cmp.Diff(wire.Requester{User: "alice", Groups: []string{"dev"}}, action.Requester); diff != "" || err != nil {
		t.Errorf("action: %v (-want +got):\n%s", err, diff)
	}
	if sent.UID != "uid-a" || sent.Generation != 1 {
		t.Errorf("UID %s, generation %d", sent.UID, sent.Generation)
	}
}

func TestInvalidRequestsAreReported(t *testing.T) {
	tests := map[string]struct {
		reason  string
		prepare func(*rig, *v1alpha1.Work)
		want    string
		kind    v1alpha1.WorkStatusType
	}{
		"nobody is recorded": {
			reason: "it fails closed", want: "who asked for it is not recorded: change its spec", kind: v1alpha1.WorkFailed,
			prepare: func(_ *rig, w *v1alpha1.Work) { w.Annotations = nil },
		},
		"who is recorded cannot be read": {
			reason: "it fails closed", want: "annotation is no base64: who asked for it is not recorded", kind: v1alpha1.WorkFailed,
			prepare: func(_ *rig, w *v1alpha1.Work) { w.Annotations["mcm.ibm.com/user-identity"] = "alice" },
		},
		"the author may not": {
			reason: "it would be done in their name", kind: v1alpha1.WorkFailed,
			want:    `forbidden: user "alice" cannot create resource "works" in API group "mcm.ibm.com" in the namespace "c1"`,
			prepare: func(r *rig, _ *v1alpha1.Work) { r.access.deny("alice") },
		},
		"no such cluster": {
			reason: "the name may be wrong", want: `cluster "c9" does not exist`, kind: v1alpha1.WorkFailed,
			prepare: func(_ *rig, w *v1alpha1.Work) { w.Spec.Cluster.Name = "c9" },
		},
		"no such cluster, and no right": {
			reason: "which clusters there are is not told", kind: v1alpha1.WorkFailed,
			want: `forbidden: user "alice" cannot create resource "works" in API group "mcm.ibm.com" in the namespace "c9"`,
			prepare: func(r *rig, w *v1alpha1.Work) {
				w.Spec.Cluster.Name = "c9"
				r.access.deny("alice")
			},
		},
		"a cluster of another controller": {
			reason: "it has no session here", want: `cluster "c1" is not one of this hub`, kind: v1alpha1.WorkFailed,
			prepare: func(r *rig, _ *v1alpha1.Work) {
				r.handleCluster(clusterNamed(managed, func(c *clusterv1.ManagedCluster) { c.Annotations = nil }), changedEvent)
			},
		},
		"a cluster that is not accepted": {
			reason: "it has no session", want: `cluster "c1" is not accepted`, kind: v1alpha1.WorkFailed,
			prepare: func(r *rig, _ *v1alpha1.Work) {
				r.handleCluster(clusterNamed(managed, func(c *clusterv1.ManagedCluster) { c.Spec.HubAcceptsClient = false }), changedEvent)
			},
		},
		"a cluster that is going": {
			reason: "it gets no session", want: `cluster "c1" is not accepted`, kind: v1alpha1.WorkFailed,
			prepare: func(r *rig, _ *v1alpha1.Work) {
				now := metav1.Now()
				r.handleCluster(clusterNamed(managed, func(c *clusterv1.ManagedCluster) { c.DeletionTimestamp = &now }), changedEvent)
			},
		},
		"a cluster that is away": {
			reason: "it will be asked", want: `cluster "c1" is not connected`, kind: v1alpha1.WorkProcessing,
			prepare: func(r *rig, _ *v1alpha1.Work) { r.sessions.set(managed, false) },
		},
	}
	for name, tc := range tests {
		for _, work := range []*v1alpha1.Work{resourceWork("w"), actionWork("a")} {
			t.Run(name+", "+string(work.Spec.Type), func(t *testing.T) {
				w := work.DeepCopy()
				r := newRig(t)
				tc.prepare(r, w)
				if err := r.api.Create(t.Context(), w); err != nil {
					t.Fatal(err)
				}
				r.reconcileObjects(t, w)
				got := stored(t, r, w).Status
				if got.Type != tc.kind || got.Reason != tc.want || got.ObservedGeneration != 0 {
					t.Errorf("%s: %s, %q, observed %d; want %s, %q", tc.reason, got.Type, got.Reason, got.ObservedGeneration, tc.kind, tc.want)
				}
				published := len(r.publishedActions(managed)) + len(r.sync.Source(managed, wire.KindView).Keys())
				if (published == 1) != (tc.kind == v1alpha1.WorkProcessing) {
					t.Errorf("%s: %d are published", tc.reason, published)
				}
				r.reconcileObjects(t, w)
				if len(r.patches) != 1 {
					t.Errorf("%s: written %d times: %v", tc.reason, len(r.patches), r.patches)
				}
			})
		}
	}
}

func TestWorkIsPublishedWhenClusterIsCreated(t *testing.T) {
	w := resourceWork("w", func(w *v1alpha1.Work) { w.Spec.Cluster.Name = "c2" })
	a := actionWork("a", func(w *v1alpha1.Work) { w.Spec.Cluster.Name = "c2" })
	r := newRig(t, w, a)
	r.reconcileObjects(t, w, a)
	r.sessions.set("c2", true)
	r.handleCluster(clusterNamed("c2"), changedEvent)
	r.drainQueues(t)
	r.answerView(t, "c2", podsResult)
	r.answerAction(t, "c2", a, wire.ActionResult{})
	for _, got := range []*v1alpha1.Work{stored(t, r, w), stored(t, r, a)} {
		if got.Status.Type != v1alpha1.WorkCompleted || got.Status.Reason != "" {
			t.Errorf("%s: %+v", got.Name, got.Status)
		}
	}
	r.handleCluster(clusterNamed("c2"), deletedEvent)
	r.drainQueues(t)
	if got := stored(t, r, w).Status; got.Reason != `cluster "c2" does not exist` || len(r.sync.Source("c2", wire.KindView).Keys()) != 0 {
		t.Errorf("the cluster is gone: %+v", got)
	}
	if got := stored(t, r, a).Status; got.Type != v1alpha1.WorkCompleted {
		t.Errorf("what was done before the cluster went is not done any more: %+v", got)
	}
}

// What other controllers serve is theirs, to the last field.
func TestObjectsOfForeignClustersAreIgnored(t *testing.T) {
	foreign := func(c *clusterv1.ManagedCluster) { c.Annotations = nil }
	for name, prepare := range map[string]func(*rig){
		"a cluster of another controller": func(r *rig) { r.handleCluster(clusterNamed(managed, foreign), changedEvent) },
		"no cluster at all":               func(r *rig) { r.handleCluster(clusterNamed(managed), deletedEvent) },
	} {
		t.Run(name, func(t *testing.T) {
			v, a := clusterView("v"), clusterAction("a", func(a *actionv1beta1.ManagedClusterAction) { a.Spec.ActionType = "odd" })
			r := newRig(t, v, a)
			prepare(r)
			r.reconcileObjects(t, v, a)
			if len(r.patches) != 0 || len(r.publishedActions(managed)) != 0 || r.access.count() != 0 {
				t.Errorf("writes %v, actions %v, asked %d times", r.patches, r.publishedActions(managed), r.access.count())
			}
		})
	}
}

func TestDisconnectDoesNotRewriteAnsweredObjects(t *testing.T) {
	w, a, fresh := resourceWork("w"), actionWork("a"), actionWork("fresh")
	r := newRig(t, w, a)
	r.reconcileObjects(t, w, a)
	r.answerView(t, managed, podsResult)
	r.answerAction(t, managed, a, wire.ActionResult{})
	if err := r.api.Create(t.Context(), fresh); err != nil {
		t.Fatal(err)
	}
	r.reconcileObjects(t, fresh)
	before := len(r.patches)
	r.sessions.f = r.handleSession
	r.sessions.set(managed, false)
	r.drainQueues(t)
	if len(r.patches) != before+1 || stored(t, r, fresh).Status.Type != v1alpha1.WorkProcessing {
		t.Errorf("writes %v, want one for the object that was never answered", r.patches[before:])
	}
	r.sessions.set(managed, true)
	r.drainQueues(t)
	if len(r.patches) != before+1 {
		t.Errorf("connecting wrote %v; the answer does", r.patches[before+1:])
	}
	r.answerAction(t, managed, fresh, wire.ActionResult{})
	if got := stored(t, r, fresh).Status; got.Type != v1alpha1.WorkCompleted || got.Reason != "" {
		t.Errorf("%+v", got)
	}
}

func TestActionIsPublishedOncePerGeneration(t *testing.T) {
	for _, obj := range []client.Object{actionWork("a"), clusterAction("a")} {
		t.Run(objectKeyOf(obj).Dialect, func(t *testing.T) {
			r := newRig(t, obj)
			r.reconcileObjects(t, obj)
			if got := r.publishedActions(managed); len(got) != 1 {
				t.Fatalf("published %v", got)
			}
			r.answerAction(t, managed, obj, wire.ActionResult{Result: json.RawMessage(configMap)})
			if got := r.publishedActions(managed); len(got) != 0 {
				t.Errorf("it is answered, and published: %v", got)
			}
			writes := len(r.patches)
			r.restart(t)
			r.reconcileObjects(t, obj)
			if got := r.publishedActions(managed); len(got) != 0 || len(r.patches) != writes {
				t.Errorf("after a restart it is published: %v, written: %v", got, r.patches[writes:])
			}
			next := edit(t, r, obj, func(o client.Object) { o.SetLabels(map[string]string{"any": "spec"}) })
			r.reconcileObjects(t, next)
			ref, _ := r.sync.Source(managed, wire.KindAction).Ref(objectKeyOf(obj).String())
			if ref.Generation != 2 {
				t.Errorf("an edited one is published as generation %d", ref.Generation)
			}
			r.answerAction(t, managed, next, wire.ActionResult{Refusal: wire.Refuse(wire.CauseRequest, "", "it exists")})
			if got := r.publishedActions(managed); len(got) != 0 {
				t.Errorf("it is answered, and published: %v", got)
			}
		})
	}
}

// A result and a new spec cross: the new one is done, too.
func TestActionEditedDuringAnswerIsPublished(t *testing.T) {
	a := actionWork("a")
	r := newRig(t, a)
	r.reconcileObjects(t, a)
	var next *v1alpha1.Work
	r.refused = func() error { // while the status is written
		r.refused = nil
		next = edit(t, r, a, func(w *v1alpha1.Work) { w.Spec.ActionType = "Update" })
		return r.reconcile(t.Context(), objectKeyOf(a))
	}
	r.answerAction(t, managed, actionWork("a"), wire.ActionResult{})
	ref, ok := r.sync.Source(managed, wire.KindAction).Ref(objectKeyOf(a).String())
	if !ok || ref.Generation != next.Generation {
		t.Errorf("published: %t, generation %d, want %d", ok, ref.Generation, next.Generation)
	}
}

// What is sent was looked at: a spec that has come since waits for its own look, in which
// its author's right may be missing.
func TestUnreconciledGenerationIsNotLoaded(t *testing.T) {
	a := actionWork("a")
	r := newRig(t, a)
	r.reconcileObjects(t, a)
	edit(t, r, a, func(w *v1alpha1.Work) { w.Spec.ActionType = "Delete" })
	if sent, ok := r.loadAction(managed, objectKeyOf(a).String()); ok {
		t.Errorf("sent %s", sent.Body)
	}
	r.reconcileObjects(t, a)
	if _, ok := r.loadAction(managed, objectKeyOf(a).String()); !ok {
		t.Error("it is not sent after that")
	}
	for reason, key := range map[string]string{"another cluster's": objectKeyOf(a).String(), "no key": "a", "another dialect": "odd/c1/a", "none there": "mcm/c1/b"} {
		cluster := managed
		if reason == "another cluster's" {
			cluster = "c2"
		}
		if _, ok := r.loadAction(cluster, key); ok {
			t.Errorf("%s: sent", reason)
		}
	}
}

func TestWorkChangingTypeIsWithdrawn(t *testing.T) {
	w := actionWork("w")
	r := newRig(t, w)
	r.reconcileObjects(t, w)
	w = edit(t, r, w, func(w *v1alpha1.Work) { w.Spec = resourceWork("w").Spec })
	r.reconcileObjects(t, w)
	if actions, views := r.publishedActions(managed), r.sync.Source(managed, wire.KindView).Keys(); len(actions) != 0 || len(views) != 1 {
		t.Errorf("an action that became a view: %v, %v", actions, views)
	}
	w = edit(t, r, w, func(w *v1alpha1.Work) { w.Spec = actionWork("w").Spec })
	r.reconcileObjects(t, w)
	if actions, views := r.publishedActions(managed), r.sync.Source(managed, wire.KindView).Keys(); len(actions) != 1 || len(views) != 0 {
		t.Errorf("a view that became an action: %v, %v", actions, views)
	}
	w = edit(t, r, w, func(w *v1alpha1.Work) { w.Spec.Cluster.Name = "c2" })
	r.handleCluster(clusterNamed("c2"), changedEvent)
	r.reconcileObjects(t, w)
	if here, there := r.publishedActions(managed), r.publishedActions("c2"); len(here) != 0 || len(there) != 1 {
		t.Errorf("it went to another cluster: %v, %v", here, there)
	}
	edit(t, r, w, func(w *v1alpha1.Work) { w.Spec.ActionType = "odd" })
	r.reconcileObjects(t, w)
	if there := r.publishedActions("c2"); len(there) != 0 {
		t.Errorf("it asks nothing: %v", there)
	}
}

func TestDeletedObjectIsWithdrawn(t *testing.T) {
	for _, obj := range []client.Object{resourceWork("w"), actionWork("a"), clusterView("v"), clusterAction("b")} {
		for name, finalizers := range map[string][]string{"gone": nil, "held by somebody": {"example.com/theirs"}} {
			t.Run(objectKeyOf(obj).String()+", "+name, func(t *testing.T) {
				obj := obj.DeepCopyObject().(client.Object)
				obj.SetFinalizers(finalizers)
				r := newRig(t, obj)
				r.reconcileObjects(t, obj)
				if err := r.api.Delete(t.Context(), obj); err != nil {
					t.Fatal(err)
				}
				r.reconcileObjects(t, obj)
				left := len(r.publishedActions(managed)) + len(r.sync.Source(managed, wire.KindView).Keys()) +
					len(r.access.denied) + len(r.Controller.access.needs.keys) + len(r.clusters.needs.keys) + len(r.actions) + len(r.pending) + r.ownWrites.Len()
				if left != 0 || len(r.patches) != 0 {
					t.Errorf("%d things are kept, writes %v", left, r.patches)
				}
			})
		}
	}
}

func TestRecreatedObjectIsPublishedAnew(t *testing.T) {
	w := resourceWork("w")
	r := newRig(t, w)
	r.reconcileObjects(t, w)
	r.answerView(t, managed, podsResult)
	if err := r.api.Delete(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	again := resourceWork("w", func(w *v1alpha1.Work) { w.UID = "another" })
	if err := r.api.Create(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	before := r.publishedView(t, managed)
	r.reconcileObjects(t, again)
	if now := r.publishedView(t, managed); now.Generation <= before.Generation {
		t.Errorf("generation %d after %d: nobody answers it", now.Generation, before.Generation)
	}
	r.answerView(t, managed, podsResult)
	if got := stored(t, r, again).Status; got.Type != v1alpha1.WorkCompleted || got.Result == nil {
		t.Errorf("%+v", got)
	}
}

func TestViewIsWithdrawnWhileRightIsMissing(t *testing.T) {
	w, v, other := resourceWork("w"), clusterView("v"), resourceWork("other", func(w *v1alpha1.Work) {
		w.Annotations["mcm.ibm.com/user-identity"] = "Ym9i" // bob
		w.Spec.Scope.ResourceType = "nodes"
	})
	r := newRig(t, w, v, other)
	r.reconcileObjects(t, w, v, other)
	views := func() int { return len(r.sync.Source(managed, wire.KindView).Keys()) }
	if views() != 3 {
		t.Fatalf("%d views", views())
	}
	r.access.deny("alice")
	r.reviewRights(t.Context())
	r.drainQueues(t)
	if views() != 1 {
		t.Errorf("%d views, want bob's", views())
	}
	if got := stored(t, r, w).Status; got.Type != v1alpha1.WorkFailed || !strings.HasPrefix(got.Reason, "forbidden: ") {
		t.Errorf("%+v", got)
	}
	c := meta.FindStatusCondition(stored(t, r, v).Status.Conditions, viewv1beta1.ConditionViewProcessing)
	if c == nil || c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, "managedclusterviews") {
		t.Errorf("condition %+v", c)
	}
	if stored(t, r, other).Status.Type != "" {
		t.Error("another user's is written")
	}
	r.access.deny()
	r.reviewRights(t.Context())
	r.drainQueues(t)
	if views() != 3 {
		t.Errorf("%d views after the right has come back", views())
	}
}

// The look at an action asks anew. Whatever it hears is news for the views of that user.
func TestForbiddenActionWithdrawsViewsOfUser(t *testing.T) {
	w, a := resourceWork("w"), actionWork("a")
	r := newRig(t, w, a)
	r.reconcileObjects(t, w)
	r.access.deny("alice")
	r.reconcileObjects(t, a)
	if views := r.sync.Source(managed, wire.KindView).Keys(); len(views) != 0 {
		t.Errorf("views %v", views)
	}
	r.reviewRights(t.Context())
	r.drainQueues(t)
	if got := stored(t, r, w).Status.Type; got != v1alpha1.WorkFailed {
		t.Errorf("the view's status is %s", got)
	}
}

func TestFailedAccessReviewWritesNoStatus(t *testing.T) {
	w := resourceWork("w")
	r := newRig(t, w)
	r.access.err = errors.New("boom")
	if err := r.reconcileAndMark(t.Context(), objectKeyOf(w)); !errors.Is(err, r.access.err) {
		t.Errorf("error %v, want it to be tried again", err)
	}
	if len(r.patches) != 0 || len(r.sync.Source(managed, wire.KindView).Keys()) != 0 {
		t.Errorf("written %v", r.patches)
	}
}
