// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage/names"

	livev1alpha1 "github.com/spokelet/spokelet/api/live/v1alpha1"
	"github.com/spokelet/spokelet/internal/impersonation"
	"github.com/spokelet/spokelet/internal/quota"
)

// viewStorage answers viewworks. It stores nothing.
type viewStorage struct {
	store            *clusterStore
	sessions         Sessions
	authorizer       authorizer.Authorizer
	silentAuthorizer authorizer.Authorizer // without logRefusals, for counting clusters that nobody named
	catalogs         *catalogs
	limits           Limits
	inFlight         *quota.Slots  // requests, by holder: see impersonation.Holder
	callerMemory     *quota.Memory // of answers, by holder
	clusterMemory    *quota.Memory // of all that is held for clusters, by cluster
}

var (
	_ rest.Creater              = &viewStorage{}
	_ rest.Scoper               = &viewStorage{}
	_ rest.SingularNameProvider = &viewStorage{}
)

func newViewStorage(b *clusterStore, s Sessions, a, unlogged authorizer.Authorizer, l Limits, memory *quota.Memory) *viewStorage {
	return &viewStorage{
		store: b, sessions: s, authorizer: a, silentAuthorizer: unlogged, limits: l, clusterMemory: memory,
		catalogs:     newCatalogs(memory),
		inFlight:     quota.NewSlots(int64(l.ViewsInFlight), int64(l.ViewsPerUser)),
		callerMemory: quota.NewMemory(l.ViewHeldBytesPerUser, l.ViewHeldBytes),
	}
}

func (*viewStorage) New() runtime.Object { return &livev1alpha1.ViewWork{} }

func (*viewStorage) Destroy() {}

func (*viewStorage) NamespaceScoped() bool { return true }

func (*viewStorage) GetSingularName() string { return "viewwork" }

// Create declares the verb to discovery and OpenAPI; viewHandler serves it.
func (*viewStorage) Create(context.Context, runtime.Object, rest.ValidateObjectFunc, *metav1.CreateOptions) (runtime.Object, error) {
	return nil, apierrors.NewMethodNotSupported(livev1alpha1.Resource(viewWorksResource), "create")
}

// viewRequest is a ViewWork that is being served. It uses a slot of its caller until the
// answer was written.
type viewRequest struct {
	views  *viewStorage
	caller impersonation.Principal

	mu           sync.Mutex
	reservations []memoryReservation // guarded by mu
}

// startRequest takes a slot of the caller, or fails with 429.
func (s *viewStorage) startRequest(ctx context.Context, namespace string) (*viewRequest, error) {
	caller, err := principalFrom(ctx, namespace)
	if err != nil {
		return nil, err
	}
	if !s.inFlight.Take(impersonation.Holder(caller.User), 1) {
		return nil, apierrors.NewTooManyRequests("too many viewworks are being answered", 1)
	}
	return &viewRequest{views: s, caller: caller}, nil
}

// reserveMemory opens the accounts of one cluster's answer, which hold nothing yet.
func (t *viewRequest) reserveMemory(cluster string) memoryReservation {
	h := memoryReservation{callerAccount: t.views.callerMemory.Account(impersonation.Holder(t.caller.User)), clusterAccount: t.views.clusterMemory.Account(cluster)}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reservations = append(t.reservations, h)
	return h
}

// close gives everything back.
func (t *viewRequest) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, h := range t.reservations {
		h.close()
	}
	t.views.inFlight.Give(impersonation.Holder(t.caller.User), 1)
}

// create returns the ViewWork with its results.
func (s *viewStorage) create(ctx context.Context, v *livev1alpha1.ViewWork, options *metav1.CreateOptions, t *viewRequest) (*livev1alpha1.ViewWork, error) {
	setName(v)
	q, errs := parseView(v)
	if len(errs) > 0 {
		return nil, apierrors.NewInvalid(livev1alpha1.SchemeGroupVersion.WithKind("ViewWork").GroupKind(), v.Name, errs)
	}
	if len(options.DryRun) > 0 {
		return v, nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.limits.ViewTotalTimeout)
	defer cancel()
	return s.run(ctx, v, q, t)
}

func (s *viewStorage) run(ctx context.Context, v *livev1alpha1.ViewWork, q *viewQuery, t *viewRequest) (*livev1alpha1.ViewWork, error) {
	if q.clusters != nil {
		v.Status = s.queryClusters(ctx, q, t)
		return v, nil
	}
	if !s.store.exists(v.Namespace) {
		return nil, newClusterNotFound(v.Namespace)
	}
	answer, err := s.queryCluster(ctx, v.Namespace, q, t, min(s.limits.ViewBytes, s.limits.ViewTotalBytes))
	if err != nil {
		return nil, err
	}
	v.Status = summarize([]livev1alpha1.ClusterView{*answer}, 0)
	return v, nil
}

// setName gives the name that generateName asks for and drops what only a
// stored object has.
func setName(v *livev1alpha1.ViewWork) {
	if v.Name == "" && v.GenerateName != "" {
		v.Name = names.SimpleNameGenerator.GenerateName(v.GenerateName)
	}
	v.ManagedFields = nil
	v.Status = livev1alpha1.ViewWorkStatus{}
}
