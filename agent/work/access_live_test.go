// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/api/wire"
)

// asBuilder is a work whose executor is an account of the namespace.
func (c *testCluster) asBuilder() wire.Work {
	c.t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "builder"}}
	if _, err := c.kube.CoreV1().ServiceAccounts(c.namespace).Create(c.t.Context(), account, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
	subject := &workv1.ManifestWorkSubjectServiceAccount{Namespace: c.namespace, Name: "builder"}
	return wire.Work{Spec: workv1.ManifestWorkSpec{Executor: &workv1.ManifestWorkExecutor{
		Subject: workv1.ManifestWorkExecutorSubject{Type: workv1.ExecutorSubjectTypeServiceAccount, ServiceAccount: subject},
	}}}
}

// permit lets the account do everything with ConfigMaps.
func (c *testCluster) permit() {
	c.t.Helper()
	rbac := c.kube.RbacV1()
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "builder"}, Rules: []rbacv1.PolicyRule{rights("", "configmaps")}}
	if _, err := rbac.Roles(c.namespace).Create(c.t.Context(), role, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: role.ObjectMeta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: c.namespace, Name: "builder"}},
	}
	if _, err := rbac.RoleBindings(c.namespace).Create(c.t.Context(), binding, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

// stale takes the times of the reviews of access, and answers those in the time
// that begins with the first as if nothing had been granted yet.
type stale struct {
	lag         time.Duration
	first, last atomic.Pointer[time.Time]
}

func (s *stale) answers() bool {
	now := time.Now()
	s.first.CompareAndSwap(nil, &now)
	s.last.Store(&now)
	return now.Sub(*s.first.Load()) < s.lag
}

func (s *stale) wrap(before func(http.RoundTripper) http.RoundTripper) func(http.RoundTripper) http.RoundTripper {
	return answering(before, func(req *http.Request, resp *http.Response) (*http.Response, error) {
		if !strings.HasSuffix(req.URL.Path, "/subjectaccessreviews") || !s.answers() {
			return resp, nil
		}
		_ = resp.Body.Close()
		no, err := json.Marshal(authorizationv1.SubjectAccessReview{TypeMeta: metav1.TypeMeta{
			APIVersion: authorizationv1.SchemeGroupVersion.String(), Kind: "SubjectAccessReview",
		}})
		resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(no)), int64(len(no))
		resp.Header.Set("Content-Type", "application/json")
		return resp, err
	})
}

// TestDenialFromBeforeGrantIsRetriedSoon: the API server judges by caches
// that a grant reaches a moment after it was written.
func TestDenialFromBeforeGrantIsRetriedSoon(t *testing.T) {
	t.Parallel()
	c, h := newCluster(t), newHub(t)
	w := c.asBuilder()
	c.permit()
	late := &stale{lag: minDenialDelay / 2}
	c.startForOCM(h, func(cfg *Config) { cfg.REST.WrapTransport = late.wrap(cfg.REST.WrapTransport) })
	began := time.Now()
	name := c.name("stale")
	h.ask(name, 1, w, c.configMap("a", "k", "1"))
	h.says(c, name, 1, workv1.WorkApplied, metav1.ConditionFalse)
	h.says(c, name, 1, workv1.WorkApplied, metav1.ConditionTrue)
	if waited := time.Since(began); waited > maxDenialDelay/2 {
		t.Errorf("it took %s, as long as a refusal that stands", waited)
	}
}

// TestGrantTakesEffectAtOnce with the watches of the caches: without them it
// takes effect within the minute that the status says.
func TestGrantTakesEffectAtOnce(t *testing.T) {
	t.Parallel()
	c, h := newCluster(t), newHub(t)
	w := c.asBuilder()
	asked := &stale{}
	a := c.startForOCM(h, func(cfg *Config) {
		cfg.ExecutorCaches, cfg.REST.WrapTransport = true, asked.wrap(cfg.REST.WrapTransport)
	})
	name := c.name("granted")
	h.ask(name, 1, w, c.configMap("a", "k", "1"))
	h.says(c, name, 1, workv1.WorkApplied, metav1.ConditionFalse)
	c.eventually("the refusal stands", func() bool {
		a.lookup(manifestKey(name)).denials.stands()
		return time.Since(*asked.last.Load()) > 2*minDenialDelay
	})
	granted := time.Now()
	c.permit()
	h.says(c, name, 1, workv1.WorkApplied, metav1.ConditionTrue)
	if waited := time.Since(granted); waited > maxDenialDelay/2 {
		t.Errorf("it took %s, as long as without the watches", waited)
	}
}
