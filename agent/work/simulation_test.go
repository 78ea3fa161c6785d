// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// sharedPath is where the object is that all works of a story bring.
const sharedPath = "/api/v1/namespaces/n/configmaps/shared"

// chooser picks one of n ways to go on.
type chooser func(n int) int

// pending is a request that waits for its turn.
type pending struct {
	request
	verdict chan verdict
}

// verdict says what becomes of a request.
type verdict int

const (
	answered verdict = iota
	lost             // it is done, and its answer does not come
	late             // it fails, and is done some time later
	dropped          // it is not done
)

var errCut = errors.New("connection was cut")

// simulation runs an engine on a fake API server, whose requests for the shared object and
// for anchors wait until they are chosen.
type simulation struct {
	t      *testing.T
	server *fakeServer
	choose chooser
	// faults is how many requests may still go wrong.
	faults int
	// records: requests for anchors wait, too.
	records bool

	mu      sync.Mutex
	waiting []*pending
	overdue []request
	wants   map[string]resource.Resource
	said    map[string]wire.WorkStatus
	log     []string
	// others: somebody else writes at the moment.
	others bool

	engine *Engine
	stop   func()
}

func (g *simulation) notef(format string, args ...any) {
	g.log = append(g.log, fmt.Sprintf(format, args...))
}

// RoundTrip has a request wait for its turn.
func (g *simulation) RoundTrip(req *http.Request) (*http.Response, error) {
	c, err := callOf(req)
	if err != nil {
		return nil, err
	}
	if c.watches() {
		return g.server.watch(req), nil
	}
	if !g.waits(c) {
		return g.answer(req, c)
	}
	p := &pending{request: c, verdict: make(chan verdict, 1)}
	g.mu.Lock()
	g.waiting = append(g.waiting, p)
	g.mu.Unlock()
	select {
	case v := <-p.verdict:
		switch v {
		case answered:
			return g.answer(req, c)
		case lost:
			g.server.do(c)
		case late:
			g.mu.Lock()
			g.overdue = append(g.overdue, c)
			g.mu.Unlock()
		case dropped:
		}
		return nil, errCut
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
}

// waits: works meet in the object alone. Their records are their own, and in which order
// two of them are written changes nothing.
func (g *simulation) waits(c request) bool {
	creates := c.method == http.MethodPost && strings.HasSuffix(c.path, "/configmaps")
	return c.path == sharedPath || creates || g.records && c.method != http.MethodGet && strings.Contains(c.path, "/applied")
}

// CloseIdleConnections does nothing: there are none.
func (g *simulation) CloseIdleConnections() {}

func (g *simulation) answer(req *http.Request, c request) (*http.Response, error) {
	code, answer := g.server.do(c)
	text, err := json.Marshal(answer)
	if err != nil {
		return nil, err
	}
	return newResponse(req, code, io.NopCloser(strings.NewReader(string(text)))), nil
}

// Put, Delete and Complete take what the engine says.
func (g *simulation) Put(r resource.Resource) error {
	s, err := wire.DecodeWorkStatus(r.Body)
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.said[r.Key] = s
	if s.Finalized {
		delete(g.wants, r.Key)
	}
	return nil
}

func (g *simulation) Delete(string) {}
func (g *simulation) Complete()     {}

// start runs an agent, to which the hub says what it wants.
func (g *simulation) start() {
	cfg := Config{REST: &rest.Config{Host: "http://spoke", Transport: g}, HubID: "hub", Cluster: "spoke", Reporter: g, Workers: 4}
	e, err := New(cfg)
	if err != nil {
		g.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(g.t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = e.Run(ctx) })
	g.engine = e
	g.stop = func() {
		cancel()
		wg.Wait()
	}
	synctest.Wait()
	g.mu.Lock()
	var all []resource.Resource
	for _, r := range g.wants {
		all = append(all, r)
	}
	g.mu.Unlock()
	slices.SortFunc(all, func(a, b resource.Resource) int { return strings.Compare(a.Key, b.Key) })
	for _, r := range all {
		e.Receiver().Put(r)
	}
	e.Receiver().Synced()
}

// kill ends the agent; requests that wait are done or not.
func (g *simulation) kill() {
	g.notef("the agent is killed")
	g.mu.Lock()
	waiting := g.waiting
	g.waiting = nil
	g.mu.Unlock()
	for _, p := range waiting {
		if g.choose(2) == 1 {
			g.server.do(p.request)
			g.notef("  %s was done", p.request)
		}
	}
	g.stop()
	g.mu.Lock()
	g.waiting = nil // what was asked for in its last moment
	g.mu.Unlock()
	g.start()
}

func (c request) String() string {
	return strings.ReplaceAll(fmt.Sprintf("%s %s %s", c.method, c.path, strings.TrimSpace(string(c.body))), hubHashOne, "hash")
}

// want has the hub ask for a work.
func (g *simulation) want(w storyWork, generation int64, change func(*wire.Work)) {
	body := wire.Work{Generation: generation, HubHash: hubHashOne}
	raw := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"shared","namespace":"n"},"data":{"k":"%d"}}`, generation)
	body.Spec.Workload.Manifests = []workv1.Manifest{{RawExtension: runtime.RawExtension{Raw: []byte(raw)}}}
	if w.strategy != "" {
		body.Spec.ManifestConfigs = []workv1.ManifestConfigOption{{
			ResourceIdentifier: workv1.ResourceIdentifier{Resource: "configmaps", Namespace: "n", Name: "shared"},
			UpdateStrategy:     &workv1.UpdateStrategy{Type: w.strategy, ServerSideApply: w.apply()},
		}}
	}
	if change != nil {
		change(&body)
	}
	text, err := json.Marshal(body)
	if err != nil {
		g.t.Fatal(err)
	}
	r := resource.Resource{Key: w.key(), UID: "uid-" + w.name, Generation: generation, Body: text}
	g.mu.Lock()
	g.wants[r.Key] = r
	g.mu.Unlock()
	g.engine.Receiver().Put(r)
}

// storyWork is a work of a story.
type storyWork struct {
	name, dialect string
	strategy      workv1.UpdateStrategyType
}

func (w storyWork) apply() *workv1.ServerSideApplyConfig {
	if w.strategy != workv1.UpdateStrategyTypeServerSideApply {
		return nil
	}
	return &workv1.ServerSideApplyConfig{Force: true}
}

func (w storyWork) key() string {
	return wire.WorkKey{Dialect: w.dialect, Namespace: "spoke", Name: w.name}.String()
}

// anchor is the path of the work's record.
func (w storyWork) anchor() string {
	if w.dialect == wire.DialectManifestWork {
		return "/apis/work.open-cluster-management.io/v1/appliedmanifestworks/" + hubHashOne + "-" + w.name
	}
	return "/apis/multicluster.x-k8s.io/v1alpha1/appliedworks/" + w.name
}

// run goes on until nothing moves any more. What the users do in turn may come at
// any moment.
func (g *simulation) run(acts []func()) {
	for idle := 0; idle < 4; {
		synctest.Wait()
		g.mu.Lock()
		slices.SortStableFunc(g.waiting, func(a, b *pending) int { return strings.Compare(a.String(), b.String()) })
		waiting, overdue := len(g.waiting), len(g.overdue)
		g.mu.Unlock()
		n := waiting + overdue
		if len(acts) > 0 {
			n++
		}
		if n == 0 {
			idle++
			time.Sleep(maxRetryDelay)
			continue
		}
		idle = 0
		i := 0
		if n > 1 {
			i = g.choose(n)
		}
		switch {
		case i < waiting:
			g.let(i)
		case i < waiting+overdue:
			c := g.overdue[i-waiting]
			g.overdue = slices.Delete(g.overdue, i-waiting, i-waiting+1)
			g.notef("late: %s", c)
			g.server.do(c)
		default:
			acts[0]()
			acts = acts[1:]
		}
	}
}

// let has a request that waits be done, or go wrong.
func (g *simulation) let(i int) {
	g.mu.Lock()
	p := g.waiting[i]
	g.waiting = slices.Delete(g.waiting, i, i+1)
	g.mu.Unlock()
	v := answered
	if g.faults > 0 && g.choose(8) == 0 {
		g.faults--
		v = lost + verdict(g.choose(3))
		if p.method == http.MethodGet || v == late && p.path != sharedPath {
			v = dropped
		}
	}
	g.notef("%s: %s", []string{"done", "answer lost", "to be late", "dropped"}[v], p)
	p.verdict <- v
}
