// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	workv1 "open-cluster-management.io/api/work/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/spokelet/spokelet/workers/api"
	accountv1alpha1 "github.com/spokelet/spokelet/workers/api/account/v1alpha1"
	builderv1alpha1 "github.com/spokelet/spokelet/workers/api/builder/v1alpha1"
	bundlev1alpha1 "github.com/spokelet/spokelet/workers/api/bundle/v1alpha1"
	deploymentv1alpha1 "github.com/spokelet/spokelet/workers/api/deployment/v1alpha1"
	releasev1alpha1 "github.com/spokelet/spokelet/workers/api/release/v1alpha1"
	"github.com/spokelet/spokelet/workers/build"
	"github.com/spokelet/spokelet/workers/placement"
	"github.com/spokelet/spokelet/workers/store"
)

const (
	team     = "team-a"
	operator = "spokelet-workers"
)

// fakeStore stands in for an object store: the modules below each prefix.
type fakeStore struct {
	modules map[string][]releasev1alpha1.Module
	err     error
	asked   int
}

func (s *fakeStore) List(_ context.Context, account string, urls []string) ([]releasev1alpha1.Module, error) {
	s.asked++
	if s.err != nil {
		return nil, s.err
	}
	var all []releasev1alpha1.Module
	for _, url := range urls {
		if !strings.HasPrefix(url, account+"/") {
			return nil, fmt.Errorf("%s: %w", url, store.ErrForeign)
		}
		found, ok := s.modules[url]
		if !ok {
			return nil, fmt.Errorf("%s: %w", url, store.ErrMissing)
		}
		all = append(all, found...)
	}
	return all, nil
}

// fakeRegistry stands in for a registry: the digests that it has.
type fakeRegistry struct{ missing, deleted map[string]bool }

func (r *fakeRegistry) Exists(_ context.Context, _, digest string) (bool, error) {
	return !r.missing[digest], nil
}

func (r *fakeRegistry) Delete(_ context.Context, _, digest string) error {
	r.deleted[digest] = true
	return nil
}

// world is a hub with the controllers, which are run until nothing changes. Jobs, pods and
// clusters are played by the test.
type world struct {
	t        *testing.T
	client   client.WithWatch
	store    *fakeStore
	registry *fakeRegistry
	now      time.Time
	place    placement.Options
	order    *rand.Rand // of the controllers; nil: as things flow
	b        *buildReconciler
	p        *bundleReconciler

	deploymentController, releaseController, accountController, buildController, bundleController reconcile.Reconciler
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	scheme, err := NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	objects = append(objects,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: team, Labels: map[string]string{api.LabelAccount: "1234"}}},
		cluster("spoke1"), cluster("spoke2"),
	)
	// Nothing is applied here: a tracker without field managers is many times faster.
	tracker := clienttesting.NewObjectTracker(scheme, serializer.NewCodecFactory(scheme).UniversalDecoder())
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjectTracker(tracker).WithObjects(objects...).WithStatusSubresource(
		&deploymentv1alpha1.WorkerDeployment{}, &releasev1alpha1.WorkerRelease{}, &accountv1alpha1.WorkerAccount{},
		&builderv1alpha1.JobBuilder{}, &bundlev1alpha1.WorkerBundle{}, &workv1.ManifestWork{}, &batchv1.Job{},
	).WithIndex(&workv1.ManifestWork{}, indexName, indexWorkName).WithInterceptorFuncs(interceptor.Funcs{Create: numbered()}).Build()
	w := &world{
		t: t, client: c, now: time.Unix(1e9, 0),
		store:    &fakeStore{modules: map[string][]releasev1alpha1.Module{}},
		registry: &fakeRegistry{missing: map[string]bool{}, deleted: map[string]bool{}},
	}
	w.restart()
	return w
}

// numbered gives objects what an API server gives them: each is a second older than the next.
func numbered() func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
	n := int64(0)
	return func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
		n++
		if o.GetUID() == "" {
			o.SetUID(types.UID(fmt.Sprintf("uid-%d", n)))
		}
		if created := o.GetCreationTimestamp(); created.IsZero() {
			o.SetCreationTimestamp(metav1.Unix(1e9+n, 0))
		}
		return c.Create(ctx, o, opts...)
	}
}

// restart makes new controllers, which know nothing but what is stored.
func (w *world) restart() {
	cfg := Config{Store: w.store, Registry: w.registry, Namespace: operator}
	cfg.Settings.Registry.Runtime, cfg.Settings.Registry.Pull = "registry/workerd:1", "registry/workers"
	cfg.Settings.Build.Image, cfg.Settings.Build.ConfigMap, cfg.Settings.Placement = "workers:1", "config", w.place
	cfg.Settings.Default()
	base := newBase(cfg, w.client, w.client, events.NewFakeRecorder(1000))
	w.b = &buildReconciler{base: base, now: func() time.Time { return w.now }}
	w.p = &bundleReconciler{base}
	w.deploymentController = withRetry(withoutResult((&deploymentReconciler{base}).reconcile))
	w.releaseController = withRetry(withoutResult((&releaseReconciler{base}).reconcile))
	w.accountController = withRetry(withoutResult((&accountReconciler{base}).reconcile))
	w.buildController = withRetry(w.b.reconcile)
	w.bundleController = withRetry(withoutResult(w.p.reconcile))
}

func cluster(name string) *clusterv1.ManagedCluster {
	return &clusterv1.ManagedCluster{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{api.LabelClusters: "true"}},
		Spec:       clusterv1.ManagedClusterSpec{HubAcceptsClient: true},
	}
}

// code stores a version of a script under a prefix.
func (w *world) code(prefix, etag string) {
	w.store.modules[prefix] = []releasev1alpha1.Module{{Name: "index.js", Key: prefix + "/index.js", ETag: etag, Size: 10}}
}

func (w *world) account() {
	w.create(&accountv1alpha1.WorkerAccount{ObjectMeta: object("1234"), Spec: accountv1alpha1.WorkerAccountSpec{WorkerBundleName: "bundle"}})
}

// selecting has the account serve only releases with a label.
func (w *world) selecting(key, value string) {
	w.t.Helper()
	account := &accountv1alpha1.WorkerAccount{}
	w.get("1234", account)
	account.Spec.WorkerReleaseSelector = metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
	if err := w.client.Update(w.t.Context(), account); err != nil {
		w.t.Fatal(err)
	}
}

// object is the metadata of an object of the team. The fake client numbers nothing.
func object(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: team, Name: name, UID: types.UID("uid-" + name), Generation: 1}
}

// deploy writes what a script is to be.
func (w *world) deploy(name, prefix string, change func(*deploymentv1alpha1.WorkerDeployment)) {
	w.t.Helper()
	wd := &deploymentv1alpha1.WorkerDeployment{ObjectMeta: object(name)}
	err := w.client.Get(w.t.Context(), client.ObjectKeyFromObject(wd), wd)
	wd.Spec.Template = releasev1alpha1.Script{ScriptName: name, CompatibilityDate: "01/15/2026", ScriptURLs: []string{prefix}}
	wd.Generation++
	if change != nil {
		change(wd)
	}
	if err != nil {
		w.create(wd)
	} else if err := w.client.Update(w.t.Context(), wd); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) create(o client.Object) {
	w.t.Helper()
	if err := w.client.Create(w.t.Context(), o); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) get(name string, o client.Object) {
	w.t.Helper()
	if err := w.client.Get(w.t.Context(), types.NamespacedName{Namespace: team, Name: name}, o); err != nil {
		w.t.Fatal(err)
	}
}

// rounds is how often each controller runs at most until nothing changes.
const rounds = 12

// reconcileAll runs the controllers until no object changes.
func (w *world) reconcileAll() {
	w.t.Helper()
	last := ""
	for range rounds {
		w.round()
		now := w.dump()
		if now == last {
			return
		}
		last = now
	}
	w.t.Fatalf("it does not settle: %s", last)
}

// round runs each controller once on each of its objects, in the order that the test chose.
func (w *world) round() {
	w.t.Helper()
	controllers := []func(){
		func() { w.each(&deploymentv1alpha1.WorkerDeploymentList{}, w.deploymentController) },
		func() { w.each(&releasev1alpha1.WorkerReleaseList{}, w.releaseController) },
		func() { w.each(&corev1.NamespaceList{}, w.accountController) },
		func() { w.each(&builderv1alpha1.JobBuilderList{}, w.buildController) },
		func() { w.each(&bundlev1alpha1.WorkerBundleList{}, w.bundleController) },
		w.collect,
	}
	if w.order != nil {
		w.order.Shuffle(len(controllers), func(i, j int) { controllers[i], controllers[j] = controllers[j], controllers[i] })
	}
	for _, run := range controllers {
		run()
		w.oneBuild()
	}
}

// collect deletes what has lost its owner, as Kubernetes does.
func (w *world) collect() {
	w.t.Helper()
	owned := []client.ObjectList{
		&bundlev1alpha1.WorkerBundleList{}, &builderv1alpha1.JobBuilderList{}, &releasev1alpha1.WorkerReleaseList{}, &corev1.SecretList{},
	}
	alive := map[types.UID]bool{}
	for _, list := range append(owned, &accountv1alpha1.WorkerAccountList{}, &deploymentv1alpha1.WorkerDeploymentList{}) {
		for _, o := range w.list(list) {
			alive[o.GetUID()] = true
		}
	}
	for _, list := range owned {
		for _, o := range w.list(list) {
			if owner := metav1.GetControllerOf(o); owner != nil && !alive[owner.UID] && !isDeleting(o) {
				w.remove(o)
			}
		}
	}
}

// oneBuild fails the test if two builds of one namespace overlap.
func (w *world) oneBuild() {
	w.t.Helper()
	builders := map[string]string{}
	for _, job := range w.jobs() {
		namespace, builder := job.Labels[api.LabelNamespace], job.Labels[api.LabelBuilder]
		if other, known := builders[namespace]; known {
			w.t.Fatalf("builds %s and %s of namespace %s overlap", other, builder, namespace)
		}
		builders[namespace] = builder
	}
}

func (w *world) remove(o client.Object) {
	w.t.Helper()
	if err := deleteObject(w.t.Context(), w.client, "object", o); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) each(list client.ObjectList, r reconcile.Reconciler) {
	w.t.Helper()
	for _, o := range w.list(list) {
		w.reconcile(r, client.ObjectKeyFromObject(o))
	}
}

func (w *world) reconcile(r reconcile.Reconciler, key types.NamespacedName) {
	w.t.Helper()
	if _, err := r.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: key}); err != nil {
		w.t.Logf("reconcile %s: %v", key, err)
	}
}

func (w *world) list(list client.ObjectList) []client.Object {
	w.t.Helper()
	if err := w.client.List(w.t.Context(), list); err != nil {
		w.t.Fatal(err)
	}
	var objects []client.Object
	_ = meta.EachListItem(list, func(o runtime.Object) error {
		objects = append(objects, o.(client.Object))
		return nil
	})
	return objects
}

// dump is what a change is told by.
func (w *world) dump() string {
	w.t.Helper()
	var all strings.Builder
	for _, list := range []client.ObjectList{
		&deploymentv1alpha1.WorkerDeploymentList{}, &releasev1alpha1.WorkerReleaseList{}, &accountv1alpha1.WorkerAccountList{},
		&builderv1alpha1.JobBuilderList{}, &bundlev1alpha1.WorkerBundleList{}, &workv1.ManifestWorkList{}, &batchv1.JobList{}, &corev1.ConfigMapList{},
	} {
		for _, o := range w.list(list) {
			fmt.Fprintf(&all, "%T %s/%s %s\n", o, o.GetNamespace(), o.GetName(), o.GetResourceVersion())
		}
	}
	return all.String()
}

// jobs are those that there are.
func (w *world) jobs() []batchv1.Job {
	w.t.Helper()
	var list batchv1.JobList
	if err := w.client.List(w.t.Context(), &list); err != nil {
		w.t.Fatal(err)
	}
	return list.Items
}

// finish ends the only Job with a result.
func (w *world) finish(result build.Result) {
	w.t.Helper()
	jobs := w.jobs()
	if len(jobs) != 1 {
		w.t.Fatalf("there are %d Jobs, want 1", len(jobs))
	}
	w.end(&jobs[0], result)
}

// end ends a Job with a result.
func (w *world) end(job *batchv1.Job, result build.Result) {
	w.t.Helper()
	code, ended := int32(0), batchv1.JobComplete
	if result.Image == "" {
		code, ended = 1, batchv1.JobFailed
	}
	message, err := json.Marshal(result)
	if err != nil {
		w.t.Fatal(err)
	}
	pod := podOf(job, code, string(message))
	w.create(pod)
	job.Status.Conditions = []batchv1.JobCondition{{Type: ended, Status: corev1.ConditionTrue}}
	if err := w.client.Status().Update(w.t.Context(), job); err != nil {
		w.t.Fatal(err)
	}
	w.reconcileAll()
	w.remove(pod) // as its Job goes
}

// podOf is the pod of a Job whose last step has ended.
func podOf(job *batchv1.Job, code int32, message string) *corev1.Pod {
	terminated := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Message: message}}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: operator, Name: job.Name, Labels: map[string]string{batchv1.JobNameLabel: job.Name},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))},
		},
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "push", State: terminated}}},
	}
}

// runJob ends all Jobs, each with an image of its own, and has the clusters serve it.
func (w *world) runJob() {
	w.t.Helper()
	for jobs := w.jobs(); len(jobs) > 0; jobs = w.jobs() {
		w.end(&jobs[0], imageOf(&jobs[0]))
	}
	w.answer()
}

// built ends the only Job with an image, whose digest is made of a word.
func (w *world) built(word string) {
	w.t.Helper()
	w.finish(build.Result{Image: "registry/workers/1234@sha256:" + word})
}

// answer has all clusters serve what they were told.
func (w *world) answer() {
	w.t.Helper()
	var works workv1.ManifestWorkList
	if err := w.client.List(w.t.Context(), &works); err != nil {
		w.t.Fatal(err)
	}
	for i := range works.Items {
		work := &works.Items[i]
		revision, image, at := deploymentIn(w.t, work)
		applied := metav1.Condition{Type: workv1.WorkApplied, Status: metav1.ConditionTrue, Reason: "Applied", ObservedGeneration: work.Generation}
		available := metav1.Condition{Type: "Available", Status: metav1.ConditionTrue, Reason: "Available", ObservedGeneration: work.Generation}
		served := metav1.Condition{Type: placement.ConditionServed, Status: metav1.ConditionTrue, Reason: "Served", Message: revision + " " + image, ObservedGeneration: work.Generation}
		work.Status.Conditions = []metav1.Condition{applied, available, served}
		work.Status.ResourceStatus.Manifests = []workv1.ManifestCondition{{
			ResourceMeta: workv1.ManifestResourceMeta{Ordinal: at, Group: "apps", Kind: "Deployment", Resource: "deployments", Name: "bundle", Namespace: "workers-1234"},
			Conditions:   []metav1.Condition{applied, available, served},
		}}
		if err := w.client.Status().Update(w.t.Context(), work); err != nil {
			w.t.Fatal(err)
		}
	}
	w.reconcileAll()
}

// deploymentIn finds the Deployment of a work.
func deploymentIn(t *testing.T, work *workv1.ManifestWork) (revision, image string, at int32) {
	t.Helper()
	for i, m := range work.Spec.Workload.Manifests {
		var d appsv1.Deployment
		if err := json.Unmarshal(m.Raw, &d); err != nil {
			t.Fatal(err)
		}
		if d.Kind == "Deployment" {
			return d.Annotations[placement.AnnotationRevision], d.Spec.Template.Spec.Containers[0].Image, int32(i)
		}
	}
	t.Fatal("the work has no Deployment")
	return "", "", 0
}
