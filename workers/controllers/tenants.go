// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

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
	namespaces, err := t.namespaces(ctx)
	return tenant.Claims(namespaces), err
}

func (t tenants) namespaces(ctx context.Context) ([]corev1.Namespace, error) {
	var namespaces corev1.NamespaceList
	if err := t.client.List(ctx, &namespaces, client.HasLabels{api.LabelAccount}); err != nil {
		return nil, fmt.Errorf("list namespaces: %w", err)
	}
	return namespaces.Items, nil
}

// host returns the host of the account of a namespace. A *problem is why it has none.
func (t tenants) host(ctx context.Context, namespace, suffix string) (string, error) {
	namespaces, err := t.namespaces(ctx)
	if err != nil {
		return "", err
	}
	accounts := tenant.Claims(namespaces)
	account, err := accountOf(accounts, namespace)
	if err != nil {
		return "", err
	}
	var claims []tenant.Claim
	for i := range namespaces {
		ns := &namespaces[i]
		id, err := accounts.Of(ns.Name)
		if err != nil {
			continue // it has no account, and is told so
		}
		a, err := t.served(ctx, ns.Name)
		if err != nil {
			return "", err
		}
		if a != nil {
			claims = append(claims, tenant.Claim{
				Account: id, Host: a.Spec.Host, Allowed: ns.Annotations[api.AnnotationHosts], Held: a.Status.Host, Created: a.CreationTimestamp.Time,
			})
		}
	}
	holding := tenant.Hosts(claims, suffix)[account]
	if holding.Err != nil {
		return "", &problem{reason: hostReason(holding.Err), err: holding.Err}
	}
	return holding.Host, nil
}

func hostReason(err error) string {
	for reason, is := range map[string]error{
		api.ReasonNoHost: tenant.ErrNoHost, api.ReasonHostNotAllowed: tenant.ErrHostNotAllowed, api.ReasonHostTaken: tenant.ErrHostTaken,
	} {
		if errors.Is(err, is) {
			return reason
		}
	}
	return api.ReasonInvalid
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
