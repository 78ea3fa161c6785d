// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package mcm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/statuswriter"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// maxPendingResult is the size in bytes up to which a result waits in memory for its turn; a larger
// one is given up, and asked for again.
const maxPendingResult = 16 << 10

// report is what is to be written to one object.
type report struct {
	uid     types.UID
	cluster string
	// viewKey is that of the view that was answered.
	viewKey string
	outcome outcome
	// fromHub is what the hub has to say itself, of the generation that it is about.
	fromHub    bool
	generation int64
	// release gives back what the outcome holds; nil where nothing counts it.
	release func()
}

func (p report) releaseMemory() {
	if p.release != nil {
		p.release()
	}
}

// isAnswerTo reports whether the cluster has answered a generation: a pending answer is not
// replaced by the report that the cluster disconnected, or by earlier progress.
func (p report) isAnswerTo(generation int64) bool {
	o := p.outcome
	return (o.view != nil || o.action != nil) && o.generation >= generation
}

// writtenState is what a write of ours left in an object.
type writtenState struct {
	uid types.UID
	state
}

// receiveViewResult takes an answer, for all that ask for it. It runs on the stream's goroutine.
func (c *Controller) receiveViewResult(cluster string, v resource.Resource) {
	by := c.views.requestsFor(cluster, v.Key)
	result, err := wire.DecodeViewResult(v.Body)
	if err == nil && len(result.Result) > c.options.maxBytes {
		err = errTooLarge
	}
	if err != nil || len(by) == 0 {
		c.reject(cluster, v, err)
		return
	}
	var left atomic.Int64
	left.Store(int64(len(by)))
	release := func() {
		if left.Add(-1) == 0 {
			v.Account.Close()
		}
	}
	for r, a := range by {
		c.enqueueReport(r, report{
			uid: a.uid, cluster: cluster, viewKey: v.Key, release: release,
			outcome: outcome{generation: a.generation, view: &result},
		})
	}
}

// receiveActionResult takes what became of an action.
func (c *Controller) receiveActionResult(cluster string, v resource.Resource) {
	result, err := wire.DecodeActionResult(v.Body)
	if err == nil && len(result.Result) > c.options.maxBytes {
		err = errTooLarge
	}
	r, invalid := wire.ParseWorkKey(v.Key)
	c.mu.Lock()
	at, ok := c.actions[r]
	c.mu.Unlock()
	if err != nil || invalid != nil || !ok || at != (publishedAction{cluster: cluster, uid: v.UID, generation: v.Generation}) {
		c.reject(cluster, v, errors.Join(err, invalid))
		return
	}
	if result.Progress != "" {
		v.Account.Close() // a word is kept for as long as its action is published
		c.reportProgress(r, at, result.Progress)
		return
	}
	c.enqueueReport(r, report{
		uid: types.UID(v.UID), cluster: cluster, release: v.Account.Close,
		outcome: outcome{generation: v.Generation, action: &result},
	})
}

// reportProgress reports what a cluster is doing.
func (c *Controller) reportProgress(r objectKey, at publishedAction, what string) {
	p := report{uid: types.UID(at.uid), generation: at.generation, cluster: at.cluster, outcome: outcome{waiting: what}}
	c.mu.Lock()
	if c.actions[r] == at {
		c.progress[r] = p
	}
	c.mu.Unlock()
	c.enqueueReport(r, p)
}

// repeatProgress reports what a cluster is doing once more, unless there is something later.
func (c *Controller) repeatProgress(r objectKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.progress[r]
	if last, waits := c.pending[r]; !c.isPublishedLocked(r, p) || waits && !last.fromHub {
		return
	}
	c.pending[r] = p
	c.results.Add(r)
}

// errTooLarge is of results beyond what was asked for.
var errTooLarge = errors.New("result is larger than its limit")

// reject drops a result that is not requested or cannot be decoded.
func (c *Controller) reject(cluster string, v resource.Resource, err error) {
	v.Account.Close()
	if err != nil && c.logLimiter.Allow(cluster) {
		c.cfg.Logger.Error(err, "result was refused", "cluster", cluster, "key", v.Key)
	}
}

// enqueueReport has an outcome written in place of any that waits.
func (c *Controller) enqueueReport(r objectKey, p report) {
	c.mu.Lock()
	last, waits := c.pending[r]
	if waits && p.outcome.waiting != "" && last.isAnswerTo(p.generation) {
		c.mu.Unlock()
		p.releaseMemory()
		return
	}
	c.pending[r] = p
	c.mu.Unlock()
	last.releaseMemory()
	c.results.Add(r)
}

// takeReport returns what waits for an object; what cannot be written yet is left, or given up
// if it is large.
func (c *Controller) takeReport(r objectKey) (p report, ok bool, wait time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p, ok = c.pending[r]; !ok {
		return p, false, 0
	}
	wait = c.pacer.Delay(r)
	if !p.fromHub {
		wait = max(wait, c.cfg.Writes.Wait(p.cluster))
	}
	if wait == 0 {
		delete(c.pending, r)
		return p, true, 0
	}
	if p.isLarge() {
		delete(c.pending, r)
		c.dropResult(r, p)
	}
	return p, false, wait
}

// isLarge reports whether a result is too large to be kept in memory until it can be written.
func (p report) isLarge() bool {
	return p.outcome.view != nil && len(p.outcome.result()) > maxPendingResult
}

// dropResult has a result asked for again; c.mu is held.
func (c *Controller) dropResult(r objectKey, p report) {
	c.renewals[r] = struct{}{}
	p.releaseMemory()
}

// restoreReport keeps what could not be written, unless there is something later.
func (c *Controller) restoreReport(r objectKey, p report) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch _, later := c.pending[r]; {
	case later:
		p.releaseMemory()
	case p.isLarge():
		c.dropResult(r, p)
	default:
		c.pending[r] = p
	}
}

// writeReport writes what waits for an object.
func (c *Controller) writeReport(ctx context.Context, r objectKey) error {
	p, ok, wait := c.takeReport(r)
	if wait > 0 {
		c.results.AddAfter(r, wait)
		return nil
	}
	if !ok {
		return c.renewView(r)
	}
	err := c.writeStatus(ctx, r, p)
	if isPermanent(err) && !p.fromHub {
		if c.logLimiter.Allow(p.cluster) {
			c.cfg.Logger.Error(err, "result cannot be stored", "cluster", p.cluster, "object", r.String())
		}
		if p.outcome.waiting != "" { // another word follows
			p.releaseMemory()
			return nil
		}
		p.outcome = p.outcome.withoutResult()
		err = c.writeStatus(ctx, r, p)
	}
	if err != nil {
		c.restoreReport(r, p)
		c.logWriteError(r, p.cluster, err)
		return err
	}
	p.releaseMemory()
	return nil
}

// logWriteError logs that a status is written again, less and less often. One that is refused
// is, too: the patch may have been for a status that has gone meanwhile, or somebody changes
// what refuses it.
func (c *Controller) logWriteError(r objectKey, cluster string, err error) {
	if (isPermanent(err) || apierrors.IsForbidden(err)) && c.logLimiter.Allow(cluster) {
		c.cfg.Logger.Error(err, "status is refused", "cluster", cluster, "object", r.String())
		return
	}
	c.cfg.Logger.V(1).Info("status is written again", "object", r.String(), "err", err.Error())
}

// isPermanent reports whether the same result fails with the same error each time.
func isPermanent(err error) bool {
	return errors.Is(err, errInvalidJSON) || statuswriter.IsRefused(err)
}

// renewView asks again for a result that was given up.
func (c *Controller) renewView(r objectKey) error {
	c.mu.Lock()
	_, ok := c.renewals[r]
	delete(c.renewals, r)
	c.mu.Unlock()
	if !ok {
		return nil
	}
	return c.views.renew(r)
}

// lastState is the state of an object as our last write left it, until the cache has that.
func (c *Controller) lastState(d *dialect, r objectKey, obj client.Object) state {
	if last, ok := c.ownWrites.After(r, obj.GetResourceVersion()); ok && last.uid == obj.GetUID() {
		return last.state
	}
	return d.storedState(obj)
}

func (c *Controller) writeStatus(ctx context.Context, r objectKey, p report) error {
	d := c.dialects[r.Dialect]
	obj := d.newObject()
	err := c.cfg.Client.Get(ctx, types.NamespacedName{Namespace: r.Namespace, Name: r.Name}, obj)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("get %s: %w", r, err)
	}
	last := c.lastState(d, r, obj)
	if !c.isCurrent(d, r, obj, last, p) {
		c.queue.Add(r) // it may have taken the place of what was to be said
		return nil
	}
	if p.outcome, err = omitOversizedResult(obj, p.outcome); err != nil {
		return err
	}
	next := d.nextState(obj, last, p.outcome)
	if next.digest, err = c.digest(d, last, p.outcome); err != nil {
		return err
	}
	if next == last {
		c.finishReport(d, r, p)
		return nil
	}
	result, stays := p.outcome.result(), 0
	if next.digest == last.digest && d.keepsResult {
		result, stays = nil, digestSize(next.digest)
	}
	patch, err := encodePatch(obj, last, d.newStatus(obj, last, next, result, time.Now()))
	if err != nil {
		return err
	}
	stored := len(patch) + stays // the store writes the whole object
	c.pacer.Spend(r, stored)
	if !p.fromHub {
		c.cfg.Writes.Spend(p.cluster, int64(stored))
	}
	version, err := c.patchStatus(ctx, obj, patch)
	if err != nil {
		return fmt.Errorf("write status of %s: %w", r, err)
	}
	c.ownWrites.Record(r, version, writtenState{uid: obj.GetUID(), state: next})
	c.recordWarnings(obj, p)
	c.finishReport(d, r, p)
	return nil
}

// isCurrent reports whether an outcome is about the current request of an object.
func (c *Controller) isCurrent(d *dialect, r objectKey, obj client.Object, last state, p report) bool {
	switch {
	case obj.GetUID() != p.uid:
		return false
	case p.outcome.view != nil:
		a, ok := c.views.get(r)
		return ok && a.cluster == p.cluster && a.key == p.viewKey
	case p.outcome.action != nil:
		return p.outcome.generation == obj.GetGeneration() && d.parse(obj, c.options).cluster == p.cluster
	case p.outcome.waiting != "":
		return p.generation == obj.GetGeneration() && !d.isAnswered(obj, last) && (p.fromHub || c.isPublished(r, p))
	default:
		return p.generation == obj.GetGeneration()
	}
}

// isPublished is isPublishedLocked for callers that do not hold c.mu.
func (c *Controller) isPublished(r objectKey, p report) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.isPublishedLocked(r, p)
}

// isPublishedLocked reports whether the action of a progress report is published; c.mu is held.
func (c *Controller) isPublishedLocked(r objectKey, p report) bool {
	at, ok := c.actions[r]
	return ok && at == publishedAction{cluster: p.cluster, uid: string(p.uid), generation: p.generation}
}

// omitOversizedResult leaves out the result of an action if etcd would not take it beside the template.
func omitOversizedResult(obj client.Object, o outcome) (outcome, error) {
	if o.action == nil || len(o.action.Result) == 0 {
		return o, nil
	}
	rest, err := json.Marshal(obj)
	if err != nil {
		return o, fmt.Errorf("encode %s: %w", obj.GetName(), err)
	}
	if len(rest)+SizeOf(obj)+len(o.action.Result) > statuswriter.MaxObjectBytes {
		return o.withoutResult(), nil
	}
	return o, nil
}

// digest is that of the status that an outcome makes.
func (c *Controller) digest(d *dialect, last state, o outcome) (string, error) {
	if len(o.result()) > 0 {
		return Digest(o.result())
	}
	if d.keepsResult && o.isFailure() {
		return last.digest, nil
	}
	return "", nil
}

// finishReport ends an action whose result is in its status. It may be another by now: the
// next look withdraws it, or publishes the other.
func (c *Controller) finishReport(d *dialect, r objectKey, p report) {
	if p.outcome.action != nil {
		c.queue.Add(r)
	}
	if d.remainingLife != nil && p.outcome.waiting == "" {
		c.queue.AddAfter(r, actionTTL)
	}
}

// encodePatch makes a JSON patch of the status, or of its conditions alone: a merge would
// leave members of the former result.
func encodePatch(obj client.Object, last state, status any) ([]byte, error) {
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	write := operation{Op: "add", Path: "/status", Value: status}
	if conditions, ok := status.([]metav1.Condition); ok {
		if last == (state{}) {
			write.Value = map[string]any{"conditions": conditions} // there is no status yet
		} else {
			write.Path = "/status/conditions"
		}
	}
	raw, err := json.Marshal([]operation{{Op: "test", Path: "/metadata/uid", Value: obj.GetUID()}, write})
	if err != nil {
		return nil, fmt.Errorf("encode status of %s: %w: %w", obj.GetName(), errInvalidJSON, err)
	}
	return raw, nil
}

// patchStatus writes a status, and returns the version that it makes; of an object that is gone
// there is none.
func (c *Controller) patchStatus(ctx context.Context, obj client.Object, patch []byte) (version string, err error) {
	target := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: obj.GetNamespace(), Name: obj.GetName()}}
	gvk, err := c.cfg.Client.GroupVersionKindFor(obj)
	if err != nil {
		return "", err
	}
	target.SetGroupVersionKind(gvk)
	err = c.cfg.Client.Status().Patch(ctx, target, client.RawPatch(types.JSONPatchType, patch), fieldOwner)
	return target.ResourceVersion, client.IgnoreNotFound(err)
}

// recordWarnings reports what the cluster warned of.
func (c *Controller) recordWarnings(obj client.Object, p report) {
	if p.outcome.action == nil {
		return
	}
	for _, text := range p.outcome.action.Warnings {
		c.cfg.Events.Eventf(obj, nil, corev1.EventTypeWarning, "ClusterWarning", "Act", "%s", text)
	}
}
