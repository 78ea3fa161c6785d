// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/spokelet/spokelet/agent/pod/shape"
)

// defaultAccount is in every namespace without our doing.
const defaultAccount = "default"

// accounts makes the service accounts that pods run as, in namespaces that were
// made for them. They have no rights but those that the spoke's owner gives them.
type accounts struct {
	core  typedcorev1.CoreV1Interface
	hubID string
	seen  *memo[place, struct{}]
}

func newAccounts(core typedcorev1.CoreV1Interface, hubID string) *accounts {
	return &accounts{core: core, hubID: hubID, seen: newMemo[place, struct{}]()}
}

func (a *accounts) ensure(ctx context.Context, at place) error {
	if at.Name == defaultAccount {
		return nil
	}
	_, err := a.seen.ask(at, func() (struct{}, error) { return struct{}{}, a.make(ctx, at) })
	return err
}

func (a *accounts) make(ctx context.Context, at place) error {
	_, err := a.core.ServiceAccounts(at.Namespace).Create(ctx, &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{
			Name:   at.Name,
			Labels: map[string]string{LabelCreatedBy: Creator, shape.LabelHub: a.hubID},
		},
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("service account of the pod: %w", err)
	}
	return nil
}
