// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package action

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/spokelet/spokelet/agent/mapping"
	"github.com/spokelet/spokelet/api/wire"
)

var (
	apps       = schema.GroupVersion{Group: "apps", Version: "v1"}
	batch      = schema.GroupVersion{Group: "batch", Version: "v1"}
	networking = schema.GroupVersion{Group: "networking.k8s.io", Version: "v1"}
	policy     = schema.GroupVersion{Group: "policy", Version: "v1"}
	rbac       = schema.GroupVersion{Group: "rbac.authorization.k8s.io", Version: "v1"}
)

// conversion converts a template of a removed version in place. It returns false if no rule
// can.
type conversion func(template *unstructured.Unstructured, verb wire.Verb) bool

type replacement struct {
	schema.GroupVersion

	convert conversion
}

// replacements has the versions that replace those which Kubernetes has removed, where a template
// can be converted by rule
// (https://kubernetes.io/docs/reference/using-api/deprecation-guide/).
var replacements = map[schema.GroupVersionKind]replacement{
	{Group: "extensions", Version: "v1beta1", Kind: "Deployment"}: {apps, convertWorkload},
	{Group: "extensions", Version: "v1beta1", Kind: "DaemonSet"}:  {apps, convertWorkload},
	{Group: "extensions", Version: "v1beta1", Kind: "ReplicaSet"}: {apps, convertWorkload},
	{Group: apps.Group, Version: "v1beta1", Kind: "Deployment"}:   {apps, convertWorkload},
	{Group: apps.Group, Version: "v1beta1", Kind: "StatefulSet"}:  {apps, convertWorkload},
	{Group: apps.Group, Version: "v1beta2", Kind: "Deployment"}:   {apps, convertWorkload},
	{Group: apps.Group, Version: "v1beta2", Kind: "DaemonSet"}:    {apps, convertWorkload},
	{Group: apps.Group, Version: "v1beta2", Kind: "ReplicaSet"}:   {apps, convertWorkload},
	{Group: apps.Group, Version: "v1beta2", Kind: "StatefulSet"}:  {apps, convertWorkload},

	{Group: "extensions", Version: "v1beta1", Kind: "Ingress"}:             {networking, convertIngress},
	{Group: networking.Group, Version: "v1beta1", Kind: "Ingress"}:         {networking, convertIngress},
	{Group: networking.Group, Version: "v1beta1", Kind: "IngressClass"}:    {networking, convertNothing},
	{Group: "extensions", Version: "v1beta1", Kind: "NetworkPolicy"}:       {networking, convertNothing},
	{Group: policy.Group, Version: "v1beta1", Kind: "PodDisruptionBudget"}: {policy, convertBudget},
	{Group: batch.Group, Version: "v1beta1", Kind: "CronJob"}:              {batch, convertNothing},

	{Group: rbac.Group, Version: "v1beta1", Kind: "Role"}:                {rbac, convertNothing},
	{Group: rbac.Group, Version: "v1beta1", Kind: "RoleBinding"}:         {rbac, convertNothing},
	{Group: rbac.Group, Version: "v1beta1", Kind: "ClusterRole"}:         {rbac, convertNothing},
	{Group: rbac.Group, Version: "v1beta1", Kind: "ClusterRoleBinding"}:  {rbac, convertNothing},
	{Group: rbac.Group, Version: "v1alpha1", Kind: "Role"}:               {rbac, convertNothing},
	{Group: rbac.Group, Version: "v1alpha1", Kind: "RoleBinding"}:        {rbac, convertSubjects},
	{Group: rbac.Group, Version: "v1alpha1", Kind: "ClusterRole"}:        {rbac, convertNothing},
	{Group: rbac.Group, Version: "v1alpha1", Kind: "ClusterRoleBinding"}: {rbac, convertSubjects},
}

// resolveVersion resolves the template's resource, in the replacing version if its own was removed.
func (e *Engine) resolveVersion(p *plan) (*meta.RESTMapping, error) {
	was := p.object.GroupVersionKind()
	m, err := e.cfg.Resources.Resource(targetOf(was))
	if !errors.Is(err, mapping.ErrNoMatch) {
		return m, err
	}
	s, ok := replacements[was]
	if !ok {
		return nil, e.suggestVersion(was, was.Group, err)
	}
	now := p.object.DeepCopy()
	now.SetGroupVersionKind(s.WithKind(was.Kind))
	if !s.convert(now, p.request.action.Verb) {
		return nil, e.suggestVersion(was, s.Group, err)
	}
	m, other := e.cfg.Resources.Resource(targetOf(now.GroupVersionKind()))
	if errors.Is(other, mapping.ErrNoMatch) {
		return nil, err // neither is served: the error names the template's version
	}
	if other != nil {
		return nil, other
	}
	p.object = now
	p.warnings.add(fmt.Sprintf("%s is used in place of %s, which is not served any more", s.GroupVersion, was.GroupVersion()))
	return m, nil
}

// suggestVersion adds the served version of a kind to an error, if there is one.
func (e *Engine) suggestVersion(was schema.GroupVersionKind, group string, cause error) error {
	m, err := e.cfg.Resources.Resource(wire.Target{Kind: was.Kind, Group: group})
	if err != nil {
		return cause
	}
	return &suggestion{cause: cause, use: m.GroupVersionKind.GroupVersion().String()}
}

// suggestion is an error that names the version to use.
type suggestion struct {
	cause error
	use   string
}

func (s *suggestion) Error() string { return s.cause.Error() + "; use " + s.use }
func (s *suggestion) Unwrap() error { return s.cause }

// replacementOf returns the version that replaces those of a kind.
func replacementOf(group, kind string) (schema.GroupVersion, bool) {
	for was, s := range replacements {
		if was.Group == group && was.Kind == kind {
			return s.GroupVersion, true // the same for all versions of a group
		}
	}
	return schema.GroupVersion{}, false
}

func targetOf(gvk schema.GroupVersionKind) wire.Target {
	return wire.Target{Kind: gvk.Kind, Group: gvk.Group, Version: gvk.Version}
}

func convertNothing(*unstructured.Unstructured, wire.Verb) bool { return true }

// convertWorkload sets the selector, whose default was the labels of the pods. An update
// leaves it unchanged: no selector can be changed.
func convertWorkload(obj *unstructured.Unstructured, verb wire.Verb) bool {
	spec, ok := obj.Object["spec"].(map[string]any)
	if !ok {
		return verb == wire.VerbUpdate && obj.Object["spec"] == nil
	}
	delete(spec, "rollbackTo")
	delete(spec, "templateGeneration")
	if spec["selector"] != nil {
		return true
	}
	delete(spec, "selector")
	if verb == wire.VerbUpdate {
		return true
	}
	labels, found, err := unstructured.NestedStringMap(spec, "template", "metadata", "labels")
	if err != nil || !found || len(labels) == 0 {
		return false
	}
	return unstructured.SetNestedStringMap(spec, labels, "selector", "matchLabels") == nil
}

// convertBudget refuses a selector that selected no pod, and now selects all of them.
func convertBudget(obj *unstructured.Unstructured, _ wire.Verb) bool {
	selector, found, err := unstructured.NestedMap(obj.Object, "spec", "selector")
	return err == nil && (!found || len(selector) > 0)
}

// convertSubjects sets the group of subjects, which was part of their apiVersion.
func convertSubjects(obj *unstructured.Unstructured, _ wire.Verb) bool {
	subjects, _ := obj.Object["subjects"].([]any)
	for _, s := range subjects {
		subject, ok := s.(map[string]any)
		if !ok || subject["kind"] == "User" && subject["name"] == "*" { // which was a group
			return false
		}
		version, _ := subject["apiVersion"].(string)
		delete(subject, "apiVersion")
		if group, _, ok := strings.Cut(version, "/"); ok {
			subject["apiGroup"] = group
		}
	}
	return true
}
