// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"time"

	"helm.sh/helm/v4/pkg/kube"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
)

const (
	// discoveryTimeout bounds the time until an API server lists what it serves.
	discoveryTimeout  = 5 * time.Second
	discoveryInterval = 50 * time.Millisecond
)

// waitForKinds waits until discovery lists the kinds of new definitions. The API server serves
// them a moment before, and Helm would not find them: templates that check for them would
// render as if they did not exist. Discovery cannot be watched. A timeout is no error.
func waitForKinds(client discovery.DiscoveryInterface, made kube.ResourceList, timeout time.Duration) {
	missing := servedKinds(made)
	if len(missing) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), min(timeout, discoveryTimeout)) // Helm hands none on
	defer cancel()
	_ = wait.PollUntilContextCancel(ctx, discoveryInterval, true, func(context.Context) (bool, error) {
		_, listed, _ := client.ServerGroupsAndResources() // partial beside an error
		for _, list := range listed {
			for i := range list.APIResources {
				delete(missing, schema.FromAPIVersionAndKind(list.GroupVersion, list.APIResources[i].Kind))
			}
		}
		return len(missing) == 0, nil
	})
}

// servedKinds returns the kinds that definitions serve.
func servedKinds(resources kube.ResourceList) map[schema.GroupVersionKind]bool {
	found := map[schema.GroupVersionKind]bool{}
	for _, info := range resources {
		object, ok := info.Object.(*unstructured.Unstructured)
		if !ok || object.GetKind() != "CustomResourceDefinition" {
			continue
		}
		group, _, _ := unstructured.NestedString(object.Object, "spec", "group")
		kind, _, _ := unstructured.NestedString(object.Object, "spec", "names", "kind")
		versions, _, _ := unstructured.NestedSlice(object.Object, "spec", "versions")
		for _, version := range versions {
			fields, _ := version.(map[string]any)
			name, _, _ := unstructured.NestedString(fields, "name")
			if served, _, _ := unstructured.NestedBool(fields, "served"); served {
				found[schema.GroupVersionKind{Group: group, Version: name, Kind: kind}] = true
			}
		}
	}
	return found
}
