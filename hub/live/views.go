// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"sync/atomic"

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
	inFlight   *shares // questions, by user
	held       *shares // bytes of answers, by user
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
		inFlight: newShares(int64(l.ViewsInFlight), int64(l.ViewsPerUser)),
		held:     newShares(l.ViewHeldBytes, l.ViewHeldBytesPerUser),
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
	t, err := s.admit(ctx, v.Namespace)
	if err != nil {
		return nil, err
	}
	defer t.end()
	return s.reply(ctx, v, validate, options, t)
}

// turn is a question that is being answered. It is its caller's until the
// answer was written.
type turn struct {
	views  *viewStorage
	caller principal.Principal
	bytes  atomic.Int64 // of the answer
}

// admit gives the caller a turn, or tells them to come again.
func (s *viewStorage) admit(ctx context.Context, namespace string) (*turn, error) {
	caller, err := callerOf(ctx, namespace)
	if err != nil {
		return nil, err
	}
	if !s.inFlight.take(caller.User, 1) {
		return nil, apierrors.NewTooManyRequests("too many viewworks are being answered", 1)
	}
	return &turn{views: s, caller: caller}, nil
}

// hold takes n more bytes of the answer into account. The error is errHeld.
func (t *turn) hold(n int64) error {
	if !t.views.held.take(t.caller.User, n) {
		return errHeld
	}
	t.bytes.Add(n)
	return nil
}

// end gives everything back.
func (t *turn) end() {
	t.views.held.give(t.caller.User, t.bytes.Load())
	t.views.inFlight.give(t.caller.User, 1)
}

// reply returns the question with its answer.
func (s *viewStorage) reply(ctx context.Context, v *livev1alpha1.ViewWork, validate rest.ValidateObjectFunc, options *metav1.CreateOptions, t *turn) (runtime.Object, error) {
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
	ctx, cancel := context.WithTimeout(ctx, s.limits.ViewTotalTimeout)
	defer cancel()
	return s.answer(ctx, v, q, t)
}

func (s *viewStorage) answer(ctx context.Context, v *livev1alpha1.ViewWork, q *question, t *turn) (runtime.Object, error) {
	if q.clusters != nil {
		v.Status = s.fanOut(ctx, q, t)
		return v, nil
	}
	if !s.board.known(v.Namespace) {
		return nil, unknownCluster(v.Namespace)
	}
	answer, err := s.ask(ctx, v.Namespace, q, t, min(s.limits.ViewBytes, s.limits.ViewTotalBytes))
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
