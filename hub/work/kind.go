// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// item is a stored work of any kind.
type item interface {
	// object is what is read and written.
	object() client.Object
	// wire is what the agent is sent.
	wire() wire.Work
	reported
}

// reported is the status of a work.
type reported interface {
	// status is a copy; what it refers to is not written to.
	status() any
	// conditions are the work's own.
	conditions() *[]metav1.Condition
	// merge brings a report into the status and leaves what was there as it was.
	merge(r wire.WorkStatus, now metav1.Time)
	// dropManifests leaves manifests out of the status until its JSON is shorter by so
	// many bytes, or nothing is left of them.
	dropManifests(by int) (left, total int)
}

// kind is what tells the works of one API from those of another.
type kind struct {
	// name is the first part of a work's key.
	name string
	// finalizer holds a work until its objects are gone from the spoke.
	finalizer string
	// failed is the reason of Applied for a work that cannot be sent, and failure
	// what its message begins with.
	failed, failure string
	// maxName bounds names: 0 is what Kubernetes allows.
	maxName int
	// shared: who serves the works of this API outside of our clusters' namespaces
	// is not our business.
	shared bool
	// changes are those beside a new generation that the agent must hear of.
	changes predicate.Predicate

	blank func() item
	// of is a work that somebody else has: a copy, for all but what it refers to.
	of   func(client.Object) (item, bool)
	list func() client.ObjectList
}

func (k *kind) key(name types.NamespacedName) wire.WorkKey {
	return wire.WorkKey{Dialect: k.name, Namespace: name.Namespace, Name: name.Name}
}

func (k *kind) keyOf(obj client.Object) wire.WorkKey { return k.key(client.ObjectKeyFromObject(obj)) }

// encode makes what is published of a work.
func (k *kind) encode(it item) (resource.Resource, error) { return k.encodeBody(it, it.wire()) }

func (k *kind) encodeBody(it item, work wire.Work) (resource.Resource, error) {
	body, err := json.Marshal(work)
	if err != nil {
		return resource.Resource{}, fmt.Errorf("encode work: %w", err)
	}
	obj := it.object()
	return resource.Resource{Key: k.keyOf(obj).String(), UID: string(obj.GetUID()), Generation: obj.GetGeneration(), Body: body}, nil
}

func namespacedName(key wire.WorkKey) types.NamespacedName {
	return types.NamespacedName{Namespace: key.Namespace, Name: key.Name}
}
