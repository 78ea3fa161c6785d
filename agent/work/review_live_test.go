// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	workv1 "open-cluster-management.io/api/work/v1"
)

// authorizer answers reviews of access in the API server's place.
type authorizer struct {
	mu sync.Mutex
	// All below are guarded by mu.
	refuses bool
	// refusesOnly names an object that nobody may write.
	refusesOnly string
	// after is until when it answers by what was before.
	after time.Time
	err   error
	asked int
	// about counts the questions by the name of the object.
	about map[string]int
}

func (a *authorizer) set(do func(*authorizer)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	do(a)
}

// questions returns how often it was asked since the last time.
func (a *authorizer) questions() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := a.asked
	a.asked = 0
	return n
}

// through has an engine ask it.
func (a *authorizer) through(cfg *Config) {
	before := cfg.REST.WrapTransport
	cfg.REST.WrapTransport = func(next http.RoundTripper) http.RoundTripper {
		if before != nil {
			next = before(next)
		}
		return roundTripper{next, func(req *http.Request) (*http.Response, error) {
			if !strings.HasSuffix(req.URL.Path, "/subjectaccessreviews") {
				return next.RoundTrip(req)
			}
			return a.answer(req)
		}}
	}
}

func (a *authorizer) answer(req *http.Request) (*http.Response, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	sent, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	var question authorizationv1.SubjectAccessReview
	if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(sent, nil, &question); err != nil {
		return nil, err
	}
	name := question.Spec.ResourceAttributes.Name
	a.asked++
	if a.about == nil {
		a.about = map[string]int{}
	}
	a.about[name]++
	if a.err != nil {
		return nil, a.err
	}
	question.SetGroupVersionKind(authorizationv1.SchemeGroupVersion.WithKind("SubjectAccessReview"))
	question.Status.Allowed = a.refuses == time.Now().Before(a.after) && name != a.refusesOnly
	body, err := json.Marshal(question)
	return &http.Response{
		StatusCode: http.StatusCreated, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)), Request: req,
	}, err
}

// verbs that are asked for with each manifest.
const verbs = 5

// rest has the last review of a work be long ago.
func (a *testAgent) rest(name string) {
	r := &a.lookup(manifestKey(name)).reviews
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lastReview = r.lastReview.Add(-maxReviewInterval)
}

// rested is how long ago the last review of a work is.
func (a *testAgent) rested(name string) time.Duration {
	r := &a.lookup(manifestKey(name)).reviews
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Since(r.lastReview)
}

// refused waits until all manifests of a work are, in the documented words.
func (h *testHub) refused(c *testCluster, name string, generation int64, manifests ...string) {
	c.t.Helper()
	h.says(c, name, generation, workv1.WorkApplied, metav1.ConditionFalse)
	c.eventually("no manifest is applied", func() bool {
		return !slices.ContainsFunc(h.said(name).Manifests, func(m workv1.ManifestCondition) bool {
			return !meta.IsStatusConditionFalse(m.Conditions, workv1.ManifestApplied)
		})
	})
	said := h.said(name).Manifests
	if len(said) != len(manifests) {
		c.t.Fatalf("told is of %d manifests, want %d", len(said), len(manifests))
	}
	for i, m := range said {
		applied := meta.FindStatusCondition(m.Conditions, workv1.ManifestApplied)
		want := fmt.Sprintf("Failed to apply manifest: not allowed to apply the resource  configmaps, %s %s, will try again in 1m0s", c.namespace, manifests[i])
		if applied == nil || applied.Status != metav1.ConditionFalse || applied.Message != want || applied.ObservedGeneration != generation {
			c.t.Errorf("manifest %d: Applied is %+v, want %q at generation %d", i, applied, want, generation)
		}
		if !meta.IsStatusConditionTrue(m.Conditions, workv1.ManifestAvailable) || c.get(manifests[i]) == nil {
			c.t.Errorf("manifest %d: what was applied is gone", i)
		}
	}
}

func TestNewGenerationChecksAccessToUnchangedObjects(t *testing.T) {
	t.Parallel()
	c, h, rights := newCluster(t), newHub(t), &authorizer{}
	w := c.asBuilder()
	c.startForOCM(h, rights.through)
	name := c.name("generations")
	h.ask(name, 1, w, c.configMap("a", "k", "1"), c.configMap("b", "k", "1"))
	h.says(c, name, 1, workv1.WorkApplied, metav1.ConditionTrue)
	c.eventually("it is recorded", func() bool {
		a := c.applied(hubHashOne + "-" + name)
		return a != nil && len(a.Status.AppliedResources) == 2
	})
	version := c.get("a").ResourceVersion
	h.ask(name, 2, w, c.configMap("a", "k", "1"), c.configMap("b", "k", "1"))
	h.says(c, name, 2, workv1.WorkApplied, metav1.ConditionTrue)
	if n := rights.questions(); n != 2*2*verbs {
		t.Errorf("two generations of two manifests took %d questions, want %d", n, 2*2*verbs)
	}
	if got := c.get("a").ResourceVersion; got != version {
		t.Errorf("the object went from version %s to %s", version, got)
	}
	rights.set(func(a *authorizer) { a.refuses = true })
	h.ask(name, 3, w, c.configMap("a", "k", "1"), c.configMap("b", "k", "1"))
	h.refused(c, name, 3, "a", "b")
	rights.set(func(a *authorizer) { a.refuses = false })
	h.says(c, name, 3, workv1.WorkApplied, metav1.ConditionTrue)
	if got := c.get("a").ResourceVersion; got != version {
		t.Errorf("the object went from version %s to %s", version, got)
	}
}

// changesRights takes or gives the rights; the API server answers by them a moment
// later. The role is there for its event.
func (c *testCluster) changesRights(by *authorizer, refuses bool, lag time.Duration) {
	c.t.Helper()
	by.set(func(a *authorizer) { a.refuses, a.after = refuses, time.Now().Add(lag) })
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{GenerateName: "event-"}, Rules: []rbacv1.PolicyRule{rights("", "configmaps")}}
	if _, err := c.kube.RbacV1().Roles(c.namespace).Create(c.t.Context(), role, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

// Reviews come at once and within two seconds, as TestRightsChangeIsReviewedAtOnceAndAgain
// has it, the second one for API servers whose caches lag behind. A busy machine may be later
// than that; the last review, lastReviewDelay after the change, is not waited for.
func TestRevocationIsSeenWithRBACWatches(t *testing.T) {
	t.Parallel()
	for label, lag := range map[string]time.Duration{"at once": 0, "by a second look": secondReviewDelay / 2} {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			c, h, rights := newCluster(t), newHub(t), &authorizer{}
			w := c.asBuilder()
			a := c.startForOCM(h, rights.through, func(cfg *Config) { cfg.ExecutorCaches = true })
			name := c.name("revoked")
			h.ask(name, 1, w, c.configMap("a", "k", "1"), c.configMap("b", "k", "1"))
			h.says(c, name, 1, workv1.WorkApplied, metav1.ConditionTrue)
			c.eventually("earlier reviews are over", func() bool {
				r := &a.lookup(manifestKey(name)).reviews
				return a.executors.IsWatching() && r.delay(time.Now()) == 0 && a.rested(name) >= minReviewInterval
			})
			began := time.Now()
			c.changesRights(rights, true, lag)
			h.says(c, name, 1, workv1.WorkApplied, metav1.ConditionFalse)
			took := time.Since(began)
			h.refused(c, name, 1, "a", "b")
			if took >= lastReviewDelay {
				t.Errorf("it took %s", took)
			}
		})
	}
}

func TestRevocationIsSeenAtNextEventWithoutWatches(t *testing.T) {
	t.Parallel()
	for label, rests := range map[string]bool{"long after the last review": true, "right after it": false} {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			c, h, rights := newCluster(t), newHub(t), &authorizer{}
			w := c.asBuilder()
			a := c.startForOCM(h, rights.through)
			name := c.name("event")
			h.ask(name, 1, w, c.configMap("a", "k", "1"), c.configMap("b", "k", "1"))
			h.says(c, name, 1, workv1.WorkApplied, metav1.ConditionTrue)
			if rests {
				a.rest(name)
			}
			rights.set(func(a *authorizer) { a.refuses = true })
			c.patch("a", `{"data":{"k":"strayed"}}`)
			h.refused(c, name, 1, "a", "b")
			if got := c.get("a").Data["k"]; got != "strayed" {
				t.Errorf("without rights it was repaired to %q", got)
			}
			rights.set(func(a *authorizer) { a.refuses = false })
			h.says(c, name, 1, workv1.WorkApplied, metav1.ConditionTrue)
			if got := c.get("a").Data["k"]; got != "1" {
				t.Errorf("with them it stays %q", got)
			}
		})
	}
}

// A refusal that stands is asked about again by a timer; what is allowed is not.
func TestDenialDoesNotReviewOthers(t *testing.T) {
	t.Parallel()
	c, h, rights := newCluster(t), newHub(t), &authorizer{}
	w := c.asBuilder()
	a := c.startForOCM(h, rights.through)
	name := c.name("standing")
	rights.set(func(a *authorizer) { a.refusesOnly = "b" })
	h.ask(name, 1, w, c.configMap("a", "k", "1"), c.configMap("b", "k", "1"))
	h.says(c, name, 1, workv1.WorkApplied, metav1.ConditionFalse)
	rights.set(func(a *authorizer) { a.about = nil })
	a.rest(name)
	c.eventually("it is asked again, twice", func() bool {
		rights.mu.Lock()
		defer rights.mu.Unlock()
		return rights.about["b"] >= 2
	})
	rights.set(func(a *authorizer) {
		if n := a.about["a"]; n > 0 {
			t.Errorf("%d questions about what is allowed", n)
		}
	})
}

// What a work only reads takes a right, too.
func TestExecutorIsCheckedForReads(t *testing.T) {
	t.Parallel()
	c, h, rights := newCluster(t), newHub(t), &authorizer{}
	w := c.asBuilder()
	w.Spec.ManifestConfigs = []workv1.ManifestConfigOption{c.option(workv1.ManifestConfigOption{UpdateStrategy: strategyOf(workv1.UpdateStrategyTypeReadOnly)})}
	c.make("shared", nil)
	c.startForOCM(h, rights.through)
	name := c.name("reader")
	h.ask(name, 1, w, c.configMap("shared"))
	h.says(c, name, 1, workv1.WorkApplied, metav1.ConditionTrue)
	if n := rights.questions(); n != 1 {
		t.Errorf("%d questions, want one, about get", n)
	}
	rights.set(func(a *authorizer) { a.refuses = true })
	h.ask(name, 2, w, c.configMap("shared"))
	h.refused(c, name, 2, "shared")
}

// An API server that does not answer takes no rights away.
func TestAllowedStandsWhileReviewFails(t *testing.T) {
	t.Parallel()
	c, h, rights := newCluster(t), newHub(t), &authorizer{}
	w := c.asBuilder()
	a := c.startForOCM(h, rights.through)
	name := c.name("outage")
	h.ask(name, 1, w, c.configMap("a", "k", "1"))
	before := h.says(c, name, 1, workv1.WorkApplied, metav1.ConditionTrue)
	rights.set(func(a *authorizer) { a.err, a.asked = errBoom, 0 })
	a.requeueForReview(c.namespace)
	c.eventually("it is asked, twice", func() bool {
		rights.mu.Lock()
		defer rights.mu.Unlock()
		return rights.asked >= 2
	})
	if got := h.said(name).Conditions; got[0] != before.Conditions[0] {
		t.Errorf("Applied is %+v, was %+v", got[0], before.Conditions[0])
	}
	rights.set(func(a *authorizer) { a.err, a.refuses = nil, true })
	h.refused(c, name, 1, "a")

	// Of another generation nobody knows anything.
	rights.set(func(a *authorizer) { a.err = errBoom })
	h.ask(name, 2, w, c.configMap("a", "k", "1"))
	s := h.says(c, name, 2, workv1.WorkApplied, metav1.ConditionFalse)
	if got := message(s, 0); !strings.Contains(got, errBoom.Error()) {
		t.Errorf("message = %q", got)
	}
}
