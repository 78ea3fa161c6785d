// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/spokelet/spokelet/e2e/bench/figure"
)

const (
	samples = 40

	// patience bounds the wait for one event.
	patience = 30 * time.Second
)

func widgetsResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "bench.spokelet.io", Version: "v1", Resource: "widgets"}
}

func configMapsResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
}

// works measures one work at a time: until it is applied, until a change in the
// spoke is seen on the hub, and until drift is repaired.
func (s *suite) works(ctx context.Context, d dialect) ([]figure.Figure, error) {
	applied, err := s.applied(ctx, d)
	if err != nil {
		return nil, err
	}
	feedback, err := s.feedback(ctx, d)
	if err != nil {
		return nil, err
	}
	drift, err := s.drift(ctx, d)
	if err != nil {
		return nil, err
	}
	ms, detail := figure.Milliseconds, fmt.Sprintf("n=%d, %s", samples, d.kind)
	return []figure.Figure{
		{Name: d.prefix + "work.applied.p50.ms", Value: ms(applied.Percentile(50)), Unit: "ms", Detail: detail + fmt.Sprintf(", p90 %.1f", ms(applied.Percentile(90)))},
		{Name: d.prefix + "work.feedback.p50.ms", Value: ms(feedback.Percentile(50)), Unit: "ms", Detail: detail},
		{Name: d.prefix + "work.feedback.max.ms", Value: ms(feedback.Percentile(100)), Unit: "ms", Detail: detail},
		{Name: d.prefix + "work.drift.p50.ms", Value: ms(drift.Percentile(50)), Unit: "ms", Detail: detail + fmt.Sprintf(", max %.1f", ms(drift.Percentile(100)))},
	}, nil
}

func newConfigMap(name string) map[string]any {
	return map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": name, "namespace": "bench"},
		"data":     map[string]any{"k": "v"},
	}
}

func (s *suite) applied(ctx context.Context, d dialect) (figure.Durations, error) {
	var taken figure.Durations
	events, stop, err := open(ctx, d.on(s.hub))
	if err != nil {
		return nil, err
	}
	defer stop()
	for i := range samples {
		name := fmt.Sprintf("%sone-%d", d.short, i)
		start := time.Now()
		if err := create(ctx, d.on(s.hub), d.work(name, newConfigMap(name))); err != nil {
			return nil, err
		}
		if err := await(events, func(e watch.Event) bool { return is(e, name) && hasCondition(e, "Applied", "True") }); err != nil {
			return nil, fmt.Errorf("work %s: %w", name, err)
		}
		taken = append(taken, time.Since(start))
	}
	return taken, nil
}

// feedback changes the status of a custom resource in the spoke and waits for the
// work to tell.
func (s *suite) feedback(ctx context.Context, d dialect) (figure.Durations, error) {
	events, stop, err := open(ctx, d.on(s.hub))
	if err != nil {
		return nil, err
	}
	defer stop()
	name := d.short + "widget"
	if err := s.makeWidget(ctx, d, name); err != nil {
		return nil, err
	}
	widgets := s.spoke.dyn.Resource(widgetsResource()).Namespace("bench")
	if err := await(events, func(e watch.Event) bool { return is(e, name) && hasCondition(e, "Available", "True") }); err != nil {
		return nil, fmt.Errorf("work %s: %w", name, err)
	}
	var taken figure.Durations
	for i := range samples + 1 {
		start := time.Now()
		if _, err := widgets.Patch(ctx, name, "application/merge-patch+json", []byte(d.status(i+1)), metav1.PatchOptions{}, "status"); err != nil {
			return nil, err
		}
		if err := await(events, func(e watch.Event) bool { return is(e, name) && d.tells(e, i+1) }); err != nil {
			return nil, fmt.Errorf("change %d: %w", i, err)
		}
		if i > 0 { // the first one may wait for the watch to open
			taken = append(taken, time.Since(start))
		}
	}
	return taken, nil
}

// makeWidget has a work make a widget.
func (s *suite) makeWidget(ctx context.Context, d dialect, name string) error {
	if err := s.defineWidgets(ctx); err != nil {
		return err
	}
	widget := map[string]any{"apiVersion": "bench.spokelet.io/v1", "kind": "Widget", "metadata": map[string]any{"name": name, "namespace": "bench"}}
	work := d.work(name, widget)
	if d.config != nil {
		if err := unstructured.SetNestedSlice(work.Object, d.config, "spec", "manifestConfigs"); err != nil {
			return err
		}
	}
	return create(ctx, d.on(s.hub), work)
}

// defineWidgets makes the kind, once.
func (s *suite) defineWidgets(ctx context.Context) error {
	crd := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "widgets.bench.spokelet.io"},
		"spec": map[string]any{
			"group": "bench.spokelet.io", "scope": "Namespaced",
			"names": map[string]any{"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true, "subresources": map[string]any{"status": map[string]any{}},
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
			}},
		},
	}}
	crds := s.spoke.dyn.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	if err := create(ctx, crds, crd); err != nil {
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	}
	if _, err := s.spoke.ctl.Run(ctx, "wait", "--for=condition=Established", "crd/widgets.bench.spokelet.io"); err != nil {
		return err
	}
	// The engine's account has no rights on a group it has never seen.
	for _, args := range [][]string{
		{"create", "clusterrole", "bench-widgets", "--verb=*", "--resource=widgets.bench.spokelet.io"},
		{"create", "clusterrolebinding", "bench-widgets", "--clusterrole=bench-widgets", "--serviceaccount=open-cluster-management-agent:klusterlet-work-sa"},
	} {
		if _, err := s.spoke.ctl.Run(ctx, args...); err != nil {
			return err
		}
	}
	return nil
}

// drift deletes applied objects and waits for them to come back.
func (s *suite) drift(ctx context.Context, d dialect) (figure.Durations, error) {
	maps := s.spoke.dyn.Resource(configMapsResource()).Namespace("bench")
	events, stop, err := open(ctx, maps)
	if err != nil {
		return nil, err
	}
	defer stop()
	var taken figure.Durations
	for i := range samples {
		name := fmt.Sprintf("%sone-%d", d.short, i)
		if err := maps.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			return nil, err
		}
		if err := await(events, func(e watch.Event) bool { return is(e, name) && e.Type == watch.Deleted }); err != nil {
			return nil, fmt.Errorf("deletion of %s: %w", name, err)
		}
		start := time.Now()
		if err := await(events, func(e watch.Event) bool { return is(e, name) && e.Type == watch.Added }); err != nil {
			return nil, fmt.Errorf("return of %s: %w", name, err)
		}
		taken = append(taken, time.Since(start))
	}
	return taken, nil
}
