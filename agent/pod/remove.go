// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/spokelet/spokelet/agent/pod/inventory"
	"github.com/spokelet/spokelet/agent/pod/translate"
	"github.com/spokelet/spokelet/api/wire"
)

// Remove ends the pods that were made for a hub, for any when hubID is empty, each with
// its own grace, and removes the copies of what they refer to. It does not wait for
// their ends. It is for an agent that goes for good: whoever made the pods on the hub
// makes others elsewhere.
//
// Copies whose pod is not there any more, or never was, are found if the account may
// list ConfigMaps and Secrets, which an agent that runs may not; log says so if not.
func Remove(ctx context.Context, cfg *rest.Config, log logr.Logger, account, hubID string) error {
	s, err := newSpokeClient(cfg, account)
	if err != nil {
		return err
	}
	defer s.close()
	ours := translate.LabelHub
	if hubID != "" {
		ours += "=" + hubID
	}
	pods, err := s.core.Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{LabelSelector: ours + "," + translate.LabelHubPodUID})
	if err != nil {
		return fmt.Errorf("list pods of the hub: %w", err)
	}
	var errs []error
	for i := range pods.Items {
		errs = append(errs, s.deletePod(ctx, &pods.Items[i]))
	}
	b := &copyCleaner{names: s.metadata, log: log, selector: ours, until: time.Now().Add(rightPropagation)}
	for _, resource := range []string{"configmaps", "secrets"} {
		errs = append(errs, b.deleteCopies(ctx, resource))
	}
	return errors.Join(errs...)
}

// rightPropagation is how long a right that was given a moment ago may be on its way to those
// who are asked.
const rightPropagation = 5 * time.Second

// copyCleaner removes what pods left behind.
type copyCleaner struct {
	names    metadata.Interface
	log      logr.Logger
	selector string
	// until is when a right that is missing counts as one that nobody gave.
	until time.Time
}

// deleteCopies removes all copies that the selector names. What they hold is not read.
func (b *copyCleaner) deleteCopies(ctx context.Context, resource string) error {
	copies := b.names.Resource(corev1.SchemeGroupVersion.WithResource(resource))
	found, err := inventory.List(ctx, copies, metav1.ListOptions{LabelSelector: b.selector}, b.until)
	if apierrors.IsForbidden(err) {
		b.log.Info("copies whose pods are gone are not looked for, as the account may not", "resource", resource, "err", err.Error())
		return nil
	}
	if err != nil {
		return fmt.Errorf("list copies among the %s: %w", resource, err)
	}
	var errs []error
	for i := range found.Items {
		left := &found.Items[i]
		if !isCopy(resource, left) {
			continue
		}
		exactly := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(left.UID))}
		err := copies.Namespace(left.Namespace).Delete(ctx, left.Name, exactly)
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			errs = append(errs, fmt.Errorf("remove a copy among the %s, %s/%s: %w", resource, left.Namespace, left.Name, err))
		}
	}
	return errors.Join(errs...)
}

// copySource returns what an object is a copy of, if it is one: of that kind, and of the name
// that copies of it have. Labels and annotations travel along when somebody makes another
// object of a copy.
func copySource(resource string, found metav1.Object) (wire.PodObjectKey, bool) {
	parts := strings.Split(found.GetAnnotations()[AnnotationHubObject], "/")
	if len(parts) != 3 || parts[1] == "" {
		return wire.PodObjectKey{}, false
	}
	key := wire.PodObjectKey{Kind: parts[0], Namespace: parts[1], Name: parts[2]}
	kinds := map[string][]string{
		"configmaps": {wire.PodObjectConfigMap}, "secrets": {wire.PodObjectSecret, kindToken},
	}
	return key, slices.Contains(kinds[resource], key.Kind) && copyName(key) == found.GetName()
}

// isCopy reports whether an object is a copy that an agent with any prefix made where it is.
func isCopy(resource string, found metav1.Object) bool {
	key, ok := copySource(resource, found)
	return ok && strings.HasSuffix(found.GetNamespace(), key.Namespace)
}

// deletePod ends one pod. Its copies go first, for it is the pod that tells of them; it
// does not stay for one that does not go.
func (s *spokeClient) deletePod(ctx context.Context, pod *corev1.Pod) error {
	errs := s.deleteCopiesOf(ctx, pod)
	err := s.core.Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		errs = append(errs, fmt.Errorf("end pod %s/%s: %w", pod.Namespace, pod.Name, err))
	}
	return errors.Join(errs...)
}

// deleteCopiesOf removes the copies of what one pod refers to, those that it can.
func (s *spokeClient) deleteCopiesOf(ctx context.Context, pod *corev1.Pod) []error {
	var errs []error
	for _, key := range referencedCopies(pod, pod.Namespace) {
		at := namespacedName{Namespace: pod.Namespace, Name: copyName(key)}
		if err := s.deleteCopy(ctx, pod.Labels[translate.LabelHub], key, at); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// deleteCopy deletes a hub's copy of an object, if that is what is there.
func (s *spokeClient) deleteCopy(ctx context.Context, hubID string, key wire.PodObjectKey, at namespacedName) error {
	store := s.copyStore(key.Kind)
	found, err := store.get(ctx, at)
	if err == nil && found.hubID == hubID && found.isCopyOf(key) {
		err = store.delete(ctx, at, found)
	}
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return wrapCopyError(key, err)
	}
	return nil
}
