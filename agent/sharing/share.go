// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"bytes"
	"context"
	"encoding/json"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/spokelet/spokelet/agent/sharing/merge"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/sharedobject"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// share is what is known of one SharedResource.
type share struct {
	engine *Engine
	name   string
	proof  proof

	mu sync.Mutex
	// All below are guarded by mu.
	//
	// spec is nil until the hub has said it. claimed are the objects that are this share's
	// alone; guarded by Engine.mu.
	spec       *wire.Share
	claimed    claim
	uid        string
	generation int64
	selector   labels.Selector
	objects    map[string]*object
	// fences are those that the hub has passed, by name.
	fences map[string]wire.Fence
	// stop ends what follows the cluster; nil when nothing does.
	stop context.CancelFunc
	// definition is that of the cluster; nil as long as it cannot be used.
	definition *definition
	// problem is why the cluster shares nothing.
	problem *wire.ShareProblem
	// suspended counts how often deletions were not believed, one after the other.
	suspended int
	// read: all objects of the cluster are known.
	read bool
	// pass are the names that a fresh read has seen; nil outside of one.
	pass map[string]struct{}
	// settledHub is the highest version of the hub that was in step, newestSpoke that of
	// the cluster that was seen, and before that at the begin of a fresh read. replaced
	// tells that one of them is another cluster than before.
	settledHub  int64
	newestSpoke string
	before      string
	// complete: all that the hub lacks is known since it was another, or read its objects.
	restored map[merge.Side]bool
	replaced bool
	complete bool
	holds    map[merge.Side]*wire.Hold
	decided  []wire.Decided
	// counted is the sum of what counts of all objects, others are the sizes of those of the
	// cluster that are none of objects, and waiting are the objects that wait for room.
	counted counted
	others  map[string]int64
	waiting map[string]shortage
}

// object is what is known of one object of a share.
type object struct {
	hub, spoke sight
	// number is that of the hub's version, resourceVersion and annotated are the spoke's.
	number          int64
	resourceVersion string
	annotated       bool
	answer          answer
	// recorded: there is a record.
	recorded bool
	// asked is the write that the hub has not answered; nil when there is none.
	asked *asked
	// gone is when the deletion in the cluster was seen.
	gone time.Time
	// reserved is what the write under way makes of the object, and counted what was counted
	// of it last.
	reserved reserved
	counted  counted
	// stale: a request to the cluster may have been executed, and what is known here may
	// be older.
	stale bool
	// refusal is that of the last write; nil if it was not refused.
	refusal *refusal
	// differs are the fields of a collision, failure why the sides are not the same.
	differs []string
	failure string
}

// refusal is of a write that one side does not take: until then it is not tried again, as
// long as both sides are the same as they were.
type refusal struct {
	hub, spoke string
	pause      time.Duration
	until      time.Time
}

// asked is a write that was asked of the hub.
type asked struct {
	generation int64
	seen       string
	// fence is that of the share then: the hub that has another may have lost its answer.
	fence string
	step  step
}

func newShare(e *Engine, name string) *share {
	s := &share{
		engine: e, name: name, proof: proof{busy: make(chan struct{}, 1)}, objects: map[string]*object{}, fences: map[string]wire.Fence{},
		restored: map[merge.Side]bool{}, holds: map[merge.Side]*wire.Hold{},
		others: map[string]int64{}, waiting: map[string]shortage{},
	}
	for _, key := range e.cfg.Records.Keys() {
		k, err := wire.ParseSharedKey(key)
		if _, fence := k.Fence(); err != nil || fence || k.Share != name {
			continue
		}
		r, err := s.record(k.Name)
		if err != nil || r == nil {
			e.cfg.Logger.Error(err, "record cannot be read", "object", key)
			e.cfg.Records.Delete(key)
			continue
		}
		s.objects[k.Name] = &object{recorded: true}
		s.settledHub = max(s.settledHub, r.HubNumber)
		s.newestSpoke = newer(s.newestSpoke, r.SpokeVersion)
	}
	return s
}

// newer is the later of two resourceVersions; what is none is the earlier.
func newer(a, b string) string {
	if order, err := resourceversion.CompareResourceVersion(a, b); a == "" || err == nil && order < 0 {
		return b
	}
	return a
}

func (s *share) key(name string) wire.SharedKey { return wire.SharedKey{Share: s.name, Name: name} }

// identityKey is where it is remembered between which clusters the share is.
func (s *share) identityKey() string { return wire.FenceKey(s.name, "identity").String() }

// record returns what is remembered of an object; nil when nothing is.
func (s *share) record(name string) (*record, error) {
	raw, ok := s.engine.cfg.Records.Get(s.key(name).String())
	if !ok {
		return nil, nil
	}
	return decodeRecord(raw)
}

// object returns that of a name, made on first use; s.mu is held.
func (s *share) object(name string) *object {
	o, ok := s.objects[name]
	if !ok {
		o = &object{}
		s.objects[name] = o
	}
	return o
}

// tidy drops what nothing is known of any more; s.mu is held.
func (s *share) tidy(name string) {
	if o := s.objects[name]; o != nil && !o.hub.present && !o.spoke.present && !o.recorded && o.asked == nil {
		o.reserved = reserved{}
		s.count(o)
		s.waits(name, shortage{})
		delete(s.objects, name)
		s.engine.pace.Forget(s.key(name))
	}
}

// update takes the hub's word; it returns whether what follows the cluster has to begin
// anew.
func (s *share) update(spec wire.Share, uid string, generation int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.spec
	s.spec, s.uid, s.generation = &spec, uid, generation
	s.selector, _ = labels.Parse(spec.Selector) // DecodeShare has
	s.remember()
	s.changed()
	return old == nil || s.stop == nil || old.Problem != nil != (spec.Problem != nil) || old.Selector != spec.Selector ||
		old.SpokeNamespace != spec.SpokeNamespace || resourceOf(old) != resourceOf(&spec) || !bytes.Equal(old.Definition, spec.Definition)
}

// remember notes between which clusters the share is, or that it is between others than
// before; s.mu is held.
func (s *share) remember() {
	var before identity
	now := identity{Hub: s.spec.HubUID, Spoke: s.engine.cfg.KubeSystemUID}
	raw, ok := s.engine.cfg.Records.Get(s.identityKey())
	if ok && json.Unmarshal(raw, &before) == nil && before != now {
		s.replaced, s.complete = true, false
		return
	}
	if !ok {
		s.identify(now)
	}
}

// identify remembers between which clusters the share is.
func (s *share) identify(as identity) {
	s.replaced = false
	raw, err := json.Marshal(as)
	if err == nil {
		_, err = s.engine.cfg.Records.Put(s.identityKey(), raw, false)
	}
	if err != nil {
		s.engine.cfg.Logger.Error(err, "share cannot be remembered", "share", s.name)
	}
}

// resourceOf is what a share is read and written as.
func resourceOf(spec *wire.Share) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: spec.Group, Version: spec.Version, Resource: spec.Resource}
}

// fence notes that the hub has said what it had when it read its objects.
func (s *share) fence(name string, f wire.Fence) {
	s.mu.Lock()
	s.fences[name] = f
	// At the begin of a stream it comes before what tells of objects, and of those that
	// are absent.
	s.complete = false
	s.settleAbsent()
	if f.Version < s.settledHub {
		s.restored[merge.Hub] = true
	}
	s.mu.Unlock()
	s.judge()
}

// hubComplete notes that the hub has said what it has, and what it lacks.
func (s *share) hubComplete() {
	s.mu.Lock()
	s.complete = true
	s.settleAbsent()
	s.mu.Unlock()
	s.judge()
}

// settleAbsent has all be judged that the hub was said to lack so far; s.mu is held.
func (s *share) settleAbsent() {
	for _, o := range s.objects {
		o.hub.awaits = false
	}
}

func (s *share) dropFence(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.fences, name)
}

// hubHas takes what the hub says of an object.
func (s *share) hubHas(name string, r resource.Resource, w wire.SharedObject) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.object(name)
	o.number, o.answer = r.Generation, answer{applied: w.Applied, refused: w.Refused, result: w.Result, reason: w.Reason}
	o.hub = sight{
		present: w.Version != "", uid: types.UID(r.UID), version: w.Version, raw: w.Content, size: len(w.Content),
		deleting: w.Deleting, unselected: w.Unselected,
	}
	if w.Deleted {
		o.hub.absence = proven
	}
	o.join()
	s.count(o)
	s.tidy(name)
	s.engine.queue.Add(s.key(name))
}

// hubLacks notes that the hub does not have an object, and has not said why.
func (s *share) hubLacks(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.objects[name]
	if !ok {
		return
	}
	if o.hub.present || o.hub.absence != proven {
		o.hub = sight{awaits: true}
	}
	o.answer = answer{}
	s.count(o)
	s.tidy(name)
	s.engine.queue.Add(s.key(name))
}

// keep has the contents be kept where one record takes the place of another, nil for none.
func (o *object) keep(old, next *record) {
	for _, s := range []*sight{&o.hub, &o.spoke} {
		s.load(old)
		s.leave(next)
	}
}

// leave leaves to the record of an object what both have of its content.
func (s *share) leave(name string, r *record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o, ok := s.objects[name]; ok {
		o.hub.leave(r)
		o.spoke.leave(r)
	}
}

// join has both sides share the bytes that they have in common.
func (o *object) join() {
	if o.hub.version == o.spoke.version && o.hub.present {
		o.hub.raw = o.spoke.raw
	}
}

// spokeHas takes what the cluster has of an object, unless that is older than what is
// known.
func (s *share) spokeHas(ctx context.Context, obj *unstructured.Unstructured, deleted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil || s.spec == nil {
		return
	}
	name := obj.GetName()
	if s.pass != nil && !deleted {
		s.pass[name] = struct{}{}
	}
	s.newestSpoke = newer(s.newestSpoke, obj.GetResourceVersion())
	selected := s.selector.Matches(labels.Set(obj.GetLabels()))
	o, ok := s.objects[name]
	if !ok && (deleted || !selected) {
		s.countOther(name, sizeOf(obj, deleted))
		return
	}
	if !ok {
		s.countOther(name, none)
		o = s.object(name)
	}
	if o.resourceVersion != "" && newer(o.resourceVersion, obj.GetResourceVersion()) == o.resourceVersion && !deleted {
		return
	}
	if err := o.see(obj, deleted, selected); err != nil {
		o.failure = "cluster: " + err.Error()
		s.changed()
		return
	}
	s.count(o)
	s.tidy(name)
	s.engine.queue.Add(s.key(name))
}

// see takes an object of the cluster.
func (o *object) see(obj *unstructured.Unstructured, deleted, selected bool) error {
	o.resourceVersion, o.annotated = obj.GetResourceVersion(), sharedobject.Annotated(obj)
	if deleted {
		o.spoke, o.gone = sight{absence: proven}, time.Now()
		return nil
	}
	raw, err := sharedobject.Encode(sharedobject.Of(obj))
	if err != nil {
		return err
	}
	o.spoke = sight{
		present: true, uid: obj.GetUID(), version: sharedobject.Version(raw), raw: raw, size: len(raw),
		deleting: obj.GetDeletionTimestamp() != nil, unselected: !selected,
	}
	o.join()
	return nil
}

// acts tells whether both sides are known and may be written; s.mu is held.
func (s *share) acts() bool {
	if s.spec == nil || s.spec.Problem != nil || !s.read || s.definition == nil || s.spec.Fence == "" {
		return false
	}
	_, passed := s.fences[s.spec.Fence]
	return passed && s.engine.isSynced()
}

// end drops all that is known and remembered.
func (s *share) end() {
	s.mu.Lock()
	if s.stop != nil {
		s.stop()
		s.stop = nil
	}
	names := make([]string, 0, len(s.objects))
	for name := range s.objects {
		names = append(names, name)
	}
	s.spec, s.objects = nil, map[string]*object{}
	s.counted = counted{}
	clear(s.others)
	clear(s.waiting)
	s.mu.Unlock()
	for _, name := range names {
		s.engine.leavePlace(s.key(name))
		s.engine.pace.Forget(s.key(name))
		s.engine.cfg.Records.Delete(s.key(name).String())
	}
	s.engine.cfg.Records.Delete(s.identityKey())
}

// changed has the state reported.
func (s *share) changed() { s.engine.markDirty(s) }
