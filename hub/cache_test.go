// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"bytes"
	"context"
	"fmt"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	actionv1beta1 "github.com/spokelet/spokelet/api/action/v1beta1"
	mcmv1alpha1 "github.com/spokelet/spokelet/api/mcm/v1alpha1"
	viewv1beta1 "github.com/spokelet/spokelet/api/view/v1beta1"
	"github.com/spokelet/spokelet/hub/admission"
	"github.com/spokelet/spokelet/hub/mcm"
	"github.com/spokelet/spokelet/internal/testing/testscale"
)

// large is 1 MiB of text.
var large = strings.Repeat("x", 1<<20)

var template = []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"a":"` + large + `"}}`)

// kube is an action with a template of 1 MiB.
func kube() *mcmv1alpha1.KubeWorkSpec {
	return &mcmv1alpha1.KubeWorkSpec{ObjectTemplate: apiruntime.RawExtension{Raw: bytes.Clone(template)}}
}

// labels are a thousand that have 1 MiB together.
func labels() map[string]string {
	out := map[string]string{}
	for i := range 1000 {
		out[fmt.Sprintf("%d/%s", i, strings.Repeat("k", 500))] = strings.Repeat("v", 500)
	}
	return out
}

// tenants are what somebody who may write in one namespace makes there, as large as an API
// server takes it.
func tenants() map[string]func() client.Object {
	named := func(n string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "shop", Name: n} }
	return map[string]func() client.Object{
		"WorkSets with a template": func() client.Object {
			return &mcmv1alpha1.WorkSet{Spec: mcmv1alpha1.WorkSetSpec{Template: mcmv1alpha1.WorkTemplateSpec{Spec: mcmv1alpha1.TemplateSpec{Type: "Action", KubeWork: kube()}}}}
		},
		"WorkSets with a selector": func() client.Object {
			return &mcmv1alpha1.WorkSet{Spec: mcmv1alpha1.WorkSetSpec{ClusterSelector: &metav1.LabelSelector{MatchLabels: labels()}}}
		},
		"WorkSets with a status": func() client.Object {
			return &mcmv1alpha1.WorkSet{Status: mcmv1alpha1.WorkSetStatus{Reason: strings.Clone(large)}}
		},
		"ResourceViews with a selector": func() client.Object {
			return &mcmv1alpha1.ResourceView{Spec: mcmv1alpha1.ResourceViewSpec{ClusterSelector: &metav1.LabelSelector{MatchLabels: labels()}}}
		},
		"ResourceViews with results": func() client.Object {
			return &mcmv1alpha1.ResourceView{Status: mcmv1alpha1.ResourceViewStatus{Results: map[string]apiruntime.RawExtension{"store-1": {Raw: kube().ObjectTemplate.Raw}}}}
		},
		"Works with a template": func() client.Object {
			return &mcmv1alpha1.Work{Spec: mcmv1alpha1.WorkSpec{Type: "Action", KubeWork: kube()}}
		},
		"Works with values": func() client.Object {
			return &mcmv1alpha1.Work{Spec: mcmv1alpha1.WorkSpec{Type: "Action", HelmWork: &mcmv1alpha1.HelmWorkSpec{Values: []byte(large)}}}
		},
		"Works with a selector": func() client.Object {
			return &mcmv1alpha1.Work{Spec: mcmv1alpha1.WorkSpec{Type: "Resource", Scope: mcmv1alpha1.ResourceFilter{FieldSelector: strings.Clone(large)}}}
		},
		"Works with labels": func() client.Object {
			return &mcmv1alpha1.Work{ObjectMeta: metav1.ObjectMeta{Labels: labels()}}
		},
		"Works with finalizers": func() client.Object {
			return &mcmv1alpha1.Work{ObjectMeta: metav1.ObjectMeta{Finalizers: []string{strings.Clone(large)}}}
		},
		"ManagedClusterViews": func() client.Object {
			return &viewv1beta1.ManagedClusterView{Spec: viewv1beta1.ViewSpec{Scope: viewv1beta1.ViewScope{Name: strings.Clone(large)}}}
		},
		"ManagedClusterActions": func() client.Object {
			return &actionv1beta1.ManagedClusterAction{Spec: actionv1beta1.ActionSpec{ActionType: "Create", KubeWork: &actionv1beta1.KubeWorkSpec{ObjectTemplate: kube().ObjectTemplate}}}
		},
		"ManagedClusterActions with a name": func() client.Object {
			return &actionv1beta1.ManagedClusterAction{ObjectMeta: named("a"), Spec: actionv1beta1.ActionSpec{ActionType: "Delete", KubeWork: &actionv1beta1.KubeWorkSpec{Name: strings.Clone(large)}}}
		},
	}
}

// transformOf is what the hub's cache makes of an object.
func transformOf(t *testing.T, obj client.Object) toolscache.TransformFunc {
	t.Helper()
	for kind, options := range cacheOptions("spokelet-system").ByObject {
		if reflect.TypeOf(kind) == reflect.TypeOf(obj) {
			return options.Transform
		}
	}
	t.Fatalf("the cache keeps a %T as it is", obj)
	return nil
}

// listed makes objects one after the other, as an API server streams them.
type listed struct {
	n    int
	make func() client.Object
}

func (l listed) ListWithContext(context.Context, metav1.ListOptions) (apiruntime.Object, error) {
	return &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}, nil
}

func (l listed) WatchWithContext(ctx context.Context, _ metav1.ListOptions) (watch.Interface, error) {
	events := make(chan watch.Event)
	w := watch.NewProxyWatcher(events)
	go func() {
		defer close(events)
		for i := range l.n {
			obj := l.make()
			obj.SetNamespace("shop")
			obj.SetName(fmt.Sprint("large-", i))
			obj.SetResourceVersion(strconv.Itoa(i + 2))
			select {
			case events <- watch.Event{Type: watch.Added, Object: obj}:
			case <-ctx.Done():
				return
			case <-w.StopChan():
				return
			}
		}
		<-ctx.Done()
	}()
	return w, nil
}

func (listed) List(metav1.ListOptions) (apiruntime.Object, error) { panic("not called") }
func (listed) Watch(metav1.ListOptions) (watch.Interface, error)  { panic("not called") }
func (listed) IsWatchListSemanticsUnSupported() bool              { return true }

// held is how much the heap holds for n objects in an informer of the hub's cache.
func held(t *testing.T, n int, blank func() client.Object) int64 {
	t.Helper()
	before := heap()
	ctx, cancel := context.WithCancel(t.Context())
	informer := toolscache.NewSharedIndexInformer(listed{n: n, make: blank}, blank(), 0, toolscache.Indexers{})
	if err := informer.SetTransform(transformOf(t, blank())); err != nil {
		t.Fatal(err)
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		informer.RunWithContext(ctx)
	}()
	for len(informer.GetStore().ListKeys()) < n {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-t.Context().Done():
			t.Fatal("the cache is not filled")
		}
	}
	holds := heap() - before
	runtime.KeepAlive(informer)
	cancel()
	<-stopped
	return holds
}

func heap() int64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// Anybody who may write in one namespace makes 800 WorkSets of 1 MiB there.
func TestLiveCacheIsLimited(t *testing.T) {
	const each = 24 << 10 // of each object, at most
	for name, blank := range tenants() {
		t.Run(name, func(t *testing.T) {
			n := testscale.Of(8, 100)
			if name == "WorkSets with a template" {
				n = testscale.Of(40, 800)
			}
			if got := held(t, n, blank); got > int64(n)*each+4<<20 {
				t.Errorf("the cache holds %d KiB for %d of 1 MiB", got>>10, n)
			} else {
				t.Logf("the cache holds %d KiB for %d of 1 MiB", got>>10, n)
			}
		})
	}
}

func TestCountUsageOfNamespace(t *testing.T) {
	scheme, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	works := metav1.GroupResource{Group: "mcm.ibm.com", Resource: "works"}
	small := &mcmv1alpha1.Work{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "small"}}
	big := &mcmv1alpha1.Work{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "big"}, Spec: mcmv1alpha1.WorkSpec{KubeWork: kube()}}
	far := &mcmv1alpha1.Work{ObjectMeta: metav1.ObjectMeta{Namespace: "far", Name: "far"}}
	if _, err := mcm.Strip(big); err != nil {
		t.Fatal(err)
	}
	cached := fake.NewClientBuilder().WithScheme(scheme).WithObjects(small, big, far).Build()
	got, err := countUsage(t.Context(), cached, works, "shop")
	if want := (admission.Usage{Objects: 2, Bytes: int64(len(template))}); got != want || err != nil {
		t.Errorf("the namespace holds %+v, %v, want %+v", got, err, want)
	}
	for resource := range newUsageLists() {
		if _, err := countUsage(t.Context(), cached, resource, "shop"); err != nil {
			t.Errorf("%s: %v", resource.String(), err)
		}
	}
	if _, err := countUsage(t.Context(), cached, metav1.GroupResource{Resource: "pods"}, "shop"); err == nil {
		t.Error("pods are counted")
	}
}
