// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/api/wire"
)

// nodeOfPod is the field by which the pods of a node are found.
const nodeOfPod = "spec.nodeName"

// virtualProvider is how the provider ids of virtual nodes begin.
const virtualProvider = "spokelet://"

// endPods deletes the pods that run in the cluster and waits until they are gone
// there; with --force it only says which there are. Those of DaemonSets would be made
// again: what of them runs is named.
func (s *session) endPods(ctx context.Context, hub client.WithWatch, cluster string, force bool) error {
	nodes, err := nodesOf(ctx, hub, cluster)
	if err != nil {
		return err
	}
	if force {
		for _, node := range nodes {
			if err := s.printPods(ctx, hub, on(node)); err != nil {
				return err
			}
		}
		return nil
	}
	// The agent may have told of another group of its nodes while those were emptied.
	for ended := map[string]bool{}; len(nodes) > 0; {
		if err := s.endPodsOn(ctx, hub, nodes); err != nil {
			return err
		}
		for _, node := range nodes {
			ended[node] = true
		}
		if nodes, err = nodesOf(ctx, hub, cluster); err != nil {
			return err
		}
		nodes = slices.DeleteFunc(nodes, func(node string) bool { return ended[node] })
	}
	return nil
}

// endPodsOn empties nodes. All pods are deleted before any is waited for: one that is
// stuck keeps none of the others running.
func (s *session) endPodsOn(ctx context.Context, hub client.WithWatch, nodes []string) error {
	for _, node := range nodes {
		if err := cordon(ctx, hub, node); err != nil {
			return err
		}
	}
	left := map[string]map[string]types.UID{}
	for _, node := range nodes {
		var err error
		if left[node], err = s.deletePods(ctx, hub, node); err != nil {
			return err
		}
	}
	for _, node := range nodes {
		if err := awaitPods(ctx, hub, node, left[node]); err != nil {
			return err
		}
	}
	return nil
}

func on(node string) client.MatchingFieldsSelector {
	return client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector(nodeOfPod, node)}
}

// nodesOf are the names of a cluster's virtual nodes: its own, whether that is there
// or not, and those of groups of its nodes. What else bears the label is not its.
func nodesOf(ctx context.Context, hub client.Reader, cluster string) ([]string, error) {
	var list corev1.NodeList
	if err := hub.List(ctx, &list, client.MatchingLabels{wire.LabelCluster: cluster}); err != nil {
		return nil, fmt.Errorf("nodes of cluster %s: %w", cluster, err)
	}
	names := []string{cluster}
	for i := range list.Items {
		node := &list.Items[i]
		of, group := wire.ParseNodeName(node.Name)
		if of == cluster && group != "" && strings.HasPrefix(node.Spec.ProviderID, virtualProvider) {
			names = append(names, node.Name)
		}
	}
	return names, nil
}

// deletePods deletes the pods of a node, and returns the UIDs of those by name.
func (s *session) deletePods(ctx context.Context, hub client.Client, node string) (map[string]types.UID, error) {
	var pods corev1.PodList
	if err := hub.List(ctx, &pods, on(node)); err != nil {
		return nil, fmt.Errorf("pods of node %s: %w", node, err)
	}
	left := map[string]types.UID{}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if ofDaemonSet(pod) {
			s.printPod(pod)
			continue
		}
		left[nameOf(pod)] = pod.UID
		err := client.IgnoreNotFound(hub.Delete(ctx, pod, client.Preconditions{UID: &pod.UID}))
		if err != nil {
			return nil, err
		}
	}
	return left, nil
}

// awaitPods waits until the pods with these UIDs are gone from a node.
func awaitPods(ctx context.Context, hub client.WithWatch, node string, left map[string]types.UID) error {
	err := await(ctx, hub, &corev1.PodList{}, func(present map[string]client.Object) bool {
		return !slices.ContainsFunc(slices.Collect(maps.Keys(left)), func(name string) bool {
			pod, ok := present[name]
			return ok && pod.GetUID() == left[name]
		})
	}, on(node))
	if err != nil {
		return fmt.Errorf("pods of node %s: %w until they are gone", node, err)
	}
	return nil
}

func (s *session) printPods(ctx context.Context, hub client.Reader, onNode client.ListOption) error {
	var pods corev1.PodList
	if err := hub.List(ctx, &pods, onNode); err != nil {
		return fmt.Errorf("pods of the cluster's node: %w", err)
	}
	for i := range pods.Items {
		s.printPod(&pods.Items[i])
	}
	return nil
}

// printPod names a pod that is left, unless it is of a DaemonSet and never was there.
func (s *session) printPod(pod *corev1.Pod) {
	there := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == wire.ConditionInCluster })
	if there || !ofDaemonSet(pod) {
		_, _ = fmt.Fprintf(s.ErrOut, "left running in the cluster: pod/%s\n", nameOf(pod))
	}
}

// cordon keeps the node of a cluster, if there is one, from new pods.
func cordon(ctx context.Context, hub client.Writer, name string) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	err := hub.Patch(ctx, node, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"unschedulable":true}}`)))
	return client.IgnoreNotFound(err)
}

func ofDaemonSet(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind == "DaemonSet"
}
