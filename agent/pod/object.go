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

// trust is how long a copy is taken to be as it was written. Copies are not watched:
// they are looked at again when a pod is made, or complains.
const trust = time.Minute

var errUntold = errors.New("hub has not told what it holds")

// object is a ConfigMap or a Secret that pods refer to.
type object struct {
	key wire.PodObjectKey

	// Guarded by Engine.mu; want is replaced and never changed.

	// want is nil until the hub has told.
	want  *wire.PodObject
	users map[place]struct{}
	// used: there may be a copy, for somebody used one.
	used bool
	// settled is the want that the copy was brought to, last seen so at checked.
	settled *wire.PodObject
	checked time.Time
	// complained is the want of the last events about it.
	complained *wire.PodObject

	// writing is held over requests.
	writing sync.Mutex
}

func (o *object) use(at place) {
	o.users[at] = struct{}{}
	o.used = true
}

// release tells whether that was the last user.
func (o *object) release(at place) bool {
	delete(o.users, at)
	return len(o.users) == 0
}

// objectAt returns an object, made if need be; e.mu is held.
func (e *Engine) objectAt(key wire.PodObjectKey) *object {
	if o, ok := e.objects[key]; ok {
		return o
	}
	o := &object{key: key, users: map[place]struct{}{}}
	e.objects[key] = o
	return o
}

// acceptObject takes what the hub has of one object.
func (e *Engine) acceptObject(r resource.Resource) {
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
	e.hold(key, &body)
}

// hold takes what a copy is to be, for those who use it.
func (e *Engine) hold(key wire.PodObjectKey, want *wire.PodObject) {
	e.mu.Lock()
	defer e.mu.Unlock()
	o := e.objectAt(key)
	o.want = want
	e.queue.Add(item{object: key})
	for at := range o.users {
		if en := e.entries[at]; en != nil && (en.live == nil || en.brought != en.want) {
			e.queue.Add(item{place: at})
		}
	}
}

// withdrawObject: no pod of the hub refers to it any more. A copy stays for those
// that are still here.
func (e *Engine) withdrawObject(key string) {
	if k, err := wire.ParsePodObjectKey(key); err == nil {
		e.release(k)
	}
}

// release forgets what a copy is to be.
func (e *Engine) release(key wire.PodObjectKey) {
	e.mu.Lock()
	defer e.mu.Unlock()
	o, ok := e.objects[key]
	if !ok {
		return
	}
	o.want, o.settled = nil, nil
	if len(o.users) == 0 && !o.used {
		delete(e.objects, key)
	}
}

// tend brings a copy up to date for pods that are there, or removes it. A copy for
// those that are not is theirs to make.
func (e *Engine) tend(ctx context.Context, key wire.PodObjectKey) error {
	e.mu.Lock()
	o, ok := e.objects[key]
	busy := ok && e.listed && (len(o.users) == 0 || o.want != nil && slices.ContainsFunc(e.usersOf(o), func(en *entry) bool { return en.live != nil }))
	e.mu.Unlock()
	if !busy {
		return nil
	}
	err := e.settle(ctx, key)
	if err != nil && !isStop(ctx) {
		e.complainOf(o, err)
	}
	return err
}

// usersOf an object; e.mu is held.
func (e *Engine) usersOf(o *object) []*entry {
	var out []*entry
	for at := range o.users {
		if en := e.entries[at]; en != nil {
			out = append(out, en)
		}
	}
	return out
}

// settle brings the copy of an object to what the hub has, or removes it when it has
// no user. The error is a [*RefusedError] when the name is taken.
func (e *Engine) settle(ctx context.Context, key wire.PodObjectKey) error {
	e.mu.Lock()
	o, ok := e.objects[key]
	e.mu.Unlock()
	if !ok {
		return errUntold
	}
	o.writing.Lock()
	defer o.writing.Unlock()
	e.mu.Lock()
	want, users, used := o.want, len(o.users), o.used
	settled := want == o.settled && time.Since(o.checked) < trust
	e.mu.Unlock()
	switch {
	case users == 0 && !used:
		return nil
	case users == 0:
		return e.discard(ctx, o)
	case want == nil:
		return errUntold
	case settled:
		return nil
	}
	if err := e.write(ctx, key, want); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if o.want == want {
		o.settled, o.checked = want, time.Now()
	}
	return nil
}

// unclaimed tells that the name of a copy is not taken by somebody else. The error is
// a [*RefusedError] when it is.
func (e *Engine) unclaimed(ctx context.Context, key wire.PodObjectKey) error {
	e.mu.Lock()
	o, ok := e.objects[key]
	known := ok && o.settled != nil && o.settled == o.want
	e.mu.Unlock()
	if known {
		return nil
	}
	at := e.copyAt(key)
	found, err := e.spoke.shelf(key.Kind).get(ctx, at)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return unread(aboutCopy(key, err))
	case !e.ours(key, found):
		return taken(key.Kind, at.Name, at.Namespace)
	default:
		return nil
	}
}

// unsettle takes that a namespace of the spoke has nothing in it.
func (e *Engine) unsettle(namespace string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for key, o := range e.objects {
		if e.cfg.Prefix+key.Namespace == namespace {
			o.settled = nil
		}
	}
}

// discard removes the copy of an object without users; o.writing is held.
func (e *Engine) discard(ctx context.Context, o *object) error {
	shelf := e.spoke.shelf(o.key.Kind)
	at := e.copyAt(o.key)
	found, err := shelf.get(ctx, at)
	// Without a user whatever copy of this object is there is left over, also one that
	// was made with another prefix.
	if err == nil && found.hub == e.cfg.HubID && found.isOf(o.key) {
		err = shelf.delete(ctx, at, found)
	}
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return aboutCopy(o.key, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	o.settled = nil
	if len(o.users) > 0 {
		return nil // whose pod writes it anew
	}
	o.used = false
	if o.want == nil {
		delete(e.objects, o.key)
	}
	return nil
}

// write makes the copy equal to the hub's object; its writing is held.
func (e *Engine) write(ctx context.Context, key wire.PodObjectKey, want *wire.PodObject) error {
	shelf := e.spoke.shelf(key.Kind)
	at := e.copyAt(key)
	c := e.copyOf(key, want)
	if !want.Missing {
		err := shelf.create(ctx, at, c)
		if !apierrors.IsAlreadyExists(err) {
			return aboutCopy(key, err)
		}
	}
	return aboutCopy(key, e.rewrite(ctx, shelf, at, key, c))
}

// aboutCopy names the object that an answer of the API server is about.
func aboutCopy(key wire.PodObjectKey, err error) error {
	var refused *RefusedError
	if err == nil || errors.As(err, &refused) {
		return err
	}
	return fmt.Errorf("copy of %s: %w", key, err)
}

// rewrite changes what is there.
func (e *Engine) rewrite(ctx context.Context, shelf shelf, at place, key wire.PodObjectKey, want *replica) error {
	found, err := shelf.get(ctx, at)
	if apierrors.IsNotFound(err) && want.object.Missing {
		return nil
	}
	if err != nil {
		return err
	}
	if !e.ours(key, found) {
		// Also when the hub has none: the pod asked for the hub's, not for this.
		return taken(key.Kind, at.Name, at.Namespace)
	}
	e.retain(key, found, want)
	if !want.object.Missing && found.equal(want) {
		return nil
	}
	if !want.object.Missing && found.changeable(want) {
		want.uid, want.version = found.uid, found.version
		return shelf.update(ctx, at, want)
	}
	if err := shelf.delete(ctx, at, found); err != nil || want.object.Missing {
		return ignoreNotFound(err)
	}
	return shelf.create(ctx, at, want)
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// ours tells whether what was found is our copy of an object.
func (e *Engine) ours(key wire.PodObjectKey, found *replica) bool {
	return found.hub == e.cfg.HubID && found.of == key.String()
}

func (e *Engine) copyOf(key wire.PodObjectKey, want *wire.PodObject) *replica {
	r := &replica{hub: e.cfg.HubID, of: key.String(), object: *want}
	switch {
	case key.Kind != wire.PodObjectSecret:
	case r.object.Type == "", r.object.Type == corev1.SecretTypeServiceAccountToken:
		// A token of the hub is of no account here, and would be removed as such.
		r.object.Type = corev1.SecretTypeOpaque
	}
	return r
}

// replica is a copy in the spoke.
type replica struct {
	uid     types.UID
	version string
	// hub and of are the marks.
	hub, of string
	object  wire.PodObject
}

// isOf tells whether it is a copy of an object of that name, in whichever namespace.
func (r *replica) isOf(key wire.PodObjectKey) bool {
	return strings.HasPrefix(r.of, key.Kind+"/") && strings.HasSuffix(r.of, "/"+key.Name)
}

// equal tells whether the spoke has what the hub has.
func (r *replica) equal(want *replica) bool {
	a, b := r.object, want.object
	return a.Type == b.Type && a.Immutable == b.Immutable &&
		maps.Equal(a.Text, b.Text) && maps.EqualFunc(a.Data, b.Data, bytes.Equal)
}

// changeable tells whether the API server lets what is there become what is wanted.
func (r *replica) changeable(want *replica) bool {
	return !r.object.Immutable && r.object.Type == want.object.Type
}
