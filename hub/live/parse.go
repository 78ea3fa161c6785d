// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	livev1alpha1 "github.com/spokelet/spokelet/api/live/v1alpha1"
)

// viewQuery is a ViewWork's spec, parsed.
type viewQuery struct {
	resource      resourceArg
	name          string
	namespace     string
	allNamespaces bool
	labels        string
	fields        string
	limit         int64
	continueToken string
	output        livev1alpha1.ViewWorkOutput
	clusters      labels.Selector // nil for the cluster of the namespace
}

// parseView checks a spec. Every error names its field.
func parseView(v *livev1alpha1.ViewWork) (*viewQuery, field.ErrorList) {
	spec, at := v.Spec, field.NewPath("spec")
	q := &viewQuery{
		name:          spec.Scope.Name,
		namespace:     spec.Scope.Namespace,
		allNamespaces: spec.Scope.AllNamespaces,
		limit:         spec.Scope.Limit,
		continueToken: spec.Scope.Continue,
		output:        spec.Output,
	}
	errs := q.parseScope(spec.Scope, at.Child("scope"))
	switch q.output {
	case "":
		q.output = livev1alpha1.OutputObjects
	case livev1alpha1.OutputObjects, livev1alpha1.OutputMetadata, livev1alpha1.OutputTable:
	default:
		errs = append(errs, field.NotSupported(at.Child("output"), q.output,
			[]livev1alpha1.ViewWorkOutput{livev1alpha1.OutputMetadata, livev1alpha1.OutputObjects, livev1alpha1.OutputTable}))
	}
	if spec.ClusterSelector != nil {
		selector, selectorErrs := parseSelector(spec.ClusterSelector, at.Child("clusterSelector"))
		q.clusters = selector
		errs = append(errs, selectorErrs...)
		if q.continueToken != "" {
			errs = append(errs, field.Forbidden(at.Child("scope", "continue"), "it goes on with the list of a single cluster"))
		}
	}
	return q, errs
}

func (q *viewQuery) parseScope(scope livev1alpha1.ViewWorkScope, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	arg, ok := parseResourceArg(scope.Resource)
	q.resource = arg
	if !ok {
		errs = append(errs, field.Invalid(at.Child("resource"), scope.Resource, "must be name, name.group or name.version.group"))
	}
	if q.name != "" {
		for _, msg := range content.IsPathSegmentName(q.name) {
			errs = append(errs, field.Invalid(at.Child("name"), q.name, msg))
		}
		errs = append(errs, validateSingleObject(scope, at)...)
	}
	if q.namespace != "" {
		for _, msg := range validation.IsDNS1123Label(q.namespace) {
			errs = append(errs, field.Invalid(at.Child("namespace"), q.namespace, msg))
		}
		if q.allNamespaces {
			errs = append(errs, field.Forbidden(at.Child("allNamespaces"), "it goes with no namespace"))
		}
	}
	if q.limit < 0 {
		errs = append(errs, field.Invalid(at.Child("limit"), q.limit, "must not be negative"))
	}
	return append(errs, q.parseSelectors(scope, at)...)
}

// validateSingleObject refuses what makes sense for lists alone.
func validateSingleObject(scope livev1alpha1.ViewWorkScope, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for name, set := range map[string]bool{
		"allNamespaces": scope.AllNamespaces,
		"labelSelector": scope.LabelSelector != nil,
		"fieldSelector": scope.FieldSelector != "",
		"limit":         scope.Limit != 0,
		"continue":      scope.Continue != "",
	} {
		if set {
			errs = append(errs, field.Forbidden(at.Child(name), "it goes with no name"))
		}
	}
	return errs
}

func (q *viewQuery) parseSelectors(scope livev1alpha1.ViewWorkScope, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if scope.LabelSelector != nil {
		selector, selectorErrs := parseSelector(scope.LabelSelector, at.Child("labelSelector"))
		errs = append(errs, selectorErrs...)
		if selector != nil {
			q.labels = selector.String()
		}
	}
	if scope.FieldSelector != "" {
		selector, err := fields.ParseSelector(scope.FieldSelector)
		if err != nil {
			return append(errs, field.Invalid(at.Child("fieldSelector"), scope.FieldSelector, err.Error()))
		}
		q.fields = selector.String()
	}
	return errs
}

func parseSelector(s *metav1.LabelSelector, at *field.Path) (labels.Selector, field.ErrorList) {
	if errs := metav1validation.ValidateLabelSelector(s, metav1validation.LabelSelectorValidationOptions{}, at); len(errs) > 0 {
		return nil, errs
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return nil, field.ErrorList{field.Invalid(at, s, err.Error())}
	}
	return selector, nil
}

// resourceArg is what was given for a resource. Of name.x.y it is not known
// whether x is a version; both readings are kept.
type resourceArg struct {
	raw       string
	name      string               // lower case
	versioned *schema.GroupVersion // name.version.group, if it can be read so
	group     string               // everything behind the first dot
	qualified bool                 // there is a dot
}

// parseResourceArg reads name, name.group or name.version.group.
func parseResourceArg(s string) (resourceArg, bool) {
	name, group, qualified := strings.Cut(s, ".")
	arg := resourceArg{raw: s, name: strings.ToLower(name), group: group, qualified: qualified}
	if !isLabel(arg.name) {
		return arg, false
	}
	if !qualified {
		return arg, true
	}
	// The core group is spelt as a version with nothing behind it: pods.v1.
	if len(validation.IsDNS1123Subdomain(strings.TrimSuffix(group, "."))) > 0 {
		return arg, false
	}
	version, rest, _ := strings.Cut(group, ".")
	arg.versioned = &schema.GroupVersion{Group: rest, Version: version}
	return arg, true
}
