// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/spokelet/spokelet/agent/pod/translate"
	"github.com/spokelet/spokelet/api/wire"
)

func TestRemoveEndsOnlyPodsOfTheHub(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	h := newHub(c)
	h.complete()
	a := h.start()
	h.object(h.configMap("settings"), wire.PodObject{Text: map[string]string{"k": "1"}})
	h.want(h.pod("web", reading("settings")))
	c.appears("web", "uid-web")
	a.stop()
	c.put("theirs", "", "")
	// As when a pod was refused after its copies were made, and the hub took it back
	// while the agent was away.
	c.put("left", c.namespace, c.namespace)
	c.put("left-by-another", "another-hub", c.namespace)
	// What somebody made of a copy.
	c.put("copied-on", c.namespace, "elsewhere")

	if err := Remove(t.Context(), c.cfg, logr.Discard(), "", c.namespace); err != nil {
		t.Fatal(err)
	}
	if pod := c.pod("web"); pod != nil && pod.DeletionTimestamp == nil {
		t.Error("the pod runs on")
	}
	want := map[string]bool{
		"settings": false, "configmap left": false, "secret left": false,
		"configmap theirs": true, "secret theirs": true,
		"configmap left-by-another": true, "secret left-by-another": true,
		"configmap copied-on": true, "secret copied-on": true,
	}
	got := map[string]bool{"settings": c.dataOf("settings") != nil}
	for _, name := range []string{"theirs", "left", "left-by-another", "copied-on"} {
		_, err := c.kube.CoreV1().Secrets(c.namespace).Get(t.Context(), name, metav1.GetOptions{})
		got["secret "+name], got["configmap "+name] = err == nil, c.dataOf(name) != nil
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what is there (-want +got):\n%s", diff)
	}
	if err := Remove(t.Context(), c.cfg, logr.Discard(), "", c.namespace); err != nil {
		t.Errorf("again: %v", err)
	}
}

// put makes a ConfigMap and a Secret with the marks of copies, unless they are empty.
func (c *cluster) put(name, hub, namespace string) {
	c.t.Helper()
	meta := func(kind string) metav1.ObjectMeta {
		m := metav1.ObjectMeta{Name: name}
		if hub != "" {
			m.Labels = map[string]string{translate.LabelHub: hub}
		}
		if namespace != "" {
			m.Annotations = map[string]string{AnnotationHubObject: kind + "/" + namespace + "/" + name}
		}
		return m
	}
	data := map[string]string{"k": "v"}
	_, one := c.kube.CoreV1().ConfigMaps(c.namespace).Create(c.t.Context(), &corev1.ConfigMap{ObjectMeta: meta(wire.PodObjectConfigMap), Data: data}, metav1.CreateOptions{})
	_, two := c.kube.CoreV1().Secrets(c.namespace).Create(c.t.Context(), &corev1.Secret{ObjectMeta: meta(wire.PodObjectSecret), StringData: data}, metav1.CreateOptions{})
	if err := errors.Join(one, two); err != nil {
		c.t.Fatal(err)
	}
}

// denied forbids the removal of ConfigMaps, as somebody's webhook does.
func denied(next http.RoundTripper) http.RoundTripper {
	return roundTrip(func(r *http.Request) (*http.Response, error) {
		if r.Method != http.MethodDelete || !strings.Contains(r.URL.Path, "/configmaps/") {
			return next.RoundTrip(r)
		}
		w := httptest.NewRecorder()
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.WriteString(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"so says the test"}`)
		return w.Result(), nil
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestPodEndsWhenACopyCannotBeDeleted(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	h := newHub(c)
	h.complete()
	a := h.start()
	h.object(h.configMap("settings"), wire.PodObject{Text: map[string]string{"k": "1"}})
	secret := wire.PodObjectKey{Kind: wire.PodObjectSecret, Namespace: c.namespace, Name: "key"}
	h.object(secret, wire.PodObject{Data: map[string][]byte{"k": []byte("1")}})
	h.want(h.pod("web", reading("settings"), func(p *wire.Pod) {
		p.Pod.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "key"}}
	}))
	c.appears("web", "uid-web")
	a.stop()
	cfg := rest.CopyConfig(c.cfg)
	cfg.Wrap(denied)
	if err := Remove(t.Context(), cfg, logr.Discard(), "", c.namespace); !apierrors.IsForbidden(err) {
		t.Errorf("Remove(): %v, want to hear of the copy", err)
	}
	if pod := c.pod("web"); pod != nil && pod.DeletionTimestamp == nil {
		t.Error("the pod runs on")
	}
	if c.secret("key") != nil {
		t.Error("a copy that can be removed is left behind")
	}
	if err := Remove(t.Context(), c.cfg, logr.Discard(), "", c.namespace); err != nil || c.dataOf("settings") != nil {
		t.Errorf("again, without the webhook: %v, copy %v", err, c.dataOf("settings"))
	}
}

// broken cannot delete ConfigMaps while it is set.
type broken struct {
	next     http.RoundTripper
	set      *atomic.Bool
	attempts *atomic.Int64
}

func (b broken) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodDelete && strings.Contains(r.URL.Path, "/configmaps/") && b.set.Load() {
		b.attempts.Add(1)
		return nil, fmt.Errorf("connection reset")
	}
	return b.next.RoundTrip(r)
}

func TestGoneIsReportedAfterTheCopiesAreDeleted(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	h := newHub(c)
	h.complete()
	var set atomic.Bool
	var attempts atomic.Int64
	set.Store(true)
	a := h.start(func(cfg *Config) {
		cfg.REST.Wrap(func(next http.RoundTripper) http.RoundTripper { return broken{next, &set, &attempts} })
	})
	h.object(h.configMap("settings"), wire.PodObject{Text: map[string]string{"k": "1"}})
	h.want(h.pod("web", reading("settings")))
	c.appears("web", "uid-web")
	h.want(h.pod("web", reading("settings"), deleting(1)))
	c.eventually("the copy cannot be removed", func() bool { return attempts.Load() > 2 })
	if s := h.status("web"); s.Gone {
		t.Error("the hub lets go of the pod, and nobody will know of its copy")
	}
	a.stop()
	h.start()
	h.is("web", "is gone", func(s told) bool { return s.Gone })
	if left := c.dataOf("settings"); left != nil {
		t.Errorf("the copy is left behind: %v", left)
	}
}
