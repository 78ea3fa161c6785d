// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/spokelet/spokelet/agent/pod/shape"
)

// Remove ends the pods that were made for a hub, for any when hubID is empty, each with
// its own grace, and removes the copies of what they refer to. It does not wait for
// their ends. It is for an agent that goes for good: whoever made the pods on the hub
// makes others elsewhere.
func Remove(ctx context.Context, cfg *rest.Config, account, hubID string) error {
	s, err := newSpoke(cfg, account)
	if err != nil {
		return err
	}
	defer s.close()
	ours := shape.LabelHub + "," + shape.LabelHubPodUID
	if hubID != "" {
		ours += "," + shape.LabelHub + "=" + hubID
	}
	pods, err := s.core.Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{LabelSelector: ours})
	if err != nil {
		return fmt.Errorf("list pods of the hub: %w", err)
	}
	var errs []error
	for i := range pods.Items {
		errs = append(errs, s.remove(ctx, &pods.Items[i]))
	}
	return errors.Join(errs...)
}

// remove ends one pod. Its copies go first, for it is the pod that tells of them.
func (s *spoke) remove(ctx context.Context, pod *corev1.Pod) error {
	for _, key := range copiesOf(pod, pod.Namespace) {
		at := place{Namespace: pod.Namespace, Name: copyName(key)}
		shelf := s.shelf(key.Kind)
		found, err := shelf.get(ctx, at)
		if err == nil && found.hub == pod.Labels[shape.LabelHub] && found.isOf(key) {
			err = shelf.delete(ctx, at, found)
		}
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return aboutCopy(key, err)
		}
	}
	err := s.core.Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("end pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}
