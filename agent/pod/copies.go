// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// AnnotationHubObject names, on a copy, what it is one of: "<kind>/<namespace>/<name>".
const AnnotationHubObject = "spokelet.io/hub-object"

// copyCheckInterval is how long a copy is taken to be as it was written. Copies are not watched:
// they are looked at again when a pod is made, or complains.
const copyCheckInterval = time.Minute

var errObjectUnknown = errors.New("hub has not told what it holds")

// copyState is a ConfigMap or a Secret that pods refer to.
type copyState struct {
	key wire.PodObjectKey

	// Guarded by Engine.mu; want is replaced and never changed.

	// desired is nil until the hub has told.
	desired *wire.PodObject
	users   map[namespacedName]struct{}
	// mayExist: there may be a copy, for somebody used one.
	mayExist bool
	// synced is the want that the copy was brought to, last seen so at checked.
	synced   *wire.PodObject
	syncedAt time.Time
	// warned is the want of the last events about it.
	warned *wire.PodObject

	// writeMu is held over requests.
	writeMu sync.Mutex
}

func (o *copyState) addUser(at namespacedName) {
	o.users[at] = struct{}{}
	o.mayExist = true
}

// removeUser tells whether that was the last user.
func (o *copyState) removeUser(at namespacedName) bool {
	delete(o.users, at)
	return len(o.users) == 0
}

// getOrCreateObject returns an object, made if need be; e.mu is held.
func (e *Engine) getOrCreateObject(key wire.PodObjectKey) *copyState {
	if o, ok := e.objects[key]; ok {
		return o
	}
	o := &copyState{key: key, users: map[namespacedName]struct{}{}}
	e.objects[key] = o
	return o
}

// handleObject takes what the hub has of one object.
func (e *Engine) handleObject(r resource.Resource) {
	key, err := wire.ParsePodObjectKey(r.Key)
	if err != nil {
		e.log.Error(err, "hub sent an object of pods that cannot be read", "object", r.Key)
		return
	}
	body, err := wire.DecodePodObject(r.Body)
	if err != nil {
		e.log.Error(err, "hub sent an object of pods that cannot be read", "object", r.Key)
		return
	}
	e.setDesiredObject(key, &body)
}

// setDesiredObject takes what a copy is to be, for those who use it.
func (e *Engine) setDesiredObject(key wire.PodObjectKey, want *wire.PodObject) {
	e.mu.Lock()
	defer e.mu.Unlock()
	o := e.getOrCreateObject(key)
	o.desired = want
	e.queue.Add(queueItem{object: key})
	for at := range o.users {
		if en := e.pods[at]; en != nil && (en.live == nil || en.applied != en.desired) {
			e.queue.Add(queueItem{pod: at})
		}
	}
}

// handleObjectDeleted: no pod of the hub refers to it any more. A copy stays for those
// that are still here.
func (e *Engine) handleObjectDeleted(key string) {
	if k, err := wire.ParsePodObjectKey(key); err == nil {
		e.clearDesiredObject(k)
	}
}

// clearDesiredObject forgets what a copy is to be.
func (e *Engine) clearDesiredObject(key wire.PodObjectKey) {
	e.mu.Lock()
	defer e.mu.Unlock()
	o, ok := e.objects[key]
	if !ok {
		return
	}
	o.desired, o.synced = nil, nil
	if len(o.users) == 0 && !o.mayExist {
		delete(e.objects, key)
	}
}

// reconcileObject brings a copy up to date for pods that are there, or removes it. A copy for
// those that are not is theirs to make.
func (e *Engine) reconcileObject(ctx context.Context, key wire.PodObjectKey) error {
	e.mu.Lock()
	o, ok := e.objects[key]
	busy := ok && e.podsListed && (len(o.users) == 0 || o.desired != nil && slices.ContainsFunc(e.podsUsing(o), func(en *podState) bool { return en.live != nil }))
	e.mu.Unlock()
	if !busy {
		return nil
	}
	err := e.syncCopy(ctx, key)
	if err != nil && !isCanceled(ctx) {
		e.warnUsers(o, err)
	}
	return err
}

// podsUsing an object; e.mu is held.
func (e *Engine) podsUsing(o *copyState) []*podState {
	var out []*podState
	for at := range o.users {
		if en := e.pods[at]; en != nil {
			out = append(out, en)
		}
	}
	return out
}

// syncCopy brings the copy of an object to what the hub has, or removes it when it has
// no user. The error is a [*RefusedError] when the name is taken.
func (e *Engine) syncCopy(ctx context.Context, key wire.PodObjectKey) error {
	e.mu.Lock()
	o, ok := e.objects[key]
	e.mu.Unlock()
	if !ok {
		return errObjectUnknown
	}
	o.writeMu.Lock()
	defer o.writeMu.Unlock()
	e.mu.Lock()
	want, users, used := o.desired, len(o.users), o.mayExist
	settled := want == o.synced && time.Since(o.syncedAt) < copyCheckInterval
	e.mu.Unlock()
	switch {
	case users == 0 && !used:
		return nil
	case users == 0:
		return e.deleteCopy(ctx, o)
	case want == nil:
		return errObjectUnknown
	case settled:
		return nil
	}
	if err := e.writeCopy(ctx, key, want); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if o.desired == want {
		o.synced, o.syncedAt = want, time.Now()
	}
	return nil
}

// checkNameFree tells that the name of a copy is not taken by somebody else. The error is
// a [*RefusedError] when it is.
func (e *Engine) checkNameFree(ctx context.Context, key wire.PodObjectKey) error {
	e.mu.Lock()
	o, ok := e.objects[key]
	known := ok && o.synced != nil && o.synced == o.desired
	e.mu.Unlock()
	if known {
		return nil
	}
	at := e.copyNamespacedName(key)
	found, err := e.spoke.copyStore(key.Kind).get(ctx, at)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return readError(wrapCopyError(key, err))
	case !e.isOurCopy(key, found):
		return nameTaken(key.Kind, at.Name, at.Namespace)
	default:
		return nil
	}
}

// invalidateCopies takes that a namespace of the spoke has nothing in it.
func (e *Engine) invalidateCopies(namespace string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for key, o := range e.objects {
		if e.cfg.Prefix+key.Namespace == namespace {
			o.synced = nil
		}
	}
}

// deleteCopy removes the copy of an object without users; o.writing is held.
func (e *Engine) deleteCopy(ctx context.Context, o *copyState) error {
	// Without a user whatever copy of this object is there is left over, also one that
	// was made with another prefix.
	if err := e.spoke.deleteCopy(ctx, e.cfg.HubID, o.key, e.copyNamespacedName(o.key)); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	o.synced = nil
	if len(o.users) > 0 {
		return nil // whose pod writes it anew
	}
	o.mayExist = false
	if o.desired == nil {
		delete(e.objects, o.key)
	}
	return nil
}

// writeCopy makes the copy equal to the hub's object; its writing is held.
func (e *Engine) writeCopy(ctx context.Context, key wire.PodObjectKey, want *wire.PodObject) error {
	store := e.spoke.copyStore(key.Kind)
	at := e.copyNamespacedName(key)
	c := e.newCopy(key, want)
	if !want.Missing {
		err := store.create(ctx, at, c)
		if !apierrors.IsAlreadyExists(err) {
			return wrapCopyError(key, err)
		}
	}
	return wrapCopyError(key, e.replaceCopy(ctx, store, at, key, c))
}

// wrapCopyError names the object that an answer of the API server is about.
func wrapCopyError(key wire.PodObjectKey, err error) error {
	var refused *RefusedError
	if err == nil || errors.As(err, &refused) {
		return err
	}
	return fmt.Errorf("copy of %s: %w", key, err)
}

// replaceCopy changes what is there.
func (e *Engine) replaceCopy(ctx context.Context, store copyStore, at namespacedName, key wire.PodObjectKey, want *objectCopy) error {
	found, err := store.get(ctx, at)
	if apierrors.IsNotFound(err) && want.object.Missing {
		return nil
	}
	if err != nil {
		return err
	}
	if !e.isOurCopy(key, found) {
		// Also when the hub has none: the pod asked for the hub's, not for this.
		return nameTaken(key.Kind, at.Name, at.Namespace)
	}
	e.keepUnsentTokens(key, found, want)
	if !want.object.Missing && found.hasContentOf(want) {
		return nil
	}
	if !want.object.Missing && found.canUpdateTo(want) {
		want.uid, want.version = found.uid, found.version
		return store.update(ctx, at, want)
	}
	if err := store.delete(ctx, at, found); err != nil || want.object.Missing {
		return ignoreNotFound(err)
	}
	return store.create(ctx, at, want)
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// isOurCopy tells whether what was found is our copy of an object.
func (e *Engine) isOurCopy(key wire.PodObjectKey, found *objectCopy) bool {
	return found.hubID == e.cfg.HubID && found.source == key.String()
}

func (e *Engine) newCopy(key wire.PodObjectKey, want *wire.PodObject) *objectCopy {
	r := &objectCopy{hubID: e.cfg.HubID, source: key.String(), object: *want}
	switch {
	case key.Kind != wire.PodObjectSecret:
	case r.object.Type == "", r.object.Type == corev1.SecretTypeServiceAccountToken:
		// A token of the hub is of no account here, and would be removed as such.
		r.object.Type = corev1.SecretTypeOpaque
	}
	return r
}

// objectCopy is a copy in the spoke.
type objectCopy struct {
	uid     types.UID
	version string
	// hubID and of are the marks.
	hubID, source string
	object        wire.PodObject
}

// isCopyOf tells whether it is a copy of an object of that name, in whichever namespace.
func (r *objectCopy) isCopyOf(key wire.PodObjectKey) bool {
	return strings.HasPrefix(r.source, key.Kind+"/") && strings.HasSuffix(r.source, "/"+key.Name)
}

// hasContentOf tells whether the spoke has what the hub has.
func (r *objectCopy) hasContentOf(want *objectCopy) bool {
	a, b := r.object, want.object
	return a.Type == b.Type && a.Immutable == b.Immutable &&
		maps.Equal(a.Text, b.Text) && maps.EqualFunc(a.Data, b.Data, bytes.Equal)
}

// canUpdateTo tells whether the API server lets what is there become what is wanted.
func (r *objectCopy) canUpdateTo(want *objectCopy) bool {
	return !r.object.Immutable && r.object.Type == want.object.Type
}
