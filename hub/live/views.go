// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage/names"

	livev1alpha1 "github.com/spokelet/spokelet/api/live/v1alpha1"
	"github.com/spokelet/spokelet/api/principal"
)

// viewStorage answers viewworks. It stores nothing.
type viewStorage struct {
	board      *board
	sessions   Sessions
	authorizer authorizer.Authorizer
	catalogs   *catalogs
	limits     Limits
	inFlight   chan struct{}
}

var (
	_ rest.Creater              = &viewStorage{}
	_ rest.Scoper               = &viewStorage{}
	_ rest.SingularNameProvider = &viewStorage{}
)

func newViewStorage(b *board, s Sessions, a authorizer.Authorizer, l Limits) *viewStorage {
	return &viewStorage{
		board: b, sessions: s, authorizer: a, limits: l,
		catalogs: newCatalogs(),
		inFlight: make(chan struct{}, l.ViewsInFlight),
	}
}

// New implements rest.Storage.
func (*viewStorage) New() runtime.Object { return &livev1alpha1.ViewWork{} }

// Destroy implements rest.Storage.
func (*viewStorage) Destroy() {}

// NamespaceScoped implements rest.Scoper.
func (*viewStorage) NamespaceScoped() bool { return true }

// GetSingularName implements rest.SingularNameProvider.
func (*viewStorage) GetSingularName() string { return "viewwork" }

// Create implements rest.Creater: it returns the question with its answer.
func (s *viewStorage) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	v, ok := obj.(*livev1alpha1.ViewWork)
	if !ok {
		return nil, apierrors.NewBadRequest("object is not a ViewWork")
	}
	nameView(v)
	q, errs := parseView(v)
	if len(errs) > 0 {
		return nil, apierrors.NewInvalid(livev1alpha1.SchemeGroupVersion.WithKind("ViewWork").GroupKind(), v.Name, errs)
	}
	if validate != nil {
		if err := validate(ctx, v); err != nil {
			return nil, err
		}
	}
	if len(options.DryRun) > 0 {
		return v, nil
	}
	select {
	case s.inFlight <- struct{}{}:
		defer func() { <-s.inFlight }()
	default:
		return nil, apierrors.NewTooManyRequests("too many viewworks are being answered", 1)
	}
	caller, err := callerOf(ctx, v.Namespace)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.limits.ViewTotalTimeout)
	defer cancel()
	return s.answer(ctx, v, q, caller)
}

func (s *viewStorage) answer(ctx context.Context, v *livev1alpha1.ViewWork, q *question, caller principal.Principal) (runtime.Object, error) {
	if q.clusters != nil {
		v.Status = s.fanOut(ctx, q, caller)
		return v, nil
	}
	if !s.board.known(v.Namespace) {
		return nil, unknownCluster(v.Namespace)
	}
	answer, err := s.ask(ctx, v.Namespace, q, caller, min(s.limits.ViewBytes, s.limits.ViewTotalBytes))
	if err != nil {
		return nil, err
	}
	v.Status = summarize([]livev1alpha1.ClusterView{*answer}, 0)
	return v, nil
}

// nameView gives the name that generateName asks for and drops what only a
// stored object has.
func nameView(v *livev1alpha1.ViewWork) {
	if v.Name == "" && v.GenerateName != "" {
		v.Name = names.SimpleNameGenerator.GenerateName(v.GenerateName)
	}
	v.ManagedFields = nil
	v.Status = livev1alpha1.ViewWorkStatus{}
}
