// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	workv1 "open-cluster-management.io/api/work/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/spokelet/spokelet/workers/api"
	accountv1alpha1 "github.com/spokelet/spokelet/workers/api/account/v1alpha1"
	bundlev1alpha1 "github.com/spokelet/spokelet/workers/api/bundle/v1alpha1"
)

// disguise makes a work that says by its labels and its content that it is one of the account.
func (w *world) disguise(cluster, name string, change ...func(*workv1.ManifestWork)) {
	w.t.Helper()
	work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{
		Namespace: cluster, Name: name,
		Labels: map[string]string{api.LabelAccount: "1234", api.LabelBundle: "bundle", api.LabelNamespace: team, "stranger": "yes"},
	}}
	for _, f := range change {
		f(work)
	}
	w.create(work)
}

// disguised are the works that disguise made, and that are there.
func (w *world) disguised() []string {
	w.t.Helper()
	var names []string
	for _, o := range w.list(&workv1.ManifestWorkList{}) {
		if o.GetLabels()["stranger"] != "" && !isDeleting(o) {
			names = append(names, o.GetNamespace()+"/"+o.GetName())
		}
	}
	return names
}

// clusters is what a bundle says of clusters: "ready", or the message.
func (w *world) clusters() map[string]string {
	w.t.Helper()
	said := map[string]string{}
	for _, c := range w.bundleOf(team).Status.Clusters {
		said[c.Name] = c.Message
		if c.Ready {
			said[c.Name] = "ready"
		}
	}
	return said
}

func TestLabelsDoNotClaimWork(t *testing.T) {
	w := served(t)
	want := []string{"spoke3/theirs", "spoke3/workers-1234"}
	w.disguise("spoke3", "theirs")
	w.disguise("spoke3", "workers-1234", func(work *workv1.ManifestWork) { work.Annotations = map[string]string{api.AnnotationBundle: "another"} })
	w.reconcileAll()
	if diff := cmp.Diff(map[string]string{"spoke1": "ready", "spoke2": "ready"}, w.clusters()); diff != "" {
		t.Errorf("what the bundle says (-want +got):\n%s", diff)
	}
	w.remove(&accountv1alpha1.WorkerAccount{ObjectMeta: object("1234")})
	w.reconcileAll()
	if left := w.list(&bundlev1alpha1.WorkerBundleList{}); len(left) > 0 {
		t.Error("the bundle waits for works that are not its own")
	}
	if diff := cmp.Diff(want, w.disguised()); diff != "" {
		t.Errorf("works of others (-want +got):\n%s", diff)
	}
}

func TestConflictingWorkBlocksOnlyItsCluster(t *testing.T) {
	for name, cached := range map[string]bool{"one with the operator's labels": true, "one that no cache has": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.disguise("spoke1", "workers-1234")
			if !cached {
				w.p.client = interceptor.NewClient(w.client, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
					if _, works := list.(*workv1.ManifestWorkList); works {
						opts = append(opts, client.InNamespace("spoke2"))
					}
					return c.List(ctx, list, opts...)
				}})
			}
			w.tenant(team, "1234", "")
			w.reconcileAll()
			w.built("one")
			want := map[string]string{
				"spoke1": "ManifestWork workers-1234 is there, and not the operator's: delete it", "spoke2": "the cluster has not answered yet",
			}
			if diff := cmp.Diff(want, w.clusters()); diff != "" {
				t.Errorf("what the bundle says (-want +got):\n%s", diff)
			}
			if got := w.disguised(); !slices.Equal(got, []string{"spoke1/workers-1234"}) {
				t.Errorf("works of others are %v", got)
			}
		})
	}
}

// failIn has every write of a work in a cluster fail.
func (w *world) failIn(cluster string) {
	errBoom := errors.New("boom")
	w.p.client = interceptor.NewClient(w.client, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if o.GetNamespace() == cluster {
				return errBoom
			}
			return c.Create(ctx, o, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if o.GetNamespace() == cluster {
				return errBoom
			}
			return c.Delete(ctx, o, opts...)
		},
	})
}

func TestFailureInOneClusterDoesNotAffectOthers(t *testing.T) {
	const failed = "boom"
	t.Run("as a bundle is placed", func(t *testing.T) {
		w := newWorld(t)
		w.failIn("spoke1")
		w.tenant(team, "1234", "")
		w.reconcileAll()
		w.built("one")
		if got := w.clusters(); !strings.Contains(got["spoke1"], failed) || w.placed()["spoke2/workers-1234"] != team {
			t.Errorf("works are %v, and the bundle says %v", w.placed(), got)
		}
	})
	t.Run("as a cluster is offered no more", func(t *testing.T) {
		w := served(t)
		w.failIn("spoke1")
		w.remove(cluster("spoke1"))
		w.remove(cluster("spoke2"))
		w.create(cluster("spoke3"))
		w.reconcileAll()
		if got := slices.Collect(maps.Keys(w.placed())); len(got) != 2 || slices.Contains(got, "spoke2/workers-1234") {
			t.Errorf("works are %v, want those of spoke1 and spoke3", got)
		}
		if got := w.clusters(); !strings.Contains(got["spoke1"], failed) {
			t.Errorf("the bundle says %v", got)
		}
	})
	t.Run("as an account is withdrawn", func(t *testing.T) {
		w := served(t)
		w.failIn("spoke1")
		w.label(team, "")
		w.reconcileAll()
		if got := w.clusters(); !strings.Contains(got["spoke1"], failed) || w.placed()["spoke2/workers-1234"] != "" {
			t.Errorf("works are %v, and the bundle says %v", w.placed(), got)
		}
		if c := meta.FindStatusCondition(w.bundleOf(team).Status.Conditions, api.ConditionReady); c.Reason != api.ReasonNoAccount {
			t.Errorf("the bundle says %+v", c)
		}
	})
	t.Run("as a bundle is deleted", func(t *testing.T) {
		w := served(t)
		w.failIn("spoke1")
		w.remove(&accountv1alpha1.WorkerAccount{ObjectMeta: object("1234")})
		w.reconcileAll()
		if got := w.clusters(); !strings.Contains(got["spoke1"], failed) || w.placed()["spoke2/workers-1234"] != "" {
			t.Errorf("works are %v, and the bundle says %v", w.placed(), got)
		}
	})
}

func TestBundleWithoutWorkerAccountReportsNoAccount(t *testing.T) {
	byHand := bundlev1alpha1.WorkerBundleSpec{DeploymentName: "b", Workers: []bundlev1alpha1.Worker{{WorkerName: "hello", WorkerNumber: 8080}}}
	for name, tc := range map[string]struct{ reason, bundle, want string }{
		"nobody names it":     {"it never had an account", "mine", "no WorkerAccount names it"},
		"an account names it": {"the account has none as long as this one is there", "bundle", "WorkerAccount 1234 names it, and the operator has not made it: delete it"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.create(&bundlev1alpha1.WorkerBundle{ObjectMeta: object(tc.bundle), Spec: byHand})
			w.account()
			w.reconcileAll()
			b := &bundlev1alpha1.WorkerBundle{}
			if err := w.client.Get(t.Context(), types.NamespacedName{Namespace: team, Name: tc.bundle}, b); err != nil {
				t.Fatal(err)
			}
			if c := meta.FindStatusCondition(b.Status.Conditions, api.ConditionReady); c == nil || c.Reason != api.ReasonNoAccount || c.Message != tc.want {
				t.Errorf("%s: it says %+v", tc.reason, c)
			}
		})
	}
}
