// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package action

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

// RemoveLog deletes the action log. No process of the agent may run any more.
func RemoveLog(ctx context.Context, client corev1client.ConfigMapInterface) error {
	entries := metav1.ListOptions{LabelSelector: labels.Set{labelLog: logActions}.String()}
	if err := client.DeleteCollection(ctx, metav1.DeleteOptions{}, entries); err != nil {
		return fmt.Errorf("action log: cannot delete: %w", err)
	}
	return nil
}
