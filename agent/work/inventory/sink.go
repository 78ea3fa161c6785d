// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/spokelet/spokelet/agent/work/manifest"
)

// Scope is what one watch covers.
type Scope struct {
	schema.GroupVersionResource
	Namespace string
	// HasContent asks for the content of kinds that are watched as metadata else.
	HasContent bool
}

func scopeOf(t manifest.Target) Scope {
	return Scope{GroupVersionResource: t.GVR(), Namespace: t.Namespace}
}

func (s Scope) id(obj metav1.Object) manifest.ObjectID {
	return manifest.ObjectID{Group: s.Group, Resource: s.Resource, Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

// Sink feeds the table with what is in a scope.
type Sink struct {
	Inventory *Inventory
	Requeue   func(Requeue)
	Scope     Scope
	seen      map[manifest.ObjectID]struct{}
}

// HandleEvent implements watcher.Handler.
func (o *Sink) HandleEvent(obj metav1.Object, deleted bool) {
	id := o.Scope.id(obj)
	if !o.Inventory.has(id) {
		return // dropped before anything of it is kept
	}
	at := time.Now()
	if o.seen != nil {
		at = time.Time{} // of what is there when a watch begins nobody knows since when
	}
	if o.seen != nil && !deleted {
		o.seen[id] = struct{}{}
	}
	var readings []*Reading
	if full, ok := obj.(*unstructured.Unstructured); ok && !deleted {
		readings = ReadAll(o.Inventory.Readers(id), full)
	}
	o.Requeue(o.Inventory.handleEvent(id, NewObservedObject(obj), deleted, at, readings...))
}

// StartSync implements watcher.Handler.
func (o *Sink) StartSync() {
	o.Inventory.beginResync(o.Scope)
	o.seen = map[manifest.ObjectID]struct{}{}
}

// FinishSync implements watcher.Handler.
func (o *Sink) FinishSync(version string) {
	o.Requeue(o.Inventory.endResync(o.Scope, o.seen, version))
	o.seen = nil
}

// HandleDenied implements watcher.Handler.
func (o *Sink) HandleDenied(err error) {
	o.Requeue(o.Inventory.recordWatchError(o.Scope, err))
}
