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

	"github.com/spokelet/spokelet/agent/pod/translate"
)

// defaultAccount is in every namespace without our doing, and every pod that names
// none runs as it.
const defaultAccount = "default"

// accountEnsurer says as which service accounts pods may run: those that were made for pods
// of this hub, and those whose owner allows it. The first have no rights but those that
// the spoke's owner gives them.
type accountEnsurer struct {
	core  typedcorev1.CoreV1Interface
	hubID string
	cache *answerCache[namespacedName, struct{}]
}

func newAccountEnsurer(core typedcorev1.CoreV1Interface, hubID string) *accountEnsurer {
	return &accountEnsurer{core: core, hubID: hubID, cache: newAnswerCache[namespacedName, struct{}]()}
}

// ensure makes the account if it is missing and the namespace is ours. The error is a
// [*RefusedError] when no pod of the hub may run as it.
func (a *accountEnsurer) ensure(ctx context.Context, at namespacedName, ours bool) error {
	if isDefault(at) {
		return nil
	}
	_, err := a.cache.get(at, func() (struct{}, error) {
		err := a.check(ctx, at)
		if ours && apierrors.IsNotFound(err) {
			err = a.create(ctx, at)
		}
		return struct{}{}, err
	})
	return err
}

func isDefault(at namespacedName) bool { return at.Name == "" || at.Name == defaultAccount }

// check is ensure for an account as it is at this moment.
func (a *accountEnsurer) check(ctx context.Context, at namespacedName) error {
	if isDefault(at) {
		return nil
	}
	found, err := a.core.ServiceAccounts(at.Namespace).Get(ctx, at.Name, metav1.GetOptions{})
	ours := err == nil && found.Labels[LabelCreatedBy] == Creator && found.Labels[translate.LabelHub] == a.hubID
	if ours {
		return nil
	}
	return checkConsent(ReasonAccountNotAllowed, fmt.Sprintf("service account %q in namespace %q", at.Name, at.Namespace), found, err)
}

func (a *accountEnsurer) create(ctx context.Context, at namespacedName) error {
	_, err := a.core.ServiceAccounts(at.Namespace).Create(ctx, &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{
			Name:   at.Name,
			Labels: map[string]string{LabelCreatedBy: Creator, translate.LabelHub: a.hubID},
		},
	}, metav1.CreateOptions{})
	// Whose it is that somebody made at the same time is asked before the pod is made.
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("service account of the pod: %w", err)
	}
	return nil
}
