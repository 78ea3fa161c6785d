// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package deployer

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	deploymentv1alpha1 "github.com/spokelet/spokelet/workers/api/deployment/v1alpha1"
	releasev1alpha1 "github.com/spokelet/spokelet/workers/api/release/v1alpha1"
	"github.com/spokelet/spokelet/workers/controllers"
)

// fakeHub is the fake client with what of an API server it does not have: UIDs, times,
// generations, preconditions, Secrets that cannot be changed, JSON in an order of its own, and
// watches of one object that begin with its state.
type fakeHub struct {
	// client is what kubectl has: it meets no faults.
	client   client.WithWatch
	operator *fakeOperator

	mu      sync.Mutex
	watches []namedWatch
	// opened is what happens when the next watch was opened, and the one after that.
	opened []func(context.Context, *watch.RaceFreeFakeWatcher)
	// faults are answers to the deployer, by verb and kind, as in "create Secret".
	faults map[string]error
	// writes are those of the deployer, by verb and kind.
	writes []string
}

type namedWatch struct {
	key client.ObjectKey
	*watch.RaceFreeFakeWatcher
}

func newHub(t *testing.T) *fakeHub {
	t.Helper()
	scheme, err := controllers.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	h := &fakeHub{faults: map[string]error{}}
	h.operator = &fakeOperator{notify: h.notify}
	// Nothing is applied here: a tracker without field managers is many times faster.
	tracker := clienttesting.NewObjectTracker(scheme, serializer.NewCodecFactory(scheme).UniversalDecoder())
	h.client = fake.NewClientBuilder().WithScheme(scheme).WithObjectTracker(tracker).
		WithStatusSubresource(&deploymentv1alpha1.WorkerDeployment{}, &releasev1alpha1.WorkerRelease{}).
		WithIndex(&deploymentv1alpha1.WorkerDeployment{}, fieldScript, func(obj client.Object) []string {
			return []string{obj.(*deploymentv1alpha1.WorkerDeployment).Spec.Template.ScriptName}
		}).
		WithInterceptorFuncs(interceptor.Funcs{Create: h.create, Update: h.update, Delete: h.delete, Watch: h.watch}).
		Build()
	return h
}

func (h *fakeHub) create(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
	obj.SetUID(newUID())
	obj.SetGeneration(1)
	if created := obj.GetCreationTimestamp(); created.IsZero() {
		obj.SetCreationTimestamp(metav1.Now())
	}
	if err := asStored(obj); err != nil {
		return err
	}
	if err := c.Create(ctx, obj, opts...); err != nil {
		return err
	}
	return h.wrote(ctx, c, watch.Added, obj)
}

// asStored has the JSON of a custom resource be what an API server makes of it: it keeps values,
// not texts.
func asStored(obj client.Object) error {
	if _, ok := obj.(*deploymentv1alpha1.WorkerDeployment); !ok {
		return nil
	}
	for range 2 { // it is written to etcd and read again
		raw, err := json.Marshal(obj)
		if err != nil {
			return err
		}
		var content map[string]any
		if err := utiljson.Unmarshal(raw, &content); err != nil {
			return err
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, obj); err != nil {
			return err
		}
	}
	return nil
}

func (h *fakeHub) update(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
	if err := asStored(obj); err != nil {
		return err
	}
	if wd, ok := obj.(*deploymentv1alpha1.WorkerDeployment); ok {
		var old deploymentv1alpha1.WorkerDeployment
		if err := c.Get(ctx, client.ObjectKeyFromObject(obj), &old); err != nil {
			return err
		}
		wd.Generation = old.Generation
		if !equality.Semantic.DeepEqual(old.Spec, wd.Spec) {
			wd.Generation++
		}
	}
	if err := c.Update(ctx, obj, opts...); err != nil {
		return err
	}
	return h.wrote(ctx, c, watch.Modified, obj)
}

func (h *fakeHub) delete(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
	var options client.DeleteOptions
	options.ApplyOptions(opts)
	if p := options.Preconditions; p != nil && p.UID != nil && *p.UID != obj.GetUID() {
		return apierrors.NewConflict(schema.GroupResource{}, obj.GetName(), errors.New("it has another UID"))
	}
	if err := c.Delete(ctx, obj, opts...); err != nil {
		return err
	}
	return h.wrote(ctx, c, watch.Deleted, obj)
}

// wrote is what follows a write: events, and the operator's work.
func (h *fakeHub) wrote(ctx context.Context, c client.WithWatch, kind watch.EventType, obj client.Object) error {
	wd, ok := obj.(*deploymentv1alpha1.WorkerDeployment)
	if !ok {
		return nil
	}
	h.notify(kind, wd)
	if kind == watch.Deleted {
		return nil
	}
	return h.operator.reconcile(ctx, c, client.ObjectKeyFromObject(wd))
}

// notify sends an event to all who watch the object.
func (h *fakeHub) notify(kind watch.EventType, wd *deploymentv1alpha1.WorkerDeployment) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range h.watches {
		if w.key == client.ObjectKeyFromObject(wd) {
			w.Action(kind, wd.DeepCopy())
		}
	}
}

// watch begins with the object as it is, as API servers do when no resource version is named.
func (h *fakeHub) watch(ctx context.Context, c client.WithWatch, _ client.ObjectList, opts ...client.ListOption) (watch.Interface, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var options client.ListOptions
	options.ApplyOptions(opts)
	name, ok := options.FieldSelector.RequiresExactMatch("metadata.name")
	if !ok {
		return nil, errors.New("not one object is watched, but all")
	}
	w := namedWatch{key: client.ObjectKey{Namespace: options.Namespace, Name: name}, RaceFreeFakeWatcher: watch.NewRaceFreeFake()}
	var wd deploymentv1alpha1.WorkerDeployment
	if err := c.Get(ctx, w.key, &wd); err == nil {
		w.Add(&wd)
	}
	h.mu.Lock()
	h.watches = append(h.watches, w)
	var then func(context.Context, *watch.RaceFreeFakeWatcher)
	if len(h.opened) > 0 {
		then, h.opened = h.opened[0], h.opened[1:]
	}
	h.mu.Unlock()
	if then != nil {
		then(ctx, w.RaceFreeFakeWatcher)
	}
	return w, nil
}

// open returns how many watches nobody has stopped.
func (h *fakeHub) open() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, w := range h.watches {
		if !w.IsStopped() {
			n++
		}
	}
	return n
}

// faulty is the client as the deployer has it.
func (h *fakeHub) faulty() client.WithWatch {
	return interceptor.NewClient(h.client, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			return h.unless("get", obj, func() error { return c.Get(ctx, key, obj, opts...) })
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			return h.unless("list", list, func() error { return h.list(ctx, c, list, opts...) })
		},
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			return h.unless("create", obj, func() error { return c.Create(ctx, obj, opts...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
			return h.unless("update", obj, func() error { return c.Update(ctx, obj, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			return h.unless("patch", obj, func() error { return c.Patch(ctx, obj, patch, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			return h.unless("delete", obj, func() error { return c.Delete(ctx, obj, opts...) })
		},
		Watch: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) (w watch.Interface, err error) {
			err = h.unless("watch", list, func() error { w, err = c.Watch(ctx, list, opts...); return err })
			return w, err
		},
	})
}

// list holds the deployer to lists that are not as large as somebody makes them: of the
// WorkerDeployments of one script, and of some WorkerReleases at a time.
func (h *fakeHub) list(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
	var options client.ListOptions
	options.ApplyOptions(opts)
	if _, is := list.(*deploymentv1alpha1.WorkerDeploymentList); is && options.FieldSelector == nil {
		return errors.New("all WorkerDeployments are listed")
	}
	if err := c.List(ctx, list, opts...); err != nil {
		return err
	}
	releases, is := list.(*releasev1alpha1.WorkerReleaseList)
	if !is {
		return nil
	}
	if options.Limit == 0 {
		return errors.New("all WorkerReleases are listed")
	}
	from, _ := strconv.Atoi(options.Continue)
	to := min(from+int(options.Limit), len(releases.Items))
	if to < len(releases.Items) {
		releases.Continue = strconv.Itoa(to)
	}
	releases.Items = releases.Items[from:to]
	return nil
}

// unless does what the deployer asks for, if there is no fault for it.
func (h *fakeHub) unless(verb string, obj runtime.Object, do func() error) error {
	gvk, err := h.client.GroupVersionKindFor(obj)
	if err != nil {
		return err
	}
	what := verb + " " + strings.TrimSuffix(gvk.Kind, "List")
	h.mu.Lock()
	fault := h.faults[what]
	if verb != "get" && verb != "list" && verb != "watch" {
		h.writes = append(h.writes, what)
	}
	h.mu.Unlock()
	if fault != nil {
		return fault
	}
	return do()
}
