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

// tenantReader resolves the accounts and hosts of namespaces.
type tenantReader struct{ client client.Reader }

// account returns the account of a namespace. A *statusError says why there is none.
func (t tenantReader) account(ctx context.Context, namespace string) (string, error) {
	claims, err := t.listAccounts(ctx)
	if err != nil {
		return "", err
	}
	return resolveAccount(claims, namespace)
}

func resolveAccount(claims *tenant.Accounts, namespace string) (string, error) {
	account, err := claims.Account(namespace)
	if err == nil {
		return account, nil
	}
	reason := api.ReasonNoAccount
	if _, taken := errors.AsType[*tenant.TakenError](err); taken {
		reason = api.ReasonAccountTaken
	}
	return "", &statusError{reason: reason, err: err}
}

func (t tenantReader) listAccounts(ctx context.Context) (*tenant.Accounts, error) {
	namespaces, err := t.listNamespaces(ctx)
	return tenant.ResolveAccounts(namespaces), err
}

func (t tenantReader) listNamespaces(ctx context.Context) ([]corev1.Namespace, error) {
	var namespaces corev1.NamespaceList
	if err := t.client.List(ctx, &namespaces, client.HasLabels{api.LabelAccount}); err != nil {
		return nil, fmt.Errorf("list namespaces: %w", err)
	}
	return namespaces.Items, nil
}

// resolveHost returns the host of the account of a namespace. A *statusError says why it has none.
func (t tenantReader) resolveHost(ctx context.Context, namespace, suffix string) (string, error) {
	namespaces, err := t.listNamespaces(ctx)
	if err != nil {
		return "", err
	}
	accounts := tenant.ResolveAccounts(namespaces)
	account, err := resolveAccount(accounts, namespace)
	if err != nil {
		return "", err
	}
	var claims []tenant.HostRequest
	for i := range namespaces {
		ns := &namespaces[i]
		id, err := accounts.Account(ns.Name)
		if err != nil {
			continue // its status reports that it has no account
		}
		a, err := t.servedAccount(ctx, ns.Name)
		if err != nil {
			return "", err
		}
		if a != nil {
			claims = append(claims, tenant.HostRequest{
				Account: id, Host: a.Spec.Host, Allowed: ns.Annotations[api.AnnotationHosts], Current: a.Status.Host, Created: a.CreationTimestamp.Time,
			})
		}
	}
	holding := tenant.AssignHosts(claims, suffix)[account]
	if holding.Err != nil {
		return "", &statusError{reason: hostReason(holding.Err), err: holding.Err}
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

// servedAccount returns the WorkerAccount of a namespace that is served, the oldest, or nil.
func (t tenantReader) servedAccount(ctx context.Context, namespace string) (*accountv1alpha1.WorkerAccount, error) {
	var list accountv1alpha1.WorkerAccountList
	if err := listIn(ctx, t.client, &list, namespace); err != nil {
		return nil, err
	}
	var first *accountv1alpha1.WorkerAccount
	for i := range list.Items {
		if a := &list.Items[i]; !isDeleting(a) && (first == nil || compareAge(a, first) < 0) {
			first = a
		}
	}
	return first, nil
}
