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
	// maxReason bounds what is said of a refusal, in bytes.
	maxReason = 1 << 10
	// requestCost is what a request counts for beside its content, in bytes.
	requestCost = 1 << 10
)

// writeKey names what a cluster asks for: the object of a name, in a share.
type writeKey struct {
	shareKey
	object string
}

func (s *share) writeKey(name string) writeKey { return writeKey{shareKey: s.key(), object: name} }

// write is what a cluster asks for.
type write struct {
	wire.SharedWrite
	generation int64
	uid        string
	account    *quota.Account
}

// answer is what became of the writes of a name.
type answer struct {
	applied, refused int64
	reason           string
	// left is the object as the write that was applied left it, nil where that is as it was
	// asked for.
	left *object
}

// record is what a cluster asks for of a name, and what became of it; it is there for as
// long as the cluster asks. Its fields are guarded by Controller.mu.
type record struct {
	// pending is the write that has no answer yet.
	pending *write
	answer
	// held: a request is being made, or may have been, and its outcome is not known;
	// nothing is published until it is. done: it is known of a deletion, but not yet what
	// became of the object, which had the version at.
	held, done bool
	at         string
	// uncertain: a request for the pending write has failed in a way that does not tell
	// whether it was executed.
	uncertain bool
	// ceased: the cluster asks no more.
	ceased bool
	// growth is what is reserved for the write.
	growth wire.SharedSize
}

// holds tells whether nothing is to be published of an object.
func (r *record) holds(o *object) bool {
	if r.done && (o == nil || o.version != r.at) {
		r.held, r.done = false, false
	}
	return r.held
}

// end drops what is pending.
func (r *record) end() {
	if r.pending != nil {
		r.pending.account.Close()
		r.pending = nil
	}
	r.uncertain = false
}

// receive takes what a cluster asks for. It runs on the stream's goroutine.
func (c *Controller) receive(cluster string, r resource.Resource) {
	asked, err := wire.DecodeSharedWrite(r.Body)
	c.mu.Lock()
	defer c.mu.Unlock()
	s, name := c.addressed(cluster, r.Key)
	if s == nil || s.records[name] == nil && !c.room(cluster) {
		r.Account.Close()
		c.complain(cluster, r.Key)
		return
	}
	rec := s.records[name]
	if rec == nil {
		rec = &record{}
		s.records[name] = rec
	}
	rec.end()
	rec.ceased = false
	delete(s.waiting, name)
	w := &write{SharedWrite: asked, generation: r.Generation, uid: r.UID, account: r.Account}
	if r.Generation <= max(rec.applied, rec.refused) {
		r.Account.Close() // it was answered
		return
	}
	rec.pending = w
	if err != nil {
		s.refuse(name, rec, w, err.Error())
		return
	}
	c.writes.Add(s.writeKey(name))
}

// complain logs now and then what a cluster must not ask for.
func (c *Controller) complain(cluster, key string) {
	if c.log.Allow(cluster) {
		c.cfg.Logger.Info("write of a cluster is not answered: nothing is shared under its key, or too many are waiting",
			"cluster", cluster, "key", strings.ToValidUTF8(key, ""))
	}
}

// known tells whether a write would be answered.
func (c *Controller) known(cluster, key string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, name := c.addressed(cluster, key)
	return s != nil && (s.records[name] != nil || c.room(cluster))
}

// addressed is the share of a cluster, and the name of an object, that a key is of; c.mu
// is held.
func (c *Controller) addressed(cluster, key string) (*share, string) {
	k, err := wire.ParseSharedKey(key)
	if err != nil {
		return nil, ""
	}
	if _, fence := k.Fence(); fence {
		return nil, ""
	}
	s := c.shares[shareKey{cluster: cluster, name: k.Share}]
	if s == nil || !s.told {
		return nil, ""
	}
	return s, k.Name
}

// room tells whether a cluster may ask for one more object: for all that there are, and
// some that it creates; c.mu is held.
func (c *Controller) room(cluster string) bool {
	asked, there := 0, 0
	for _, s := range c.byCluster[cluster] {
		asked += len(s.records)
		if s.scope != nil {
			there += len(s.scope.objects)
		}
	}
	return asked < there+maxUnknown
}

// withdrawn forgets what a cluster asks for no more.
func (c *Controller) withdrawn(cluster, key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, name := c.addressed(cluster, key)
	if s == nil || s.records[name] == nil {
		return
	}
	rec := s.records[name]
	rec.end()
	rec.ceased = true
	s.forget(name, rec)
}

// forget drops a record that nobody asks for, once nothing is held for it. What it
// answered stays published with the object.
func (s *share) forget(name string, rec *record) {
	if !rec.ceased || rec.held {
		return
	}
	delete(s.records, name)
	s.release(rec)
	if _, ok := s.waiting[name]; ok {
		delete(s.waiting, name)
		s.controller.status.Add(s.name)
	}
	if e, ok := s.entries[name]; ok && !e.present() && !e.deleted && !e.unselected {
		delete(s.entries, name)
		s.count(name)
		s.source(wire.KindSharedObject).Delete(s.objectKey(name))
	}
	if s.scope == nil || s.scope.objects[name] == nil {
		s.controller.pace.Forget(s.writeKey(name))
	}
}

// changed has all know that an object of a scope is another; c.mu is held.
func (c *Controller) changed(in *scope, name string) {
	for s := range in.shares {
		s.sync(name)
		rec := s.records[name]
		switch {
		case rec != nil && rec.ceased:
			s.forget(name, rec)
		case rec != nil && rec.pending != nil:
			c.writes.Add(s.writeKey(name))
		case rec == nil && in.objects[name] == nil:
			c.pace.Forget(s.writeKey(name))
		}
	}
}

// refresh has the shares of a scope publish all of it; c.mu is held.
func (c *Controller) refresh(in *scope) {
	for s := range in.shares {
		s.refresh()
	}
}

// execute makes the request that a cluster asks for, if it is made from what there is.
func (c *Controller) execute(ctx context.Context, key writeKey) error {
	w := c.pending(key)
	if w == nil {
		return nil
	}
	if wait := max(c.pace.Wait(key), c.cfg.Writes.Wait(key.cluster)); wait > 0 {
		c.writes.AddAfter(key, wait)
		return nil
	}
	var to sharedobject.Content
	if w.Part != wire.PartDeletion {
		var err error
		if to, err = sharedobject.Decode(w.Content); err != nil {
			c.refuse(key, w, err.Error())
			return nil
		}
	}
	j := c.begin(key, w, to)
	if j == nil {
		return nil
	}
	c.pace.Spend(key, len(w.Content))
	c.cfg.Writes.Spend(key.cluster, int64(len(w.Content)+requestCost))
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	made, err := j.do(ctx)
	return c.finish(key, j, made, err)
}

// pending is the write that is to be executed; nil for none.
func (c *Controller) pending(key writeKey) *write {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.shares[key.shareKey]; s != nil && s.records[key.object] != nil && !s.records[key.object].done {
		return s.records[key.object].pending
	}
	return nil
}

// begin compares what a write was made from with what there is, and holds what is
// published until its request is answered. It returns nil if no request is to be made.
func (c *Controller) begin(key writeKey, w *write, to sharedobject.Content) *job {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.shares[key.shareKey]
	if s == nil {
		return nil
	}
	rec := s.records[key.object]
	if rec == nil || rec.pending != w || s.trouble() == nil && !s.read {
		return nil // objects are being read: what follows comes here again
	}
	if reason := s.refusal(key.object, w, to); reason != "" {
		s.refuse(key.object, rec, w, reason)
		return nil
	}
	o := s.scope.objects[key.object]
	switch {
	case !w.madeFrom(o) && rec.uncertain && s.has(o, w, to):
		s.apply(key.object, rec, w, o.otherThan(to))
		return nil
	case !w.madeFrom(o):
		rec.held, rec.uncertain = false, false
		s.release(rec)
		s.sync(key.object) // what is published says so
		return nil
	case w.Part == wire.PartDeletion && o.deleting:
		s.apply(key.object, rec, w, nil)
		return nil
	}
	if reason := s.admit(key.object, rec, o, w, to); reason != "" {
		s.refuse(key.object, rec, w, reason)
		return nil
	}
	rec.held = true
	s.scope.guard()
	return &job{share: s, scope: s.scope, record: rec, write: w, name: key.object, object: o, to: to, body: s.target.body}
}

// madeFrom tells whether the cluster has seen an object as it is; nil is none.
func (w *write) madeFrom(o *object) bool {
	if o == nil {
		return w.Seen == ""
	}
	return w.Seen == o.hash && (w.uid == "" || w.uid == string(o.uid))
}

// refusal says why a share does not execute a write; empty if it does.
func (s *share) refusal(name string, w *write, to sharedobject.Content) string {
	if p := s.trouble(); p != nil {
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

// has tells whether an object is as a write would make it.
func (s *share) has(o *object, w *write, to sharedobject.Content) bool {
	if w.Part == wire.PartDeletion {
		return o == nil || o.deleting || w.uid != "" && w.uid != string(o.uid)
	}
	if o == nil || w.uid != "" && w.uid != string(o.uid) {
		return false
	}
	j := job{share: s, write: w, object: o, to: to, body: s.target.body}
	patch, _, err := j.patch()
	return err == nil && patch == nil
}

// apply answers that a write was done, and what it left; c.mu is held.
func (s *share) apply(name string, rec *record, w *write, left *object) {
	rec.applied, rec.left = w.generation, left
	s.answered(name, rec, w)
}

// refuse answers that a write is not done; c.mu is held.
func (s *share) refuse(name string, rec *record, w *write, reason string) {
	rec.refused, rec.reason = w.generation, clip("hub: "+reason, maxReason)
	s.answered(name, rec, w)
}

// refuse is that of a share, for those who do not hold c.mu.
func (c *Controller) refuse(key writeKey, w *write, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.shares[key.shareKey]
	if s == nil {
		return
	}
	if rec := s.records[key.object]; rec != nil && rec.pending == w {
		s.refuse(key.object, rec, w, reason)
	}
}

// answered publishes an answer, with what there is by now; c.mu is held.
func (s *share) answered(name string, rec *record, w *write) {
	rec.held = rec.done
	if rec.pending == w {
		rec.end()
	}
	s.sync(name)
	s.release(rec)
	s.forget(name, rec)
	if rec.pending != nil {
		s.controller.writes.Add(s.writeKey(name))
	}
}

// clip cuts a text.
func clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len("...")], "") + "..."
}

// finish takes the answer to a request. An error has the write tried again.
func (c *Controller) finish(key writeKey, j *job, made *object, err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer j.scope.release() // once the answer is taken
	s, rec := j.share, j.record
	left := j.left(made)
	if made != nil && j.scope.take(key.object, made) {
		defer c.changed(j.scope, key.object)
	}
	if s.records[key.object] != rec {
		return nil // nobody waits for it
	}
	switch verdict := j.judge(err); verdict {
	case done:
		rec.done = j.write.Part == wire.PartDeletion && j.scope == s.scope && j.scope.objects[key.object] == j.object
		rec.at = j.version()
		s.apply(key.object, rec, j.write, left)
		return nil
	case refused:
		s.refuse(key.object, rec, j.write, err.Error())
		return nil
	case behind:
		rec.held, rec.uncertain = false, false
		s.release(rec)
		s.sync(key.object)
		s.forget(key.object, rec)
		if rec.pending != j.write {
			return nil
		}
		return fmt.Errorf("write of %s in cluster %s: %w", s.objectKey(key.object), s.cluster, err)
	default:
		rec.uncertain = rec.pending == j.write
		if rec.held = rec.uncertain; !rec.held {
			s.release(rec)
		}
		s.sync(key.object)
		s.forget(key.object, rec)
		c.cfg.Logger.V(1).Info("write of a cluster is tried again", "cluster", s.cluster, "key", s.objectKey(key.object), "err", err.Error())
		return fmt.Errorf("write of %s in cluster %s: %w", s.objectKey(key.object), s.cluster, err)
	}
}
