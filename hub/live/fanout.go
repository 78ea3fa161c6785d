// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	livev1alpha1 "github.com/spokelet/spokelet/api/live/v1alpha1"
)

// queryClusters queries every selected cluster that the caller may view, and waits for all
// responses. Failures are part of the result.
func (s *viewStorage) queryClusters(ctx context.Context, q *viewQuery, t *viewRequest) livev1alpha1.ViewWorkStatus {
	selected := s.store.listNames(q.clusters)
	views := make([]*livev1alpha1.ClusterView, len(selected))
	// Equal shares, so that the answer does not depend on who comes first.
	limit := min(s.limits.ViewBytes, s.limits.ViewTotalBytes/int64(max(1, len(selected))))
	runParallel(s.limits.ViewConcurrency, len(selected), func(i int) { views[i] = s.queryClusterIfAllowed(ctx, selected[i], q, t, limit) })

	forbidden := s.countForbidden(ctx, selected)
	allowed := make([]livev1alpha1.ClusterView, 0, len(views))
	for _, v := range views {
		if v == nil {
			forbidden++
			continue
		}
		allowed = append(allowed, *v)
	}
	return summarize(allowed, forbidden)
}

// runParallel calls f for each of n, for as many at once as there are workers.
func runParallel(workers, n int, f func(i int)) {
	var next atomic.Int64
	var running sync.WaitGroup
	for range min(workers, n) {
		running.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				f(i)
			}
		})
	}
	running.Wait()
}

// countForbidden is the number of clusters that were not selected and that the
// caller may not look at. Together with those that were it does not depend on the
// selector: a number that did would tell which labels unseen clusters bear. Who may
// look at all of them is asked about once.
func (s *viewStorage) countForbidden(ctx context.Context, selected []string) int32 {
	if all, err := s.canView(ctx, s.silentAuthorizer, metav1.NamespaceAll); all && err == nil {
		return 0
	}
	rest := s.store.listNames(labels.Everything())
	rest = slices.DeleteFunc(rest, func(name string) bool {
		_, found := slices.BinarySearch(selected, name)
		return found
	})
	var forbidden atomic.Int32
	runParallel(s.limits.ViewConcurrency, len(rest), func(i int) {
		if allowed, err := s.canView(ctx, s.silentAuthorizer, rest[i]); !allowed || err != nil {
			forbidden.Add(1)
		}
	})
	return forbidden.Load()
}

// queryClusterIfAllowed returns nil when the caller may not look at the cluster, and when nobody can
// say: the name of a cluster is for those who may.
func (s *viewStorage) queryClusterIfAllowed(ctx context.Context, cluster string, q *viewQuery, t *viewRequest, limit int64) *livev1alpha1.ClusterView {
	if allowed, err := s.canView(ctx, s.authorizer, cluster); !allowed || err != nil {
		return nil
	}
	view, err := s.queryCluster(ctx, cluster, q, t, limit)
	if err != nil {
		return newFailedView(cluster, err)
	}
	return view
}

// canView asks whether the caller may create viewworks in the namespace of a
// cluster.
func (s *viewStorage) canView(ctx context.Context, by authorizer.Authorizer, cluster string) (bool, error) {
	u, _ := request.UserFrom(ctx)
	decision, _, err := by.Authorize(ctx, authorizer.AttributesRecord{
		User:            u,
		Verb:            "create",
		Namespace:       cluster,
		APIGroup:        livev1alpha1.GroupName,
		APIVersion:      livev1alpha1.SchemeGroupVersion.Version,
		Resource:        viewWorksResource,
		ResourceRequest: true,
	})
	if decision == authorizer.DecisionAllow {
		return true, nil
	}
	return false, err
}

func newFailedView(cluster string, err error) *livev1alpha1.ClusterView {
	e := &livev1alpha1.ViewError{Code: http.StatusInternalServerError, Message: err.Error()}
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		s := status.Status()
		e.Code, e.Reason, e.Message = s.Code, s.Reason, s.Message
	}
	return &livev1alpha1.ClusterView{Cluster: cluster, Error: e}
}

// summarize counts what the answers, which are sorted by cluster, say.
func summarize(views []livev1alpha1.ClusterView, forbidden int32) livev1alpha1.ViewWorkStatus {
	status := livev1alpha1.ViewWorkStatus{Clusters: views}
	sum := &status.Summary
	sum.Forbidden = forbidden
	for _, v := range views {
		sum.Clusters++
		sum.Items += v.ItemCount
		switch {
		case v.Error != nil:
			sum.Failed++
		case !v.Complete:
			sum.Incomplete++
		}
	}
	sum.Partial = sum.Failed+sum.Incomplete+sum.Forbidden > 0
	return status
}
