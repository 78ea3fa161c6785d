// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A rule defines which fields of a kind a manifest decides. The zero rule, of all kinds
// without another, is all content.
type rule struct {
	// fields at the top level that the manifest decides; nil for all.
	fields []field
	// prepare completes required with what it leaves to others, in the form in which
	// the API server stores it; it may share parts with both, and changes neither.
	prepare func(required, live map[string]any) (map[string]any, error)
	// requiresRecreate tells whether what differs can only be had by a new object.
	requiresRecreate func(required, live map[string]any) bool
	// metadataOnly: only metadata counts.
	metadataOnly bool
}

// A field is one at the top level of an object.
type field struct {
	name string
	// exact: what required has not goes, and a missing field is an empty one.
	// Otherwise live may have more.
	exact bool
	// unordered: live has each element of the list, in any order; controllers add some.
	unordered bool
}

func unorderedFields(names ...string) []field {
	var out []field
	for _, name := range names {
		out = append(out, field{name: name, unordered: true})
	}
	return out
}

func partialFields(names ...string) []field {
	var out []field
	for _, name := range names {
		out = append(out, field{name: name})
	}
	return out
}

func exactFields(names ...string) []field {
	var out []field
	for _, name := range names {
		out = append(out, field{name: name, exact: true})
	}
	return out
}

const (
	rbac         = "rbac.authorization.k8s.io"
	storage      = "storage.k8s.io"
	admission    = "admissionregistration.k8s.io"
	extensions   = "apiextensions.k8s.io"
	tokenSecret  = string(corev1.SecretTypeServiceAccountToken)
	caBundleKey  = "ca-bundle.crt"
	injectBundle = "config.openshift.io/inject-trusted-cabundle"
)

var rules = map[schema.GroupKind]rule{
	{Kind: "Namespace"}:      {metadataOnly: true},
	{Kind: "Pod"}:            {fields: partialFields("spec"), prepare: preparePod},
	{Kind: "ServiceAccount"}: {fields: append(unorderedFields("imagePullSecrets"), partialFields("automountServiceAccountToken")...)},
	{Kind: "Service"}:        {fields: partialFields("spec")},
	{Kind: "ConfigMap"}:      {fields: append(exactFields("data", "binaryData"), partialFields("immutable")...), prepare: prepareConfigMap},
	{Kind: "Secret"}:         {fields: append(exactFields("data", "type"), partialFields("immutable")...), prepare: prepareSecret, requiresRecreate: secretRequiresRecreate},

	{Group: rbac, Kind: "Role"}:               {fields: exactFields("rules")},
	{Group: rbac, Kind: "ClusterRole"}:        {fields: exactFields("rules", "aggregationRule"), prepare: prepareClusterRole},
	{Group: rbac, Kind: "RoleBinding"}:        {fields: exactFields("subjects", "roleRef"), prepare: prepareBinding},
	{Group: rbac, Kind: "ClusterRoleBinding"}: {fields: exactFields("subjects", "roleRef"), prepare: prepareBinding},

	{Group: "networking.k8s.io", Kind: "NetworkPolicy"}:                 {fields: partialFields("spec")},
	{Group: "policy", Kind: "PodDisruptionBudget"}:                      {fields: partialFields("spec")},
	{Group: extensions, Kind: "CustomResourceDefinition"}:               {fields: partialFields("spec"), prepare: prepareDefinition},
	{Group: admission, Kind: "MutatingWebhookConfiguration"}:            {fields: partialFields("webhooks"), prepare: prepareWebhooks},
	{Group: admission, Kind: "ValidatingWebhookConfiguration"}:          {fields: partialFields("webhooks"), prepare: prepareWebhooks},
	{Group: admission, Kind: "ValidatingAdmissionPolicy"}:               {fields: partialFields("spec")},
	{Group: admission, Kind: "ValidatingAdmissionPolicyBinding"}:        {fields: partialFields("spec")},
	{Group: "storagemigration.k8s.io", Kind: "StorageVersionMigration"}: {fields: partialFields("spec")},
	{Group: storage, Kind: "CSIDriver"}:                                 {fields: partialFields("spec"), requiresRecreate: alwaysRecreate},
	{Group: storage, Kind: "StorageClass"}: {
		fields:           append(exactFields("parameters"), partialFields("provisioner", "reclaimPolicy", "volumeBindingMode", "mountOptions", "allowVolumeExpansion", "allowedTopologies")...),
		requiresRecreate: storageClassRequiresRecreate,
	},

	// These replace all, and repeat what was written once and must stay.
	{Group: "batch", Kind: "Job"}:   {prepare: prepareJob},
	{Kind: "PersistentVolumeClaim"}: {prepare: keepLiveFields("spec", "volumeName", "storageClassName", "volumeMode")},
	{Kind: "PersistentVolume"}:      {prepare: keepLiveFields("spec", "claimRef", "volumeMode")},
}

func ruleOf(gk schema.GroupKind) rule { return rules[gk] }

func (r rule) prepareRequired(required, live map[string]any) (map[string]any, error) {
	if r.prepare == nil {
		return required, nil
	}
	return r.prepare(required, live)
}

func (r rule) mustRecreate(required, live map[string]any) bool {
	return r.requiresRecreate != nil && r.requiresRecreate(required, live)
}

// isSatisfied tells whether live has what required says, but for metadata.
func (r rule) isSatisfied(required, live map[string]any) bool {
	l := newComparator(groupOf(required))
	if r.metadataOnly {
		return true
	}
	if r.fields == nil {
		for name, value := range required {
			if !slices.Contains(commonFields, name) && !l.includes(live[name], value, name) {
				return false
			}
		}
		return true
	}
	for _, f := range r.fields {
		if !f.isSatisfied(l, required[f.name], live[f.name]) {
			return false
		}
	}
	return true
}

func (f field) isSatisfied(l comparator, want, have any) bool {
	list, isList := want.([]any)
	switch {
	case f.exact:
		return equal(want, have)
	case f.unordered && isList:
		there, _ := have.([]any)
		return !slices.ContainsFunc(list, func(w any) bool {
			return !slices.ContainsFunc(there, func(h any) bool { return l.includes(h, w, f.name) })
		})
	default:
		return l.includes(have, want, f.name)
	}
}

// commonFields is what every object has besides its content.
var commonFields = []string{"apiVersion", "kind", "metadata", "status"}

// setContent gives next, a copy of live, the content of required.
func (r rule) setContent(next, required map[string]any) {
	next["apiVersion"] = required["apiVersion"]
	if r.metadataOnly {
		return
	}
	if r.fields == nil {
		for name := range next {
			if !slices.Contains(commonFields, name) {
				delete(next, name)
			}
		}
		for name, value := range required {
			if !slices.Contains(commonFields, name) {
				next[name] = value
			}
		}
		return
	}
	for _, f := range r.fields {
		value := required[f.name]
		switch {
		case value != nil:
			next[f.name] = value
		case f.exact:
			delete(next, f.name)
		}
	}
}
