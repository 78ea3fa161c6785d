// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package access

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/spokelet/spokelet/workers/api"
)

// hub is a fake of the hub's API server: it answers reviews as a test says.
func hub(t *testing.T, tokens func(*authenticationv1.TokenReview) error, rights func(*authorizationv1.SubjectAccessReview) error, namespaces ...runtime.Object) (*fake.Clientset, *Reviewer) {
	t.Helper()
	clients := fake.NewSimpleClientset(namespaces...)
	clients.PrependReactor("create", "tokenreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		review := a.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenReview).DeepCopy()
		return true, review, tokens(review)
	})
	clients.PrependReactor("create", "subjectaccessreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		review := a.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview).DeepCopy()
		return true, review, rights(review)
	})
	return clients, NewReviewer(clients.AuthenticationV1(), clients.AuthorizationV1())
}

var jane = authenticationv1.UserInfo{
	Username: "jane", UID: "1", Groups: []string{"devs"}, Extra: map[string]authenticationv1.ExtraValue{"scope": {"all"}},
}

func TestAuthenticateAcceptsOnlyTokensForAudience(t *testing.T) {
	for name, test := range map[string]struct {
		reason string
		token  string
		status authenticationv1.TokenReviewStatus
		err    error
		want   error
	}{
		"a token for it":          {"it is the user's", "good", authenticationv1.TokenReviewStatus{Authenticated: true, User: jane, Audiences: []string{Audience}}, nil, nil},
		"no token":                {"nobody is asked", "", authenticationv1.TokenReviewStatus{Authenticated: true, User: jane, Audiences: []string{Audience}}, nil, ErrInvalidToken},
		"a token of 20 KiB":       {"nobody is asked", strings.Repeat("x", 20<<10), authenticationv1.TokenReviewStatus{Authenticated: true, User: jane, Audiences: []string{Audience}}, nil, ErrInvalidToken},
		"a token that is none":    {"the hub says so", "bad", authenticationv1.TokenReviewStatus{User: jane, Audiences: []string{Audience}}, nil, ErrInvalidToken},
		"no audience":             {"an API server without audiences does not look", "good", authenticationv1.TokenReviewStatus{Authenticated: true, User: jane}, nil, ErrInvalidToken},
		"another audience":        {"it is for the API server", "good", authenticationv1.TokenReviewStatus{Authenticated: true, User: jane, Audiences: []string{"kubernetes"}}, nil, ErrInvalidToken},
		"nobody":                  {"a user has a name", "good", authenticationv1.TokenReviewStatus{Authenticated: true, Audiences: []string{Audience}}, nil, ErrInvalidToken},
		"a hub that does not say": {"a doubt is a refusal", "good", authenticationv1.TokenReviewStatus{}, errors.New("boom"), ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			_, reviewer := hub(t, func(r *authenticationv1.TokenReview) error {
				if len(r.Spec.Audiences) != 1 || r.Spec.Audiences[0] != Audience {
					t.Errorf("the hub is asked for %q", r.Spec.Audiences)
				}
				r.Status = test.status
				return test.err
			}, nil)
			user, err := reviewer.Authenticate(t.Context(), test.token)
			if !errors.Is(err, test.want) || (err == nil) != (test.want == nil) {
				t.Errorf("%s: got %v, want %v", test.reason, err, test.want)
			}
			if want := map[bool]string{true: "jane", false: ""}[err == nil]; user.Username != want {
				t.Errorf("%s: the user is %q", test.reason, user.Username)
			}
		})
	}
}

func TestAuthorizeFollowsSubjectAccessReview(t *testing.T) {
	for name, test := range map[string]struct {
		status authorizationv1.SubjectAccessReviewStatus
		err    error
		want   error
	}{
		"who may":                          {authorizationv1.SubjectAccessReviewStatus{Allowed: true}, nil, nil},
		"who may not":                      {authorizationv1.SubjectAccessReviewStatus{}, nil, ErrForbidden},
		"who may and is denied":            {authorizationv1.SubjectAccessReviewStatus{Allowed: true, Denied: true}, nil, ErrForbidden},
		"a hub that does not say":          {authorizationv1.SubjectAccessReviewStatus{Allowed: true}, errors.New("boom"), ErrUnavailable},
		"a hub that could not find it out": {authorizationv1.SubjectAccessReviewStatus{EvaluationError: "boom"}, nil, ErrForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			_, reviewer := hub(t, nil, func(r *authorizationv1.SubjectAccessReview) error {
				want := authorizationv1.SubjectAccessReviewSpec{
					User: "jane", UID: "1", Groups: []string{"devs"}, Extra: map[string]authorizationv1.ExtraValue{"scope": {"all"}},
					ResourceAttributes: &authorizationv1.ResourceAttributes{
						Namespace: "team-a", Verb: "update", Group: "api.worker-deployment", Version: "v1alpha1", Resource: "workerdeployments",
					},
				}
				if diff := cmp.Diff(want, r.Spec); diff != "" {
					t.Errorf("the hub is asked (-want +got):\n%s", diff)
				}
				r.Status = test.status
				return test.err
			})
			if err := reviewer.Authorize(t.Context(), jane, "team-a", "update"); !errors.Is(err, test.want) || (err == nil) != (test.want == nil) {
				t.Errorf("got %v, want %v", err, test.want)
			}
		})
	}
}

// namespace is one with the label of an account, of a day.
func namespace(name, account string, day int) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{api.LabelAccount: account}, CreationTimestamp: metav1.Date(2026, 1, day, 0, 0, 0, 0, time.UTC),
	}}
}

// startAccounts runs accounts until the test ends, and returns when they are known.
func startAccounts(t *testing.T, a *Accounts) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() { a.Run(ctx) })
	t.Cleanup(func() { cancel(); group.Wait() })
	for deadline := time.After(10 * time.Second); !a.HasSynced(); {
		select {
		case <-deadline:
			t.Fatal("the namespaces are not known")
		case <-time.After(time.Millisecond):
		}
	}
}

func TestListReadableReturnsPermittedAccounts(t *testing.T) {
	rights := map[string]bool{"team-b": true, "team-c": true}
	var everywhere bool
	clients, reviewer := hub(t, nil, func(r *authorizationv1.SubjectAccessReview) error {
		where := r.Spec.ResourceAttributes.Namespace
		r.Status.Allowed = everywhere || rights[where]
		if where == "team-e" {
			return fmt.Errorf("boom")
		}
		return nil
	}, namespace("team-a", "one", 1), namespace("team-b", "two", 2), namespace("team-c", "one", 3), namespace("team-d", "No-Id", 4))
	accounts := NewAccounts(clients)
	startAccounts(t, accounts)
	if got, ok := accounts.Namespace("one"); got != "team-a" || !ok {
		t.Errorf("account one is in %q, not in the oldest namespace that claims it", got)
	}
	if got, ok := accounts.Namespace("three"); ok {
		t.Errorf("account three is in %q", got)
	}
	got, err := accounts.ListReadable(t.Context(), jane, reviewer)
	if diff := cmp.Diff([]string{"two"}, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	everywhere = true
	got, err = accounts.ListReadable(t.Context(), jane, reviewer)
	if diff := cmp.Diff([]string{"one", "two"}, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func TestListReadableFailsWhenReviewFails(t *testing.T) {
	clients, reviewer := hub(t, nil, func(r *authorizationv1.SubjectAccessReview) error {
		if r.Spec.ResourceAttributes.Namespace == "" {
			return nil
		}
		return errors.New("boom")
	}, namespace("team-a", "one", 1))
	accounts := NewAccounts(clients)
	startAccounts(t, accounts)
	if got, err := accounts.ListReadable(t.Context(), jane, reviewer); !errors.Is(err, ErrUnavailable) || got != nil {
		t.Errorf("got %q, %v", got, err)
	}
}
