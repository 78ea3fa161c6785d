// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/rbacwatch"
)

// settleTime is how long after a change rbacwatch.Schedule makes its last review.
const settleTime = 10 * time.Second

// watchRights reviews the rights of requesters when roles or bindings change.
func (e *Engine) watchRights(ctx context.Context) {
	r := &rightsReviewer{engine: e, changed: map[string]time.Time{}}
	r.schedule = rbacwatch.NewSchedule(r.reviewViews)
	stop := rbacwatch.Watch(e.cfg.Metadata, r, e.cfg.Logger)
	defer stop()
	r.schedule.Run(ctx)
}

// rightsReviewer is a rbacwatch.Sink that reviews whether views may continue, or begin.
type rightsReviewer struct {
	engine   *Engine
	schedule *rbacwatch.Schedule

	mu sync.Mutex
	// changed has the namespaces whose rights changed, and when: the views in them are
	// reviewed until the API server's caches have the change. Guarded by mu.
	changed map[string]time.Time
}

// WatchLost does nothing: without a watch of rights a view ends when its own watch is renewed.
func (*rightsReviewer) WatchLost() {}

func (*rightsReviewer) WatchEstablished() {}

func (r *rightsReviewer) RightsChanged(namespace string) {
	r.mu.Lock()
	r.changed[namespace] = time.Now()
	r.mu.Unlock()
	r.schedule.Trigger()
}

// takeChanged returns the namespaces to review now.
func (r *rightsReviewer) takeChanged() map[string]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	namespaces := make(map[string]bool, len(r.changed))
	for namespace, at := range r.changed {
		namespaces[namespace] = true
		if time.Since(at) >= settleTime {
			delete(r.changed, namespace)
		}
	}
	return namespaces
}

// reviewViews reviews once for all views of the same requester and the same objects.
func (r *rightsReviewer) reviewViews(ctx context.Context) {
	changed := r.takeChanged()
	type answer struct {
		allowed bool
		err     error
	}
	answers := map[string]answer{}
	var failure error
	for _, v := range r.engine.listViews() {
		c, ok := v.accessRequest()
		if !ok || !changed[rbacwatch.AllNamespaces] && !changed[c.namespace] {
			continue
		}
		key := c.key()
		a, asked := answers[key]
		if !asked {
			a.allowed, a.err = r.engine.isAllowed(ctx, c)
			answers[key] = a
		}
		if a.err != nil {
			failure = a.err
			continue
		}
		v.handleReview(a.allowed)
	}
	if failure != nil && ctx.Err() == nil {
		r.engine.cfg.Logger.Error(failure, "Rights of views cannot be reviewed")
	}
}

// handleReview ends a watch that is not allowed any more, or the wait of a view that is. In both
// cases the API server's answer to the next request is published.
func (v *view) handleReview(allowed bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case v.refusal == nil && !allowed:
		v.interrupt()
	case v.refusal != nil && allowed:
		v.retry()
	}
}

// accessRequest is what a view must be allowed to list and watch.
type accessRequest struct {
	user            string
	groups          []string
	resource        schema.GroupVersionResource
	namespace, name string
}

func (c accessRequest) key() string {
	return fmt.Sprintf("%q", []any{c.user, c.groups, c.resource, c.namespace, c.name})
}

// accessRequest is false for a view to which rights make no difference: it has not started
// yet, or is refused for another cause.
func (v *view) accessRequest() (accessRequest, bool) {
	v.mu.Lock()
	m, refusal := v.mapping, v.refusal
	v.mu.Unlock()
	if m == nil || refusal != nil && (refusal.Cause != wire.CauseRequest || refusal.Status != metav1.StatusReasonForbidden) {
		return accessRequest{}, false
	}
	name, groups, err := v.engine.cfg.Door.Identity(v.spec.Requester)
	if err != nil {
		return accessRequest{}, false
	}
	// The API server counts whom it impersonates as authenticated.
	c := accessRequest{user: name, groups: append(slices.Clip(groups), user.AllAuthenticated), resource: m.Resource, name: v.authorizedName()}
	if isNamespaced(m) {
		c.namespace = v.spec.Target.Namespace
	}
	return c, true
}

// authorizedName returns the name for which the API server authorizes a request.
func (v *view) authorizedName() string {
	if v.spec.Target.Name != "" {
		return v.spec.Target.Name
	}
	selector, err := fields.ParseSelector(v.spec.FieldSelector)
	if err != nil {
		return ""
	}
	name, _ := selector.RequiresExactMatch(metav1.ObjectNameField)
	return name
}

// isAllowed reviews both verbs that a view needs.
func (e *Engine) isAllowed(ctx context.Context, c accessRequest) (bool, error) {
	user := authenticationv1.UserInfo{Username: c.user, Groups: c.groups}
	for _, verb := range []string{"watch", "list"} {
		allowed, err := rbacwatch.IsAllowed(ctx, e.cfg.Reviews, user, authorizationv1.ResourceAttributes{
			Verb: verb, Namespace: c.namespace, Name: c.name,
			Group: c.resource.Group, Version: c.resource.Version, Resource: c.resource.Resource,
		})
		if err != nil {
			return false, fmt.Errorf("review whether %q may %s %s: %w", c.user, verb, c.resource.GroupResource(), err)
		}
		if !allowed {
			return false, nil
		}
	}
	return true, nil
}
