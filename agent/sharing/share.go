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

// share is the agent's state of one SharedResource.
type share struct {
	engine      *Engine
	name        string
	termination terminationCheck

	mu sync.Mutex
	// All below are guarded by mu.
	//
	// spec is nil until the hub has sent it. claimed are the objects that only this share has;
	// guarded by Engine.mu.
	spec       *wire.Share
	claimed    claim
	uid        string
	generation int64
	selector   labels.Selector
	objects    map[string]*object
	// fences are those that the hub has passed, by name.
	fences map[string]wire.Fence
	// stop ends the watches of the cluster; nil when there are none.
	stop context.CancelFunc
	// definition is that of the cluster; nil as long as it cannot be used.
	definition *definition
	// problem is why the cluster shares no objects.
	problem *wire.ShareProblem
	// terminationChecks counts how often in a row the namespace or the definition was found to
	// be ending.
	terminationChecks int
	// spokeListed: all objects of the cluster are known.
	spokeListed bool
	// listedNames are the names of the list that is under way; nil outside of one.
	listedNames map[string]struct{}
	// syncedHubVersion is the highest version of the hub that was in sync, latestSpokeVersion
	// the highest that was seen of the cluster, and versionBeforeList that at the begin of a
	// list. replaced: the hub or the cluster is another than before.
	syncedHubVersion   int64
	latestSpokeVersion string
	versionBeforeList  string
	// restored: a side was restored from a backup. hubListed: all that the hub lacks is known
	// since it was replaced, or listed its objects.
	restored  map[merge.Side]bool
	replaced  bool
	hubListed bool
	holds     map[merge.Side]*wire.Hold
	decisions []wire.Decided
	// usage is the sum of all objects' usage, unselectedSizes are the sizes of the cluster's
	// objects that are not in objects, and shortages are of the objects that wait for quota.
	usage           usage
	unselectedSizes map[string]int64
	shortages       map[string]shortage
}

// object is the state of one object of a share.
type object struct {
	hub, spoke sideState
	// hubNumber is the number of the hub's version; resourceVersion and annotated are the
	// spoke's.
	hubNumber       int64
	resourceVersion string
	annotated       bool
	answer          hubAnswer
	// hasRecord: there is a record.
	hasRecord bool
	// hubWrite is the write that the hub has not answered; nil when there is none.
	hubWrite *hubWrite
	// deletedAt is when the deletion in the cluster was observed.
	deletedAt time.Time
	// reservation is the size that the pending write needs, and usage what of the object is in
	// share.usage.
	reservation reservation
	usage       usage
	// stale: a request to the cluster may have been executed, so that the state may be older
	// than the cluster's.
	stale bool
	// refusal is nil if the last write was not refused.
	refusal *refusal
	// differences are the fields of a collision, failure is why the sides are not in sync.
	differences []string
	failure     string
}

// refusal is a write that one side refused: it is not retried before until, as long as both
// sides have the same versions.
type refusal struct {
	hub, spoke string
	pause      time.Duration
	until      time.Time
}

// hubWrite is a write that was published to the hub.
type hubWrite struct {
	generation  int64
	seenVersion string
	// fence is the share's at that time: a hub with another one may have lost the answer.
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

// laterVersion returns the later of two resourceVersions; an invalid one is the earlier.
func laterVersion(a, b string) string {
	if order, err := resourceversion.CompareResourceVersion(a, b); a == "" || err == nil && order < 0 {
		return b
	}
	return a
}

func (s *share) objectKey(name string) wire.SharedKey {
	return wire.SharedKey{Share: s.name, Name: name}
}

// identityKey is the key of the record of the hub and the cluster of the share.
func (s *share) identityKey() string { return wire.FenceKey(s.name, "identity").String() }

// loadRecord returns the record of an object; nil when there is none.
func (s *share) loadRecord(name string) (*record, error) {
	raw, ok := s.engine.cfg.Records.Get(s.objectKey(name).String())
	if !ok {
		return nil, nil
	}
	return decodeRecord(raw)
}

// getOrCreateObject returns the object of a name, created on first use; s.mu is held.
func (s *share) getOrCreateObject(name string) *object {
	o, ok := s.objects[name]
	if !ok {
		o = &object{}
		s.objects[name] = o
	}
	return o
}

// deleteIfUnused deletes an object that neither side nor a record has; s.mu is held.
func (s *share) deleteIfUnused(name string) {
	if o := s.objects[name]; o != nil && !o.hub.present && !o.spoke.present && !o.hasRecord && o.hubWrite == nil {
		o.reservation = reservation{}
		s.updateUsage(o)
		s.setShortage(name, shortage{})
		delete(s.objects, name)
		s.engine.limiter.Forget(s.objectKey(name))
	}
}

// setSpec takes the hub's spec; it returns whether the watches of the cluster must restart.
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

// checkIdentity records the hub and the cluster of the share, or that one of them was
// replaced; s.mu is held.
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

// storeIdentity records the hub and the cluster of the share.
func (s *share) storeIdentity(as shareIdentity) {
	s.replaced = false
	raw, err := json.Marshal(as)
	if err == nil {
		_, err = s.engine.cfg.Records.Put(s.identityKey(), raw, false)
	}
	if err != nil {
		s.engine.cfg.Logger.Error(err, "Identity of a share cannot be stored", "share", s.name)
	}
}

// resourceOf returns the resource that a share reads and writes.
func resourceOf(spec *wire.Share) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: spec.Group, Version: spec.Version, Resource: spec.Resource}
}

// setFence records that the hub has sent all objects of a list.
func (s *share) setFence(name string, f wire.Fence) {
	s.mu.Lock()
	s.fences[name] = f
	// At the begin of a stream it comes before the objects, and before those that are
	// absent are known.
	s.hubListed = false
	s.allowEvaluation()
	if f.Version < s.syncedHubVersion {
		s.restored[merge.Hub] = true
	}
	s.mu.Unlock()
	s.evaluateAbsent()
}

// markHubListed records that the hub has sent all that it has; the rest it lacks.
func (s *share) markHubListed() {
	s.mu.Lock()
	s.hubListed = true
	s.allowEvaluation()
	s.mu.Unlock()
	s.evaluateAbsent()
}

// allowEvaluation has all absences on the hub evaluated that are known so far; s.mu is held.
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

// observeHubObject takes an object as the hub has it.
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

// observeHubAbsence records that the hub lacks an object without having deleted it.
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

// replaceRecord moves contents that only the old record has to the object, and drops those
// that the next record has; nil is none.
func (o *object) replaceRecord(old, next *record) {
	for _, s := range []*sideState{&o.hub, &o.spoke} {
		s.loadContent(old)
		s.dropRecordedContent(next)
	}
}

// dropRecordedContent drops the contents of an object that its record has, too.
func (s *share) dropRecordedContent(name string, r *record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o, ok := s.objects[name]; ok {
		o.hub.dropRecordedContent(r)
		o.spoke.dropRecordedContent(r)
	}
}

// shareContent has both sides share the bytes of equal contents.
func (o *object) shareContent() {
	if o.hub.version == o.spoke.version && o.hub.present {
		o.hub.raw = o.spoke.raw
	}
}

// observeSpokeObject takes an object as the cluster has it, unless a later version is known.
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

// setSpoke sets the spoke's side of an object.
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

// isReady reports whether both sides are known and may be written; s.mu is held.
func (s *share) isReady() bool {
	if s.spec == nil || s.spec.Problem != nil || !s.spokeListed || s.definition == nil || s.spec.Fence == "" {
		return false
	}
	_, passed := s.fences[s.spec.Fence]
	return passed && s.engine.isSynced()
}

// remove deletes all state and records of the share.
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

// requestReport has the state of the share reported to the hub.
func (s *share) requestReport() { s.engine.requestReport(s) }

// readStale reads an object if a request with an unknown outcome was sent for it.
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
