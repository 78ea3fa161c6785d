// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/spokelet/spokelet/e2e/bench/figure"
)

// sharedSize is that of the text in a shared object, in bytes: with the rest of it, 1 KiB.
const sharedSize = 800

// sharedAs are the values of both charts with which the step's objects are shared.
const sharedAs = `[{"group":"bench.example.com","resource":"notes"}]`

// sharedDefinition is the definition of what is shared.
const sharedDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: notes.bench.example.com}
spec:
  group: bench.example.com
  names: {kind: Note, plural: notes}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {text: {type: string}, turn: {type: string}}}}}}
`

const sharedResource = `
apiVersion: sync.spokelet.io/v1alpha1
kind: SharedResource
metadata: {name: notes}
spec: {group: bench.example.com, resource: notes, clusterSelector: {}, hubNamespace: bench-$(cluster), spokeNamespace: bench, quota: {objects: 20000}}
`

// notes are the shared objects of both sides, and as many of a namespace that is not
// shared.
type notes struct{ hub, spoke, hubAlone, spokeAlone dynamic.ResourceInterface }

// shared measures objects that are the same on the hub and in the spoke.
func (s *suite) shared(ctx context.Context) ([]figure.Figure, error) {
	n, err := s.shareNotes(ctx)
	if err != nil {
		return nil, err
	}
	before, err := s.settled(ctx, s.spoke, agentPods())
	if err != nil {
		return nil, err
	}
	figures, err := s.sharedChanges(ctx, n)
	if err != nil {
		return figures, err
	}
	bulk, err := s.sharedBulk(ctx, n)
	if err != nil {
		return figures, err
	}
	figures = append(figures, bulk)
	growth, err := s.sharedThousands(ctx, n, before)
	return append(figures, growth...), err
}

// shareNotes has notes shared.
func (s *suite) shareNotes(ctx context.Context) (*notes, error) {
	if err := s.env.InstallHub(ctx, "--set-json", "shared.resources="+sharedAs); err != nil {
		return nil, err
	}
	const first = "shared.allow[0]."
	if err := s.env.UpgradeAgent(ctx, s.spoke.cluster, first+"group=bench.example.com,"+first+"resource=notes,"+first+"namespace=bench,shared.quota.objects=20000"); err != nil {
		return nil, err
	}
	const namespaces = "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: bench-spoke1}\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: bench-alone}\n"
	for _, site := range []*site{s.hub, s.spoke} {
		if _, err := site.ctl.RunInput(ctx, strings.NewReader(sharedDefinition+namespaces), "apply", "-f", "-"); err != nil {
			return nil, err
		}
		if _, err := site.ctl.Run(ctx, "wait", "--for=condition=Established", "crd/notes.bench.example.com", "--timeout=60s"); err != nil {
			return nil, err
		}
	}
	if _, err := s.hub.ctl.RunInput(ctx, strings.NewReader(sharedResource), "apply", "-f", "-"); err != nil {
		return nil, err
	}
	if _, err := s.hub.ctl.Run(ctx, "wait", "--for=condition=Ready", "sharedresource/notes", "--timeout=180s"); err != nil {
		return nil, err
	}
	gvr := schema.GroupVersionResource{Group: "bench.example.com", Version: "v1", Resource: "notes"}
	return &notes{
		hub: s.hub.dyn.Resource(gvr).Namespace("bench-spoke1"), spoke: s.spoke.dyn.Resource(gvr).Namespace("bench"),
		hubAlone: s.hub.dyn.Resource(gvr).Namespace("bench-alone"), spokeAlone: s.spoke.dyn.Resource(gvr).Namespace("bench-alone"),
	}, nil
}

func note(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "bench.example.com/v1", "kind": "Note", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"text": strings.Repeat("x", sharedSize), "turn": "0"},
	}}
}

// sharedChanges measures one change at a time, each way, in direct GETs.
func (s *suite) sharedChanges(ctx context.Context, n *notes) ([]figure.Figure, error) {
	direct, _, _, err := s.calls()
	if err != nil {
		return nil, err
	}
	m := &mcm{direct: direct}
	if err := create(ctx, n.hub, note("turns")); err != nil {
		return nil, err
	}
	var figures []figure.Figure
	for _, way := range []struct {
		name     string
		from, to dynamic.ResourceInterface
	}{{"shared.change.tocluster.gets", n.hub, n.spoke}, {"shared.change.tohub.gets", n.spoke, n.hub}} {
		taken, err := m.turns(ctx, way.name, way.from, way.to)
		if err != nil {
			return figures, fmt.Errorf("%s: %w", way.name, err)
		}
		figures = append(figures, m.inGets(way.name, taken))
	}
	return figures, nil
}

// turns changes the note on one side, and waits each time until a watch of the other has
// the change.
func (m *mcm) turns(ctx context.Context, prefix string, from, to dynamic.ResourceInterface) (figure.Durations, error) {
	events, stop, err := open(ctx, to)
	if err != nil {
		return nil, err
	}
	defer stop()
	var taken figure.Durations
	for i := range samples + 1 {
		turn := prefix + strconv.Itoa(i)
		start := time.Now()
		if _, err := from.Patch(ctx, "turns", types.MergePatchType, []byte(`{"spec":{"turn":"`+turn+`"}}`), metav1.PatchOptions{}); err != nil {
			return nil, err
		}
		if err := await(events, func(e watch.Event) bool { return turnOf(e) == turn }); err != nil {
			return nil, err
		}
		if i > 0 {
			taken = append(taken, time.Since(start))
		}
		if err := m.beside(ctx); err != nil {
			return nil, err
		}
		// An object that changes more than a few times a second waits for its turn.
		if err := pause(ctx, 250*time.Millisecond); err != nil {
			return nil, err
		}
	}
	return taken, nil
}

func turnOf(e watch.Event) string {
	obj, ok := e.Object.(*unstructured.Unstructured)
	if !ok {
		return ""
	}
	turn, _, _ := unstructured.NestedString(obj.Object, "spec", "turn")
	return turn
}

// sharedBulk compares a thousand objects, until the spoke has them, with a client that
// writes the same on both sides.
func (s *suite) sharedBulk(ctx context.Context, n *notes) (figure.Figure, error) {
	start := time.Now()
	err := parallel(ctx, writers, many, func(ctx context.Context, i int) error {
		obj := note("alone-" + strconv.Itoa(i))
		if err := create(ctx, n.hubAlone, obj); err != nil {
			return err
		}
		return create(ctx, n.spokeAlone, obj)
	})
	if err != nil {
		return figure.Figure{}, err
	}
	direct := time.Since(start)
	taken, err := createShared(ctx, n, "bulk-", many)
	if err != nil {
		return figure.Figure{}, err
	}
	return figure.Figure{
		Name: "shared.1000.ratio", Value: taken.Seconds() / direct.Seconds(), Unit: "x",
		Detail: fmt.Sprintf("%d objects were in the spoke after %s; written on both sides by %d writers in %s", many, taken.Round(time.Millisecond), writers, direct.Round(time.Millisecond)),
	}, nil
}

// createShared creates notes on the hub and returns how long it took until the spoke had
// them all.
func createShared(ctx context.Context, n *notes, prefix string, count int) (time.Duration, error) {
	events, stop, err := open(ctx, n.spoke)
	if err != nil {
		return 0, err
	}
	defer stop()
	start := time.Now()
	done := make(chan error, 1)
	go func() {
		done <- awaitAll(events, prefix, count, func(e watch.Event) bool { return e.Type == watch.Added })
	}()
	err = parallel(ctx, writers, count, func(ctx context.Context, i int) error {
		return create(ctx, n.hub, note(prefix+strconv.Itoa(i)))
	})
	if err != nil {
		return 0, err
	}
	return time.Since(start), <-done
}

// sharedThousands measures what ten thousand objects cost the agent, and what is asked for
// at rest; then it removes all.
func (s *suite) sharedThousands(ctx context.Context, n *notes, before float64) ([]figure.Figure, error) {
	taken, err := createShared(ctx, n, "thousands-", thousands-many)
	if err != nil {
		return nil, err
	}
	after, err := s.settled(ctx, s.spoke, agentPods())
	if err != nil {
		return nil, err
	}
	figures := []figure.Figure{{
		Name: "shared.10000.growth.mib", Value: after - before, Unit: "MiB",
		Detail: fmt.Sprintf("%.1f with %d objects, %.1f before; %d more were in the spoke after %s", after, thousands, before, thousands-many, taken.Round(time.Millisecond)),
	}}
	count, example, err := s.requestsAtRest(ctx)
	if err != nil {
		return figures, err
	}
	figures = append(figures, figure.Figure{
		Name: "shared.rest.requests", Value: float64(count), Unit: "1", Detail: fmt.Sprintf("in %s with %d shared objects%s", restWindow, thousands, example),
	})
	for _, of := range []dynamic.ResourceInterface{n.hub, n.hubAlone, n.spokeAlone} {
		if err := of.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			return figures, err
		}
	}
	_, err = s.hub.ctl.Run(ctx, "delete", "sharedresource", "notes")
	return figures, err
}
