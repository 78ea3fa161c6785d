// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/spokelet/spokelet/workers/api"
)

// ErrNoAccount is returned for a namespace without the label of an account.
var ErrNoAccount = errors.New("the namespace has no account: an administrator sets its label " + api.LabelAccount)

// maxAccount is how many characters an account has at most.
const maxAccount = 40

// account is also part of names: of a namespace of the clusters, of a repository and of a host.
var account = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$`)

// TakenError says that an older namespace has the account.
type TakenError struct {
	Account string
	// Namespace that has it.
	Namespace string
}

// Error returns the message.
func (e *TakenError) Error() string {
	return fmt.Sprintf("account %s belongs to the older namespace %s", e.Account, e.Namespace)
}

// InvalidError says that the label holds no id.
type InvalidError struct{ Account string }

// Error returns the message.
func (e *InvalidError) Error() string {
	return fmt.Sprintf("label %s: account %q is not 1 to 40 lower-case letters, digits and inner hyphens", api.LabelAccount, e.Account)
}

// Accounts maps namespaces to accounts.
type Accounts struct {
	labels map[string]string // namespace to account, as labelled
	owners map[string]string // account to namespace
}

// ResolveAccounts assigns accounts to namespaces by their labels. A namespace that is being deleted
// keeps its account, because its objects may still exist.
func ResolveAccounts(namespaces []corev1.Namespace) *Accounts {
	a := &Accounts{labels: map[string]string{}, owners: map[string]string{}}
	first := map[string]*corev1.Namespace{}
	for i := range namespaces {
		ns := &namespaces[i]
		id, labelled := ns.Labels[api.LabelAccount]
		if !labelled {
			continue
		}
		a.labels[ns.Name] = id
		if !account.MatchString(id) {
			continue
		}
		if known := first[id]; known == nil || isOlder(ns.CreationTimestamp.Time, known.CreationTimestamp.Time, ns.Name, known.Name) {
			first[id], a.owners[id] = ns, ns.Name
		}
	}
	return a
}

// Account returns the account of a namespace. The error is [ErrNoAccount], an [*InvalidError] or a
// [*TakenError].
func (a *Accounts) Account(namespace string) (string, error) {
	id, labelled := a.labels[namespace]
	if !labelled {
		return "", ErrNoAccount
	}
	owner, owned := a.owners[id]
	if !owned {
		return "", &InvalidError{Account: id}
	}
	if owner != namespace {
		return "", &TakenError{Account: id, Namespace: owner}
	}
	return id, nil
}

// Namespace returns the namespace that has an account.
func (a *Accounts) Namespace(account string) (string, bool) {
	namespace, ok := a.owners[account]
	return namespace, ok
}

// isOlder reports whether the first of two namespaces was created before the second. Times of the API are
// in seconds, so the name decides between two of the same second.
func isOlder(first, second time.Time, firstName, secondName string) bool {
	return cmp.Or(first.Compare(second), cmp.Compare(firstName, secondName)) < 0
}
