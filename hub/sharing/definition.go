// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"encoding/json"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spokelet/spokelet/api/sync/v1alpha1"
	"github.com/spokelet/spokelet/api/wire"
)

// definition is the part of a CustomResourceDefinition that plans depend on; schemas are not.
type definition struct {
	uid        types.UID
	version    string // resourceVersion
	kind       string
	namespaced bool
	// established: its objects are served. deleting: they are being deleted.
	established, deleting bool
	// webhook converts its objects.
	webhook  bool
	versions []definitionVersion
}

type definitionVersion struct {
	name            string
	served, storage bool
	// hasStatus is a subresource.
	hasStatus bool
}

func definitionsResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
}

// parseDefinition parses a definition; of an invalid one fields stay empty.
func parseDefinition(obj *unstructured.Unstructured) definition {
	d := definition{uid: obj.GetUID(), version: obj.GetResourceVersion(), deleting: obj.GetDeletionTimestamp() != nil}
	d.kind, _, _ = unstructured.NestedString(obj.Object, "spec", "names", "kind")
	scope, _, _ := unstructured.NestedString(obj.Object, "spec", "scope")
	d.namespaced = scope == "Namespaced"
	strategy, _, _ := unstructured.NestedString(obj.Object, "spec", "conversion", "strategy")
	d.webhook = strategy == "Webhook"
	d.established = hasTrueCondition(obj, "Established")
	versions, _, _ := unstructured.NestedFieldNoCopy(obj.Object, "spec", "versions")
	list, _ := versions.([]any)
	for _, v := range list {
		if m, ok := v.(map[string]any); ok {
			d.versions = append(d.versions, parseVersion(m))
		}
	}
	return d
}

func parseVersion(m map[string]any) definitionVersion {
	v := definitionVersion{}
	v.name, _, _ = unstructured.NestedString(m, "name")
	v.served, _, _ = unstructured.NestedBool(m, "served")
	v.storage, _, _ = unstructured.NestedBool(m, "storage")
	_, v.hasStatus, _ = unstructured.NestedFieldNoCopy(m, "subresources", "status")
	return v
}

func hasTrueCondition(obj *unstructured.Unstructured, kind string) bool {
	conditions, _, _ := unstructured.NestedFieldNoCopy(obj.Object, "status", "conditions")
	list, _ := conditions.([]any)
	return slices.ContainsFunc(list, func(c any) bool {
		m, ok := c.(map[string]any)
		return ok && m["type"] == kind && m["status"] == "True"
	})
}

// selectVersion returns the version that is shared: the requested one, or else the storage
// version.
func (d definition) selectVersion(version string) (definitionVersion, *wire.ShareProblem) {
	switch {
	case d.uid == "":
		return definitionVersion{}, wire.NewShareProblem(v1alpha1.ReasonDefinitionMissing, "there is no CustomResourceDefinition of the resource")
	case d.deleting:
		return definitionVersion{}, wire.NewShareProblem(v1alpha1.ReasonDefinitionNotReady, "the CustomResourceDefinition is being deleted")
	case !d.established:
		return definitionVersion{}, wire.NewShareProblem(v1alpha1.ReasonDefinitionNotReady, "the CustomResourceDefinition is not established")
	case !d.namespaced:
		return definitionVersion{}, wire.NewShareProblem(v1alpha1.ReasonDefinitionIncompatible, "the resource is not namespaced")
	}
	for _, v := range d.versions {
		if v.name == version || version == "" && v.storage {
			version = v.name
			if v.served {
				return v, nil
			}
		}
	}
	return definitionVersion{}, wire.NewShareProblem(v1alpha1.ReasonDefinitionIncompatible, fmt.Sprintf("version %q is not served", version))
}

// definitionSink is a watcher.Handler of all definitions.
type definitionSink struct {
	plans *planController
	// fresh are those of a list that is under way; nil outside one. It belongs to the watch.
	fresh map[string]definition
}

// StartSync begins a list.
func (d *definitionSink) StartSync() { d.fresh = map[string]definition{} }

// FinishSync ends a list.
func (d *definitionSink) FinishSync(string) {
	c := d.plans
	c.mu.Lock()
	c.state.definitions, c.state.definitionsRefused = d.fresh, nil
	c.mu.Unlock()
	d.fresh = nil
	c.planQueue.Add(planKey)
}

// HandleEvent handles a change of a definition.
func (d *definitionSink) HandleEvent(o metav1.Object, deleted bool) {
	obj, ok := o.(*unstructured.Unstructured)
	if !ok {
		return
	}
	if d.fresh != nil {
		updateDefinition(d.fresh, obj, deleted)
		return
	}
	d.plans.mu.Lock()
	updateDefinition(d.plans.state.definitions, obj, deleted)
	d.plans.mu.Unlock()
	d.plans.planQueue.Add(planKey)
}

func updateDefinition(all map[string]definition, obj *unstructured.Unstructured, deleted bool) {
	if deleted {
		delete(all, obj.GetName())
		return
	}
	all[obj.GetName()] = parseDefinition(obj)
}

// HandleDenied handles an error for which definitions cannot be watched.
func (d *definitionSink) HandleDenied(err error) {
	c := d.plans
	c.mu.Lock()
	c.state.definitionsRefused = wire.NewShareProblem(v1alpha1.ReasonRightsMissing, "CustomResourceDefinitions cannot be watched: "+err.Error())
	c.mu.Unlock()
	c.planQueue.Add(planKey)
}

// sentDefinition is a definition as clusters create it, and the version that it was made of.
type sentDefinition struct {
	source string // uid and resourceVersion
	raw    json.RawMessage
}

func byName(name string) string {
	return fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
}

// portableDefinition returns the part of a definition that another cluster can use.
func portableDefinition(obj *unstructured.Unstructured) (json.RawMessage, error) {
	spec, _, err := unstructured.NestedMap(obj.Object, "spec")
	if err != nil {
		return nil, err
	}
	delete(spec, "conversion") // the hub's webhook is not there
	return json.Marshal(map[string]any{
		"apiVersion": obj.GetAPIVersion(), "kind": obj.GetKind(),
		"metadata": map[string]any{"name": obj.GetName()}, "spec": spec,
	})
}
