// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/url"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// fakeNetwork is between processes and the API servers; the zero value is perfect.
type fakeNetwork struct {
	mu sync.Mutex
	// All below are guarded by mu.
	rand *rand.Rand
	// latency is the longest that a message takes, lag that of a watch; broken is the
	// share of requests that fail.
	latency, lag time.Duration
	broken       float64
}

// fate is what becomes of a request.
type fate int

const (
	arrives fate = iota
	// lost before it took effect, unanswered after it did, and late: it takes effect
	// after its sender has given up.
	lost
	unanswered
	late
)

func (n *fakeNetwork) randomOutcome() fate {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.rand == nil || n.rand.Float64() >= n.broken {
		return arrives
	}
	return lost + fate(n.rand.IntN(3))
}

// randomBool is a coin.
func (n *fakeNetwork) randomBool() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.rand != nil && n.rand.IntN(2) == 0
}

func (n *fakeNetwork) set(broken float64, latency, lag time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.broken, n.latency, n.lag = broken, latency, lag
}

func (n *fakeNetwork) upTo(of func(*fakeNetwork) time.Duration) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	if d := of(n); n.rand != nil && d > 0 {
		return time.Duration(n.rand.Int64N(int64(d)))
	}
	return 0
}

func (n *fakeNetwork) delay() time.Duration {
	return n.upTo(func(n *fakeNetwork) time.Duration { return n.latency })
}

func (n *fakeNetwork) watchLag() time.Duration {
	return n.upTo(func(n *fakeNetwork) time.Duration { return n.lag })
}

// sleep waits, or returns why it does not.
func sleep(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// fakeClient is a process's client of an API server: a dynamic.Interface.
type fakeClient struct {
	store   *fakeStore
	network *fakeNetwork

	mu     sync.Mutex
	killed bool     // guarded by mu; the process is no more
	writes []string // guarded by mu; those that were asked for
}

// Resource implements dynamic.Interface.
func (c *fakeClient) Resource(of schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	return fakeResource{client: c, of: of}
}

// kill has no request leave any more.
func (c *fakeClient) kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.killed = true
}

func (c *fakeClient) wrote() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.writes...)
}

// fakeResource is a resource of a client. What it lacks is not used.
type fakeResource struct {
	dynamic.NamespaceableResourceInterface
	client *fakeClient
	of     schema.GroupVersionResource
	in     string
}

// Namespace implements dynamic.NamespaceableResourceInterface.
func (r fakeResource) Namespace(in string) dynamic.ResourceInterface {
	r.in = in
	return r
}

func (r fakeResource) at(name string) place {
	return place{resource: r.of, namespace: r.in, name: name}
}

var errBroken = &url.Error{Op: "Do", URL: "https://api", Err: io.ErrUnexpectedEOF}

// call has a request travel to the API server and its answer back.
func (r fakeResource) call(ctx context.Context, verb, name string, write bool, do func() error) error {
	c := r.client
	c.mu.Lock()
	killed := c.killed
	if write && !killed {
		c.writes = append(c.writes, verb+" "+name)
	}
	c.mu.Unlock()
	if killed {
		return errBroken
	}
	what := c.network.randomOutcome()
	if what == lost {
		return errBroken
	}
	if err := sleep(ctx, c.network.delay()); err != nil || what == late {
		if write && (what == late || c.network.randomBool()) {
			time.AfterFunc(10*c.network.delay(), func() { _ = do() })
		}
		return errors.Join(err, errBroken)
	}
	err := do()
	if what == unanswered {
		return errBroken
	}
	if err := sleep(ctx, c.network.delay()); err != nil {
		return err
	}
	return err
}

// Get implements dynamic.ResourceInterface.
func (r fakeResource) Get(ctx context.Context, name string, _ metav1.GetOptions, _ ...string) (obj *unstructured.Unstructured, err error) {
	err = r.call(ctx, "get", name, false, func() (err error) {
		obj, err = r.client.store.get(r.at(name))
		return err
	})
	return answered(obj, err)
}

func answered(obj *unstructured.Unstructured, err error) (*unstructured.Unstructured, error) {
	if err != nil {
		return nil, err
	}
	return obj.DeepCopy(), nil
}

// Create implements dynamic.ResourceInterface.
func (r fakeResource) Create(ctx context.Context, obj *unstructured.Unstructured, _ metav1.CreateOptions, _ ...string) (got *unstructured.Unstructured, err error) {
	obj = obj.DeepCopy()
	var made lateResponse
	err = r.call(ctx, "create", obj.GetName(), true, func() error {
		return made.set(r.client.store.create(r.at(obj.GetName()), obj))
	})
	return answered(made.get(), err)
}

// lateResponse is an answer that may come after nobody waits for it.
type lateResponse struct {
	mu  sync.Mutex
	obj *unstructured.Unstructured
}

func (a *lateResponse) set(obj *unstructured.Unstructured, err error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.obj = obj
	return err
}

func (a *lateResponse) get() *unstructured.Unstructured {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.obj
}

// Delete implements dynamic.ResourceInterface.
func (r fakeResource) Delete(ctx context.Context, name string, options metav1.DeleteOptions, _ ...string) error {
	return r.call(ctx, "delete", name, true, func() error {
		return r.client.store.remove(r.at(name), options.Preconditions)
	})
}

// Patch implements dynamic.ResourceInterface.
func (r fakeResource) Patch(ctx context.Context, name string, kind types.PatchType, raw []byte, _ metav1.PatchOptions, sub ...string) (*unstructured.Unstructured, error) {
	verb, subresource := "patch", strings.Join(sub, "/")
	if subresource != "" {
		verb += "/" + subresource
	}
	var made lateResponse
	err := r.call(ctx, verb, name, true, func() error {
		if kind == types.ApplyPatchType {
			return made.set(r.apply(name, raw))
		}
		return made.set(r.client.store.change(verb, r.at(name), subresource, func(obj map[string]any) error { return patch(obj, raw) }))
	})
	return answered(made.get(), err)
}

// apply creates an object. No other use is made of server-side apply here.
func (r fakeResource) apply(name string, raw []byte) (*unstructured.Unstructured, error) {
	obj := &unstructured.Unstructured{}
	if err := obj.UnmarshalJSON(raw); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return r.client.store.create(r.at(name), obj)
}

// patch applies a JSON patch of maps.
func patch(obj map[string]any, raw []byte) error {
	var ops []struct {
		Op    string          `json:"op"`
		Path  string          `json:"path"`
		Value json.RawMessage `json:"value"`
	}
	if err := json.Unmarshal(raw, &ops); err != nil {
		return err
	}
	for _, op := range ops {
		keys := strings.Split(op.Path, "/")[1:]
		in := obj
		for i, key := range keys {
			keys[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(key)
		}
		for _, key := range keys[:len(keys)-1] {
			next, ok := in[key].(map[string]any)
			if !ok {
				return fmt.Errorf("%s %s: there is no %s", op.Op, op.Path, key)
			}
			in = next
		}
		key := keys[len(keys)-1]
		if _, ok := in[key]; !ok && op.Op != "add" {
			return fmt.Errorf("%s %s: there is none", op.Op, op.Path)
		}
		if op.Op == "remove" {
			delete(in, key)
			continue
		}
		value := &unstructured.Unstructured{Object: map[string]any{}}
		if err := value.UnmarshalJSON([]byte(`{"kind":"x","value":` + string(op.Value) + `}`)); err != nil {
			return err
		}
		in[key] = value.Object["value"]
	}
	return nil
}
