// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/workers/api"
	accountv1alpha1 "github.com/spokelet/spokelet/workers/api/account/v1alpha1"
	"github.com/spokelet/spokelet/workers/tenant"
)

// tenants says whose a namespace is.
type tenants struct{ client client.Reader }

// of returns the account of a namespace. A *problem is why there is none.
func (t tenants) of(ctx context.Context, namespace string) (string, error) {
	claims, err := t.claims(ctx)
	if err != nil {
		return "", err
	}
	return accountOf(claims, namespace)
}

func accountOf(claims *tenant.Accounts, namespace string) (string, error) {
	account, err := claims.Of(namespace)
	if err == nil {
		return account, nil
	}
	reason := api.ReasonNoAccount
	if _, taken := errors.AsType[*tenant.TakenError](err); taken {
		reason = api.ReasonAccountTaken
	}
	return "", &problem{reason: reason, err: err}
}

func (t tenants) claims(ctx context.Context) (*tenant.Accounts, error) {
	var namespaces corev1.NamespaceList
	if err := t.client.List(ctx, &namespaces, client.HasLabels{api.LabelAccount}); err != nil {
		return nil, fmt.Errorf("list namespaces: %w", err)
	}
	return tenant.Claims(namespaces.Items), nil
}

// served returns the WorkerAccount of a namespace that is served, the oldest, or nil.
func (t tenants) served(ctx context.Context, namespace string) (*accountv1alpha1.WorkerAccount, error) {
	var list accountv1alpha1.WorkerAccountList
	if err := t.client.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("list WorkerAccounts: %w", err)
	}
	var first *accountv1alpha1.WorkerAccount
	for i := range list.Items {
		if a := &list.Items[i]; !terminating(a) && (first == nil || older(a, first) < 0) {
			first = a
		}
	}
	return first, nil
}
