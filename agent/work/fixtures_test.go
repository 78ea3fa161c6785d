// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/agent/work/record"
	"github.com/spokelet/spokelet/api/crds"
	"github.com/spokelet/spokelet/api/multicluster/v1alpha1"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/testing/livetest"
	"github.com/spokelet/spokelet/internal/testing/resourcetest"
	"github.com/spokelet/spokelet/tunnel/resource"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errBoom = errors.New("boom")

// testCluster is a real API server with a namespace of its own.
type testCluster struct {
	t         *testing.T
	cfg       *rest.Config
	kube      kubernetes.Interface
	dynamic   dynamic.Interface
	namespace string
}

func newCluster(t *testing.T) *testCluster {
	t.Helper()
	cfg := livetest.Config(t, "SPOKELET_TEST_KUBECONFIG")
	pool, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	c := &testCluster{t: t, cfg: cfg, namespace: "work-" + rand.String(8)}
	if c.kube, err = kubernetes.NewForConfigAndClient(cfg, pool); err != nil {
		t.Fatal(err)
	}
	if c.dynamic, err = dynamic.NewForConfigAndClient(cfg, pool); err != nil {
		t.Fatal(err)
	}
	if err := crds.Install(t.Context(), c.dynamic, crds.Agent()); err != nil {
		t.Fatal(err)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.namespace}}
	if _, err := c.kube.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		for _, gvr := range []string{"configmaps", "secrets"} {
			_ = c.dynamic.Resource(corev1.SchemeGroupVersion.WithResource(gvr)).Namespace(c.namespace).
				DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
		}
		c.removeAnchors(ctx)
		_ = c.kube.CoreV1().Namespaces().Delete(ctx, c.namespace, metav1.DeleteOptions{})
	})
	return c
}

// removeAnchors removes those of the test's works: each engine reads all that there are.
func (c *testCluster) removeAnchors(ctx context.Context) {
	for _, p := range []Policy{Multicluster(), ManifestWork()} {
		anchors := c.dynamic.Resource(p.Anchor.Resource)
		list, err := anchors.List(ctx, metav1.ListOptions{})
		if err != nil {
			continue
		}
		for _, a := range list.Items {
			if strings.Contains(a.GetName(), c.namespace) {
				_, _ = anchors.Patch(ctx, a.GetName(), types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
				_ = anchors.Delete(ctx, a.GetName(), metav1.DeleteOptions{})
			}
		}
	}
}

// name makes a name that is unique in the cluster: anchors have no namespace.
func (c *testCluster) name(base string) string { return base + "-" + c.namespace }

// configMaps names those of the namespace, the API server's own aside.
func (c *testCluster) configMaps() map[string]map[string]string {
	c.t.Helper()
	list, err := c.kube.CoreV1().ConfigMaps(c.namespace).List(c.t.Context(), metav1.ListOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	out := map[string]map[string]string{}
	for _, cm := range list.Items {
		if cm.Name != "kube-root-ca.crt" {
			out[cm.Name] = cm.Data
		}
	}
	return out
}

func (c *testCluster) anchor(name string) (*unstructured.Unstructured, bool) {
	c.t.Helper()
	u, err := c.dynamic.Resource(Multicluster().Anchor.Resource).Get(c.t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, false
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return u, true
}

// appliedResources is what the status of an anchor lists.
func (c *testCluster) appliedResources(name string) []v1alpha1.AppliedResourceMeta {
	c.t.Helper()
	u, ok := c.anchor(name)
	if !ok {
		return nil
	}
	_, a, err := record.Decode(Multicluster().Anchor, u)
	if err != nil {
		c.t.Fatal(err)
	}
	return a.Recorded
}

// eventually waits until what is asked for is so.
func (c *testCluster) eventually(what string, so func() bool) {
	c.t.Helper()
	livetest.Eventually(c.t, what, so)
}

// testHub plays the hub for engines of one cluster, over the real Sync.
type testHub struct {
	t    *testing.T
	sync *resource.Hub

	mu       sync.Mutex
	statuses map[string]reportedStatus
}

type reportedStatus struct {
	uid   string
	since time.Time
	wire.WorkStatus
}

const spokeName = "spoke"

func newHub(t *testing.T) *testHub {
	h := &testHub{t: t, sync: resource.NewHub(), statuses: map[string]reportedStatus{}}
	h.sync.Publish(wire.KindWork, nil)
	h.sync.Mirror(wire.KindWorkStatus, resource.HubReceiver{Put: func(_ string, r resource.Resource) {
		s, err := wire.DecodeWorkStatus(r.Body)
		if err != nil {
			t.Errorf("status of %s: %v", r.Key, err)
			return
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.statuses[r.Key] = reportedStatus{uid: r.UID, since: r.Since, WorkStatus: s}
	}})
	h.sync.Source(spokeName, wire.KindWork).Complete()
	return h
}

func keyFor(name string) string {
	return wire.WorkKey{Dialect: wire.DialectMulticluster, Namespace: spokeName, Name: name}.String()
}

// want publishes a generation of a work; no manifests at all deletes it.
func (h *testHub) want(name string, generation int64, manifests ...string) {
	h.t.Helper()
	w := wire.Work{Generation: generation, Deleting: len(manifests) == 0}
	for _, m := range manifests {
		w.Spec.Workload.Manifests = append(w.Spec.Workload.Manifests, workv1.Manifest{RawExtension: runtime.RawExtension{Raw: []byte(m)}})
	}
	body, err := json.Marshal(w)
	if err != nil {
		h.t.Fatal(err)
	}
	r := resource.Resource{Key: keyFor(name), UID: "uid-" + name, Generation: generation, Body: body}
	if err := h.sync.Source(spokeName, wire.KindWork).Put(r); err != nil {
		h.t.Fatal(err)
	}
}

func (h *testHub) removeWork(name string) {
	h.sync.Source(spokeName, wire.KindWork).Delete(keyFor(name))
}

func (h *testHub) status(name string) reportedStatus {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.statuses[keyFor(name)]
}

// is waits until a condition of a work has a status for a generation.
func (h *testHub) is(c *testCluster, name string, generation int64, condition string, status metav1.ConditionStatus) reportedStatus {
	c.t.Helper()
	var s reportedStatus
	defer func() {
		if c.t.Failed() {
			c.t.Logf("status of %s: %+v", name, s)
		}
	}()
	c.eventually(fmt.Sprintf("%s %s=%s at generation %d", name, condition, status, generation), func() bool {
		s = h.status(name)
		found := meta.FindStatusCondition(s.Conditions, condition)
		return found != nil && found.Status == status && found.ObservedGeneration == generation
	})
	return s
}

// finalized waits until the spoke says that nothing is left of a work.
func (h *testHub) finalized(c *testCluster, name string) {
	c.t.Helper()
	c.eventually(name+" finalized", func() bool { return h.status(name).Finalized })
}

// testAgent is a running engine.
type testAgent struct {
	*Engine
	stop func()
}

// start runs an engine and connects it to a hub, if there is one.
func (c *testCluster) start(h *testHub, change ...func(*Config)) *testAgent {
	c.t.Helper()
	cfg := Config{REST: rest.CopyConfig(c.cfg), HubID: c.namespace}
	for _, f := range change {
		f(&cfg)
	}
	e, err := New(cfg)
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.t.Context()))
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := e.Run(ctx); err != nil {
			c.t.Errorf("run: %v", err)
		}
	})
	closeStream := func() {}
	if h != nil {
		closeStream = connect(c.t, h, e)
	}
	a := &testAgent{Engine: e}
	a.stop = sync.OnceFunc(func() {
		closeStream()
		cancel()
		wg.Wait()
	})
	c.t.Cleanup(a.stop)
	return a
}

// connect joins an engine to a hub.
func connect(t *testing.T, h *testHub, e *Engine) (cut func()) {
	t.Helper()
	door, err := resource.NewAgent([]*resource.Source{e.Source()}, []*resource.Mirror{e.Mirror()})
	if err != nil {
		t.Fatal(err)
	}
	return resourcetest.Connect(t, h.sync, spokeName, door)
}

func (c *testCluster) configMap(name string, data ...string) string {
	m := map[string]string{}
	for i := 0; i+1 < len(data); i += 2 {
		m[data[i]] = data[i+1]
	}
	raw, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name, "namespace": c.namespace}, "data": m,
	})
	if err != nil {
		c.t.Fatal(err)
	}
	return string(raw)
}

// contextOf outlives the test, for its cleanup.
func contextOf(t *testing.T) context.Context { return context.WithoutCancel(t.Context()) }
