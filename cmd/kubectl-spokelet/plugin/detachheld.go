// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/api/mcm/v1alpha1"
)

const (
	// heldTime bounds the look at what holds a detach up.
	heldTime = 10 * time.Second
	// maxHeld objects of a kind are named.
	maxHeld = 10
)

// printHeld says what holds a detach up: the works and pods that are there, and what
// Kubernetes says of the namespace. What cannot be read is not said.
func (s *session) printHeld(ctx context.Context, hub client.Reader, record *clusterv1.ManagedCluster) {
	ctx, cancel := context.WithTimeout(ctx, heldTime)
	defer cancel()
	var lines []string
	works, _ := listAllWorks(ctx, hub, record.Name)
	for _, kind := range workKinds {
		of := make([]client.Object, len(works[kind]))
		for i := range works[kind] {
			of[i] = &works[kind][i]
		}
		lines = append(lines, held(kind.GroupKind().String(), of)...)
	}
	lines = append(lines, heldPods(ctx, hub, record.Name)...)
	lines = append(lines, heldNamespace(ctx, hub, record.Name)...)
	for _, line := range lines {
		_, _ = fmt.Fprintf(s.ErrOut, "cluster %q is held up by %s\n", record.Name, line)
	}
	if hub.Get(ctx, client.ObjectKeyFromObject(record), record) != nil {
		return
	}
	available := meta.FindStatusCondition(record.Status.Conditions, clusterv1.ManagedClusterConditionAvailable)
	if available == nil || available.Status != metav1.ConditionTrue {
		_, _ = fmt.Fprintf(s.ErrOut, "cluster %q is not connected: --force leaves what is there as it is\n", record.Name)
	}
}

// held describes objects of a kind, the first of them.
func held(kind string, objects []client.Object) (lines []string) {
	slices.SortFunc(objects, func(a, b client.Object) int { return strings.Compare(nameOf(a), nameOf(b)) })
	for i, object := range objects {
		if i == maxHeld {
			return append(lines, fmt.Sprintf("%d more of kind %s", len(objects)-maxHeld, kind))
		}
		lines = append(lines, fmt.Sprintf("%s %s%s", kind, nameOf(object), history(object)))
	}
	return lines
}

// history is whose an object is, since when it is deleted, and who has a say in its end.
func history(object client.Object) string {
	var out strings.Builder
	if owner := ownerOf(object); owner != "" {
		fmt.Fprintf(&out, ", of %s", owner)
	}
	if deleted := object.GetDeletionTimestamp(); deleted != nil {
		fmt.Fprintf(&out, ", deleted at %s", deleted.UTC().Format(time.RFC3339))
	}
	if finalizers := object.GetFinalizers(); len(finalizers) > 0 {
		fmt.Fprintf(&out, ", with the finalizers %s", strings.Join(finalizers, ", "))
	}
	return out.String()
}

// ownerOf is the object that an object is made for, or else the field manager that wrote
// it first.
func ownerOf(object client.Object) string {
	if owner := metav1.GetControllerOf(object); owner != nil {
		return owner.Kind + " " + owner.Name
	}
	if owner := object.GetAnnotations()[v1alpha1.AnnotationOwners]; owner != "" {
		return owner
	}
	for _, entry := range object.GetManagedFields() {
		if entry.Subresource == "" {
			return entry.Manager
		}
	}
	return ""
}

// heldPods are the pods on the nodes of a cluster that are deleted and still there.
func heldPods(ctx context.Context, hub client.Reader, cluster string) (lines []string) {
	nodes, _ := nodesOf(ctx, hub, cluster)
	var objects []client.Object
	for _, node := range nodes {
		var pods corev1.PodList
		if hub.List(ctx, &pods, on(node)) != nil {
			continue
		}
		for i := range pods.Items {
			if !pods.Items[i].DeletionTimestamp.IsZero() {
				objects = append(objects, &pods.Items[i])
			}
		}
	}
	return held("Pod", objects)
}

// heldNamespace is what Kubernetes says of a namespace that it deletes.
func heldNamespace(ctx context.Context, hub client.Reader, name string) (lines []string) {
	var ns corev1.Namespace
	if hub.Get(ctx, client.ObjectKey{Name: name}, &ns) != nil || ns.DeletionTimestamp.IsZero() {
		return nil
	}
	for _, condition := range ns.Status.Conditions {
		if condition.Status == corev1.ConditionTrue {
			lines = append(lines, fmt.Sprintf("Namespace %s, deleted at %s: %s", name, ns.DeletionTimestamp.UTC().Format(time.RFC3339), condition.Message))
		}
	}
	return lines
}
