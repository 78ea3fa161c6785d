// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package fanout

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/hub/requester"
	"github.com/spokelet/spokelet/internal/rbacwatch"
)

// maxAuthors is of how many authors it is remembered where they may have Works.
const maxAuthors = 256

// allowedClusters is where an author may have Works, as far as it has been asked. Parents of the same
// author share it until rights change. Of clusters beyond it an author learns nothing but
// how many there are, selected or not: a number that followed the selector would reveal which
// labels they bear.
type allowedClusters struct {
	mu sync.Mutex
	// allowsAll is asked first: most authors of many clusters are allowed all of them.
	isChecked, allowsAll bool // guarded by mu
	// byCluster are the answers for each; guarded by mu.
	byCluster map[string]bool
}

// version is that of a parent's spec.
type version struct {
	uid        types.UID
	generation int64
}

// clustersOf returns the cache of the author of a parent. An edit of a parent drops it: of an
// authorizer beside RBAC nobody notices that it answers otherwise.
func (k *reconciler) clustersOf(p parent, by requester.User) *allowedClusters {
	k.mu.Lock()
	defer k.mu.Unlock()
	name, now := client.ObjectKeyFromObject(p.object), version{uid: p.object.GetUID(), generation: p.object.GetGeneration()}
	seen, known := k.versions[name]
	k.versions[name] = now
	all := by.PermissionToCreate(resourceWorks, metav1.NamespaceAll)
	if r := k.authorClusters[all]; r != nil && (!known || seen == now) {
		return r
	}
	if len(k.authorClusters) >= maxAuthors {
		clear(k.authorClusters)
	}
	r := &allowedClusters{byCluster: map[string]bool{}}
	k.authorClusters[all] = r
	return r
}

// dropClusters has it asked again where an author may have Works.
func (k *reconciler) dropClusters(by requester.User) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.authorClusters, by.PermissionToCreate(resourceWorks, metav1.NamespaceAll))
}

// accessAnswers are about clusters.
type accessAnswers struct {
	allowed map[string]bool
	// fresh are those that were asked just now.
	fresh map[string]bool
}

// check returns in which of the clusters an author may have Works. It asks about those that
// it has not asked about before.
func (r *allowedClusters) check(ctx context.Context, by requester.User, access rbacwatch.AccessReviewer, clusters []string) (accessAnswers, error) {
	r.mu.Lock() // also while it asks: others of the same author would ask the same
	defer r.mu.Unlock()
	out := accessAnswers{allowed: map[string]bool{}, fresh: map[string]bool{}}
	first := !r.isChecked
	if first {
		everywhere, err := canCreateWork(ctx, by, access, metav1.NamespaceAll)
		if err != nil {
			return accessAnswers{}, err
		}
		r.isChecked, r.allowsAll = true, everywhere
	}
	if r.allowsAll {
		for _, cluster := range clusters {
			out.allowed[cluster], out.fresh[cluster] = true, first
		}
		return out, nil
	}
	if err := r.checkMissing(ctx, by, access, clusters, out.fresh); err != nil {
		return accessAnswers{}, err
	}
	for _, cluster := range clusters {
		out.allowed[cluster] = r.byCluster[cluster]
	}
	return out, nil
}

// checkMissing asks about the clusters of which there is no answer; r.mu is held.
func (r *allowedClusters) checkMissing(ctx context.Context, by requester.User, access rbacwatch.AccessReviewer, clusters []string, fresh map[string]bool) error {
	var missing []string
	for _, cluster := range clusters {
		if _, known := r.byCluster[cluster]; !known {
			missing = append(missing, cluster)
		}
	}
	allowed := make([]bool, len(missing))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for i, cluster := range missing {
		group.Go(func() (err error) {
			allowed[i], err = canCreateWork(ctx, by, access, cluster)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for i, cluster := range missing {
		r.byCluster[cluster], fresh[cluster] = allowed[i], true
	}
	return nil
}

func canCreateWork(ctx context.Context, by requester.User, access rbacwatch.AccessReviewer, cluster string) (bool, error) {
	err := by.PermissionToCreate(resourceWorks, cluster).Review(ctx, access)
	if errors.Is(err, requester.ErrForbidden) {
		return false, nil
	}
	return err == nil, err
}

// forbiddenMessage states how many clusters are not named, and why.
func forbiddenMessage(by requester.User, clusters int32) string {
	if clusters == 0 {
		return ""
	}
	return fmt.Sprintf("user %q cannot create works.mcm.ibm.com in the namespaces of %d clusters, which are not named, selected or not", by.User, clusters)
}
