// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/testing/livetest"
	"github.com/spokelet/spokelet/provider/kubelet"
	"github.com/spokelet/spokelet/provider/pod"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// soon bounds what is done on an event, on a machine that stalls for seconds. Without
// us the node's lease would end after 40 s; nothing else is done by the clock.
const soon = 20 * time.Second

// counter counts the requests of a client, by method and path without names.
type counter struct {
	next http.RoundTripper

	mu    sync.Mutex
	count map[string]int
}

func (c *counter) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Query().Get("watch") == "" { // the renewal of a watch is none of ours
		c.mu.Lock()
		c.count[r.Method+" "+resourceOf(r.URL.Path)]++
		c.mu.Unlock()
	}
	return c.next.RoundTrip(r)
}

func resourceOf(path string) string {
	for _, resource := range []string{"leases", "nodes", "pods", "configmaps"} {
		if strings.Contains(path, "/"+resource) {
			return resource
		}
	}
	return path
}

func (c *counter) reset() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.count
	c.count = map[string]int{}
	return old
}

// answers is a cluster's door "node", by path.
type answers map[string]string

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(a[r.URL.Path]))}, nil
}

type liveHub struct {
	*hub
	api   kubernetes.Interface
	count *counter
	name  string
	// succeeded by another process.
	succeeded bool
}

// startLiveHub runs a Provider and kubelet endpoints against a real API server.
func startLiveHub(t *testing.T) *liveHub {
	t.Helper()
	config := livetest.Config(t, "SPOKELET_HUB_KUBECONFIG")
	livetest.Lock(t, "SPOKELET_HUB_KUBECONFIG", "nodes", livetest.Shared) // it makes some
	plain, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	count := &counter{next: plain.Transport, count: map[string]int{}}
	admin, err := kubernetes.NewForConfigAndClient(config, plain)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfigAndClient(config, &http.Client{Transport: count})
	if err != nil {
		t.Fatal(err)
	}
	h := &liveHub{
		hub: &hub{t: t, links: &fakeLinks{}}, api: admin, count: count,
		name: fmt.Sprintf("provider-test-%d", time.Now().UnixNano()%1e9),
	}
	address := localAddress(t, config)
	h.start(client, address, liveEndpoints(t, h, client, address), livePods(t, client))
	return h
}

// localAddress is where the API server finds this process.
func localAddress(t *testing.T, config *rest.Config) netip.Addr {
	t.Helper()
	u, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("udp", u.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	return netip.MustParseAddrPort(conn.LocalAddr().String()).Addr()
}

func liveEndpoints(t *testing.T, h *liveHub, client kubernetes.Interface, address netip.Addr) *kubelet.Server {
	t.Helper()
	auth, err := kubelet.NewAuth(client)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { auth.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	if err := auth.Await(ctx); err != nil {
		t.Fatal(err)
	}
	certificate := selfSigned(t)
	server, err := kubelet.New(kubelet.Config{
		Address:       address.String(),
		Certificate:   func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return certificate, nil },
		Authenticator: auth.Authenticator,
		Authorizer:    auth.Authorizer,
		Door: kubelet.DoorFunc(func(_ context.Context, node string) (http.RoundTripper, error) {
			cluster, _ := wire.ParseNodeName(node)
			if cluster != h.name {
				return nil, fmt.Errorf("cluster %q: not connected", cluster)
			}
			return answers{
				"/metrics/resource": "scrape_error 1", "/groups/gpu/metrics/resource": "scrape_error 2",
				"/stats/summary": `{"spokeletMissingNodeCount":3}`,
			}, nil
		}),
		Logger: testr.New(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	return server
}

// livePods keeps the pods of nodes; no agent is there.
func livePods(t *testing.T, client kubernetes.Interface) *pod.Controller {
	t.Helper()
	pods, err := pod.New(pod.Config{
		Client: client, Sync: resource.NewHub(), Logger: testr.New(t), Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	// It ends after the nodes.
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- pods.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Start(): %v", err)
		}
	})
	return pods
}

func selfSigned(t *testing.T) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func (h *liveHub) start(client kubernetes.Interface, address netip.Addr, endpoints Endpoints, pods Pods) {
	provider, err := New(Config{
		Client: client, Links: h.links, Endpoints: endpoints, Pods: pods, Address: address,
		Logger: testr.New(h.t), Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		h.t.Fatal(err)
	}
	h.provider = provider
	if controller, ok := pods.(*pod.Controller); ok {
		controller.OnIdle(provider.NotifyGroupIdle)
	}
	// The test's own context ends before its cleanup takes the node away.
	ctx, cancel := context.WithCancel(context.WithoutCancel(h.t.Context()))
	done := make(chan error, 1)
	go func() { done <- provider.Start(ctx) }()
	h.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			h.t.Errorf("Start(): %v", err)
		}
	})
	h.t.Cleanup(h.stop)
	h.t.Cleanup(func() { h.erase() })
}

// erase takes away what a failed test left.
func (h *liveHub) erase() {
	if h.succeeded {
		return // it is for the next process to do
	}
	ctx := context.WithoutCancel(h.t.Context())
	if err := h.provider.Remove(ctx, h.name); err != nil {
		h.t.Errorf("Remove(): %v", err)
	}
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, livetest.Patience, true, func(ctx context.Context) (bool, error) {
		_, err := h.api.CoreV1().Nodes().Get(ctx, h.name, metav1.GetOptions{})
		return apierrors.IsNotFound(err), nil
	})
	if err != nil {
		h.t.Errorf("the removed cluster's node is still there: %v", err)
	}
}

// await waits for the Node's Ready condition, and returns how long it took.
func (h *liveHub) await(want string) time.Duration {
	h.t.Helper()
	began, got := time.Now(), ""
	err := wait.PollUntilContextTimeout(h.t.Context(), 5*time.Millisecond, soon, true, func(ctx context.Context) (bool, error) {
		node, err := h.api.CoreV1().Nodes().Get(ctx, h.name, metav1.GetOptions{})
		if err != nil {
			got = err.Error()
			return false, nil //nolint:nilerr // the node may not be there yet
		}
		c := findCondition(node.Status.Conditions, corev1.NodeReady)
		got = string(c.Status) + " " + c.Reason
		return got == want, nil
	})
	if err != nil {
		h.t.Fatalf("Ready: got %q after %v, want %q", got, soon, want)
	}
	return time.Since(began)
}

func (h *liveHub) cluster() Cluster {
	return Cluster{Name: h.name, ID: "live-1", Consent: pod.Consent{SplitLabel: poolLabel}}
}

func (h *liveHub) accept() {
	h.t.Helper()
	if err := h.provider.Ensure(h.t.Context(), h.cluster()); err != nil {
		h.t.Fatal(err)
	}
	h.links.set(Link{Cluster: h.name, Up: true})
	h.provider.SetSummary(h.name, healthy())
}

func TestNodeAppearsAndDisappearsOnRealHub(t *testing.T) {
	t.Parallel()
	h := startLiveHub(t)
	h.accept()
	t.Logf("Ready after %v", h.await("True NodesReady"))
	h.links.set(Link{Cluster: h.name, Reason: "connection lost"})
	t.Logf("NotReady after %v", h.await("False TunnelDisconnected"))
	h.links.set(Link{Cluster: h.name, Up: true})
	t.Logf("Ready again after %v", h.await("True NodesReady"))
	if err := h.api.CoreV1().Nodes().Delete(t.Context(), h.name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Logf("repaired after %v", h.await("True NodesReady"))
}

func TestRealAPIServerReachesKubeletEndpoint(t *testing.T) {
	t.Parallel()
	h := startLiveHub(t)
	h.accept()
	h.await("True NodesReady")
	for path, want := range map[string]string{
		"healthz": "ok", "metrics/resource": "# TYPE scrape_error gauge\nscrape_error 1\n", "stats/summary": `{"spokeletMissingNodeCount":3}`,
	} {
		body, err := h.api.CoreV1().RESTClient().Get().Resource("nodes").Name(h.name).SubResource("proxy").Suffix(path).DoRaw(t.Context())
		if err != nil || string(body) != want {
			t.Errorf("%s: got %q, %v; want %q", path, body, err, want)
		}
	}
	_, err := h.api.CoreV1().RESTClient().Get().Resource("nodes").Name(h.name).SubResource("proxy").Suffix("pods").DoRaw(t.Context())
	if !apierrors.IsNotFound(err) {
		t.Errorf("pods: got %v, want not found", err)
	}
}

func TestUnsupportedPodFailsOnRealHub(t *testing.T) {
	t.Parallel()
	h := startLiveHub(t)
	h.accept()
	h.await("True NodesReady")
	pods := h.api.CoreV1().Pods(metav1.NamespaceDefault)
	_, err := pods.Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: h.name, Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "of-a-file"}},
		Spec: corev1.PodSpec{
			NodeName: h.name, AutomountServiceAccountToken: new(false),
			Containers: []corev1.Container{{Name: "c", Image: "spokelet.io/test/pause:latest"}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	await := func(what string, ok func(*corev1.Pod, error) bool) {
		t.Helper()
		var last *corev1.Pod
		defer func() {
			if t.Failed() {
				t.Logf("pod, %s: %+v", what, last.Status)
			}
		}()
		livetest.Eventually(t, "the pod is "+what, func() bool {
			var err error
			last, err = pods.Get(t.Context(), h.name, metav1.GetOptions{})
			return ok(last, err)
		})
	}
	await("told", func(p *corev1.Pod, err error) bool {
		return err == nil && p.Status.Reason == pod.ReasonMirrorPod && p.Status.Phase == corev1.PodPending && len(p.Status.Conditions) >= 3
	})
	if err := pods.Delete(t.Context(), h.name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await("gone", func(_ *corev1.Pod, err error) bool { return apierrors.IsNotFound(err) })
	<-time.After(500 * time.Millisecond)
	if got := h.count.reset(); got["PATCH pods"] != 2 || got["DELETE pods"] != 1 {
		t.Errorf("requests for the pod: got %v, want a PATCH for the refusal, one for its end, and one DELETE", got)
	}
}
