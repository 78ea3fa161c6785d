// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/workconvert"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// kind has what the hub does with the works of one API.
type kind struct {
	workconvert.Kind

	// shared: who serves the works of this API outside of our clusters' namespaces
	// is not our business.
	shared bool
	// changes are those beside a new generation that the agent has to get.
	changes predicate.Predicate
}

// manifestWorks is work.open-cluster-management.io/v1 ManifestWork, whose anchor bears its
// labels.
func manifestWorks(hubHash string, healthy bool) *kind {
	return &kind{Kind: workconvert.ManifestWorks(hubHash, healthy), shared: true, changes: predicate.LabelChangedPredicate{}}
}

// multicluster is multicluster.x-k8s.io/v1alpha1 Work.
func multicluster() *kind { return &kind{Kind: workconvert.MulticlusterWorks()} }

func (k *kind) key(name types.NamespacedName) wire.WorkKey {
	return wire.WorkKey{Dialect: k.Name, Namespace: name.Namespace, Name: name.Name}
}

func (k *kind) keyOf(obj client.Object) wire.WorkKey { return k.key(client.ObjectKeyFromObject(obj)) }

// encode makes what is published of a work.
func (k *kind) encode(it workconvert.Work) (resource.Resource, error) {
	return k.encodeBody(it, it.Wire())
}

func (k *kind) encodeBody(it workconvert.Work, work wire.Work) (resource.Resource, error) {
	body, err := json.Marshal(work)
	if err != nil {
		return resource.Resource{}, fmt.Errorf("encode work: %w", err)
	}
	obj := it.Object()
	return resource.Resource{Key: k.keyOf(obj).String(), UID: string(obj.GetUID()), Generation: obj.GetGeneration(), Body: body}, nil
}

func namespacedName(key wire.WorkKey) types.NamespacedName {
	return types.NamespacedName{Namespace: key.Namespace, Name: key.Name}
}
