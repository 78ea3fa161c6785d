// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package livetest

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Patience bounds every wait; a busy machine must not fail a test.
const Patience = 3 * time.Minute

// Config reaches the cluster whose kubeconfig a variable names, the first of several.
// Where it names none the test is skipped. The rate of requests is not limited, and
// the connections end with the test.
func Config(t testing.TB, variable string) *rest.Config {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig(t, variable))
	if err != nil {
		t.Fatal(err)
	}
	cfg.QPS = -1
	dialed := &Connections{}
	cfg.Dial = dialed.Dial
	t.Cleanup(dialed.Close)
	return cfg
}

// kubeconfig is the file that a variable names, the first of several.
func kubeconfig(t testing.TB, variable string) string {
	t.Helper()
	files := filepath.SplitList(os.Getenv(variable))
	if len(files) == 0 {
		t.Skipf("needs a real API server: %s names no kubeconfig", variable)
	}
	return files[0]
}

// Connections are closed at the end of a test; a transport would keep those of
// streams that were only just cancelled. The zero value has none.
type Connections struct {
	mu   sync.Mutex
	open []net.Conn // guarded by mu
}

// Dial opens one more.
func (c *Connections) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.open = append(c.open, conn)
	}
	return conn, err
}

// Close closes all.
func (c *Connections) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.open {
		_ = conn.Close()
	}
}

// Namespace makes a namespace for one test, whose name begins with prefix.
func Namespace(t testing.TB, kube kubernetes.Interface, prefix string) string {
	t.Helper()
	namespaces := kube.CoreV1().Namespaces()
	ns, err := namespaces.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = namespaces.Delete(context.WithoutCancel(t.Context()), ns.Name, metav1.DeleteOptions{})
	})
	return ns.Name
}

// looks are the pauses of Eventually. They grow: many tests wait at the same time, most of them
// by requests, and an API server that answers those has no time for what they wait for.
var looks = wait.Backoff{Duration: 5 * time.Millisecond, Factor: 1.5, Steps: 20, Cap: 100 * time.Millisecond}

// Eventually waits until what is asked for is so.
func Eventually(t testing.TB, what string, so func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	err := looks.DelayFunc().Until(ctx, true, true, func(context.Context) (bool, error) { return so(), nil })
	if err != nil {
		t.Fatalf("%s: not so within %s", what, Patience)
	}
}
