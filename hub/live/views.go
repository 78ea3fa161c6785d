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
	board      *board
	sessions   Sessions
	authorizer authorizer.Authorizer
	unlogged   authorizer.Authorizer // without recordRefusals, for counting clusters that nobody named
	catalogs   *catalogs
	limits     Limits
	inFlight   *quota.Slots  // questions, by holder: see impersonation.Holder
	held       *quota.Memory // of answers, by holder
	memory     *quota.Memory // of all that is held for clusters, by cluster
}

var (
	_ rest.Creater              = &viewStorage{}
	_ rest.Scoper               = &viewStorage{}
	_ rest.SingularNameProvider = &viewStorage{}
)

func newViewStorage(b *board, s Sessions, a, unlogged authorizer.Authorizer, l Limits, memory *quota.Memory) *viewStorage {
	return &viewStorage{
		board: b, sessions: s, authorizer: a, unlogged: unlogged, limits: l, memory: memory,
		catalogs: newCatalogs(memory),
		inFlight: quota.NewSlots(int64(l.ViewsInFlight), int64(l.ViewsPerUser)),
		held:     quota.NewMemory(l.ViewHeldBytesPerUser, l.ViewHeldBytes),
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
	caller impersonation.Principal

	mu      sync.Mutex
	answers []holding // guarded by mu
}

// admit gives the caller a turn, or tells them to come again.
func (s *viewStorage) admit(ctx context.Context, namespace string) (*turn, error) {
	caller, err := callerOf(ctx, namespace)
	if err != nil {
		return nil, err
	}
	if !s.inFlight.Take(impersonation.Holder(caller.User), 1) {
		return nil, apierrors.NewTooManyRequests("too many viewworks are being answered", 1)
	}
	return &turn{views: s, caller: caller}, nil
}

// hold opens the accounts of one cluster's answer, which hold nothing yet.
func (t *turn) hold(cluster string) holding {
	h := holding{caller: t.views.held.Account(impersonation.Holder(t.caller.User)), cluster: t.views.memory.Account(cluster)}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.answers = append(t.answers, h)
	return h
}

// end gives everything back.
func (t *turn) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, h := range t.answers {
		h.close()
	}
	t.views.inFlight.Give(impersonation.Holder(t.caller.User), 1)
}

// reply returns the question with its answer.
func (s *viewStorage) reply(ctx context.Context, v *livev1alpha1.ViewWork, validate rest.ValidateObjectFunc, options *metav1.CreateOptions, t *turn) (*livev1alpha1.ViewWork, error) {
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

func (s *viewStorage) answer(ctx context.Context, v *livev1alpha1.ViewWork, q *question, t *turn) (*livev1alpha1.ViewWork, error) {
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
