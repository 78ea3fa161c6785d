// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package access

import (
	"context"
	"errors"
	"slices"
	"sync"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"golang.org/x/sync/errgroup"

	"github.com/spokelet/spokelet/workers/api"
	"github.com/spokelet/spokelet/workers/tenant"
)

// maxParallelReviews reviews of rights for one request.
const maxParallelReviews = 8

// Accounts watches the namespaces that have accounts.
type Accounts struct {
	factory informers.SharedInformerFactory
	synced  cache.InformerSynced
	lister  corelisters.NamespaceLister
}

// NewAccounts returns Accounts, which [Accounts.Run] keeps current.
func NewAccounts(kube kubernetes.Interface) *Accounts {
	factory := informers.NewSharedInformerFactoryWithOptions(kube, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.LabelSelector = api.LabelAccount
	}))
	namespaces := factory.Core().V1().Namespaces()
	return &Accounts{factory: factory, synced: namespaces.Informer().HasSynced, lister: namespaces.Lister()}
}

// Run watches namespaces until the context ends.
func (a *Accounts) Run(ctx context.Context) {
	a.factory.StartWithContext(ctx)
	<-ctx.Done()
	a.factory.Shutdown()
}

// HasSynced tells whether all namespaces are known.
func (a *Accounts) HasSynced() bool { return a.synced() }

func (a *Accounts) listAccounts() (*tenant.Accounts, []string) {
	// The error of a lister of a cache is always nil.
	found, _ := a.lister.List(labels.Everything())
	namespaces := make([]corev1.Namespace, 0, len(found))
	var ids []string
	for _, ns := range found {
		namespaces = append(namespaces, *ns)
		ids = append(ids, ns.Labels[api.LabelAccount])
	}
	slices.Sort(ids)
	return tenant.ResolveAccounts(namespaces), slices.Compact(ids)
}

// Namespace returns the namespace of an account.
func (a *Accounts) Namespace(account string) (string, bool) {
	claims, _ := a.listAccounts()
	return claims.Namespace(account)
}

// Authorizer authorizes users.
type Authorizer interface {
	Authorize(ctx context.Context, user authenticationv1.UserInfo, namespace, verb string) error
}

// ListReadable returns the accounts whose scripts a user may read, sorted.
func (a *Accounts) ListReadable(ctx context.Context, user authenticationv1.UserInfo, rights Authorizer) ([]string, error) {
	claims, ids := a.listAccounts()
	err := rights.Authorize(ctx, user, "", "list")
	all := err == nil
	if err != nil && !errors.Is(err, ErrForbidden) {
		return nil, err
	}
	var (
		mu      sync.Mutex
		allowed []string
	)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxParallelReviews)
	for _, id := range ids {
		namespace, ok := claims.Namespace(id)
		if !ok {
			continue
		}
		group.Go(func() error {
			if !all {
				err := rights.Authorize(ctx, user, namespace, "list")
				if errors.Is(err, ErrForbidden) {
					return nil
				}
				if err != nil {
					return err
				}
			}
			mu.Lock()
			defer mu.Unlock()
			allowed = append(allowed, id)
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	slices.Sort(allowed)
	return allowed, nil
}
