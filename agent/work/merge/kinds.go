// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A rule says what of a kind a manifest decides. The zero rule is that of the
// kinds without one: all content.
type rule struct {
	// fields decided at the top level, when there are not all.
	fields []field
	// prepare returns required with what it leaves to others, and in the form in
	// which the API server has it; it may share parts with both, and changes neither.
	prepare func(required, live map[string]any) (map[string]any, error)
	// fixed tells whether what differs can only be had by a new object.
	fixed func(required, live map[string]any) bool
	// nothing: only metadata counts.
	nothing bool
}

// A field is one at the top level of an object.
type field struct {
	name string
	// whole: what required has not goes, and a missing field is an empty one.
	// Otherwise live may have more.
	whole bool
	// among: live has each element of the list, in any order; controllers add some.
	among bool
}

func among(names ...string) []field {
	var out []field
	for _, name := range names {
		out = append(out, field{name: name, among: true})
	}
	return out
}

func part(names ...string) []field {
	var out []field
	for _, name := range names {
		out = append(out, field{name: name})
	}
	return out
}

func whole(names ...string) []field {
	var out []field
	for _, name := range names {
		out = append(out, field{name: name, whole: true})
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

var kinds = map[schema.GroupKind]rule{
	{Kind: "Namespace"}:      {nothing: true},
	{Kind: "Pod"}:            {fields: part("spec"), prepare: preparePod},
	{Kind: "ServiceAccount"}: {fields: append(among("imagePullSecrets"), part("automountServiceAccountToken")...)},
	{Kind: "Service"}:        {fields: part("spec")},
	{Kind: "ConfigMap"}:      {fields: append(whole("data", "binaryData"), part("immutable")...), prepare: prepareConfigMap},
	{Kind: "Secret"}:         {fields: append(whole("data", "type"), part("immutable")...), prepare: prepareSecret, fixed: fixedSecret},

	{Group: rbac, Kind: "Role"}:               {fields: whole("rules")},
	{Group: rbac, Kind: "ClusterRole"}:        {fields: whole("rules", "aggregationRule"), prepare: prepareClusterRole},
	{Group: rbac, Kind: "RoleBinding"}:        {fields: whole("subjects", "roleRef"), prepare: prepareBinding},
	{Group: rbac, Kind: "ClusterRoleBinding"}: {fields: whole("subjects", "roleRef"), prepare: prepareBinding},

	{Group: "networking.k8s.io", Kind: "NetworkPolicy"}:                 {fields: part("spec")},
	{Group: "policy", Kind: "PodDisruptionBudget"}:                      {fields: part("spec")},
	{Group: extensions, Kind: "CustomResourceDefinition"}:               {fields: part("spec"), prepare: prepareDefinition},
	{Group: admission, Kind: "MutatingWebhookConfiguration"}:            {fields: part("webhooks"), prepare: prepareWebhooks},
	{Group: admission, Kind: "ValidatingWebhookConfiguration"}:          {fields: part("webhooks"), prepare: prepareWebhooks},
	{Group: admission, Kind: "ValidatingAdmissionPolicy"}:               {fields: part("spec")},
	{Group: admission, Kind: "ValidatingAdmissionPolicyBinding"}:        {fields: part("spec")},
	{Group: "storagemigration.k8s.io", Kind: "StorageVersionMigration"}: {fields: part("spec")},
	{Group: storage, Kind: "CSIDriver"}:                                 {fields: part("spec"), fixed: always},
	{Group: storage, Kind: "StorageClass"}: {
		fields: append(whole("parameters"), part("provisioner", "reclaimPolicy", "volumeBindingMode", "mountOptions", "allowVolumeExpansion", "allowedTopologies")...),
		fixed:  fixedStorageClass,
	},

	// These replace all, and repeat what was written once and must stay.
	{Group: "batch", Kind: "Job"}:   {prepare: prepareJob},
	{Kind: "PersistentVolumeClaim"}: {prepare: keep("spec", "volumeName", "storageClassName", "volumeMode")},
	{Kind: "PersistentVolume"}:      {prepare: keep("spec", "claimRef", "volumeMode")},
}

func ruleOf(gk schema.GroupKind) rule { return kinds[gk] }

func (r rule) prepared(required, live map[string]any) (map[string]any, error) {
	if r.prepare == nil {
		return required, nil
	}
	return r.prepare(required, live)
}

func (r rule) recreated(required, live map[string]any) bool {
	return r.fixed != nil && r.fixed(required, live)
}

// satisfied tells whether live has what required says, but for metadata.
func (r rule) satisfied(required, live map[string]any) bool {
	l := lensOf(groupOf(required))
	if r.nothing {
		return true
	}
	if r.fields == nil {
		for name, value := range required {
			if !slices.Contains(envelope, name) && !l.covers(live[name], value, name) {
				return false
			}
		}
		return true
	}
	for _, f := range r.fields {
		if !f.satisfied(l, required[f.name], live[f.name]) {
			return false
		}
	}
	return true
}

func (f field) satisfied(l lens, want, have any) bool {
	list, isList := want.([]any)
	switch {
	case f.whole:
		return equal(want, have)
	case f.among && isList:
		there, _ := have.([]any)
		return !slices.ContainsFunc(list, func(w any) bool {
			return !slices.ContainsFunc(there, func(h any) bool { return l.covers(h, w, f.name) })
		})
	default:
		return l.covers(have, want, f.name)
	}
}

// envelope is what every object has besides its content.
var envelope = []string{"apiVersion", "kind", "metadata", "status"}

// fill gives next, a copy of live, the content of required.
func (r rule) fill(next, required map[string]any) {
	next["apiVersion"] = required["apiVersion"]
	if r.nothing {
		return
	}
	if r.fields == nil {
		for name := range next {
			if !slices.Contains(envelope, name) {
				delete(next, name)
			}
		}
		for name, value := range required {
			if !slices.Contains(envelope, name) {
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
		case f.whole:
			delete(next, f.name)
		}
	}
}
