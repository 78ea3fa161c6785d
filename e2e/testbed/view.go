// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"context"
	"strings"
	"testing"
)

const (
	// Alice is a user of the hub, and a member of platform.
	Alice = "alice"
	// Platform is the group of hers that the spokes' owners pass on.
	Platform = "platform"

	// ProxyPath is that of the first spoke's API server, through the hub.
	ProxyPath = "/apis/live.spokelet.io/v1alpha1/clusters/spoke1/proxy"
)

// ViewManifest is a ViewWork of a cluster.
func ViewManifest(cluster, spec string) string {
	return "apiVersion: live.spokelet.io/v1alpha1\nkind: ViewWork\nmetadata: {generateName: v-, namespace: " + cluster + "}\nspec: " + spec + "\n"
}

// aliceRights lets the members of a group look at a cluster, as far as the hub goes.
const aliceRights = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: spokelet-proxy}
rules: [{apiGroups: [live.spokelet.io], resources: [clusters, clusters/proxy], verbs: [get, list, watch, create]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: spokelet-proxy}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: spokelet-proxy}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: platform}]
`

// binding gives the cluster role "view" to a group, everywhere or in a namespace.
func binding(kind, namespace, group string) string {
	return "{apiVersion: rbac.authorization.k8s.io/v1, kind: " + kind + ", metadata: {name: " + Platform + ", namespace: \"" + namespace + "\"}, " +
		"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}, " +
		"subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: \"" + group + "\"}]}\n"
}

// LetAliceView gives alice the rights to look at both spokes, and waits until they are
// known: API servers judge by caches that new ones reach a moment later.
func (s *Testbed) LetAliceView(t *testing.T) {
	t.Helper()
	s.Hub.Apply(t, aliceRights)
	ctl := s.Hub.As(Alice, Platform)
	for _, spoke := range s.Spokes {
		spoke.Apply(t, binding("ClusterRoleBinding", "", "hub:"+Platform))
		s.LetPlatformView(t, spoke.Name)
		Until(t, "a view of "+spoke.Name+" for alice", Settle, func(ctx context.Context) error {
			view := ViewManifest(spoke.Name, `{scope: {resource: namespaces}, output: Metadata}`)
			_, err := ctl.RunInput(ctx, strings.NewReader(view), "create", "-f", "-")
			return err
		})
	}
	Until(t, "the proxy for alice", Settle, func(ctx context.Context) error {
		_, err := ctl.Run(ctx, "get", "--raw", ProxyPath+"/api/v1/namespaces")
		return err
	})
}

// LetPlatformView gives the group its right on the hub to views of one cluster.
func (s *Testbed) LetPlatformView(t *testing.T, cluster string) {
	t.Helper()
	s.Hub.Apply(t, binding("RoleBinding", cluster, Platform))
}
