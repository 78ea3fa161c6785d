// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"maps"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	workv1 "open-cluster-management.io/api/work/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/spokelet/spokelet/api/multicluster/v1alpha1"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/hub/values"
	"github.com/spokelet/spokelet/internal/ratelimit"
	"github.com/spokelet/spokelet/internal/workconvert"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// withLabels gives a cluster labels, and claims of the same names.
func withLabels(labels map[string]string) func(*clusterv1.ManagedCluster) {
	return func(c *clusterv1.ManagedCluster) {
		c.Labels = maps.Clone(labels)
		for name, value := range labels {
			c.Status.ClusterClaims = append(c.Status.ClusterClaims, clusterv1.ManagedClusterClaim{Name: name, Value: value})
		}
	}
}

// withReference makes a work one that refers to its cluster, in a ConfigMap with this text.
func withReference(text string) func(client.Object) {
	return func(o client.Object) {
		o.SetAnnotations(map[string]string{wire.AnnotationSubstitute: "true"})
		withManifest(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"a":"` + text + `"}}`)(o)
	}
}

// withManifest gives a work one manifest.
func withManifest(raw string) func(client.Object) {
	return func(o client.Object) {
		switch w := o.(type) {
		case *v1alpha1.Work:
			w.Spec.Workload.Manifests[0].Raw = []byte(raw)
		case *workv1.ManifestWork:
			w.Spec.Workload.Manifests[0].Raw = []byte(raw)
		}
	}
}

// setClusterLabels changes the labels of the cluster, and has its works follow that.
func (r *rig) setClusterLabels(t *testing.T, labels map[string]string) {
	t.Helper()
	var record clusterv1.ManagedCluster
	if err := r.client.Get(t.Context(), types.NamespacedName{Name: managed}, &record); err != nil {
		t.Fatal(err)
	}
	before := record.DeepCopy()
	record.Labels = labels
	if !valuesChanged().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: &record}) {
		t.Fatal("a change of labels is not followed")
	}
	if err := r.client.Update(t.Context(), &record); err != nil {
		t.Fatal(err)
	}
	if _, err := (valuesReconciler{r.Works}).Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: managed}}); err != nil {
		t.Fatal(err)
	}
	r.writeReports(t)
}

// writeReports writes what is to be written.
func (r *rig) writeReports(t *testing.T) {
	t.Helper()
	for r.queue.Len() > 0 {
		r.handleNext(t.Context())
	}
}

// sentManifest is the first one of a work as it is sent, and empty where nothing is.
func (r *rig) sentManifest(t *testing.T, key string) string {
	t.Helper()
	body, ok := r.loadResource(managed, key)
	if !ok {
		return ""
	}
	work, err := wire.DecodeWork(body.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(work.Spec.Workload.Manifests[0].Raw)
}

func (r *rig) appliedCondition(t *testing.T, k *kind, w client.Object) *metav1.Condition {
	t.Helper()
	got, _ := r.get(t, k, w)
	return meta.FindStatusCondition(*got.Conditions(), "Applied")
}

// refs are the versions of works that are published.
func (r *rig) refs(names []string, k *kind) map[string]resource.Ref {
	out := map[string]resource.Ref{}
	for _, name := range names {
		out[name], _ = r.sync.Source(managed, wire.KindWork).Ref(k.Name + "/c1/" + name)
	}
	return out
}

func TestLabelChangeRepublishesWorksThatUseIt(t *testing.T) {
	tests := map[string]struct {
		reason string
		labels map[string]string
		again  []string
		// made are those that are made anew, if that are others than those that are sent.
		made []string
	}{
		"one that two use":        {reason: "both, and no other", labels: map[string]string{"region": "us", "zone": "a"}, again: []string{"both", "region"}},
		"one that one uses":       {reason: "that one", labels: map[string]string{"region": "eu", "zone": "b"}, again: []string{"both"}},
		"one that nobody uses":    {reason: "nothing is sent", labels: map[string]string{"region": "eu", "zone": "a", "other": "x"}},
		"one that is only quoted": {reason: "an escape uses nothing", labels: map[string]string{"region": "eu", "zone": "a", "escaped": "x"}},
		"one that goes":           {reason: "what was sent stays", labels: map[string]string{"region": "eu"}, made: []string{"both"}},
	}
	names := []string{"both", "escape", "name", "plain", "region"}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			eachKind(t, func(t *testing.T, k *kind) {
				works := map[string]client.Object{
					"both":   k.newWork(managed, "both", withReference("$(cluster.labels.region)$(cluster.labels.zone)")),
					"escape": k.newWork(managed, "escape", withReference("$$(cluster.labels.escaped)")),
					"name":   k.newWork(managed, "name", withReference("$(cluster.name)")),
					"plain":  k.newWork(managed, "plain", withReference("$(cluster.labels.region)"), func(o client.Object) { o.SetAnnotations(nil) }),
					"region": k.newWork(managed, "region", withReference("$(cluster.labels.region)$(cluster.claims.region)")),
				}
				r := newRig(t, clusterNamed(managed, withLabels(map[string]string{"region": "eu", "zone": "a"})),
					works["both"], works["escape"], works["name"], works["plain"], works["region"])
				for _, name := range names {
					r.reconcile(t, k, works[name])
				}
				before := r.refs(names, k)
				claims := map[string]string{"region": "eu", "zone": "a"}
				stale, _ := r.renderings.listStale(values.Cluster{Name: managed, Labels: tc.labels, Claims: claims})
				var made []string
				for _, key := range stale {
					made = append(made, key.Name)
				}
				if tc.made == nil {
					tc.made = tc.again
				}
				if diff := cmp.Diff(tc.made, made); diff != "" {
					t.Errorf("%s: made anew (-want +got):\n%s", tc.reason, diff)
				}
				r.setClusterLabels(t, tc.labels)
				var again []string
				for _, name := range names {
					if r.refs(names, k)[name] != before[name] {
						again = append(again, name)
					}
				}
				if diff := cmp.Diff(tc.again, again); diff != "" {
					t.Errorf("%s: sent again (-want +got):\n%s", tc.reason, diff)
				}
			})
		})
	}
}

func TestReferencesAreReplacedWithClusterValues(t *testing.T) {
	tests := map[string]struct {
		reason, text, want, message string
		change                      func(client.Object)
	}{
		"values":           {reason: "each is replaced", text: "$(cluster.name) $(cluster.labels.region) $(cluster.claims.region)", want: "c1 eu eu"},
		"no annotation":    {reason: "nobody asked for it", text: "$(cluster.name)", want: "$(cluster.name)", change: func(o client.Object) { o.SetAnnotations(nil) }},
		"another value":    {reason: "only true is", text: "$(cluster.name)", want: "$(cluster.name)", change: func(o client.Object) { o.SetAnnotations(map[string]string{wire.AnnotationSubstitute: "yes"}) }},
		"a missing value":  {reason: "it is named", text: "$(cluster.labels.zone)", message: "manifest 0: $(cluster.labels.zone): the cluster has no such value"},
		"a wrong form":     {reason: "it is named", text: "$(cluster.zone)", message: "manifest 0: $(cluster.zone): not one of $(cluster.name), $(cluster.labels.<key>) and $(cluster.claims.<name>)"},
		"too large with":   {reason: "a long value a thousand times", text: strings.Repeat("$(cluster.labels.long)", 1200), message: "manifests are too large: the limit is 1048576 bytes"},
		"a name that does": {reason: "policies saw another", change: withManifest(`{"metadata":{"name":"$(cluster.name)"}}`), message: `manifest 0: metadata.name must not depend on the cluster: "$(cluster.name)"`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			eachKind(t, func(t *testing.T, k *kind) {
				work := k.newWork(managed, "w", withReference(tc.text))
				if tc.change != nil {
					tc.change(work)
				}
				r := newRig(t, clusterNamed(managed, withLabels(map[string]string{"region": "eu", "long": strings.Repeat("l", 1000)})), work)
				r.reconcile(t, k, work)
				r.writeReports(t)
				want := ""
				if tc.message == "" {
					want = `{"apiVersion":"v1","data":{"a":"` + tc.want + `"},"kind":"ConfigMap","metadata":{"name":"a"}}`
				}
				if diff := cmp.Diff(want, r.sentManifest(t, k.Name+"/c1/w")); diff != "" {
					t.Errorf("%s: sent (-want +got):\n%s", tc.reason, diff)
				}
				message := ""
				if c := r.appliedCondition(t, k, work); c != nil && c.Status == metav1.ConditionFalse && c.Reason == k.FailedReason {
					message = c.Message
				}
				if tc.message != "" {
					message = strings.TrimPrefix(message, k.FailedMessage+": values of the cluster: ")
				}
				if diff := cmp.Diff(tc.message, message); diff != "" {
					t.Errorf("%s: message (-want +got):\n%s", tc.reason, diff)
				}
			})
		})
	}
}

func TestMissingValueIsReportedAndKeepsPublishedVersion(t *testing.T) {
	eachKind(t, func(t *testing.T, k *kind) {
		work, eu := k.newWork(managed, "w", withReference("$(cluster.labels.region)")), map[string]string{"region": "eu"}
		key := k.Name + "/c1/w"
		r := newRig(t, clusterNamed(managed, withLabels(eu)), work)
		r.reconcile(t, k, work)
		r.report(t, managed, key, "uid-w", applied(1, metav1.ConditionTrue))
		before := r.refs([]string{"w"}, k)
		well := r.appliedCondition(t, k, work)

		r.setClusterLabels(t, nil)
		refused := r.appliedCondition(t, k, work)
		if refused == nil || refused.Status != metav1.ConditionFalse || !strings.Contains(refused.Message, "$(cluster.labels.region)") {
			t.Fatalf("Applied = %+v", refused)
		}
		if diff := cmp.Diff(before, r.refs([]string{"w"}, k)); diff != "" {
			t.Errorf("published (-want +got):\n%s", diff)
		}
		if r.sentManifest(t, key) != "" {
			t.Error("it is sent without the value")
		}

		// The agent goes on to report on what was applied before.
		r.report(t, managed, key, "uid-w", applied(1, metav1.ConditionTrue))
		later := applied(1, metav1.ConditionTrue)
		later.Conditions = append(later.Conditions, metav1.Condition{Type: "Available", Status: metav1.ConditionFalse, Reason: "X", ObservedGeneration: 1, LastTransitionTime: metav1.Now()})
		r.report(t, managed, key, "uid-w", later)
		if diff := cmp.Diff(refused, r.appliedCondition(t, k, work)); diff != "" {
			t.Errorf("Applied after a report (-want +got):\n%s", diff)
		}
		got, _ := r.get(t, k, work)
		if meta.FindStatusCondition(*got.Conditions(), "Available") == nil {
			t.Error("what else the agent says is lost")
		}
		writes := r.writes
		r.report(t, managed, key, "uid-w", later)
		if r.writes != writes {
			t.Errorf("%d writes for a report that changes nothing", r.writes-writes)
		}

		// The agent has this version, and may have nothing new to say.
		r.setClusterLabels(t, eu)
		if diff := cmp.Diff(well.Message+string(well.Status), r.appliedCondition(t, k, work).Message+string(r.appliedCondition(t, k, work).Status)); diff != "" {
			t.Errorf("Applied when the value is back (-want +got):\n%s", diff)
		}
		writes = r.writes
		r.reconcile(t, k, work)
		r.writeReports(t)
		if r.writes != writes {
			t.Error("the end of a refusal is written again")
		}
		if n := len(r.events.Events); n != 2 {
			t.Errorf("%d events, of the failure and of its end", n)
		}
	})
}

func TestRefusalIsWrittenTogetherWithPendingReport(t *testing.T) {
	tests := map[string]struct {
		reason  string
		waiting int64
	}{
		"of this generation":      {reason: "both are written at once", waiting: 2},
		"that has been overtaken": {reason: "the refusal is written alone", waiting: 1},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			eachKind(t, func(t *testing.T, k *kind) {
				work := k.newWork(managed, "w", withReference("$(cluster.labels.region)"), func(o client.Object) { o.SetGeneration(2) })
				r := newRig(t, clusterNamed(managed), work)
				r.report(t, managed, k.Name+"/c1/w", "uid-w", applied(2, metav1.ConditionTrue))
				waiting := applied(tc.waiting, metav1.ConditionTrue)
				waiting.Manifests[0].ResourceMeta.Name = "waiting"
				r.receive(managed, resource.Resource{Key: k.Name + "/c1/w", UID: "uid-w", Body: statusBody(t, waiting)})
				r.reconcile(t, k, work)
				r.writeReports(t)
				got, _ := r.get(t, k, work)
				if c := r.appliedCondition(t, k, work); c.Status != metav1.ConditionFalse || c.ObservedGeneration != 2 {
					t.Errorf("%s: Applied = %+v", tc.reason, c)
				}
				if written := strings.Contains(string(mustJSON(t, got.Status())), "waiting"); written != (tc.waiting == 2) {
					t.Errorf("%s: the report is written: %t", tc.reason, written)
				}
			})
		})
	}
}

// A hub that was restarted knows nothing of what an earlier process sent. What Sync does
// not list when it is complete is withdrawn from the spoke.
func TestInitiallyRefusedWorkIsNotWithdrawn(t *testing.T) {
	eachKind(t, func(t *testing.T, k *kind) {
		work := k.newWork(managed, "w", k.addFinalizer, withReference("$(cluster.labels.region)"))
		key := k.Name + "/c1/w"
		r := newRig(t, clusterNamed(managed), work)
		if _, err := (clusterReconciler{r.Works}).Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: managed}}); err != nil {
			t.Fatal(err)
		}
		r.writeReports(t)
		if diff := cmp.Diff([]string{key}, r.sync.Source(managed, wire.KindWork).Keys()); diff != "" {
			t.Errorf("published (-want +got):\n%s", diff)
		}
		if r.sentManifest(t, key) != "" {
			t.Error("it is sent without the value")
		}
		// An agent that comes tells again what it said to the hub before.
		r.report(t, managed, key, "uid-w", applied(1, metav1.ConditionTrue))
		if c := r.appliedCondition(t, k, work); c.Status != metav1.ConditionFalse {
			t.Errorf("Applied = %+v", c)
		}
		r.setClusterLabels(t, map[string]string{"region": "eu"})
		if c := r.appliedCondition(t, k, work); c.Status != metav1.ConditionTrue || r.sentManifest(t, key) == "" {
			t.Errorf("with the value Applied = %+v", c)
		}
	})
}

func TestWorkWithoutReferencesIsSentUnchanged(t *testing.T) {
	eachKind(t, func(t *testing.T, k *kind) {
		work := k.newWork(managed, "w", k.addFinalizer, withReference("$(cluster.labels.region)"))
		r := newRig(t, clusterNamed(managed), work)
		r.reconcile(t, k, work)
		r.writeReports(t)
		r.report(t, managed, k.Name+"/c1/w", "uid-w", applied(1, metav1.ConditionTrue))
		got, _ := r.get(t, k, work)
		before, _ := got.Object().DeepCopyObject().(client.Object)
		got.Object().SetAnnotations(nil)
		if !k.specChanged().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: got.Object()}) {
			t.Error("nobody looks at it")
		}
		if err := r.client.Update(t.Context(), got.Object()); err != nil {
			t.Fatal(err)
		}
		for range 2 { // the second look drops what is kept of it
			r.reconcile(t, k, work)
			r.writeReports(t)
		}
		if c := r.appliedCondition(t, k, work); c.Status != metav1.ConditionTrue || !strings.Contains(r.sentManifest(t, k.Name+"/c1/w"), "$(cluster.labels.region)") {
			t.Errorf("Applied = %+v", c)
		}
		if len(r.renderings.clusters) != 0 {
			t.Errorf("%d clusters are remembered", len(r.renderings.clusters))
		}
	})
}

func TestClusterChangeDuringRenderingIsRendered(t *testing.T) {
	eachKind(t, func(t *testing.T, k *kind) {
		work := k.newWork(managed, "w", k.addFinalizer, withReference("$(cluster.labels.region)"))
		r := newRig(t, clusterNamed(managed, withLabels(map[string]string{"region": "eu"})), work)
		reads := 0
		r.Works.client = interceptor.NewClient(r.client, interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				err := c.Get(ctx, key, o, opts...)
				if record, ok := o.(*clusterv1.ManagedCluster); ok {
					// Whether the work is sent, what it is made with, and then a change that
					// was followed before it was known that this work uses the label.
					if reads++; reads > 2 {
						record.Labels["region"] = "us"
					}
				}
				return err
			},
		})
		r.reconcile(t, k, work)
		want, err := r.render(t.Context(), k, mustItem(t, k, work))
		if err != nil {
			t.Fatal(err)
		}
		if got := r.refs([]string{"w"}, k)["w"]; got != resource.RefOf(want) || !strings.Contains(string(want.Body), "us") {
			t.Errorf("published %v, want %s", got, want.Body)
		}
	})
}

func TestFrequentValueChangesAreRateLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := manifestWorks(testHash, false)
		work := k.newWork(managed, "w", k.addFinalizer, withReference("$(cluster.labels.region)"))
		r := newRig(t, clusterNamed(managed), work)
		r.reconcile(t, k, work)
		for i := range 2 * ratelimit.Burst {
			r.setClusterLabels(t, map[string]string{"region": strconv.Itoa(i)})
		}
		result, err := (valuesReconciler{r.Works}).Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: managed}})
		if err != nil || result.RequeueAfter <= 0 || result.RequeueAfter > time.Second {
			t.Errorf("looked at again after %v, %v", result.RequeueAfter, err)
		}
		r.deleteClusterState(managed)
		if result, err = (valuesReconciler{r.Works}).Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: managed}}); err != nil || !result.IsZero() {
			t.Errorf("of a cluster that is no more: %v, %v", result, err)
		}
	})
}

func mustItem(t *testing.T, k *kind, w client.Object) workconvert.Work {
	t.Helper()
	it, ok := k.Wrap(w)
	if !ok {
		t.Fatalf("%T is no %s work", w, k.Name)
	}
	return it
}

func TestValuesPredicatePassesLabelsAndClaims(t *testing.T) {
	tests := map[string]struct {
		reason string
		change func(*clusterv1.ManagedCluster)
		want   bool
	}{
		"a label":      {reason: "works may refer to it", change: func(c *clusterv1.ManagedCluster) { c.Labels["region"] = "us" }, want: true},
		"a claim":      {reason: "works may refer to it", change: func(c *clusterv1.ManagedCluster) { c.Status.ClusterClaims[0].Value = "us" }, want: true},
		"a condition":  {reason: "that comes all the time", change: func(c *clusterv1.ManagedCluster) { c.Status.Conditions = []metav1.Condition{{Type: "X"}} }},
		"a capacity":   {reason: "that comes all the time", change: func(c *clusterv1.ManagedCluster) { c.Status.Capacity = clusterv1.ResourceList{"cpu": {}} }},
		"an admission": {reason: "all works are looked at then", change: func(c *clusterv1.ManagedCluster) { c.Spec.HubAcceptsClient = false }},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			before := clusterNamed(managed, withLabels(map[string]string{"region": "eu"}))
			after := before.DeepCopy()
			tc.change(after)
			if got := valuesChanged().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}); got != tc.want {
				t.Errorf("%s: followed %t", tc.reason, got)
			}
		})
	}
	if valuesChanged().Create(event.CreateEvent{}) || valuesChanged().Delete(event.DeleteEvent{}) || valuesChanged().Generic(event.GenericEvent{}) {
		t.Error("a cluster that comes or goes is followed twice")
	}
}
