// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"fmt"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/spokelet/spokelet/e2e/bench/figure"
)

const (
	// burst is how many works of mcm.ibm.com are created together.
	burst = 500

	// getsPerSample is how many GETs are measured with each sample that is given in them.
	getsPerSample = 5

	// statusPace is how long after a write of a work's status the next one waits at most.
	statusPace = 1500 * time.Millisecond

	mcmLabel = "bench-mcm" // of all objects in the spoke
)

// mcm are the works of mcm.ibm.com, as the measuring user asks for them.
type mcm struct {
	works  dynamic.ResourceInterface
	direct call
	gets   figure.Durations
}

// mcm measures what looks and acts: one work at a time in GETs at the spoke's API server,
// which are measured beside it, then five hundred together, and what they ask for at rest.
func (s *suite) mcm(ctx context.Context) ([]figure.Figure, error) {
	m, err := s.asMCM()
	if err != nil {
		return nil, err
	}
	figures, err := s.oneWork(ctx, m)
	if err != nil {
		return figures, err
	}
	together, err := s.manyWorks(ctx, m)
	if err != nil {
		return append(figures, together...), err
	}
	return append(figures, together...), s.removeMCM(ctx, m)
}

// asMCM makes works as the measuring user.
func (s *suite) asMCM() (*mcm, error) {
	direct, _, _, err := s.calls()
	if err != nil {
		return nil, err
	}
	cfg := rest.CopyConfig(s.hub.rest)
	cfg.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{group}}
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("client of %s: %w", user, err)
	}
	works := schema.GroupVersionResource{Group: "mcm.ibm.com", Version: "v1alpha1", Resource: "works"}
	return &mcm{works: client.Resource(works).Namespace(spokeName), direct: direct}, nil
}

// removeMCM removes the works and what they look at and have made.
func (s *suite) removeMCM(ctx context.Context, m *mcm) error {
	if err := m.works.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		return err
	}
	maps := s.spoke.dyn.Resource(configMapsResource()).Namespace("bench")
	return maps.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: mcmLabel})
}

// beside measures direct GETs.
func (m *mcm) beside(ctx context.Context) error {
	for range getsPerSample {
		start := time.Now()
		if err := m.direct(ctx); err != nil {
			return err
		}
		m.gets = append(m.gets, time.Since(start))
	}
	return nil
}

// oneWork measures one view and one action at a time.
func (s *suite) oneWork(ctx context.Context, m *mcm) ([]figure.Figure, error) {
	first, err := s.firstAnswers(ctx, m)
	if err != nil {
		return nil, fmt.Errorf("first answer: %w", err)
	}
	changed, err := s.changedAnswers(ctx, m)
	if err != nil {
		return nil, fmt.Errorf("change: %w", err)
	}
	acted, err := m.actions(ctx)
	if err != nil {
		return nil, fmt.Errorf("action: %w", err)
	}
	return []figure.Figure{m.inGets("mcm.view.first.gets", first), m.inGets("mcm.view.change.gets", changed), m.inGets("mcm.action.gets", acted)}, nil
}

// inGets is the p50 of what was taken, in units of that of the direct GETs until now.
func (m *mcm) inGets(name string, taken figure.Durations) figure.Figure {
	get := m.gets.Percentile(50)
	return figure.Figure{
		Name: name, Value: float64(taken.Percentile(50)) / float64(get), Unit: "GETs",
		Detail: fmt.Sprintf("n=%d, p50 %s, p90 %s; a direct GET's p50 %s", len(taken),
			taken.Percentile(50).Round(time.Microsecond), taken.Percentile(90).Round(time.Microsecond), get.Round(time.Microsecond)),
	}
}

// firstAnswers creates works that look at one ConfigMap each, the i-th at the i-th, and
// waits for the answer of each.
func (s *suite) firstAnswers(ctx context.Context, m *mcm) (figure.Durations, error) {
	maps := s.spoke.dyn.Resource(configMapsResource()).Namespace("bench")
	for i := range samples + 1 {
		if err := create(ctx, maps, &unstructured.Unstructured{Object: labelled(fmt.Sprintf("mcm-seen-%d", i), strconv.Itoa(i))}); err != nil {
			return nil, err
		}
	}
	return m.oneByOne(ctx, "mcm-first-", viewOf)
}

// changedAnswers changes each of those ConfigMaps once, and waits for the hub's work.
func (s *suite) changedAnswers(ctx context.Context, m *mcm) (figure.Durations, error) {
	if err := pause(ctx, statusPace); err != nil {
		return nil, err
	}
	events, stop, err := open(ctx, m.works)
	if err != nil {
		return nil, err
	}
	defer stop()
	maps := s.spoke.dyn.Resource(configMapsResource()).Namespace("bench")
	var taken figure.Durations
	for i := range samples + 1 {
		start := time.Now()
		if _, err := maps.Patch(ctx, fmt.Sprintf("mcm-seen-%d", i), types.MergePatchType, []byte(`{"data":{"k":"changed"}}`), metav1.PatchOptions{}); err != nil {
			return nil, err
		}
		name := fmt.Sprintf("mcm-first-%d", i)
		if err := await(events, func(e watch.Event) bool { return is(e, name) && shows(e, "changed") }); err != nil {
			return nil, fmt.Errorf("work %s: %w", name, err)
		}
		if i > 0 {
			taken = append(taken, time.Since(start))
		}
		if err := m.beside(ctx); err != nil {
			return nil, err
		}
	}
	return taken, nil
}

// actions creates works that create one ConfigMap each.
func (m *mcm) actions(ctx context.Context) (figure.Durations, error) {
	return m.oneByOne(ctx, "mcm-acted-", func(i int) map[string]any { return creationOf(fmt.Sprintf("mcm-made-%d", i)) })
}

// oneByOne creates works and measures how long each takes until it is completed.
func (m *mcm) oneByOne(ctx context.Context, prefix string, spec func(i int) map[string]any) (figure.Durations, error) {
	events, stop, err := open(ctx, m.works)
	if err != nil {
		return nil, err
	}
	defer stop()
	var taken figure.Durations
	for i := range samples + 1 {
		name := prefix + strconv.Itoa(i)
		start := time.Now()
		if err := create(ctx, m.works, mcmWork(name, spec(i))); err != nil {
			return nil, err
		}
		if err := await(events, func(e watch.Event) bool { return is(e, name) && completed(e) }); err != nil {
			return nil, fmt.Errorf("work %s: %w", name, err)
		}
		if i > 0 { // the rights of the first are new, and discovery has to be read for it
			taken = append(taken, time.Since(start))
		}
		if err := m.beside(ctx); err != nil {
			return nil, err
		}
	}
	return taken, nil
}

// manyWorks measures bursts, and then a rest with all views of the first.
func (s *suite) manyWorks(ctx context.Context, m *mcm) ([]figure.Figure, error) {
	viewed, err := m.together(ctx, "mcm.view.burst500.s", "mcm-view-", func(i int) map[string]any { return viewOf(samples + 1 + i) })
	if err != nil {
		return nil, err
	}
	acted, err := m.together(ctx, "mcm.action.burst500.s", "mcm-act-", func(i int) map[string]any { return creationOf(fmt.Sprintf("mcm-burst-%d", i)) })
	if err != nil {
		return []figure.Figure{viewed}, err
	}
	count, example, err := s.requestsAtRest(ctx)
	if err != nil {
		return []figure.Figure{viewed, acted}, err
	}
	return []figure.Figure{viewed, acted, {
		Name: "mcm.rest.requests", Value: float64(count), Unit: "1",
		Detail: fmt.Sprintf("in %s with %d live views%s", restWindow, burst+samples+1, example),
	}}, nil
}

// together creates five hundred works and measures how long it takes until all are
// completed.
func (m *mcm) together(ctx context.Context, figureName, prefix string, spec func(i int) map[string]any) (figure.Figure, error) {
	events, stop, err := open(ctx, m.works)
	if err != nil {
		return figure.Figure{}, err
	}
	defer stop()
	start := time.Now()
	done := make(chan error, 1)
	go func() { done <- awaitAll(events, prefix, burst, completed) }()
	err = parallel(ctx, writers, burst, func(ctx context.Context, i int) error {
		return create(ctx, m.works, mcmWork(prefix+strconv.Itoa(i), spec(i)))
	})
	if err != nil {
		return figure.Figure{}, err
	}
	created := time.Since(start)
	if err := <-done; err != nil {
		return figure.Figure{}, fmt.Errorf("works %s: %w", prefix, err)
	}
	return figure.Figure{
		Name: figureName, Value: time.Since(start).Seconds(), Unit: "s",
		Detail: fmt.Sprintf("%d works, created by %d writers in %s", burst, writers, created.Round(time.Millisecond)),
	}, nil
}

func mcmWork(name string, spec map[string]any) *unstructured.Unstructured {
	spec["cluster"] = map[string]any{"name": spokeName}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "mcm.ibm.com/v1alpha1", "kind": "Work",
		"metadata": map[string]any{"name": name, "namespace": spokeName},
		"spec":     spec,
	}}
}

// viewOf is a question that no other work asks.
func viewOf(i int) map[string]any {
	return map[string]any{"type": "Resource", "scope": map[string]any{
		"resourceType": "configmaps", "namespace": "bench", "labelSelector": map[string]any{mcmLabel: strconv.Itoa(i)},
	}}
}

func creationOf(name string) map[string]any {
	return map[string]any{"type": "Action", "actionType": "Create", "kube": map[string]any{"template": labelled(name, "made")}}
}

// labelled is a ConfigMap that the view of that number sees, or none.
func labelled(name, view string) map[string]any {
	obj := newConfigMap(name)
	obj["metadata"] = map[string]any{"name": name, "namespace": "bench", "labels": map[string]any{mcmLabel: view}}
	return obj
}

func completed(e watch.Event) bool { return statusType(e) == "Completed" }

// statusType is that of a work of mcm.ibm.com.
func statusType(e watch.Event) string {
	obj, ok := e.Object.(*unstructured.Unstructured)
	if !ok {
		return ""
	}
	kind, _, _ := unstructured.NestedString(obj.Object, "status", "type")
	return kind
}

// shows tells whether the one ConfigMap in the result of a work has a value.
func shows(e watch.Event, value string) bool {
	obj, ok := e.Object.(*unstructured.Unstructured)
	if !ok {
		return false
	}
	items, _, _ := unstructured.NestedSlice(obj.Object, "status", "result", "items")
	if len(items) != 1 {
		return false
	}
	item, _ := items[0].(map[string]any)
	got, _, _ := unstructured.NestedString(item, "data", "k")
	return got == value
}
