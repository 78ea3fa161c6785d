// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
)

// hasValidNames reports whether the resource is named as Kubernetes has those of a
// CustomResourceDefinition named: 63 characters of a DNS label at most. Its kind is
// copied in front of each item of an answer and into JSON, and its names into paths
// and messages; they are the cluster's to choose. The singular name may be missing.
func (r resource) hasValidNames() bool {
	return isLabel(r.plural) && isLabel(strings.ToLower(r.kind)) && (r.singular == "" || isLabel(r.singular)) &&
		!slices.ContainsFunc(r.shortNames, func(name string) bool { return !isLabel(name) })
}

// isValidVersion reports whether a group version is named as Kubernetes has it: a
// DNS subdomain of 253 characters at most, or nothing for the core group, and a label.
func isValidVersion(gv schema.GroupVersion) bool {
	return isLabel(gv.Version) && (gv.Group == "" || len(validation.IsDNS1123Subdomain(gv.Group)) == 0)
}

func isLabel(s string) bool { return len(validation.IsDNS1035Label(s)) == 0 }
