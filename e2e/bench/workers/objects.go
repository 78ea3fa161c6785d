// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

func (s *suite) deployments() dynamic.ResourceInterface {
	return s.dyn.Resource(deploymentsResource()).Namespace(team)
}

// ready waits until the WorkerDeployment says that all clusters serve what was asked for.
func (s *suite) ready(ctx context.Context, asked *unstructured.Unstructured) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	follow := &cache.ListWatch{WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		return s.deployments().Watch(ctx, o)
	}}
	_, err := watchtools.Until(ctx, asked.GetResourceVersion(), follow, func(e watch.Event) (bool, error) {
		obj, ok := e.Object.(*unstructured.Unstructured)
		return ok && obj.GetName() == asked.GetName() && readyAt(obj, asked.GetGeneration()), nil
	})
	if err != nil {
		return fmt.Errorf("WorkerDeployment %s of generation %d: %w", asked.GetName(), asked.GetGeneration(), err)
	}
	return nil
}

// readyAt tells whether the condition Ready is true and of a generation.
func readyAt(obj *unstructured.Unstructured, generation int64) bool {
	conditions, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions")
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["type"] == "Ready" {
			return c["status"] == "True" && c["observedGeneration"] == generation
		}
	}
	return false
}

// builds is how many there are.
func (s *suite) builds(ctx context.Context) (int, error) {
	list, err := s.dyn.Resource(buildersResource()).Namespace(team).List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, err
	}
	return len(list.Items), nil
}

// works tells which version each cluster's work has.
func (s *suite) works(ctx context.Context) (string, error) {
	var all []string
	for _, spoke := range s.env.Set.Spokes() {
		work, err := s.dyn.Resource(worksResource()).Namespace(spoke.Name).Get(ctx, "workers-"+account, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		all = append(all, fmt.Sprintf("%s: %d", spoke.Name, work.GetGeneration()))
	}
	return strings.Join(all, ", "), nil
}
