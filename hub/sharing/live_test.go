// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/spokelet/spokelet/api/crds"
	"github.com/spokelet/spokelet/api/sync/v1alpha1"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/testing/livetest"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// liveRig is a Controller over a real API server that shares gadgets with one cluster.
type liveRig struct {
	*rig
	client.Client

	kube    kubernetes.Interface
	dyn     dynamic.Interface
	cluster string
	group   string
	gadgets dynamic.ResourceInterface
}

func newLiveRig(t *testing.T, status bool) *liveRig {
	t.Helper()
	cfg := livetest.Config(t, "SPOKELET_HUB_KUBECONFIG")
	l := &liveRig{rig: &rig{sync: resource.NewHub(), sessions: &sessionsFake{}, events: events.NewFakeRecorder(100)}}
	var err error
	if l.dyn, err = dynamic.NewForConfig(cfg); err != nil {
		t.Fatal(err)
	}
	if l.kube, err = kubernetes.NewForConfig(cfg); err != nil {
		t.Fatal(err)
	}
	if err := crds.Install(t.Context(), l.dyn, crds.Hub()); err != nil {
		t.Fatal(err)
	}
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{Scheme: newScheme(t), Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		t.Fatal(err)
	}
	if l.Client, err = client.New(cfg, client.Options{Scheme: mgr.GetScheme()}); err != nil {
		t.Fatal(err)
	}
	l.share(t, status)
	l.Controller, err = New(Config{
		Sync: l.sync, Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Dynamic: l.dyn, Informers: mgr.GetCache(),
		Sessions: l.sessions, Events: l.events, Logger: logr.Discard(),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := mgr.Add(l.Controller); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := mgr.Start(ctx); err != nil {
			t.Errorf("manager: %v", err)
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return l
}

// share makes a namespace, its cluster, a definition of its own and the SharedResource.
func (l *liveRig) share(t *testing.T, status bool) {
	t.Helper()
	l.cluster = livetest.Namespace(t, l.kube, "shared-")
	l.group = l.cluster + ".example.com"
	l.define(t, status)
	for _, obj := range []client.Object{clusterNamed(l.cluster), sharedResource(l.cluster, func(s *v1alpha1.SharedResource) {
		s.UID, s.Generation = "", 0
		s.Spec.Group, s.Spec.Resource, s.Spec.ClusterSelector.MatchLabels["name"] = l.group, "gadgets", l.cluster
	})} {
		if err := l.Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Delete(context.WithoutCancel(t.Context()), obj) })
	}
}

// define makes a definition whose schema refuses negative sizes, and drops what it does
// not know.
func (l *liveRig) define(t *testing.T, status bool) {
	t.Helper()
	version := map[string]any{
		"name": "v1", "served": true, "storage": true,
		"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "properties": map[string]any{
			"spec": map[string]any{"type": "object", "properties": map[string]any{
				"size":  map[string]any{"type": "integer", "minimum": int64(0)},
				"color": map[string]any{"type": "string", "default": "grey"},
			}},
			"status": map[string]any{"type": "object", "properties": map[string]any{"phase": map[string]any{"type": "string"}}},
		}}},
	}
	if status {
		version["subresources"] = map[string]any{"status": map[string]any{}}
	}
	definition := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": "gadgets." + l.group},
		"spec": map[string]any{
			"group": l.group, "scope": "Namespaced", "versions": []any{version},
			"names": map[string]any{"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList"},
		},
	}}
	definitions := l.dyn.Resource(definitionsResource())
	if _, err := definitions.Create(t.Context(), definition, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = definitions.Delete(context.WithoutCancel(t.Context()), definition.GetName(), metav1.DeleteOptions{})
	})
	l.gadgets = l.dyn.Resource(schema.GroupVersionResource{Group: l.group, Version: "v1", Resource: "gadgets"}).Namespace(l.cluster)
}

// connectLive connects an agent, and waits for its share.
func (l *liveRig) connectLive(t *testing.T) *agent {
	t.Helper()
	a := l.connectTo(t, l.cluster)
	livetest.Eventually(t, "the share is told", func() bool { return a.hasFence(l.cluster) })
	return a
}

func (l *liveRig) key(name string) string { return l.cluster + "/" + name }

// answered waits for the answer to a write.
func (l *liveRig) answered(t *testing.T, a *agent, name string, generation int64) publishedObject {
	t.Helper()
	var o publishedObject
	livetest.Eventually(t, "the write is answered", func() bool {
		o, _ = a.getObject(l.key(name))
		return o.Applied == generation || o.Refused == generation
	})
	return o
}

func (l *liveRig) edit(t *testing.T, name string, merge string) {
	t.Helper()
	if _, err := l.gadgets.Patch(t.Context(), name, "application/merge-patch+json", []byte(merge), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestLiveWritesAreExecuted(t *testing.T) {
	l := newLiveRig(t, true)
	a := l.connectLive(t)
	do := func(reason, name string, part wire.SharedPart, to, want string) publishedObject {
		t.Helper()
		generation := a.requestWrite(l.key(name), part, to)
		o := l.answered(t, a, name, generation)
		if o.Applied != generation || string(o.Content) != want {
			t.Errorf("%s: refused %q, content %s, want %s", reason, o.Reason, o.Content, want)
		}
		return o
	}
	created := do("a creation", "a", wire.PartObject, `{"metadata":{"labels":{"x":"y"}},"spec":{"size":1,"unknown":1}}`,
		`{"metadata":{"labels":{"x":"y"}},"spec":{"color":"grey","size":1}}`)
	if string(created.Result) != string(created.Content) {
		t.Errorf("what the API server made of it is not told: %s", created.Result)
	}
	changed := do("a change", "a", wire.PartObject, `{"metadata":{"annotations":{"k/v":"~1"}},"spec":{"color":"red","size":2}}`,
		`{"metadata":{"annotations":{"k/v":"~1"}},"spec":{"color":"red","size":2}}`)
	if changed.Result != nil {
		t.Errorf("result %s of what was asked for", changed.Result)
	}
	do("the status", "a", wire.PartStatus, `{"status":{"phase":"Done"}}`,
		`{"metadata":{"annotations":{"k/v":"~1"}},"spec":{"color":"red","size":2},"status":{"phase":"Done"}}`)
	do("all but the status", "a", wire.PartObject, `{"spec":{"color":"red","size":3},"status":{"phase":"No"}}`,
		`{"spec":{"color":"red","size":3},"status":{"phase":"Done"}}`)
	generation := a.requestWrite(l.key("a"), wire.PartObject, `{"spec":{"size":-1}}`)
	if o := l.answered(t, a, "a", generation); o.Refused != generation || !strings.HasPrefix(o.Reason, "hub: ") || !strings.Contains(o.Reason, "spec.size") {
		t.Errorf("refusal %q", o.Reason)
	}
	obj, err := l.gadgets.Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if manager := obj.GetManagedFields()[0].Manager; manager != fieldManager {
		t.Errorf("the fields are those of %q", manager)
	}
	do("a deletion", "a", wire.PartDeletion, "", "")
	livetest.Eventually(t, "the deletion is told", func() bool {
		o, _ := a.getObject(l.key("a"))
		return o.Deleted
	})
}

func TestLiveWritesWithoutStatusSubresource(t *testing.T) {
	l := newLiveRig(t, false)
	a := l.connectLive(t)
	for _, to := range []string{
		`{"spec":{"color":"grey","size":1},"status":{"phase":"New"}}`, `{"spec":{"color":"grey","size":1},"status":{"phase":"Done"}}`,
	} {
		generation := a.requestWrite(l.key("a"), wire.PartObject, to)
		if o := l.answered(t, a, "a", generation); o.Applied != generation || string(o.Content) != to {
			t.Errorf("refused %q, content %s, want %s", o.Reason, o.Content, to)
		}
	}
}

// Many write at once on both sides: what an agent has not seen it does not overwrite.
func TestLiveConflictsLoseNothing(t *testing.T) {
	l := newLiveRig(t, true)
	a := l.connectLive(t)
	l.answered(t, a, "a", a.requestWrite(l.key("a"), wire.PartObject, `{"metadata":{"annotations":{"n":"0"}},"spec":{"color":"grey","size":0}}`))
	const times = 50
	var writing sync.WaitGroup
	writing.Go(func() {
		for i := range times {
			l.edit(t, "a", fmt.Sprintf(`{"spec":{"size":%d}}`, i+1))
		}
	})
	done := 0
	livetest.Eventually(t, "all writes are done", func() bool {
		if done == times {
			return true
		}
		now, _ := a.getObject(l.key("a"))
		var to map[string]any
		if err := json.Unmarshal(now.Content, &to); err != nil {
			t.Fatal(err)
		}
		_ = unstructured.SetNestedField(to, strconv.Itoa(done+1), "metadata", "annotations", "n")
		generation := a.requestWriteFrom(l.key("a"), wire.PartObject, string(encoded(t, to)), now.Version, now.uid)
		livetest.Eventually(t, "the write is answered, or another version is told", func() bool {
			o, _ := a.getObject(l.key("a"))
			if o.Applied == generation {
				done++
			}
			return o.Applied == generation || o.Version != now.Version
		})
		return false
	})
	writing.Wait()
	obj, err := l.gadgets.Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	size, _, _ := unstructured.NestedInt64(obj.Object, "spec", "size")
	if n := obj.GetAnnotations()["n"]; size != times || n != strconv.Itoa(times) {
		t.Errorf("size %d, n %s, want %d of both", size, n, times)
	}
}

func TestLiveNamespaceDeletionIsNotPublished(t *testing.T) {
	l := newLiveRig(t, true)
	a := l.connectLive(t)
	for i := range 20 {
		name := fmt.Sprintf("a%d", i)
		l.answered(t, a, name, a.requestWrite(l.key(name), wire.PartObject, `{"spec":{"size":1}}`))
	}
	if err := l.kube.CoreV1().Namespaces().Delete(t.Context(), l.cluster, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	livetest.Eventually(t, "the share stops", func() bool {
		s, _ := a.getShare(l.cluster)
		return s.Problem != nil && (s.Problem.Reason == v1alpha1.ReasonNamespaceTerminating || s.Problem.Reason == v1alpha1.ReasonNamespaceMissing)
	})
	livetest.Eventually(t, "the objects go", func() bool {
		list, err := l.gadgets.List(t.Context(), metav1.ListOptions{})
		return err == nil && len(list.Items) == 0
	})
	a.mu.Lock()
	defer a.mu.Unlock()
	for key, o := range a.objects {
		if o.Deleted {
			t.Errorf("%s is told as deleted", key)
		}
	}
}

func TestLiveStatusShowsTheCluster(t *testing.T) {
	l := newLiveRig(t, true)
	a := l.connectLive(t)
	s := sharedResource(l.cluster)
	livetest.Eventually(t, "the cluster is pending", func() bool {
		err := l.Get(t.Context(), client.ObjectKeyFromObject(s), s)
		return err == nil && len(s.Status.Clusters) == 1 && strings.HasPrefix(short(s.Status.Conditions, v1alpha1.ConditionReady), "False ClustersNotReady")
	})
	a.reportState(l.cluster, wire.ShareState{Generation: s.Generation, Objects: 4})
	livetest.Eventually(t, "the cluster is ready", func() bool {
		err := l.Get(t.Context(), client.ObjectKeyFromObject(s), s)
		return err == nil && short(s.Status.Conditions, v1alpha1.ConditionReady) == "True Shared" && s.Status.Objects == 4
	})
	if err := l.dyn.Resource(definitionsResource()).Delete(t.Context(), "gadgets."+l.group, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	livetest.Eventually(t, "the definition is missing", func() bool {
		err := l.Get(t.Context(), client.ObjectKeyFromObject(s), s)
		return err == nil && strings.HasPrefix(short(s.Status.Conditions, v1alpha1.ConditionReady), "False DefinitionMissing hub: ")
	})
}
