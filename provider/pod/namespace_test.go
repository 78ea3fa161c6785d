// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/tunnel/resource"
)

func namespaceOf(name string, uid types.UID) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid}}
}

// made is a report of an agent about a namespace.
func (r *rig) made(cluster, name string, uid types.UID) {
	r.handleNamespace(cluster, resource.Resource{Key: name, UID: string(uid)})
	synctest.Wait()
}

// gone is what a cluster is told to be gone, by its UID.
func (r *rig) gone(cluster string) map[string]string {
	uids := map[string]string{}
	source := r.hub.Source(cluster, wire.KindPodNamespaceGone)
	for _, key := range source.Keys() {
		ref, _ := source.Ref(key)
		uids[key] = ref.UID
	}
	return uids
}

func TestMissingNamespacesArePublishedToTheirAgent(t *testing.T) {
	inBubble(t, Config{}, func(r *rig) {
		defer r.connect(spoke)()
		namespaces := r.client.CoreV1().Namespaces()
		check := func(when string, want map[string]string) {
			t.Helper()
			synctest.Wait()
			if diff := cmp.Diff(want, r.gone(spoke)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", when, diff)
			}
		}
		remake := func(name string, uid types.UID) {
			t.Helper()
			if err := namespaces.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			if uid == "" {
				return
			}
			if _, err := namespaces.Create(t.Context(), namespaceOf(name, uid), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		r.made(spoke, "shop", "uid-shop")
		r.made(spoke, "web", "uid-web")
		check("both are there", map[string]string{})
		r.made(spoke, "old", "uid-old")
		check("one went while the agent was away", map[string]string{"old": "uid-old"})
		remake("shop", "")
		check("one goes", map[string]string{"old": "uid-old", "shop": "uid-shop"})
		remake("web", "uid-web-2")
		check("one is another by now", map[string]string{"old": "uid-old", "shop": "uid-shop", "web": "uid-web"})
		r.made(spoke, "web", "uid-web-2")
		check("the agent has heard of the other", map[string]string{"old": "uid-old", "shop": "uid-shop"})
		if _, err := namespaces.Create(t.Context(), namespaceOf("shop", "uid-shop"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		check("one is restored from a backup", map[string]string{"old": "uid-old"})
		r.namespaces.handleRemoved(spoke, "old")
		check("the agent has collected one", map[string]string{})
	}, namespaceOf("shop", "uid-shop"), namespaceOf("web", "uid-web"))
}

func TestAgentCannotProbeForHubNamespaces(t *testing.T) {
	inBubble(t, Config{}, func(r *rig) {
		defer r.connect(spoke)()
		for _, name := range []string{"secret", "nobodys"} {
			for _, uid := range []types.UID{"", "guessed"} {
				r.made(spoke, name, uid)
				if got, ok := r.gone(spoke)[name]; !ok || got != string(uid) {
					t.Errorf("of %s with UID %q it is told otherwise: %v", name, uid, r.gone(spoke))
				}
			}
		}
	}, namespaceOf("secret", "uid-secret"))
}

func TestReportedNamespacesAreBounded(t *testing.T) {
	inBubble(t, Config{}, func(r *rig) {
		defer r.connect(spoke)()
		for i := range 2 * wire.PodNamespacesMax {
			r.handleNamespace(spoke, resource.Resource{Key: fmt.Sprint("n", i), UID: "u"})
		}
		r.made(spoke, "not/a/namespace", "u")
		if n := len(r.gone(spoke)); n != wire.PodNamespacesMax {
			t.Errorf("%d are held, want %d", n, wire.PodNamespacesMax)
		}
		for name, want := range map[string]bool{"n0": true, "n9999": false, "not/a/namespace": false} {
			if got := r.namespaces.accepts(spoke, name); got != want {
				t.Errorf("%s is remembered: %t", name, got)
			}
		}
		r.namespaces.handleRemoved(spoke, "n0")
		r.made(spoke, "n9999", "u")
		if _, ok := r.gone(spoke)["n9999"]; !ok {
			t.Error("there is no room where one went")
		}
	})
}

func TestForgottenClusterLeavesNoNamespaces(t *testing.T) {
	inBubble(t, Config{}, func(r *rig) {
		done := r.connect(spoke)
		r.made(spoke, "old", "uid-old")
		r.RemoveCluster(spoke)
		r.made(spoke, "late", "uid-late")
		r.handleNamespacesSynced(spoke)
		if n := len(r.namespaces.created); n != 0 {
			t.Errorf("something is kept of %d clusters", n)
		}
		done()
	})
}

func TestReportDuringForgetLeavesNoNamespaces(t *testing.T) {
	inBubble(t, Config{}, func(r *rig) {
		defer r.connect(spoke)()
		n := r.getCluster(spoke)
		var both sync.WaitGroup
		// Both wait for the lock, the report first.
		n.mu.Lock()
		for _, f := range []func(){
			func() { r.handleNamespace(spoke, resource.Resource{Key: "old", UID: "uid-old"}) },
			func() { r.RemoveCluster(spoke) },
		} {
			both.Go(f)
			for range 10000 {
				runtime.Gosched()
			}
		}
		n.mu.Unlock()
		both.Wait()
		if len(r.namespaces.created) != 0 || len(r.gone(spoke)) != 0 {
			t.Errorf("%v is kept, and told: %v", r.namespaces.created, r.gone(spoke))
		}
	})
}

func TestPublishedPodHasNamespaceUID(t *testing.T) {
	client := fake.NewSimpleClientset(podNamed("a"))
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{}, client)
		defer func() { r.stop() }()
		r.watch(spoke)
		uid := func() types.UID {
			t.Helper()
			synctest.Wait()
			sent, ok := r.loadPod(spoke, "default/a")
			if !ok {
				t.Fatal("the pod is not loaded")
			}
			if ref, _ := r.hub.Source(spoke, wire.KindPod).Ref(sent.Key); ref != resource.RefOf(sent) {
				t.Error("it is not published as it is loaded")
			}
			p, err := wire.DecodePod(sent.Key, sent.Body)
			if err != nil {
				t.Fatal(err)
			}
			return p.NamespaceUID
		}
		if got := uid(); got != "" {
			t.Errorf("a namespace that is not known is %s", got)
		}
		if _, err := client.CoreV1().Namespaces().Create(t.Context(), namespaceOf("default", "uid-default"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if got := uid(); got != "uid-default" {
			t.Errorf("the namespace is %s when it is known", got)
		}
	})
}
