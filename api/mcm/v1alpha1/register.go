// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is mcm.ibm.com/v1alpha1.
var GroupVersion = schema.GroupVersion{Group: "mcm.ibm.com", Version: "v1alpha1"}

// Labels and annotations of the original, on the Works that a WorkSet or a ResourceView
// makes.
const (
	// LabelCluster names the cluster.
	LabelCluster = "mcm.ibm.com/cluster"
	// LabelResourceView and LabelWorkSet name the parent, as "<namespace>.<name>".
	LabelResourceView = "mcm.ibm.com/resourceview"
	LabelWorkSet      = "mcm.ibm.com/workset"
	// AnnotationOwners names the parent, as "<kind>.<namespace>.<name>".
	AnnotationOwners = "mcm.ibm.com/owners"
	// AnnotationOwnerUID is the parent's UID, which is ours: a parent that is made anew under
	// its name has Works of its own, and what they do is done again.
	AnnotationOwnerUID = "spokelet.io/owner-uid"
)

// AddToScheme registers the types of this package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &Work{}, &WorkList{}, &WorkSet{}, &WorkSetList{}, &ResourceView{}, &ResourceViewList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
