// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/api/sync/v1alpha1"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/ratelimit"
	"github.com/spokelet/spokelet/internal/statuswriter"
)

const (
	prefixHub     = "hub: "
	prefixCluster = "cluster: "
	// maxMessage bounds each text of a cluster in a status, in bytes: a status has many of
	// them.
	maxMessage = 512
	// refusedStatusInterval is the pause after a refused status. The queue's backoff would not
	// do: it starts anew whenever a write has waited for its turn.
	refusedStatusInterval = time.Minute
)

// clusterReport is the state of a share and its cluster at one time.
type clusterReport struct {
	// problem is the hub's.
	problem *wire.ShareProblem
	state   *wire.ShareState
	large   string
	// quota is which writes are refused for the quota.
	quota *wire.ShareProblem
}

// statusInput is what the status of a SharedResource is built from.
type statusInput struct {
	resourcePlan
	shares map[string]clusterReport // by cluster
}

// statusWriter writes the status of SharedResources, and handles what clusters report.
type statusWriter struct {
	*registry

	limiter ratelimit.KeyedLimiter[string]
	// written is when a status was written last; guarded by registry.mu.
	written map[string]time.Time
}

// newStatusInput returns the input of a status; false before anything is planned.
func (c *statusWriter) newStatusInput(name string) (v statusInput, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, ok := c.plans[name]
	if !ok {
		return statusInput{}, false
	}
	v = statusInput{resourcePlan: p, shares: make(map[string]clusterReport, len(p.targets))}
	for cluster := range p.targets {
		if s := c.shares[shareKey{cluster: cluster, name: name}]; s != nil {
			v.shares[cluster] = clusterReport{problem: s.findProblem(), state: s.state, large: s.largeObjectError(), quota: s.quotaReached()}
		}
	}
	return v, true
}

// writeStatus updates the status of a SharedResource, if it has changed.
func (c *statusWriter) writeStatus(ctx context.Context, name string) error {
	if wait := c.statusWait(name); wait > 0 {
		c.statusQueue.AddAfter(name, wait)
		return nil
	}
	v, ok := c.newStatusInput(name)
	if !ok {
		c.delete(name)
		return nil
	}
	obj := &v1alpha1.SharedResource{}
	if err := c.cfg.Client.Get(ctx, types.NamespacedName{Name: name}, obj); err != nil {
		return client.IgnoreNotFound(err)
	}
	if obj.UID != v.uid || obj.Generation != v.generation {
		return nil // it is planned anew
	}
	next := v.buildStatus(obj)
	if equality.Semantic.DeepEqual(obj.Status, next) {
		return nil
	}
	obj.Status = next
	raw, err := json.Marshal(obj)
	if err != nil {
		return fmt.Errorf("SharedResource %s: %w", name, err)
	}
	c.recordStatusWrite(name, len(raw))
	// The update is bound to the version that the status was built from.
	err = client.IgnoreNotFound(c.cfg.Client.Status().Update(ctx, obj, statusOwner))
	if statuswriter.IsRefused(err) || apierrors.IsForbidden(err) {
		c.cfg.Logger.Error(err, "Status is refused", "sharedresource", name)
		c.statusQueue.AddAfter(name, refusedStatusInterval)
		return nil
	}
	if err != nil {
		return fmt.Errorf("SharedResource %s: cannot write status: %w", name, err)
	}
	return nil
}

func (c *statusWriter) statusWait(name string) time.Duration {
	c.mu.Lock()
	last, ok := c.written[name]
	c.mu.Unlock()
	wait := c.limiter.Delay(name)
	if ok {
		wait = max(wait, statusInterval-time.Since(last))
	}
	return wait
}

func (c *statusWriter) recordStatusWrite(name string, size int) {
	c.limiter.Spend(name, size)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.written[name] = time.Now()
}

// delete drops what is known of a SharedResource that has no plan.
func (c *statusWriter) delete(name string) {
	c.limiter.Forget(name)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.written, name)
}

// buildStatus returns the next status.
func (v statusInput) buildStatus(obj *v1alpha1.SharedResource) v1alpha1.SharedResourceStatus {
	last := obj.Status
	next := v1alpha1.SharedResourceStatus{
		ObservedGeneration: obj.Generation, Conditions: slices.Clone(last.Conditions), Selected: int32(len(v.targets)), //nolint:gosec // clusters are few
	}
	before := map[string]v1alpha1.SharedCluster{}
	for _, c := range last.Clusters {
		before[c.Name] = c
	}
	for _, name := range slices.Sorted(maps.Keys(v.targets)) {
		one := v.shares[name].buildCluster(name, before[name])
		next.Objects += one.Objects
		next.Clusters = append(next.Clusters, one)
	}
	accepted := metav1.Condition{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAccepted}
	if v.refused != nil {
		accepted = falseCondition(v1alpha1.ConditionAccepted, v.refused, prefixHub)
	}
	ready := v.readyCondition(obj.Generation, next.Clusters)
	for _, condition := range []metav1.Condition{accepted, ready} {
		condition.ObservedGeneration = obj.Generation
		meta.SetStatusCondition(&next.Conditions, condition)
	}
	return next
}

// readyCondition returns the condition Ready of the SharedResource.
func (v statusInput) readyCondition(generation int64, clusters []v1alpha1.SharedCluster) metav1.Condition {
	if problem := cmp.Or(v.refused, v.problem); problem != nil {
		return falseCondition(v1alpha1.ConditionReady, problem, prefixHub)
	}
	if len(clusters) == 0 {
		return metav1.Condition{
			Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNoClusters, Message: "hub: no cluster is selected",
		}
	}
	for _, c := range clusters {
		one := meta.FindStatusCondition(c.Conditions, v1alpha1.ConditionReady)
		switch {
		case one.Status != metav1.ConditionTrue:
			return notReady(c.Name, one.Message)
		case one.ObservedGeneration != generation:
			return notReady(c.Name, "cluster: it has not answered the latest spec yet")
		}
	}
	return metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonShared}
}

func notReady(cluster, message string) metav1.Condition {
	side, text, ok := strings.Cut(message, ": ")
	if !ok {
		side, text = "cluster", message
	}
	return metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonClustersNotReady,
		Message: fmt.Sprintf("%s: cluster %q is not ready: %s", side, cluster, text),
	}
}

func falseCondition(kind string, problem *wire.ShareProblem, prefix string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: problem.Reason, Message: withPrefix(prefix, problem.Message)}
}

// withPrefix prefixes a text with the side that it is about, unless it has such a prefix.
func withPrefix(prefix, text string) string {
	if !strings.HasPrefix(text, prefixHub) && !strings.HasPrefix(text, prefixCluster) {
		text = prefix + text
	}
	return clip(text, maxMessage)
}

// buildCluster returns the status of a cluster. What it reported before the hub's start stays
// until it reports again.
func (s clusterReport) buildCluster(name string, last v1alpha1.SharedCluster) v1alpha1.SharedCluster {
	next := v1alpha1.SharedCluster{
		Name: name, Objects: last.Objects, Conflicts: last.Conflicts, LastError: last.LastError, Conditions: slices.Clone(last.Conditions),
	}
	if strings.HasPrefix(next.LastError, prefixHub) {
		next.LastError = ""
	}
	if s.state != nil {
		s.addState(&next)
	}
	if s.large != "" {
		next.LastError = s.large
	}
	s.addQuota(&next)
	meta.SetStatusCondition(&next.Conditions, s.readyCondition(next.Conditions))
	return next
}

func (s clusterReport) addState(next *v1alpha1.SharedCluster) {
	next.Objects, next.Conflicts = int32(min(s.state.Objects, 1<<30)), int32(min(s.state.Conflicts, 1<<30)) //nolint:gosec // bounded
	next.LastError = clip(s.state.LastError, maxMessage)
	hold := s.state.Hold
	if hold == nil {
		meta.RemoveStatusCondition(&next.Conditions, v1alpha1.ConditionDeletionsHeld)
		return
	}
	token := clip(hold.Token, maxMessage)
	advice := fmt.Sprintf("; to go on, annotate the SharedResource with %s=%s", v1alpha1.AnnotationConfirm, token)
	meta.SetStatusCondition(&next.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionDeletionsHeld, Status: metav1.ConditionTrue, Reason: validReason(hold.Reason),
		Message: withPrefix(prefixCluster, hold.Message) + advice, ObservedGeneration: s.state.Generation,
	})
}

// addQuota sets the condition QuotaReached. One from before the hub's start stays until the
// cluster reports again.
func (s clusterReport) addQuota(next *v1alpha1.SharedCluster) {
	problem := s.quota
	if problem == nil && s.state != nil {
		problem = s.state.QuotaReached
	}
	switch {
	case problem != nil:
		one := falseCondition(v1alpha1.ConditionQuotaReached, problem, prefixCluster)
		one.Status, one.Reason = metav1.ConditionTrue, validReason(problem.Reason)
		meta.SetStatusCondition(&next.Conditions, one)
	case s.state != nil:
		meta.RemoveStatusCondition(&next.Conditions, v1alpha1.ConditionQuotaReached)
	}
}

// readyCondition returns the condition Ready of a cluster, given its former conditions.
func (s clusterReport) readyCondition(last []metav1.Condition) metav1.Condition {
	switch {
	case s.problem != nil:
		out := falseCondition(v1alpha1.ConditionReady, s.problem, prefixHub)
		if one := meta.FindStatusCondition(last, v1alpha1.ConditionReady); one != nil {
			out.ObservedGeneration = one.ObservedGeneration
		}
		return out
	case s.state != nil && s.state.Problem != nil:
		out := falseCondition(v1alpha1.ConditionReady, s.state.Problem, prefixCluster)
		out.Reason, out.ObservedGeneration = validReason(out.Reason), s.state.Generation
		return out
	case s.state != nil:
		return metav1.Condition{
			Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonShared, ObservedGeneration: s.state.Generation,
		}
	}
	if one := meta.FindStatusCondition(last, v1alpha1.ConditionReady); one != nil && !strings.HasPrefix(one.Message, prefixHub) {
		return *one
	}
	return metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonPending, Message: "cluster: it has not answered yet",
	}
}

// validReason returns a reason that the API server accepts.
func validReason(text string) string {
	for i, r := range text {
		letter := r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z'
		if !letter && (i == 0 || r < '0' || r > '9') {
			return v1alpha1.ReasonPending
		}
	}
	if text == "" || len(text) > maxReason {
		return v1alpha1.ReasonPending
	}
	return text
}
