// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is view.open-cluster-management.io/v1beta1.
var GroupVersion = schema.GroupVersion{Group: "view.open-cluster-management.io", Version: "v1beta1"}

// AddToScheme registers the types of this package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &ManagedClusterView{}, &ManagedClusterViewList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
