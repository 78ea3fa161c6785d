// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package mcm

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/hub/requester"
)

// countingAccess is an API server that says yes and keeps the question.
type countingAccess struct {
	review *authorizationv1.SubjectAccessReview
}

func (a *countingAccess) Create(_ context.Context, r *authorizationv1.SubjectAccessReview, _ metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error) {
	a.review = r.DeepCopy()
	r.Status.Allowed = true
	return r, nil
}

func checkAllowed(t *testing.T, a *accessCache, name string, want requester.Permission, fresh bool) (bool, []string) {
	t.Helper()
	allowed, changed, err := a.isAllowed(t.Context(), objectKey{Name: name}, want, fresh)
	if err != nil {
		t.Fatal(err)
	}
	return allowed, sortedNames(changed)
}

func sortedNames(refs []objectKey) (names []string) {
	for _, r := range refs {
		names = append(names, r.Name)
	}
	slices.Sort(names)
	return names
}

func TestAccessReviewNamesRequester(t *testing.T) {
	api := &countingAccess{}
	want := requester.User{User: "alice", Groups: []string{"a", "b"}}.PermissionToCreate(mcmWorks().resource, "c1")
	if yes, _ := checkAllowed(t, newAccessCache(api), "w", want, false); !yes {
		t.Error("no")
	}
	diff := cmp.Diff(authorizationv1.SubjectAccessReviewSpec{
		User: "alice", Groups: []string{"a", "b"},
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "create", Group: "mcm.ibm.com", Resource: "works", Namespace: "c1"},
	}, api.review.Spec)
	if diff != "" {
		t.Errorf("question (-want +got):\n%s", diff)
	}
	const refused = `forbidden: user "alice" cannot create resource "works" in API group "mcm.ibm.com" in the namespace "c1"`
	if got := want.Forbidden().Error(); got != refused {
		t.Errorf("refusal %s", got)
	}
}

func TestAccessAnswerIsCachedWhileNeeded(t *testing.T) {
	api := &fakeAccess{}
	a, of := newAccessCache(api), func(user, namespace string) requester.Permission {
		return requester.User{User: user}.PermissionToCreate(mcmWorks().resource, namespace)
	}
	for _, step := range []struct {
		reason, name string
		want         requester.Permission
		fresh        bool
		asked        int
	}{
		{reason: "nobody knows", name: "w1", want: of("u", "c1"), asked: 1},
		{reason: "it is known", name: "w1", want: of("u", "c1"), asked: 1},
		{reason: "it is known of another object", name: "w2", want: of("u", "c1"), asked: 1},
		{reason: "an action is asked about each time", name: "w3", want: of("u", "c1"), fresh: true, asked: 2},
		{reason: "another namespace", name: "w4", want: of("u", "c2"), asked: 3},
		{reason: "another user", name: "w5", want: of("v", "c1"), asked: 4},
		{reason: "another resource", name: "w6", want: requester.User{User: "u"}.PermissionToCreate(clusterViews().resource, "c1"), asked: 5},
	} {
		if yes, changed := checkAllowed(t, a, step.name, step.want, step.fresh); !yes || changed != nil || api.count() != step.asked {
			t.Errorf("%s: %t, %v, asked %d times, want %d", step.reason, yes, changed, api.count(), step.asked)
		}
	}
	for _, name := range []string{"w1", "w2", "w3", "w4", "w5", "w6"} {
		a.delete(objectKey{Name: name})
	}
	if len(a.answers) != 0 || len(a.needs.keys) != 0 {
		t.Errorf("of objects that are no more is kept %v, %v", a.answers, a.needs.keys)
	}
}

func TestChangedRightReplacesDependency(t *testing.T) {
	a := newAccessCache(&fakeAccess{})
	checkAllowed(t, a, "w", requester.User{User: "u"}.PermissionToCreate(mcmWorks().resource, "c1"), false)
	checkAllowed(t, a, "w", requester.User{User: "u"}.PermissionToCreate(mcmWorks().resource, "c2"), false)
	if len(a.answers) != 1 || len(a.needs.keys) != 1 {
		t.Errorf("%d answers, %d needs", len(a.answers), len(a.needs.keys))
	}
}

func TestReviewReturnsObjectsWithChangedAnswer(t *testing.T) {
	api := &fakeAccess{}
	a, of := newAccessCache(api), func(user string) requester.Permission {
		return requester.User{User: user}.PermissionToCreate(mcmWorks().resource, "c1")
	}
	checkAllowed(t, a, "w1", of("u"), false)
	checkAllowed(t, a, "w2", of("u"), false)
	checkAllowed(t, a, "w3", of("v"), false)
	review := func(reason string, want ...string) {
		t.Helper()
		before := api.count()
		changed, err := a.reviewAll(t.Context())
		if diff := cmp.Diff(want, sortedNames(changed)); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", reason, err, diff)
		}
		if asked := api.count() - before; asked != 2 {
			t.Errorf("%s: asked %d times, want once for each right", reason, asked)
		}
	}
	review("nothing has changed")
	api.deny("u")
	review("one user is not let in any more", "w1", "w2")
	review("and stays out")
	api.deny("v")
	review("the other way round", "w1", "w2", "w3")
	api.err = errors.New("boom")
	if changed, err := a.reviewAll(t.Context()); err == nil || changed != nil {
		t.Errorf("nobody could be asked: %v, %v", changed, err)
	}
	if known := a.addDependent(objectKey{Name: "w1"}, of("u")); known == nil || !*known {
		t.Error("what cannot be asked does not stay as it was")
	}
}

// An action asks each time. What it learns before a review does is news for the views of
// the same user: the review finds nothing new then.
func TestFreshAnswerUpdatesAllDependents(t *testing.T) {
	api := &fakeAccess{}
	a, want := newAccessCache(api), requester.User{User: "u"}.PermissionToCreate(mcmWorks().resource, "c1")
	checkAllowed(t, a, "view", want, false)
	api.deny("u")
	if yes, changed := checkAllowed(t, a, "action", want, true); yes || !slices.Equal(changed, []string{"action", "view"}) {
		t.Errorf("allowed %t, changed %v", yes, changed)
	}
	api.deny()
	if yes, changed := checkAllowed(t, a, "action", want, true); !yes || !slices.Equal(changed, []string{"action", "view"}) {
		t.Errorf("allowed %t, changed %v", yes, changed)
	}
}

func TestFailedReviewIsRetried(t *testing.T) {
	api := &fakeAccess{err: errors.New("boom")}
	a, want := newAccessCache(api), requester.User{User: "u"}.PermissionToCreate(mcmWorks().resource, "c1")
	if _, _, err := a.isAllowed(t.Context(), objectKey{Name: "w"}, want, false); !errors.Is(err, api.err) {
		t.Errorf("error %v", err)
	}
	api.err = nil
	if yes, _ := checkAllowed(t, a, "w", want, false); !yes || api.count() != 2 {
		t.Errorf("allowed %t, asked %d times", yes, api.count())
	}
}
