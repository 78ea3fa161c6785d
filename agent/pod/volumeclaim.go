// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// checkClaims checks that a pod may mount the persistent volume claims that it names.
// They are all of the spoke's owner. One that is not there yet may be anybody's when it
// comes. The error is a [*RefusedError] for those that pods of the hub may not have.
func (s *spokeClient) checkClaims(ctx context.Context, at namespacedName, spec *corev1.PodSpec) error {
	for i := range spec.Volumes {
		claim := spec.Volumes[i].PersistentVolumeClaim
		if claim == nil {
			continue
		}
		found, err := s.core.PersistentVolumeClaims(at.Namespace).Get(ctx, claim.ClaimName, metav1.GetOptions{})
		what := fmt.Sprintf("persistent volume claim %q in namespace %q", claim.ClaimName, at.Namespace)
		if err := checkConsent(ReasonClaimNotAllowed, what, found, err); err != nil {
			return err
		}
	}
	return nil
}
