// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package program

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/spokelet/spokelet/examples/request-state/generated/clientset/versioned"
)

// variable names the kubeconfig of a cluster that the tests may install things in.
const variable = "SPOKELET_TEST_KUBECONFIG"

// patience bounds every wait; a busy machine must not fail a test.
const patience = time.Minute

var (
	definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	namespaces  = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
)

// A cluster is a real one, for one test.
type cluster struct {
	config   *rest.Config
	dynamic  dynamic.Interface
	requests versioned.Interface
	warnings *warnings
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	files := filepath.SplitList(os.Getenv(variable))
	if len(files) == 0 {
		t.Skipf("needs a real API server: %s names no kubeconfig", variable)
	}
	config, err := clientcmd.BuildConfigFromFlags("", files[0])
	if err != nil {
		t.Fatal(err)
	}
	dialed := &connections{}
	t.Cleanup(dialed.close)
	c := &cluster{config: config, warnings: &warnings{}}
	config.QPS, config.Dial, config.WarningHandler = -1, dialed.dial, c.warnings
	if c.dynamic, err = dynamic.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	if c.requests, err = versioned.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	return c
}

// read returns the object in a file of the example.
func read(t *testing.T, file string) *unstructured.Unstructured {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", file))
	if err != nil {
		t.Fatal(err)
	}
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(text, object); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return object
}

// install installs a definition until the end of the test, as kubectl apply
// --validate=warn does, and waits until it is served.
func (c *cluster) install(t *testing.T, file string) {
	t.Helper()
	object := read(t, file)
	client := c.dynamic.Resource(definitions)
	// One that is there already is somebody's.
	if _, err := client.Create(t.Context(), object, metav1.CreateOptions{FieldValidation: metav1.FieldValidationWarn}); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if err := client.Delete(ctx, object.GetName(), metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		eventually(ctx, t, file+" is removed", func() bool {
			_, err := client.Get(ctx, object.GetName(), metav1.GetOptions{})
			// It is served for a moment longer.
			_, served := c.requests.ComV1().RequestStates("default").List(ctx, metav1.ListOptions{})
			return apierrors.IsNotFound(err) && apierrors.IsNotFound(served)
		})
	})
	eventually(t.Context(), t, file+" is served", func() bool {
		_, err := c.requests.ComV1().RequestStates("default").List(t.Context(), metav1.ListOptions{})
		return err == nil
	})
}

// namespace makes a namespace for one test.
func (c *cluster) namespace(t *testing.T) string {
	t.Helper()
	object := &unstructured.Unstructured{}
	object.SetAPIVersion("v1")
	object.SetKind("Namespace")
	object.SetGenerateName("request-state-")
	made, err := c.dynamic.Resource(namespaces).Create(t.Context(), object, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.dynamic.Resource(namespaces).Delete(context.WithoutCancel(t.Context()), made.GetName(), metav1.DeleteOptions{})
	})
	return made.GetName()
}

func eventually(ctx context.Context, t *testing.T, what string, so func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, patience, true, func(context.Context) (bool, error) { return so(), nil })
	if err != nil {
		t.Fatalf("%s: not so within %s", what, patience)
	}
}

// warnings are those of the API server.
type warnings struct {
	mu   sync.Mutex
	text []string // guarded by mu
}

func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = append(w.text, text)
}

func (w *warnings) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := w.text
	w.text = nil
	return text
}

// connections are closed at the end of a test; a transport would keep those of watches
// that were only just cancelled.
type connections struct {
	mu   sync.Mutex
	open []net.Conn // guarded by mu
}

func (c *connections) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.open = append(c.open, conn)
	}
	return conn, err
}

func (c *connections) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.open {
		_ = conn.Close()
	}
}
