// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package workagent

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2/ktesting"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/agent/lease"
	"github.com/spokelet/spokelet/api/crds"
	"github.com/spokelet/spokelet/api/multicluster/v1alpha1"
	"github.com/spokelet/spokelet/internal/testing/livetest"
	"github.com/spokelet/spokelet/internal/workconvert"
)

// liveRig is a cluster of a real hub, and a namespace of a real spoke.
type liveRig struct {
	hub, spoke *rest.Config
	works      *kind // clients of the tests
	multi      *kind
	anchors    dynamic.NamespaceableResourceInterface
	kube       kubernetes.Interface // of the spoke
	cluster    string               // and namespace, everywhere
}

// newLiveRig takes two API servers, or one for both.
func newLiveRig(t *testing.T, one bool) *liveRig {
	t.Helper()
	r := &liveRig{
		hub: livetest.Config(t, "SPOKELET_HUB_KUBECONFIG"), spoke: livetest.Config(t, "SPOKELET_SPOKE_KUBECONFIGS"),
		cluster: "cluster-" + rand.String(6),
	}
	if one {
		r.hub = r.spoke
	}
	hubDynamic, err := dynamic.NewForConfig(r.hub)
	if err != nil {
		t.Fatal(err)
	}
	if err := crds.Install(t.Context(), hubDynamic, crds.Hub()); err != nil {
		t.Fatal(err)
	}
	all, err := kinds(Config{Hub: r.hub, Cluster: r.cluster, WorkNamespace: r.cluster})
	if err != nil {
		t.Fatal(err)
	}
	r.works, r.multi = all[0], all[1]
	spokeDynamic, err := dynamic.NewForConfig(r.spoke)
	if err != nil {
		t.Fatal(err)
	}
	r.anchors = spokeDynamic.Resource(schema.GroupVersion(workv1.GroupVersion).WithResource("appliedmanifestworks"))
	if r.kube, err = kubernetes.NewForConfig(r.spoke); err != nil {
		t.Fatal(err)
	}
	r.namespace(t, r.hub)
	if !one {
		r.namespace(t, r.spoke)
	}
	return r
}

func (r *liveRig) namespace(t *testing.T, cfg *rest.Config) {
	t.Helper()
	kube, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: r.cluster}}
	if _, err := kube.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = kube.CoreV1().Namespaces().Delete(context.WithoutCancel(t.Context()), r.cluster, metav1.DeleteOptions{})
	})
}

// name makes one that no other test uses: spokes share the names of anchors.
func (r *liveRig) name(of string) string { return of + "-" + r.cluster }

// agent is one that runs.
type agent struct {
	cancel func()
	done   chan struct{}
	err    error
}

// start runs an agent until the test ends or it is stopped.
func (r *liveRig) start(t *testing.T, process string, change ...func(*Config)) *agent {
	t.Helper()
	logger, _ := ktesting.NewTestContext(t)
	cfg := Config{
		Spoke: r.spoke, Hub: r.hub, Cluster: r.cluster, WorkNamespace: r.cluster, Namespace: r.cluster, EvictionGrace: time.Hour,
		AgentID: "agent-" + r.cluster, MaxJSONRawLength: 1024, LeaderElection: true, Process: process,
		Listen: "127.0.0.1:0", Logger: logger.WithName(process),
	}
	for _, c := range change {
		c(&cfg)
	}
	ctx, cancel := context.WithCancel(t.Context())
	a := &agent{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(a.done)
		a.err = Run(ctx, cfg)
	}()
	t.Cleanup(func() { a.stop(t) })
	return a
}

// stop ends an agent and fails unless it does so soon.
func (a *agent) stop(t *testing.T) {
	t.Helper()
	a.cancel()
	select {
	case <-a.done:
	case <-time.After(30 * time.Second): // as long as a pod has
		t.Fatal("the agent does not end")
	}
	if a.err != nil {
		t.Errorf("the agent ended with %v", a.err)
	}
}

func withoutElection(c *Config) { c.LeaderElection = false }

func (r *liveRig) create(t *testing.T, name string, rules []workv1.FeedbackRule, objects ...runtime.Object) *workv1.ManifestWork {
	t.Helper()
	mw := &workv1.ManifestWork{
		TypeMeta:   metav1.TypeMeta{APIVersion: workv1.GroupVersion.String(), Kind: "ManifestWork"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
	}
	for _, o := range objects {
		mw.Spec.Workload.Manifests = append(mw.Spec.Workload.Manifests, workv1.Manifest{RawExtension: runtime.RawExtension{Raw: encoded(t, o)}})
	}
	if rules != nil {
		mw.Spec.ManifestConfigs = []workv1.ManifestConfigOption{{
			ResourceIdentifier: workv1.ResourceIdentifier{Resource: "configmaps", Namespace: "*", Name: "*"}, FeedbackRules: rules,
		}}
	}
	out := &workv1.ManifestWork{}
	err := r.works.client.Post().Namespace(r.cluster).Resource("manifestworks").Body(mw).Do(t.Context()).Into(out)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// change has the one ConfigMap of a work have another value.
func (r *liveRig) change(t *testing.T, name, value string) {
	t.Helper()
	patch := []byte(`[{"op": "replace", "path": "/spec/workload/manifests/0/data/value", "value": "` + value + `"}]`)
	err := r.works.client.Patch("application/json-patch+json").Namespace(r.cluster).Resource("manifestworks").Name(name).Body(patch).Do(t.Context()).Error()
	if err != nil {
		t.Fatal(err)
	}
}

func encoded(t *testing.T, o any) []byte {
	t.Helper()
	raw, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func (r *liveRig) configMap(name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: r.cluster, Name: name}, Data: map[string]string{"value": value},
	}
}

func (r *liveRig) get(ctx context.Context, name string) (*workv1.ManifestWork, error) {
	mw := &workv1.ManifestWork{}
	return mw, r.works.client.Get().Namespace(r.cluster).Resource("manifestworks").Name(name).Do(ctx).Into(mw)
}

// await waits until a work is as it should be.
func (r *liveRig) await(t *testing.T, name, what string, is func(*workv1.ManifestWork) bool) *workv1.ManifestWork {
	t.Helper()
	var last *workv1.ManifestWork
	defer func() {
		if t.Failed() && last != nil {
			t.Logf("work %s, %s: %s", name, what, encoded(t, last))
		}
	}()
	livetest.Eventually(t, "work "+name+", "+what, func() bool {
		var err error
		if last, err = r.get(t.Context(), name); err != nil {
			t.Fatalf("work %s, %s: %v", name, what, err)
		}
		return is(last)
	})
	return last
}

func available(mw *workv1.ManifestWork) bool {
	return meta.IsStatusConditionTrue(mw.Status.Conditions, workv1.WorkApplied) && meta.IsStatusConditionTrue(mw.Status.Conditions, workv1.WorkAvailable)
}

// hasAllConditions is available, with the conditions of its one manifest.
func hasAllConditions(mw *workv1.ManifestWork) bool {
	list := mw.Status.ResourceStatus.Manifests
	return available(mw) && len(list) == 1 && len(list[0].Conditions) == 3
}

// delete deletes a work and waits until it is gone.
func (r *liveRig) delete(t *testing.T, k *kind, name string) {
	t.Helper()
	request := func(verb *rest.Request) *rest.Request {
		return verb.Namespace(r.cluster).Resource(k.resource.Resource).Name(name)
	}
	if err := request(k.client.Delete()).Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	livetest.Eventually(t, "work "+name+" is gone", func() bool {
		err := request(k.client.Get()).Do(t.Context()).Error()
		if ignoreNotFound(err) != nil {
			t.Fatalf("work %s: %v", name, err)
		}
		return err != nil
	})
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// stored tells whether a ConfigMap is in the spoke.
func (r *liveRig) stored(t *testing.T, name string) (*corev1.ConfigMap, bool) {
	t.Helper()
	cm, err := r.kube.CoreV1().ConfigMaps(r.cluster).Get(t.Context(), name, metav1.GetOptions{})
	if ignoreNotFound(err) != nil {
		t.Fatal(err)
	}
	return cm, err == nil
}

func TestLiveWorkIsAppliedReportedAndDeleted(t *testing.T) {
	t.Parallel()
	for name, one := range map[string]bool{"hub and spoke are two": false, "hub and spoke are one": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newLiveRig(t, one)
			r.start(t, "a")
			value := []workv1.FeedbackRule{{Type: workv1.JSONPathsType, JsonPaths: []workv1.JsonPath{{Name: "value", Path: ".data.value"}}}}
			r.create(t, r.name("w"), value, r.configMap("settings", "one"))
			mw := r.await(t, r.name("w"), "available", available)
			if diff := cmp.Diff([]string{workconvert.ManifestWorkFinalizer}, mw.Finalizers); diff != "" {
				t.Errorf("finalizers (-want +got):\n%s", diff)
			}
			anchor := workconvert.HubHash(r.hub.Host) + "-" + r.name("w")
			if _, err := r.anchors.Get(t.Context(), anchor, metav1.GetOptions{}); err != nil {
				t.Errorf("anchor: %v", err)
			}
			reported := func(want string) func(*workv1.ManifestWork) bool {
				return func(mw *workv1.ManifestWork) bool {
					list := mw.Status.ResourceStatus.Manifests
					return len(list) == 1 && len(list[0].StatusFeedbacks.Values) == 1 && *list[0].StatusFeedbacks.Values[0].Value.String == want
				}
			}
			r.await(t, r.name("w"), "feedback", reported("one"))
			r.change(t, r.name("w"), "two")
			r.await(t, r.name("w"), "feedback of the change", reported("two"))
			r.delete(t, r.works, r.name("w"))
			if _, is := r.stored(t, "settings"); is {
				t.Error("the object is still there")
			}
			if _, err := r.anchors.Get(t.Context(), anchor, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				t.Errorf("anchor: %v", err)
			}
		})
	}
}

func TestLiveMulticlusterWorksAreServed(t *testing.T) {
	t.Parallel()
	r := newLiveRig(t, false)
	r.start(t, "a")
	w := &v1alpha1.Work{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Work"},
		ObjectMeta: metav1.ObjectMeta{Name: "w"},
	}
	w.Spec.Workload.Manifests = []v1alpha1.Manifest{{RawExtension: runtime.RawExtension{Raw: encoded(t, r.configMap("settings", "one"))}}}
	if err := r.multi.client.Post().Namespace(r.cluster).Resource("works").Body(w).Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	livetest.Eventually(t, "the work is available", func() bool {
		got := &v1alpha1.Work{}
		if err := r.multi.client.Get().Namespace(r.cluster).Resource("works").Name("w").Do(t.Context()).Into(got); err != nil {
			t.Fatal(err)
		}
		return meta.IsStatusConditionTrue(got.Status.Conditions, "Available")
	})
	r.delete(t, r.multi, "w")
	if _, is := r.stored(t, "settings"); is {
		t.Error("the object is still there")
	}
}

func TestLiveNextLeaseHolderTakesOver(t *testing.T) {
	t.Parallel()
	r := newLiveRig(t, false)
	timing := lease.Timing{Duration: time.Minute, Renewal: 40 * time.Second, Retry: 2 * time.Second}
	elected := func(c *Config) { c.Lease = timing }
	first := r.start(t, "first", elected)
	r.create(t, r.name("w"), nil, r.configMap("settings", "one"))
	before := r.await(t, r.name("w"), "available, and all of it told", hasAllConditions)
	object, _ := r.stored(t, "settings")

	second := r.start(t, "second", elected)
	began := time.Now()
	first.stop(t)
	t.Logf("the first took %s to end", time.Since(began))
	r.create(t, r.name("x"), nil, r.configMap("other", "one"))
	r.await(t, r.name("x"), "available, by the second", available)
	if took := time.Since(began); took > timing.Duration/2 { // a Lease that is not given up lasts for all of it
		t.Errorf("the second took %s to take over", took)
	}
	after, err := r.get(t.Context(), r.name("w"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before.Status, after.Status); diff != "" {
		t.Errorf("the status has changed (-before +after):\n%s", diff)
	}
	if now, _ := r.stored(t, "settings"); now.ResourceVersion != object.ResourceVersion {
		t.Error("the object was written again")
	}
	second.stop(t)
	// Nobody holds the Lease: the next one begins at once.
	third := r.start(t, "third", elected)
	r.delete(t, r.works, r.name("w"))
	r.delete(t, r.works, r.name("x"))
	third.stop(t)
}

func TestLiveOverlappingAgentsDeleteEverything(t *testing.T) {
	t.Parallel()
	r := newLiveRig(t, true)
	r.start(t, "a", withoutElection)
	r.start(t, "b", withoutElection)
	names := []string{"one", "two", "three", "four", "five"}
	for _, name := range names {
		r.create(t, r.name(name), nil, r.configMap(name, "1"))
	}
	for _, name := range names {
		r.await(t, r.name(name), "available", available)
	}
	for _, name := range names {
		r.change(t, r.name(name), "2")
	}
	for _, name := range names {
		livetest.Eventually(t, name+" is changed", func() bool {
			cm, _ := r.stored(t, name)
			return cm.Data["value"] == "2"
		})
	}
	r.waitUntilUnchanged(t, names)
	for _, name := range names {
		if cm, _ := r.stored(t, name); cm.Data["value"] != "2" {
			t.Errorf("%s was changed back to %q", name, cm.Data["value"])
		}
	}
	r.create(t, r.name("short"), nil, r.configMap("short", "1"))
	names = append(names, "short") // it is deleted before both know of it
	var deleting sync.WaitGroup
	for _, name := range names {
		deleting.Go(func() { r.delete(t, r.works, r.name(name)) })
	}
	deleting.Wait()
	<-time.After(time.Second) // for whoever has not heard of it yet, and brings it back
	for _, name := range names {
		livetest.Eventually(t, name+" is gone for good", func() bool {
			_, is := r.stored(t, name)
			_, err := r.anchors.Get(t.Context(), workconvert.HubHash(r.hub.Host)+"-"+r.name(name), metav1.GetOptions{})
			return !is && apierrors.IsNotFound(err)
		})
	}
}

// versions of the works and their objects.
func (r *liveRig) versions(t *testing.T, names []string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, name := range names {
		mw, err := r.get(t.Context(), r.name(name))
		if err != nil {
			t.Fatal(err)
		}
		cm, _ := r.stored(t, name)
		out["work "+name], out["object "+name] = mw.ResourceVersion, cm.ResourceVersion
	}
	return out
}

// waitUntilUnchanged waits until no version has changed for three seconds: both have said the
// same by then, and nobody writes at rest.
func (r *liveRig) waitUntilUnchanged(t *testing.T, names []string) {
	t.Helper()
	last := r.versions(t, names)
	livetest.Eventually(t, "nobody writes any more", func() bool {
		<-time.After(3 * time.Second)
		before := last
		last = r.versions(t, names)
		return cmp.Equal(before, last)
	})
}

func TestLiveAgentExitsWhenKubeconfigChanges(t *testing.T) {
	t.Parallel()
	r := newLiveRig(t, false)
	file := t.TempDir() + "/kubeconfig"
	timing := lease.Timing{Duration: time.Minute, Renewal: 40 * time.Second, Retry: 5 * time.Second}
	a := r.start(t, "a", func(c *Config) { c.TerminateOnFiles, c.Lease = []string{file}, timing })
	r.create(t, r.name("w"), nil, r.configMap("settings", "one"))
	r.await(t, r.name("w"), "available", available)
	leases := r.kube.CoordinationV1().Leases(r.cluster)
	held, err := leases.Get(t.Context(), leaseName, metav1.GetOptions{})
	if err != nil || *held.Spec.LeaseDurationSeconds != 60 {
		t.Errorf("the Lease is not held for as long as was asked: %v, %v", held.Spec, err)
	}
	if err := os.WriteFile(file, []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	select {
	case <-a.done:
	case <-time.After(livetest.Patience): // it looks every two seconds
		t.Fatal("it goes on")
	}
	if a.err != nil && !errors.Is(a.err, context.Canceled) {
		t.Errorf("it ended with %v", a.err)
	}
	held, err = leases.Get(t.Context(), leaseName, metav1.GetOptions{})
	if err != nil || held.Spec.HolderIdentity != nil && *held.Spec.HolderIdentity != "" {
		t.Errorf("the Lease is not given up: %v, %v", held.Spec, err)
	}
	r.start(t, "b")
	r.delete(t, r.works, r.name("w"))
}

func TestLiveRawLengthIsReadFromHubSchema(t *testing.T) {
	t.Parallel()
	r := newLiveRig(t, false)
	got, err := readMaxRawLength(t.Context(), r.works.client)
	if err != nil || got != 1024 {
		t.Errorf("%d, %v; want 1024", got, err)
	}
}
