// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package fanout

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/spokelet/spokelet/api/mcm/v1alpha1"
	"github.com/spokelet/spokelet/hub/mcm"
	"github.com/spokelet/spokelet/hub/requester"
	"github.com/spokelet/spokelet/internal/managedcluster"
	"github.com/spokelet/spokelet/internal/quota"
	"github.com/spokelet/spokelet/internal/rbacwatch"
)

// registered is the UID of the webhook's registration.
const registered = "registration"

var (
	alice = requester.User{User: "alice", Groups: []string{"dev"}}
	bob   = requester.User{User: "bob"}
)

// denied answers SubjectAccessReviews: no to users in namespaces, as "<user>/<namespace>".
type denied struct {
	mu    sync.Mutex
	who   map[string]bool // guarded by mu
	asked int             // guarded by mu
	err   error           // guarded by mu
	// meanwhile is called by each question, if it is set.
	meanwhile func()
}

func (d *denied) Create(_ context.Context, review *authorizationv1.SubjectAccessReview, _ metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error) {
	if d.meanwhile != nil {
		d.meanwhile()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked++
	at := review.Spec.ResourceAttributes
	if at.Verb != "create" || at.Group != "mcm.ibm.com" || at.Resource != "works" {
		return nil, errors.New("asked about something else")
	}
	if d.err != nil {
		return nil, d.err
	}
	review.Status.Allowed = !d.no(review.Spec.User, at.Namespace)
	return review, nil
}

// no reports whether a user lacks the right in a namespace, or, without one, in any; d.mu is
// held.
func (d *denied) no(user, namespace string) bool {
	if namespace != "" {
		return d.who[user+"/"+namespace]
	}
	for who, no := range d.who {
		if no && strings.HasPrefix(who, user+"/") {
			return true
		}
	}
	return false
}

func (d *denied) set(who string, no bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.who[who] = no
}

// rig is a Controller over a fake API server.
type rig struct {
	*Controller

	t      *testing.T
	api    client.WithWatch
	denied *denied
	// authors has the registration of UID registered.
	authors *requester.Registration
	// reads of Works past the cache, and what is written.
	reads, writes atomic.Int64
	// budget is that of clusters, none if it is nil.
	budget *quota.Writes
	// refuse answers the creation of a Work, if it is set.
	refuse func(w client.Object) error
}

// strip makes Works what the hub's cache has of them.
func strip(list client.ObjectList) error {
	works, ok := list.(*v1alpha1.WorkList)
	if !ok {
		return nil
	}
	for i := range works.Items {
		if _, err := mcm.Strip(&works.Items[i]); err != nil {
			return err
		}
	}
	return nil
}

func stripParent(o client.Object) (err error) {
	switch o.(type) {
	case *v1alpha1.WorkSet, *v1alpha1.ResourceView:
		_, err = Strip(o)
	}
	return err
}

func newScheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), clusterv1.Install(scheme)); err != nil {
		t.Fatal(err)
	}
	return scheme
}

func newRig(t *testing.T, objects ...client.Object) *rig {
	t.Helper()
	r := &rig{t: t, denied: &denied{who: map[string]bool{}}, authors: &requester.Registration{}}
	r.authors.Set(registered)
	scheme := newScheme(t)
	// Nothing is applied here: a tracker without field managers is many times faster.
	tracker := clienttesting.NewObjectTracker(scheme, serializer.NewCodecFactory(scheme).UniversalDecoder())
	r.api = fake.NewClientBuilder().WithScheme(scheme).WithObjectTracker(tracker).WithObjects(objects...).
		WithIndex(&v1alpha1.Work{}, indexOwner, indexOf).
		WithStatusSubresource(&v1alpha1.Work{}, &v1alpha1.WorkSet{}, &v1alpha1.ResourceView{}).Build()
	r.restart()
	return r
}

// restart makes another Controller over the same API server.
func (r *rig) restart() {
	r.t.Helper()
	cached := interceptor.NewClient(r.api, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if err := c.Get(ctx, key, o, opts...); err != nil {
				return err
			}
			return stripParent(o)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			return errors.Join(c.List(ctx, list, opts...), strip(list))
		},
		Create: r.create,
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			r.writes.Add(1)
			if err := c.Patch(ctx, o, p, opts...); err != nil {
				return err
			}
			if raw, err := p.Data(o); err != nil || !strings.Contains(string(raw), `"/spec"`) {
				return err
			}
			w := &v1alpha1.Work{ObjectMeta: metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: o.GetName()}}
			r.edit(w, func() { w.Generation++ })
			return nil
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			r.writes.Add(1)
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			r.writes.Add(1)
			return c.Delete(ctx, o, opts...)
		},
	})
	live := interceptor.NewClient(r.api, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if _, ok := o.(*v1alpha1.Work); ok {
				r.reads.Add(1)
			}
			return c.Get(ctx, key, o, opts...)
		},
	})
	c, err := New(Config{
		Client: cached, Live: live, Access: r.denied, Logger: logr.Discard(),
		Rights: rbacwatch.NewRechecker(nil, logr.Discard()), Authors: r.authors, Writes: r.budget,
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.Controller = c
}

// create gives a Work what an API server gives it.
func (r *rig) create(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
	n := r.writes.Add(1)
	if r.refuse != nil {
		if err := r.refuse(o); err != nil {
			return err
		}
	}
	o.SetUID(types.UID(fmt.Sprintf("uid-%d", n)))
	o.SetGeneration(1)
	return c.Create(ctx, o, opts...)
}

func (r *rig) kind(name string) *reconciler {
	r.t.Helper()
	for _, k := range r.reconcilers {
		if k.name == name {
			return k
		}
	}
	r.t.Fatalf("there is no kind %s", name)
	return nil
}

var request = ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "shop", Name: "all"}}

// settle reconciles a parent until there is nothing more to do.
func (r *rig) settle(kind string) {
	r.t.Helper()
	for {
		before := r.writes.Load()
		result, err := r.kind(kind).Reconcile(r.t.Context(), request)
		if err != nil {
			r.t.Fatal(err)
		}
		<-time.After(result.RequeueAfter) // of a synctest bubble
		if result.IsZero() && r.writes.Load() == before {
			return
		}
	}
}

// look reconciles a parent once, and returns how many writes that made.
func (r *rig) look(kind string) (writes int64, result ctrl.Result) {
	r.t.Helper()
	before := r.writes.Load()
	result, err := r.kind(kind).Reconcile(r.t.Context(), request)
	if err != nil {
		r.t.Fatal(err)
	}
	return r.writes.Load() - before, result
}

func (r *rig) get(o client.Object) {
	r.t.Helper()
	if err := r.api.Get(r.t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		r.t.Fatal(err)
	}
}

// edit changes an object as somebody else does.
func (r *rig) edit(o client.Object, change func()) {
	r.t.Helper()
	r.get(o)
	change()
	if err := r.api.Update(r.t.Context(), o); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) delete(o client.Object) {
	r.t.Helper()
	if err := r.api.Delete(r.t.Context(), o); err != nil {
		r.t.Fatal(err)
	}
}

// works are the namespaces of all Works.
func (r *rig) works() (in []string) {
	r.t.Helper()
	var list v1alpha1.WorkList
	if err := r.api.List(r.t.Context(), &list); err != nil {
		r.t.Fatal(err)
	}
	for i := range list.Items {
		in = append(in, list.Items[i].Namespace)
	}
	return in
}

// work is that of a cluster.
func (r *rig) work(p parent, cluster string) *v1alpha1.Work {
	r.t.Helper()
	w := &v1alpha1.Work{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: workName(p, cluster)}}
	r.get(w)
	return w
}

// answer has a cluster answer its Work, with a result if there is one.
func (r *rig) answer(p parent, cluster string, is v1alpha1.WorkStatusType, reason, result string) {
	r.t.Helper()
	w := r.work(p, cluster)
	w.Status = v1alpha1.WorkStatus{Type: is, Reason: reason, ObservedGeneration: w.Generation}
	if result != "" {
		w.Status.Result = &runtime.RawExtension{Raw: []byte(result)}
	}
	r.report(w)
}

func (r *rig) report(w *v1alpha1.Work) {
	r.t.Helper()
	if err := r.api.Status().Update(r.t.Context(), w); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) set() v1alpha1.WorkSetStatus {
	r.t.Helper()
	s := newSet()
	r.get(s)
	return s.Status
}

func (r *rig) view() *v1alpha1.ResourceView {
	r.t.Helper()
	v := newView()
	r.get(v)
	return v
}

func cluster(name string, change ...func(*clusterv1.ManagedCluster)) *clusterv1.ManagedCluster {
	c := &clusterv1.ManagedCluster{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"fan": "out"}, Annotations: map[string]string{managedcluster.AnnotationManaged: "true"}},
		Spec:       clusterv1.ManagedClusterSpec{HubAcceptsClient: true},
	}
	for _, f := range change {
		f(c)
	}
	return c
}

func setNamed(namespace, name string) *v1alpha1.WorkSet {
	return &v1alpha1.WorkSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

func newSelector() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"fan": "out"}}
}

// newSet makes a ConfigMap in each cluster.
func newSet() *v1alpha1.WorkSet {
	s := setNamed("shop", "all")
	s.UID, s.Generation = "set", 1
	s.Annotations = alice.Annotations(requester.MCM, registered)
	s.Spec.ClusterSelector = newSelector()
	s.Spec.Template.Spec = v1alpha1.TemplateSpec{Type: "Action", ActionType: "Create", KubeWork: &v1alpha1.KubeWorkSpec{
		ObjectTemplate: runtime.RawExtension{Raw: []byte(`{"apiVersion":"v1","kind":"ConfigMap"}`)},
	}}
	return s
}

// newView asks each cluster for its pods.
func newView() *v1alpha1.ResourceView {
	return &v1alpha1.ResourceView{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "all", UID: "view", Generation: 1, Annotations: alice.Annotations(requester.MCM, registered),
		},
		Spec: v1alpha1.ResourceViewSpec{ClusterSelector: newSelector(), Scope: v1alpha1.ViewFilter{Resource: "pods"}},
	}
}
