// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	engine      *Engine
	name        string
	termination terminationCheck

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
	// terminationChecks counts how often deletions were not believed, one after the other.
	terminationChecks int
	// spokeListed: all objects of the cluster are known.
	spokeListed bool
	// listedNames are the names that a fresh read has seen; nil outside of one.
	listedNames map[string]struct{}
	// syncedHubVersion is the highest version of the hub that was in step, latestSpokeVersion that of
	// the cluster that was seen, and before that at the begin of a fresh read. replaced
	// tells that one of them is another cluster than before.
	syncedHubVersion   int64
	latestSpokeVersion string
	versionBeforeList  string
	// complete: all that the hub lacks is known since it was another, or read its objects.
	restored  map[merge.Side]bool
	replaced  bool
	hubListed bool
	holds     map[merge.Side]*wire.Hold
	decisions []wire.Decided
	// usage is the sum of what counts of all objects, others are the sizes of those of the
	// cluster that are none of objects, and waiting are the objects that wait for room.
	usage           usage
	unselectedSizes map[string]int64
	shortages       map[string]shortage
}

// object is what is known of one object of a share.
type object struct {
	hub, spoke sideState
	// hubNumber is that of the hub's version, resourceVersion and annotated are the spoke's.
	hubNumber       int64
	resourceVersion string
	annotated       bool
	answer          hubAnswer
	// hasRecord: there is a record.
	hasRecord bool
	// hubWrite is the write that the hub has not answered; nil when there is none.
	hubWrite *hubWrite
	// deletedAt is when the deletion in the cluster was seen.
	deletedAt time.Time
	// reservation is what the write under way makes of the object, and counted what was counted
	// of it last.
	reservation reservation
	usage       usage
	// stale: a request to the cluster may have been executed, and what is known here may
	// be older.
	stale bool
	// refusal is that of the last write; nil if it was not refused.
	refusal *refusal
	// differences are the fields of a collision, failure why the sides are not the same.
	differences []string
	failure     string
}

// refusal is of a write that one side does not take: until then it is not tried again, as
// long as both sides are the same as they were.
type refusal struct {
	hub, spoke string
	pause      time.Duration
	until      time.Time
}

// hubWrite is a write that was asked of the hub.
type hubWrite struct {
	generation  int64
	seenVersion string
	// fence is that of the share then: the hub that has another may have lost its answer.
	fence string
	step  step
}

func newShare(e *Engine, name string) *share {
	s := &share{
		engine: e, name: name, termination: terminationCheck{running: make(chan struct{}, 1)}, objects: map[string]*object{}, fences: map[string]wire.Fence{},
		restored: map[merge.Side]bool{}, holds: map[merge.Side]*wire.Hold{},
		unselectedSizes: map[string]int64{}, shortages: map[string]shortage{},
	}
	for _, key := range e.cfg.Records.Keys() {
		k, err := wire.ParseSharedKey(key)
		if _, fence := k.Fence(); err != nil || fence || k.Share != name {
			continue
		}
		r, err := s.loadRecord(k.Name)
		if err != nil || r == nil {
			e.cfg.Logger.Error(err, "record cannot be read", "object", key)
			e.cfg.Records.Delete(key)
			continue
		}
		s.objects[k.Name] = &object{hasRecord: true}
		s.syncedHubVersion = max(s.syncedHubVersion, r.HubNumber)
		s.latestSpokeVersion = laterVersion(s.latestSpokeVersion, r.SpokeVersion)
	}
	return s
}

// laterVersion is the later of two resourceVersions; what is none is the earlier.
func laterVersion(a, b string) string {
	if order, err := resourceversion.CompareResourceVersion(a, b); a == "" || err == nil && order < 0 {
		return b
	}
	return a
}

func (s *share) objectKey(name string) wire.SharedKey {
	return wire.SharedKey{Share: s.name, Name: name}
}

// identityKey is where it is remembered between which clusters the share is.
func (s *share) identityKey() string { return wire.FenceKey(s.name, "identity").String() }

// loadRecord returns what is remembered of an object; nil when nothing is.
func (s *share) loadRecord(name string) (*record, error) {
	raw, ok := s.engine.cfg.Records.Get(s.objectKey(name).String())
	if !ok {
		return nil, nil
	}
	return decodeRecord(raw)
}

// getOrCreateObject returns that of a name, made on first use; s.mu is held.
func (s *share) getOrCreateObject(name string) *object {
	o, ok := s.objects[name]
	if !ok {
		o = &object{}
		s.objects[name] = o
	}
	return o
}

// deleteIfUnused drops what nothing is known of any more; s.mu is held.
func (s *share) deleteIfUnused(name string) {
	if o := s.objects[name]; o != nil && !o.hub.present && !o.spoke.present && !o.hasRecord && o.hubWrite == nil {
		o.reservation = reservation{}
		s.updateUsage(o)
		s.setShortage(name, shortage{})
		delete(s.objects, name)
		s.engine.limiter.Forget(s.objectKey(name))
	}
}

// setSpec takes the hub's word; it returns whether what follows the cluster has to begin
// anew.
func (s *share) setSpec(spec wire.Share, uid string, generation int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.spec
	s.spec, s.uid, s.generation = &spec, uid, generation
	s.selector, _ = labels.Parse(spec.Selector) // DecodeShare has
	s.checkIdentity()
	s.requestReport()
	return old == nil || s.stop == nil || old.Problem != nil != (spec.Problem != nil) || old.Selector != spec.Selector ||
		old.SpokeNamespace != spec.SpokeNamespace || resourceOf(old) != resourceOf(&spec) || !bytes.Equal(old.Definition, spec.Definition)
}

// checkIdentity notes between which clusters the share is, or that it is between others than
// before; s.mu is held.
func (s *share) checkIdentity() {
	var before shareIdentity
	now := shareIdentity{Hub: s.spec.HubUID, Spoke: s.engine.cfg.KubeSystemUID}
	raw, ok := s.engine.cfg.Records.Get(s.identityKey())
	if ok && json.Unmarshal(raw, &before) == nil && before != now {
		s.replaced, s.hubListed = true, false
		return
	}
	if !ok {
		s.storeIdentity(now)
	}
}

// storeIdentity remembers between which clusters the share is.
func (s *share) storeIdentity(as shareIdentity) {
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

// setFence notes that the hub has said what it had when it read its objects.
func (s *share) setFence(name string, f wire.Fence) {
	s.mu.Lock()
	s.fences[name] = f
	// At the begin of a stream it comes before what tells of objects, and of those that
	// are absent.
	s.hubListed = false
	s.allowEvaluation()
	if f.Version < s.syncedHubVersion {
		s.restored[merge.Hub] = true
	}
	s.mu.Unlock()
	s.evaluateAbsent()
}

// markHubListed notes that the hub has said what it has, and what it lacks.
func (s *share) markHubListed() {
	s.mu.Lock()
	s.hubListed = true
	s.allowEvaluation()
	s.mu.Unlock()
	s.evaluateAbsent()
}

// allowEvaluation has all be judged that the hub was said to lack so far; s.mu is held.
func (s *share) allowEvaluation() {
	for _, o := range s.objects {
		o.hub.awaitsList = false
	}
}

func (s *share) deleteFence(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.fences, name)
}

// observeHubObject takes what the hub says of an object.
func (s *share) observeHubObject(name string, r resource.Resource, w wire.SharedObject) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.getOrCreateObject(name)
	o.hubNumber, o.answer = r.Generation, hubAnswer{applied: w.Applied, refused: w.Refused, result: w.Result, reason: w.Reason}
	o.hub = sideState{
		present: w.Version != "", uid: types.UID(r.UID), version: w.Version, raw: w.Content, size: len(w.Content),
		deleting: w.Deleting, unselected: w.Unselected,
	}
	if w.Deleted {
		o.hub.evidence = observed
	}
	o.shareContent()
	s.updateUsage(o)
	s.deleteIfUnused(name)
	s.engine.queue.Add(s.objectKey(name))
}

// observeHubAbsence notes that the hub does not have an object, and has not said why.
func (s *share) observeHubAbsence(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.objects[name]
	if !ok {
		return
	}
	if o.hub.present || o.hub.evidence != observed {
		o.hub = sideState{awaitsList: true}
	}
	o.answer = hubAnswer{}
	s.updateUsage(o)
	s.deleteIfUnused(name)
	s.engine.queue.Add(s.objectKey(name))
}

// replaceRecord has the contents be kept where one record takes the place of another, nil for none.
func (o *object) replaceRecord(old, next *record) {
	for _, s := range []*sideState{&o.hub, &o.spoke} {
		s.loadContent(old)
		s.dropRecordedContent(next)
	}
}

// dropRecordedContent leaves to the record of an object what both have of its content.
func (s *share) dropRecordedContent(name string, r *record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o, ok := s.objects[name]; ok {
		o.hub.dropRecordedContent(r)
		o.spoke.dropRecordedContent(r)
	}
}

// shareContent has both sides share the bytes that they have in common.
func (o *object) shareContent() {
	if o.hub.version == o.spoke.version && o.hub.present {
		o.hub.raw = o.spoke.raw
	}
}

// observeSpokeObject takes what the cluster has of an object, unless that is older than what is
// known.
func (s *share) observeSpokeObject(ctx context.Context, obj *unstructured.Unstructured, deleted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil || s.spec == nil {
		return
	}
	name := obj.GetName()
	if s.listedNames != nil && !deleted {
		s.listedNames[name] = struct{}{}
	}
	s.latestSpokeVersion = laterVersion(s.latestSpokeVersion, obj.GetResourceVersion())
	selected := s.selector.Matches(labels.Set(obj.GetLabels()))
	o, ok := s.objects[name]
	if !ok && (deleted || !selected) {
		s.updateUnselected(name, sizeOf(obj, deleted))
		return
	}
	if !ok {
		s.updateUnselected(name, notThere)
		o = s.getOrCreateObject(name)
	}
	if o.resourceVersion != "" && laterVersion(o.resourceVersion, obj.GetResourceVersion()) == o.resourceVersion && !deleted {
		return
	}
	if err := o.setSpoke(obj, deleted, selected); err != nil {
		o.failure = "cluster: " + err.Error()
		s.requestReport()
		return
	}
	s.updateUsage(o)
	s.deleteIfUnused(name)
	s.engine.queue.Add(s.objectKey(name))
}

// setSpoke takes an object of the cluster.
func (o *object) setSpoke(obj *unstructured.Unstructured, deleted, selected bool) error {
	o.resourceVersion, o.annotated = obj.GetResourceVersion(), sharedobject.Annotated(obj)
	if deleted {
		o.spoke, o.deletedAt = sideState{evidence: observed}, time.Now()
		return nil
	}
	raw, err := sharedobject.Encode(sharedobject.Of(obj))
	if err != nil {
		return err
	}
	o.spoke = sideState{
		present: true, uid: obj.GetUID(), version: sharedobject.Version(raw), raw: raw, size: len(raw),
		deleting: obj.GetDeletionTimestamp() != nil, unselected: !selected,
	}
	o.shareContent()
	return nil
}

// isReady tells whether both sides are known and may be written; s.mu is held.
func (s *share) isReady() bool {
	if s.spec == nil || s.spec.Problem != nil || !s.spokeListed || s.definition == nil || s.spec.Fence == "" {
		return false
	}
	_, passed := s.fences[s.spec.Fence]
	return passed && s.engine.isSynced()
}

// remove drops all that is known and remembered.
func (s *share) remove() {
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
	s.usage = usage{}
	clear(s.unselectedSizes)
	clear(s.shortages)
	s.mu.Unlock()
	for _, name := range names {
		s.engine.releaseWriteSlot(s.objectKey(name))
		s.engine.limiter.Forget(s.objectKey(name))
		s.engine.cfg.Records.Delete(s.objectKey(name).String())
	}
	s.engine.cfg.Records.Delete(s.identityKey())
}

// requestReport has the state reported.
func (s *share) requestReport() { s.engine.requestReport(s) }

// readStale reads an object of which it is not known whether a request was done.
func (s *share) readStale(ctx context.Context, name string) error {
	s.mu.Lock()
	o, ok := s.objects[name]
	if !ok || !o.stale || !s.isReady() {
		s.mu.Unlock()
		return nil
	}
	spec := s.spec
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	obj, err := s.engine.cfg.Objects.Resource(resourceOf(spec)).Namespace(spec.SpokeNamespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("object %s: %w", name, err)
	}
	if err == nil {
		s.observeSpokeObject(ctx, obj, false)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if o, ok := s.objects[name]; ok {
		o.stale = false
	}
	return nil
}
