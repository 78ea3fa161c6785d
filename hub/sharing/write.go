// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"context"
	"fmt"
	"strings"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/quota"
	"github.com/spokelet/spokelet/internal/sharedobject"
	"github.com/spokelet/spokelet/tunnel/resource"
)

const (
	// maxReason bounds the reason of a refusal, in bytes.
	maxReason = 1 << 10
	// requestCost is what a request costs of Config.Writes beside its content, in bytes.
	requestCost = 1 << 10
)

// writeKey identifies a write: the object of a share.
type writeKey struct {
	shareKey
	object string
}

func (s *share) writeKey(name string) writeKey { return writeKey{shareKey: s.key(), object: name} }

// write is a write that a cluster requests.
type write struct {
	wire.SharedWrite
	generation int64
	uid        string
	account    *quota.Account
}

// answer is what became of the writes of an object.
type answer struct {
	applied, refused int64
	reason           string
	// result is the object after the applied write; nil where it is as requested.
	result *object
}

// writeRequest is what a cluster requests for an object, and the answer. It exists as long as
// the cluster requests it. Its fields are guarded by registry.mu.
type writeRequest struct {
	// pending is the write without an answer.
	pending *write
	answer
	// isHeld: a request is in flight, or may be, and nothing is published before its outcome is
	// known. isDone: a deletion with the version doneVersion is done, but the watch has not
	// reported it.
	isHeld, isDone bool
	doneVersion    string
	// isUncertain: a request for the pending write has failed, and may have been executed.
	isUncertain bool
	// isWithdrawn: the cluster no longer requests it.
	isWithdrawn bool
	// reserved is the growth that is reserved for the write.
	reserved wire.SharedSize
}

// holdsBack reports whether an object must not be published now.
func (r *writeRequest) holdsBack(o *object) bool {
	if r.isDone && (o == nil || o.version != r.doneVersion) {
		r.isHeld, r.isDone = false, false
	}
	return r.isHeld
}

func (r *writeRequest) dropPending() {
	if r.pending != nil {
		r.pending.account.Close()
		r.pending = nil
	}
	r.isUncertain = false
}

// writeExecutor executes the writes that clusters request.
type writeExecutor struct{ *registry }

// handleWrite handles a write that a cluster requests. It runs on the stream's goroutine.
func (c *writeExecutor) handleWrite(cluster string, r resource.Resource) {
	asked, err := wire.DecodeSharedWrite(r.Body)
	c.mu.Lock()
	defer c.mu.Unlock()
	s, name := c.findShare(cluster, r.Key)
	if s == nil || s.requests[name] == nil && !c.canAddRequest(cluster) {
		r.Account.Close()
		c.logUnexpected(cluster, r.Key)
		return
	}
	rec := s.requests[name]
	if rec == nil {
		rec = &writeRequest{}
		s.requests[name] = rec
	}
	rec.dropPending()
	rec.isWithdrawn = false
	delete(s.beyondQuota, name)
	w := &write{SharedWrite: asked, generation: r.Generation, uid: r.UID, account: r.Account}
	if r.Generation <= max(rec.applied, rec.refused) {
		r.Account.Close() // it was answered
		return
	}
	rec.pending = w
	if err != nil {
		s.answerRefused(name, rec, w, err.Error())
		return
	}
	c.writeQueue.Add(s.writeKey(name))
}

// logUnexpected logs requests that a well-behaved cluster does not make, with a rate limit.
func (c *writeExecutor) logUnexpected(cluster, key string) {
	if c.logLimiter.Allow(cluster) {
		c.cfg.Logger.Info("Write of a cluster is ignored: nothing is shared under its key, or it has too many",
			"cluster", cluster, "key", strings.ToValidUTF8(key, ""))
	}
}

// isKnownWrite reports whether a write would be answered.
func (c *writeExecutor) isKnownWrite(cluster, key string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, name := c.findShare(cluster, key)
	return s != nil && (s.requests[name] != nil || c.canAddRequest(cluster))
}

// findShare returns the share and the name of the object of a key; c.mu is held.
func (c *writeExecutor) findShare(cluster, key string) (*share, string) {
	k, err := wire.ParseSharedKey(key)
	if err != nil {
		return nil, ""
	}
	if _, fence := k.Fence(); fence {
		return nil, ""
	}
	s := c.shares[shareKey{cluster: cluster, name: k.Share}]
	if s == nil || !s.isAnnounced {
		return nil, ""
	}
	return s, k.Name
}

// canAddRequest reports whether a cluster may request one more write: one for each existing
// object, and maxNewObjects; c.mu is held.
func (c *writeExecutor) canAddRequest(cluster string) bool {
	asked, there := 0, 0
	for _, s := range c.byCluster[cluster] {
		asked += len(s.requests)
		if s.scope != nil {
			there += len(s.scope.objects)
		}
	}
	return asked < there+maxNewObjects
}

// handleWriteWithdrawal handles a write that a cluster no longer requests.
func (c *writeExecutor) handleWriteWithdrawal(cluster, key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, name := c.findShare(cluster, key)
	if s == nil || s.requests[name] == nil {
		return
	}
	rec := s.requests[name]
	rec.dropPending()
	rec.isWithdrawn = true
	s.deleteIfWithdrawn(name, rec)
}

// deleteIfWithdrawn deletes a withdrawn request that does not hold back its object. Its answer
// stays published with the object.
func (s *share) deleteIfWithdrawn(name string, rec *writeRequest) {
	if !rec.isWithdrawn || rec.isHeld {
		return
	}
	delete(s.requests, name)
	s.releaseReservation(rec)
	if _, ok := s.beyondQuota[name]; ok {
		delete(s.beyondQuota, name)
		s.registry.statusQueue.Add(s.name)
	}
	if e, ok := s.entries[name]; ok && !e.hasObject() && !e.deleted && !e.unselected {
		delete(s.entries, name)
		s.updateUse(name)
		s.source(wire.KindSharedObject).Delete(s.objectKey(name))
	}
	if s.scope == nil || s.scope.objects[name] == nil {
		s.registry.writeLimiter.Forget(s.writeKey(name))
	}
}

// executeWrite executes the pending write of a key, if it is based on the current object.
func (c *writeExecutor) executeWrite(ctx context.Context, key writeKey) error {
	w := c.getPending(key)
	if w == nil {
		return nil
	}
	if wait := max(c.writeLimiter.Delay(key), c.cfg.Writes.Wait(key.cluster)); wait > 0 {
		c.writeQueue.AddAfter(key, wait)
		return nil
	}
	var to sharedobject.Content
	if w.Part != wire.PartDeletion {
		var err error
		if to, err = sharedobject.Decode(w.Content); err != nil {
			c.refuseWrite(key, w, err.Error())
			return nil
		}
	}
	j := c.newRequest(key, w, to)
	if j == nil {
		return nil
	}
	c.writeLimiter.Spend(key, len(w.Content))
	c.cfg.Writes.Spend(key.cluster, int64(len(w.Content)+requestCost))
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	made, err := j.do(ctx)
	return c.handleResponse(key, j, made, err)
}

// getPending returns the write to execute; nil for none.
func (c *writeExecutor) getPending(key writeKey) *write {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.shares[key.shareKey]; s != nil && s.requests[key.object] != nil && !s.requests[key.object].isDone {
		return s.requests[key.object].pending
	}
	return nil
}

// newRequest compares what a write is based on with the current object, and holds the object
// back until the response. It returns nil if there is no request to send.
func (c *writeExecutor) newRequest(key writeKey, w *write, to sharedobject.Content) *request {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.shares[key.shareKey]
	if s == nil {
		return nil
	}
	rec := s.requests[key.object]
	if rec == nil || rec.pending != w || s.findProblem() == nil && !s.isPublished {
		return nil // objects are being read: what follows comes here again
	}
	if reason := s.validateWrite(key.object, w, to); reason != "" {
		s.answerRefused(key.object, rec, w, reason)
		return nil
	}
	o := s.scope.objects[key.object]
	switch {
	case !w.isBasedOn(o) && rec.isUncertain && s.isApplied(o, w, to):
		s.answerApplied(key.object, rec, w, o.unlessEqual(to))
		return nil
	case !w.isBasedOn(o):
		rec.isHeld, rec.isUncertain = false, false
		s.releaseReservation(rec)
		s.syncObject(key.object) // what is published says so
		return nil
	case w.Part == wire.PartDeletion && o.deleting:
		s.answerApplied(key.object, rec, w, nil)
		return nil
	}
	if reason := s.reserve(key.object, rec, o, w, to); reason != "" {
		s.answerRefused(key.object, rec, w, reason)
		return nil
	}
	rec.isHeld = true
	s.scope.keepDeletions()
	return &request{share: s, scope: s.scope, record: rec, write: w, name: key.object, object: o, to: to, body: s.target.body}
}

// isBasedOn reports whether a write is based on an object as it is; nil is none.
func (w *write) isBasedOn(o *object) bool {
	if o == nil {
		return w.Seen == ""
	}
	return w.Seen == o.hash && (w.uid == "" || w.uid == string(o.uid))
}

// validateWrite returns why a share refuses a write; empty if it does not.
func (s *share) validateWrite(name string, w *write, to sharedobject.Content) string {
	if p := s.findProblem(); p != nil {
		return p.Message
	}
	o := s.scope.objects[name]
	switch {
	case !s.target.body.ToHub:
		return fmt.Sprintf("SharedResource %q takes no changes of clusters", s.name)
	case w.Part == wire.PartStatus && !s.target.body.StatusSubresource:
		return "the resource has no status subresource"
	case o != nil && !s.target.selector.Matches(o.labels):
		return fmt.Sprintf("object %q exists, and is not selected by SharedResource %q", name, s.name)
	case o != nil && o.raw == nil:
		return fmt.Sprintf("object %q exists, and is too large to be shared", name)
	case w.Part == wire.PartObject && !s.target.selector.Matches(labelsOf(to)):
		return fmt.Sprintf("SharedResource %q does not select the labels of the object", s.name)
	}
	return ""
}

// isApplied reports whether an object is as a write would make it.
func (s *share) isApplied(o *object, w *write, to sharedobject.Content) bool {
	if w.Part == wire.PartDeletion {
		return o == nil || o.deleting || w.uid != "" && w.uid != string(o.uid)
	}
	if o == nil || w.uid != "" && w.uid != string(o.uid) {
		return false
	}
	j := request{share: s, write: w, object: o, to: to, body: s.target.body}
	patch, _, err := j.patch()
	return err == nil && patch == nil
}

// answerApplied answers that a write was done, with its result; c.mu is held.
func (s *share) answerApplied(name string, rec *writeRequest, w *write, left *object) {
	rec.applied, rec.result = w.generation, left
	s.publishResult(name, rec, w)
}

// answerRefused answers that a write is refused; c.mu is held.
func (s *share) answerRefused(name string, rec *writeRequest, w *write, reason string) {
	rec.refused, rec.reason = w.generation, clip("hub: "+reason, maxReason)
	s.publishResult(name, rec, w)
}

// refuseWrite is answerRefused for callers that do not hold c.mu.
func (c *writeExecutor) refuseWrite(key writeKey, w *write, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.shares[key.shareKey]
	if s == nil {
		return
	}
	if rec := s.requests[key.object]; rec != nil && rec.pending == w {
		s.answerRefused(key.object, rec, w, reason)
	}
}

// publishResult publishes an answer with the current object; c.mu is held.
func (s *share) publishResult(name string, rec *writeRequest, w *write) {
	rec.isHeld = rec.isDone
	if rec.pending == w {
		rec.dropPending()
	}
	s.syncObject(name)
	s.releaseReservation(rec)
	s.deleteIfWithdrawn(name, rec)
	if rec.pending != nil {
		s.registry.writeQueue.Add(s.writeKey(name))
	}
}

// clip truncates a text.
func clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len("...")], "") + "..."
}

// handleResponse handles the response to a request. It returns an error if the write must be
// retried.
func (c *writeExecutor) handleResponse(key writeKey, j *request, made *object, err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer j.scope.releaseDeletions() // once the answer is taken
	s, rec := j.share, j.record
	left := j.result(made)
	if made != nil && j.scope.putObject(key.object, made) {
		defer c.syncChangedObject(j.scope, key.object)
	}
	if s.requests[key.object] != rec {
		return nil // nobody waits for it
	}
	switch verdict := j.classify(err); verdict {
	case outcomeDone:
		rec.isDone = j.write.Part == wire.PartDeletion && j.scope == s.scope && j.scope.objects[key.object] == j.object
		rec.doneVersion = j.version()
		s.answerApplied(key.object, rec, j.write, left)
		return nil
	case outcomeRefused:
		s.answerRefused(key.object, rec, j.write, err.Error())
		return nil
	case outcomeOutdated:
		rec.isHeld, rec.isUncertain = false, false
		s.releaseReservation(rec)
		s.syncObject(key.object)
		s.deleteIfWithdrawn(key.object, rec)
		if rec.pending != j.write {
			return nil
		}
		return fmt.Errorf("write of %s in cluster %s: %w", s.objectKey(key.object), s.cluster, err)
	default:
		rec.isUncertain = rec.pending == j.write
		if rec.isHeld = rec.isUncertain; !rec.isHeld {
			s.releaseReservation(rec)
		}
		s.syncObject(key.object)
		s.deleteIfWithdrawn(key.object, rec)
		c.cfg.Logger.V(1).Info("Write of a cluster will be retried", "cluster", s.cluster, "key", s.objectKey(key.object), "err", err.Error())
		return fmt.Errorf("write of %s in cluster %s: %w", s.objectKey(key.object), s.cluster, err)
	}
}
