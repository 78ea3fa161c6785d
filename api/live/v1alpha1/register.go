// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the group of the live API.
const GroupName = "live.spokelet.io"

// SchemeGroupVersion is the group and version of this package's types.
var SchemeGroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1alpha1"}

// Resource qualifies a resource of the group.
func Resource(resource string) schema.GroupResource {
	return SchemeGroupVersion.WithResource(resource).GroupResource()
}

// AddToScheme registers the types of this package.
func AddToScheme(s *runtime.Scheme) error {
	AddKnownTypes(s, SchemeGroupVersion)
	metav1.AddToGroupVersion(s, SchemeGroupVersion)
	return nil
}

// AddKnownTypes registers the types of this package under gv. The API server
// needs them in its internal version too, there being only one version.
func AddKnownTypes(s *runtime.Scheme, gv schema.GroupVersion) {
	s.AddKnownTypes(gv, &Cluster{}, &ClusterList{}, &ClusterProxyOptions{}, &ViewWork{}, &ViewWorkList{})
}
