// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/spokelet/spokelet/internal/rbacwatch"
)

var (
	errBoom    = errors.New("boom")
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	roles      = rbacv1.SchemeGroupVersion.WithResource("roles")
)

func role() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
		"metadata": map[string]any{"name": "r", "labels": map[string]any{"a": "b"}, "ownerReferences": []any{}, "resourceVersion": "3"},
		"rules":    []any{map[string]any{"verbs": []any{"get"}}},
	}}
}

// server answers a Checker: what is asked of it, and what it says.
type server struct {
	*Checker
	reviews []authorizationv1.SubjectAccessReviewSpec
	denied  []string // verbs
	err     error
	acted   []string // "verb user"
	object  *unstructured.Unstructured
	// writes answers the dry runs by verb.
	writes map[string]error
}

func newServer() *server {
	s := &server{writes: map[string]error{}}
	kube := fake.NewSimpleClientset()
	kube.PrependReactor("create", "subjectaccessreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		review := a.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview)
		s.reviews = append(s.reviews, review.Spec)
		review = review.DeepCopy()
		review.Status.Allowed = !slices.Contains(s.denied, review.Spec.ResourceAttributes.Verb)
		return true, review, s.err
	})
	s.Checker = &Checker{reviews: kube.AuthorizationV1().SubjectAccessReviews(), clientFor: s.actor, stop: func() {}}
	return s
}

func (s *server) actor(user string) (dynamic.Interface, error) {
	client := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme())
	client.PrependReactor("*", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		s.acted = append(s.acted, a.GetVerb()+" "+user)
		s.object = a.(clienttesting.CreateAction).GetObject().(*unstructured.Unstructured)
		return true, s.object, s.writes[a.GetVerb()]
	})
	return client, nil
}

func TestCheckReviewsEveryVerbAsAccount(t *testing.T) {
	cases := map[string]struct {
		reason  string
		request Request
		verbs   []string
	}{
		"an object that goes with the work": {
			reason:  "it is deleted in the end",
			request: Request{Delete: true},
			verbs:   []string{"create", "update", "patch", "get", "delete"},
		},
		"an object that is orphaned": {
			reason: "whoever does not delete needs no right to",
			verbs:  []string{"create", "update", "patch", "get"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := newServer()
			c.request.Namespace, c.request.Name = "team", "builder"
			c.request.Resource, c.request.ObjectNamespace, c.request.ObjectName = configMaps, "shop", "settings"
			if err := s.Check(t.Context(), c.request); err != nil {
				t.Fatalf("%s: %v", c.reason, err)
			}
			var verbs []string
			for _, a := range s.reviews {
				verbs = append(verbs, a.ResourceAttributes.Verb)
				want := authorizationv1.SubjectAccessReviewSpec{
					User:               "system:serviceaccount:team:builder",
					Groups:             []string{"system:serviceaccounts", "system:authenticated", "system:serviceaccounts:team"},
					ResourceAttributes: &authorizationv1.ResourceAttributes{Version: "v1", Resource: "configmaps", Namespace: "shop", Name: "settings", Verb: a.ResourceAttributes.Verb},
				}
				if diff := cmp.Diff(want, a); diff != "" {
					t.Errorf("question (-want +got):\n%s", diff)
				}
			}
			if diff := cmp.Diff(c.verbs, verbs); diff != "" {
				t.Errorf("%s: verbs (-want +got):\n%s", c.reason, diff)
			}
			if s.acted != nil {
				t.Errorf("a dry run of a kind that grants nothing: %v", s.acted)
			}
		})
	}
}

func TestCheckReturnsNotAllowedError(t *testing.T) {
	cases := map[string]struct {
		reason   string
		resource schema.GroupVersionResource
		object   *unstructured.Unstructured
		denied   string
		writes   map[string]error
		want     string
		acted    []string
	}{
		"no right to create":               {"all of the verbs are needed", configMaps, nil, "create", nil, "not allowed to apply the resource  configmaps, shop settings", nil},
		"no right to update":               {"all of the verbs are needed", configMaps, nil, "update", nil, "not allowed to apply the resource  configmaps, shop settings", nil},
		"no right to patch":                {"all of the verbs are needed", configMaps, nil, "patch", nil, "not allowed to apply the resource  configmaps, shop settings", nil},
		"no right to get":                  {"all of the verbs are needed", configMaps, nil, "get", nil, "not allowed to apply the resource  configmaps, shop settings", nil},
		"no right to delete":               {"all of the verbs are needed", configMaps, nil, "delete", nil, "not allowed to apply the resource  configmaps, shop settings", nil},
		"no right to write roles":          {"without it nothing is tried", roles, role(), "create", nil, "not allowed to apply the resource rbac.authorization.k8s.io roles, shop settings", nil},
		"a role with rights of others":     {"the account would make itself mighty", roles, role(), "", map[string]error{"create": apierrors.NewForbidden(roles.GroupResource(), "r", errBoom)}, "not allowed to apply the resource rbac.authorization.k8s.io roles, shop settings, error: permission escalation", []string{"create"}},
		"a role that exists, to be raised": {"an update may not either", roles, role(), "", map[string]error{"create": apierrors.NewAlreadyExists(roles.GroupResource(), "r"), "update": apierrors.NewForbidden(roles.GroupResource(), "r", errBoom)}, "not allowed to apply the resource rbac.authorization.k8s.io roles, shop settings, error: permission escalation", []string{"create", "update"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := newServer()
			s.denied, s.writes = []string{c.denied}, c.writes
			err := s.Check(t.Context(), Request{
				Namespace: "team", Name: "builder", Resource: c.resource, ObjectNamespace: "shop", ObjectName: "settings", Object: c.object, Delete: true,
			})
			var refused *NotAllowedError
			if !errors.As(err, &refused) || err.Error() != c.want {
				t.Errorf("%s: %v, want %s", c.reason, err, c.want)
			}
			var acted []string
			for _, verb := range c.acted {
				acted = append(acted, verb+" system:serviceaccount:team:builder")
			}
			if diff := cmp.Diff(acted, s.acted); diff != "" {
				t.Errorf("%s: dry runs (-want +got):\n%s", c.reason, diff)
			}
		})
	}
}

func TestCheckReturnsOtherErrorWhenReviewFails(t *testing.T) {
	cases := map[string]struct {
		reason  string
		err     error
		writes  map[string]error
		request Request
	}{
		"a review that fails":   {"the API server may be back soon", errBoom, nil, Request{Resource: configMaps}},
		"a dry run that fails":  {"the API server may be back soon", nil, map[string]error{"create": errBoom}, Request{Resource: roles, Object: role()}},
		"a role that is wrong":  {"what is wrong with it is worth saying", nil, map[string]error{"create": apierrors.NewAlreadyExists(roles.GroupResource(), "r"), "update": apierrors.NewInvalid(schema.GroupKind{Kind: "Role"}, "r", nil)}, Request{Resource: roles, Object: role()}},
		"a role that is gone":   {"it went between the two attempts", nil, map[string]error{"create": apierrors.NewAlreadyExists(roles.GroupResource(), "r"), "update": apierrors.NewNotFound(roles.GroupResource(), "r")}, Request{Resource: roles, Object: role()}},
		"a role without itself": {"what it grants is not known", nil, nil, Request{Resource: roles}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := newServer()
			s.err, s.writes = c.err, c.writes
			err := s.Check(t.Context(), c.request)
			var refused *NotAllowedError
			if err == nil || errors.As(err, &refused) {
				t.Errorf("%s: %v", c.reason, err)
			}
		})
	}
}

func TestDryRunWritesContentOnly(t *testing.T) {
	s := newServer()
	object := role()
	before := object.DeepCopy()
	if err := s.Check(t.Context(), Request{Namespace: "team", Name: "builder", Resource: roles, ObjectNamespace: "shop", ObjectName: "r", Object: object}); err != nil {
		t.Fatal(err)
	}
	want := role().Object
	want["metadata"] = map[string]any{"name": "r", "namespace": "shop", "labels": map[string]any{"a": "b"}}
	if diff := cmp.Diff(want, s.object.Object); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before, object); diff != "" {
		t.Errorf("the request was changed:\n%s", diff)
	}
}

// newCachingServer is a server whose Checker remembers, as if every watch saw.
func newCachingServer() *server {
	s := newServer()
	s.cache = newAllowedCache()
	return s
}

func (s *server) countReviews(t *testing.T, r Request) int {
	t.Helper()
	before := len(s.reviews)
	_ = s.Check(t.Context(), r)
	return len(s.reviews) - before
}

func TestAllowedAnswerIsCachedUntilRightsChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newCachingServer()
		shop := Request{Namespace: "team", Name: "builder", Resource: configMaps, ObjectNamespace: "shop", ObjectName: "a"}
		bank := shop
		bank.ObjectNamespace = "bank"
		steps := []struct {
			reason         string
			do             func()
			inShop, inBank int
		}{
			{"nothing is known at first", func() {}, 4, 4},
			{"what was asked is known", func() {}, 0, 0},
			{"a role of one namespace changes what holds there and nowhere else", func() { s.cache.invalidate("shop") }, 4, 0},
			{"what is asked at once is not remembered", func() { time.Sleep(cacheSettle) }, 4, 0},
			{"it is known again", func() {}, 0, 0},
			{"a cluster role changes everything", func() { s.cache.invalidate(rbacwatch.AllNamespaces); time.Sleep(cacheSettle) }, 4, 4},
			{"a watch that is lost leaves nothing", func() { s.cache.countLostWatch() }, 4, 4},
			{"and nothing new is remembered", func() {}, 4, 4},
			{"until it is found", func() { s.cache.countFoundWatch(); time.Sleep(cacheSettle) }, 4, 4},
			{"from then on it is", func() {}, 0, 0},
			{"for a time", func() { time.Sleep(maxAge) }, 4, 4},
		}
		for _, step := range steps {
			step.do()
			if n, m := s.countReviews(t, shop), s.countReviews(t, bank); n != step.inShop || m != step.inBank {
				t.Errorf("%s: asked %d and %d times, want %d and %d", step.reason, n, m, step.inShop, step.inBank)
			}
		}
	})
}

func TestCacheKeyHasAllOfRequest(t *testing.T) {
	s := newCachingServer()
	base := Request{Namespace: "team", Name: "builder", Resource: roles, ObjectNamespace: "shop", ObjectName: "r", Object: role()}
	if s.countReviews(t, base) != 4 || s.countReviews(t, base) != 0 {
		t.Fatal("the same question is asked twice")
	}
	cases := map[string]func(*Request){
		"another account":       func(r *Request) { r.Name = "other" },
		"another team":          func(r *Request) { r.Namespace = "other" },
		"another object":        func(r *Request) { r.ObjectName = "other" },
		"another namespace":     func(r *Request) { r.ObjectNamespace = "other" },
		"another resource":      func(r *Request) { r.Resource = rbacv1.SchemeGroupVersion.WithResource("clusterroles") },
		"deleting it, too":      func(r *Request) { r.Delete = true },
		"reading it alone":      func(r *Request) { r.ReadOnly = true },
		"a role that is mighty": func(r *Request) { r.Object = role(); r.Object.Object["rules"] = "everything" },
	}
	for name, change := range cases {
		t.Run(name, func(t *testing.T) {
			r := base
			change(&r)
			if s.countReviews(t, r) == 0 {
				t.Error("it was not asked")
			}
		})
	}
}

func TestDeniedAnswerIsNotCached(t *testing.T) {
	s := newCachingServer()
	s.denied = []string{"create"}
	r := Request{Resource: configMaps}
	if err := s.Check(t.Context(), r); err == nil {
		t.Fatal("it was allowed")
	}
	s.denied = nil
	if err := s.Check(t.Context(), r); err != nil {
		t.Errorf("a grant has no effect: %v", err)
	}
}

func TestIsWatchingNeedsEveryWatch(t *testing.T) {
	if newServer().IsWatching() {
		t.Error("without caches nobody watches")
	}
	s := newCachingServer()
	for _, step := range []struct {
		reason string
		do     func()
		want   bool
	}{
		{"all watches see", func() {}, true},
		{"one does not", s.cache.countLostWatch, false},
		{"another one does not either", s.cache.countLostWatch, false},
		{"one of two sees again", s.cache.countFoundWatch, false},
		{"both do", s.cache.countFoundWatch, true},
	} {
		if step.do(); s.IsWatching() != step.want {
			t.Errorf("%s: Follows is %t", step.reason, !step.want)
		}
	}
}

func TestAnswerFromBeforeChangeIsNotCached(t *testing.T) {
	m := newAllowedCache()
	asked, _ := m.lookup(cacheKey{name: "a"})
	m.invalidate(rbacwatch.AllNamespaces)
	m.changedAt = time.Time{}
	m.add(asked, cacheKey{name: "a"})
	if _, known := m.lookup(cacheKey{name: "a"}); known {
		t.Error("it was true before the change, and need not be now")
	}
}

func TestLastChangeReportsLatestChange(t *testing.T) {
	m := newAllowedCache()
	none := (&Checker{}).LastChange()
	c := &Checker{cache: m}
	if before := c.LastChange(); !none.IsZero() || !before.IsZero() {
		t.Errorf("nothing has changed, without caches since %s, with them since %s", none, before)
	}
	began := time.Now()
	m.countLostWatch()
	m.countFoundWatch()
	seen := c.LastChange()
	m.invalidate("shop")
	if now := c.LastChange(); seen.Before(began) || !now.After(seen) {
		t.Errorf("watched from %s, it may have changed at %s, and has at %s", began, seen, now)
	}
}

func TestCacheIsBounded(t *testing.T) {
	m := newAllowedCache()
	for i := range maxEntries + 1 {
		m.add(ticket{valid: true}, cacheKey{name: time.Duration(i).String()})
	}
	if len(m.expires) > maxEntries {
		t.Errorf("%d memories", len(m.expires))
	}
}

func TestNewRequiresAPIServer(t *testing.T) {
	if _, err := New(Config{}); err == nil {
		t.Error("it was made of nothing")
	}
}
