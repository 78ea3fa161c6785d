// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is sync.spokelet.io/v1alpha1.
var GroupVersion = schema.GroupVersion{Group: "sync.spokelet.io", Version: "v1alpha1"}

// AddToScheme registers the types of this package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &SharedResource{}, &SharedResourceList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
