// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"context"
	"encoding/json"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spokelet/spokelet/agent/sharing/merge"
	syncv1alpha1 "github.com/spokelet/spokelet/api/sync/v1alpha1"
	"github.com/spokelet/spokelet/api/wire"
)

// definitions is the resource of CustomResourceDefinitions.
func definitions() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
}

// definition is the part of the cluster's CustomResourceDefinition that sharing uses.
type definition struct {
	schema *merge.Schema
	// status: the status is a subresource.
	status bool
	// raw is the schema as JSON; a change of it is a change of the definition.
	raw string
}

// definitionName returns the name of the CustomResourceDefinition of a share.
func definitionName(spec *wire.Share) string { return spec.Resource + "." + spec.Group }

// parseDefinition parses a definition, or returns why it cannot be used.
func parseDefinition(obj *unstructured.Unstructured, spec *wire.Share) (*definition, *wire.ShareProblem) {
	var crd apiextensionsv1.CustomResourceDefinition
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, &crd); err != nil {
		return nil, clusterProblem(syncv1alpha1.ReasonDefinitionIncompatible, "definition %s cannot be read: %v", obj.GetName(), err)
	}
	if problem := definitionProblem(&crd, spec); problem != nil {
		return nil, problem
	}
	for i := range crd.Spec.Versions {
		v := &crd.Spec.Versions[i]
		if v.Name != spec.Version || !v.Served {
			continue
		}
		return newDefinition(&crd, v)
	}
	return nil, clusterProblem(syncv1alpha1.ReasonDefinitionIncompatible, "definition %s does not serve version %s", crd.Name, spec.Version)
}

func newDefinition(crd *apiextensionsv1.CustomResourceDefinition, v *apiextensionsv1.CustomResourceDefinitionVersion) (*definition, *wire.ShareProblem) {
	d := &definition{status: v.Subresources != nil && v.Subresources.Status != nil}
	var raw []byte
	var err error
	if v.Schema != nil && v.Schema.OpenAPIV3Schema != nil {
		if raw, err = json.Marshal(v.Schema.OpenAPIV3Schema); err != nil {
			return nil, clusterProblem(syncv1alpha1.ReasonDefinitionIncompatible, "schema of definition %s: %v", crd.Name, err)
		}
	}
	if d.schema, err = merge.NewSchema(raw); err != nil {
		return nil, clusterProblem(syncv1alpha1.ReasonDefinitionIncompatible, "schema of definition %s: %v", crd.Name, err)
	}
	d.raw = string(raw)
	return d, nil
}

// definitionProblem returns why no version of a definition can be used; nil if one can.
func definitionProblem(crd *apiextensionsv1.CustomResourceDefinition, spec *wire.Share) *wire.ShareProblem {
	established := false
	for _, c := range crd.Status.Conditions {
		if c.Type == apiextensionsv1.Established {
			established = c.Status == apiextensionsv1.ConditionTrue
		}
	}
	switch {
	case crd.DeletionTimestamp != nil:
		return clusterProblem(syncv1alpha1.ReasonDefinitionNotReady, "definition %s is being deleted", crd.Name)
	case !established:
		return clusterProblem(syncv1alpha1.ReasonDefinitionNotReady, "definition %s is not established", crd.Name)
	case crd.Spec.Scope != apiextensionsv1.NamespaceScoped:
		return clusterProblem(syncv1alpha1.ReasonDefinitionIncompatible, "definition %s is not namespaced", crd.Name)
	case crd.Spec.Names.Kind != spec.Kind:
		return clusterProblem(syncv1alpha1.ReasonDefinitionIncompatible, "definition %s is of kind %s, that of the hub of %s", crd.Name, crd.Spec.Names.Kind, spec.Kind)
	}
	return nil
}

func clusterProblem(reason, format string, args ...any) *wire.ShareProblem {
	return wire.NewShareProblem(reason, "cluster: "+fmt.Sprintf(format, args...))
}

// createMissingDefinition creates the definition if the share has one, and returns the problem
// that remains until it is established.
func (s *share) createMissingDefinition(ctx context.Context, spec *wire.Share) *wire.ShareProblem {
	name := definitionName(spec)
	if len(spec.Definition) == 0 {
		return clusterProblem(syncv1alpha1.ReasonDefinitionMissing, "definition %s does not exist", name)
	}
	if err := s.engine.createDefinition(ctx, name, spec.Definition); err != nil {
		reason := syncv1alpha1.ReasonDefinitionMissing
		if apierrors.IsForbidden(err) {
			reason = syncv1alpha1.ReasonRightsMissing
		}
		return clusterProblem(reason, "definition %s cannot be created: %v", name, err)
	}
	return clusterProblem(syncv1alpha1.ReasonDefinitionNotReady, "definition %s was created", name)
}

// createDefinition creates a definition by server-side apply, since only so a right to create
// can be limited to a name; a definition that somebody else has created meanwhile stays.
func (e *Engine) createDefinition(ctx context.Context, name string, raw json.RawMessage) error {
	obj := &unstructured.Unstructured{}
	if err := obj.UnmarshalJSON(raw); err != nil {
		return fmt.Errorf("decode: %w", err)
	}
	if obj.GetName() != name || obj.GetKind() != "CustomResourceDefinition" {
		return fmt.Errorf("it is %s %q", obj.GetKind(), obj.GetName())
	}
	if strategy, _, _ := unstructured.NestedString(obj.Object, "spec", "conversion", "strategy"); strategy == string(apiextensionsv1.WebhookConverter) {
		return fmt.Errorf("it converts by a webhook of the hub")
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, err := e.cfg.Objects.Resource(definitions()).Patch(ctx, name, types.ApplyPatchType, raw, metav1.PatchOptions{FieldManager: fieldManager})
	return err
}
