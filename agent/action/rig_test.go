// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package action

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	discoveryfake "k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"github.com/spokelet/spokelet/agent/mapping"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/testing/resourcetest"
	"github.com/spokelet/spokelet/tunnel/resource"
)

const (
	agentNamespace = "spokelet-agent"
	entriesPath    = "/api/v1/namespaces/spokelet-agent/configmaps"
	settingsPath   = "/api/v1/namespaces/app/configmaps/settings"
	widgetPath     = "/apis/example.com/v1/namespaces/app/widgets/w"
	webPath        = "/apis/apps/v1/namespaces/app/deployments/web"

	actionKey = "mcm/cluster1/work"
	actionUID = "0b0c7a3e-1111-4222-8333-444455556666"
)

// rig is a cluster, and the engine of one process in it.
type rig struct {
	server    *apiServer
	discovery *discoveryfake.FakeDiscovery
	resources *mapping.Mapper
	helm      fakeHelm
}

func newRig() *rig {
	r := &rig{server: newAPIServer(), discovery: &discoveryfake.FakeDiscovery{Fake: &clienttesting.Fake{Resources: []*metav1.APIResourceList{
		{GroupVersion: "v1", APIResources: []metav1.APIResource{
			{Name: "configmaps", SingularName: "configmap", Kind: "ConfigMap", Namespaced: true, ShortNames: []string{"cm"}},
			{Name: "secrets", SingularName: "secret", Kind: "Secret", Namespaced: true},
			{Name: "namespaces", SingularName: "namespace", Kind: "Namespace"},
		}},
		{GroupVersion: "apps/v1", APIResources: []metav1.APIResource{
			{Name: "deployments", SingularName: "deployment", Kind: "Deployment", Namespaced: true},
		}},
		{GroupVersion: "example.com/v1", APIResources: []metav1.APIResource{
			{Name: "widgets", SingularName: "widget", Kind: "Widget", Namespaced: true},
		}},
		{GroupVersion: "policy/v1", APIResources: []metav1.APIResource{
			{Name: "poddisruptionbudgets", SingularName: "poddisruptionbudget", Kind: "PodDisruptionBudget", Namespaced: true},
		}},
		{GroupVersion: "batch/v1", APIResources: []metav1.APIResource{
			{Name: "cronjobs", SingularName: "cronjob", Kind: "CronJob", Namespaced: true},
		}},
		{GroupVersion: "networking.k8s.io/v1", APIResources: []metav1.APIResource{
			{Name: "ingresses", SingularName: "ingress", Kind: "Ingress", Namespaced: true},
			{Name: "networkpolicies", SingularName: "networkpolicy", Kind: "NetworkPolicy", Namespaced: true},
		}},
		{GroupVersion: "rbac.authorization.k8s.io/v1", APIResources: []metav1.APIResource{
			{Name: "rolebindings", SingularName: "rolebinding", Kind: "RoleBinding", Namespaced: true},
		}},
	}}}}
	r.resources = mapping.New(r.discovery)
	return r
}

// doorFunc is a Door.
type doorFunc func(wire.Requester) (*rest.Config, error)

func (f doorFunc) Config(r wire.Requester) (*rest.Config, error) { return f(r) }

var errAnonymous = errors.New("kube door refuses the caller: it is anonymous on the hub")

func (r *rig) config(f *fault) Config {
	kube := kubernetes.NewForConfigOrDie(&rest.Config{
		Host: "http://api", Transport: &client{server: r.server, user: "agent", fault: f}, QPS: -1,
		WarningHandler: rest.NoWarnings{}, ContentConfig: rest.ContentConfig{ContentType: "application/json"},
	})
	return Config{
		Door: doorFunc(func(by wire.Requester) (*rest.Config, error) {
			if by.User == "nobody" {
				return nil, errAnonymous
			}
			return &rest.Config{Host: "http://api", Transport: &client{server: r.server, user: by.User, fault: f}, QPS: -1}, nil
		}),
		Resources: r.resources, Entries: kube.CoreV1().ConfigMaps(agentNamespace), Releases: &r.helm, Logger: logr.Discard(),
	}
}

// process is an engine that runs, joined to a hub.
type process struct {
	engine  *Engine
	actions *resource.Source
	stop    func()

	mu      sync.Mutex
	results map[string]wire.ActionResult // guarded by mu; by key
	refs    map[string]resource.Ref      // guarded by mu; by key
}

// start begins a process, whose connections to the API server may break. In a bubble.
func (r *rig) start(t *testing.T, f *fault) *process {
	t.Helper()
	return startEngine(t, r.config(f))
}

func startEngine(t testing.TB, cfg Config) *process {
	t.Helper()
	e, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{engine: e, results: map[string]wire.ActionResult{}, refs: map[string]resource.Ref{}}
	hub := resource.NewHub()
	hub.Publish(wire.KindAction, nil)
	hub.Mirror(wire.KindActionResult, resource.HubReceiver{
		Put: func(_ string, v resource.Resource) { p.receive(t, v) },
		Delete: func(_, key string) {
			p.mu.Lock()
			defer p.mu.Unlock()
			delete(p.results, key)
		},
	})
	agent, err := resource.NewAgent([]*resource.Source{e.Source()}, []*resource.Mirror{e.Mirror()})
	if err != nil {
		t.Fatal(err)
	}
	p.actions = hub.Source("spoke1", wire.KindAction)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = e.Run(ctx)
	}()
	cut := resourcetest.Connect(t, hub, "spoke1", agent)
	p.stop = sync.OnceFunc(func() {
		cut()
		cancel()
		<-ended
	})
	t.Cleanup(p.stop)
	return p
}

func (p *process) receive(t testing.TB, v resource.Resource) {
	result, err := wire.DecodeActionResult(v.Body)
	if err != nil {
		t.Errorf("result of %s: %v", v.Key, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.results[v.Key], p.refs[v.Key] = result, resource.RefOf(v)
}

// send publishes actions as the hub's only ones.
func (p *process) send(t testing.TB, all ...resource.Resource) {
	t.Helper()
	for _, v := range all {
		if err := p.actions.Put(v); err != nil {
			t.Fatal(err)
		}
	}
	p.actions.Complete()
}

// result returns that of actionKey.
func (p *process) result(t testing.TB) wire.ActionResult {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	result, ok := p.results[actionKey]
	if !ok {
		t.Fatal("there is no result")
	}
	return result
}

func (p *process) answered() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.results) > 0
}

// execute has a new process execute one action that nothing disturbs.
func (r *rig) execute(t *testing.T, a wire.Action) (result wire.ActionResult) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := r.start(t, nil)
		p.send(t, version(t, a, 1))
		synctest.Wait()
		result = p.result(t)
	})
	return result
}

// version is a version of the action named actionKey.
func version(t testing.TB, a wire.Action, generation int64) resource.Resource {
	t.Helper()
	body, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	return resource.Resource{Key: actionKey, UID: actionUID, Generation: generation, Body: body}
}

func entryPath(generation int64) string {
	return fmt.Sprintf("%s/action-%s-%d", entriesPath, actionUID, generation)
}

// action makes one of alice.
func action(verb wire.Verb, template string) wire.Action {
	return wire.Action{Requester: wire.Requester{User: "alice"}, Verb: verb, Template: json.RawMessage(template), MaxBytes: wire.MaxViewBytes}
}

func deletion(t wire.Target) wire.Action {
	return wire.Action{Requester: wire.Requester{User: "alice"}, Verb: wire.VerbDelete, Target: t, MaxBytes: wire.MaxViewBytes}
}

// settings is a ConfigMap of the cluster.
func settings(data map[string]any) map[string]any {
	return map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": "settings", "namespace": "app", "labels": map[string]any{"theirs": "yes"}},
		"data":     data,
	}
}

// settingsTemplate sets one value of it.
const settingsTemplate = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"settings","namespace":"app"},"data":{"ours":"1"}}`

func settingsTarget() wire.Target {
	return wire.Target{Resource: "cm", Namespace: "app", Name: "settings"}
}

// decode returns the object of a result.
func decode(t testing.TB, result wire.ActionResult) map[string]any {
	t.Helper()
	if result.Refusal != nil {
		t.Fatalf("refused: %s", result.Refusal.Message)
	}
	var obj map[string]any
	if err := json.Unmarshal(result.Result, &obj); err != nil {
		t.Fatalf("result %q: %v", result.Result, err)
	}
	return obj
}

// refuseOnce refuses the first request of a method to a path.
func refuseOnce(method, path string, code int32, reason metav1.StatusReason) func(string, string) *metav1.Status {
	refused := false
	return func(m, p string) *metav1.Status {
		if refused || m != method || p != path {
			return nil
		}
		refused = true
		return &metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: http.StatusText(int(code))}
	}
}
