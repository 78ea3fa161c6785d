// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/agent/pod/translate"
)

func TestDuplicateOfACopyIsNoCopy(t *testing.T) {
	cases := map[string]struct {
		reason                    string
		resource, namespace, name string
		of                        string
		want                      bool
	}{
		"a ConfigMap":            {reason: "the agent made it", resource: "configmaps", namespace: "shop", name: "settings", of: "configmap/shop/settings", want: true},
		"a Secret with a prefix": {reason: "the agent made it", resource: "secrets", namespace: "eu-shop", name: "key", of: "secret/shop/key", want: true},
		"the Secret of tokens":   {reason: "the agent made it, by its own name", resource: "secrets", namespace: "shop", name: translate.TokenSecret("uid-web"), of: "token/shop/uid-web", want: true},
		"the hub's root CA":      {reason: "the agent made it, by its own name", resource: "configmaps", namespace: "shop", name: translate.HubRootCA, of: "configmap/shop/kube-root-ca.crt", want: true},
		"the spoke's root CA":    {reason: "it is Kubernetes'", resource: "configmaps", namespace: "shop", name: "kube-root-ca.crt", of: "configmap/shop/kube-root-ca.crt"},
		"another name":           {reason: "somebody made it of a copy", resource: "configmaps", namespace: "shop", name: "mine", of: "configmap/shop/settings"},
		"another kind":           {reason: "somebody made it of a copy", resource: "secrets", namespace: "shop", name: "settings", of: "configmap/shop/settings"},
		"another namespace":      {reason: "somebody made it of a copy", resource: "configmaps", namespace: "mine", name: "settings", of: "configmap/shop/settings"},
		"an unknown kind":        {reason: "no agent writes that", resource: "configmaps", namespace: "shop", name: "settings", of: "pod/shop/settings"},
		"no namespace":           {reason: "no agent writes that", resource: "configmaps", namespace: "shop", name: "settings", of: "configmap//settings"},
		"more than three parts":  {reason: "no agent writes that", resource: "configmaps", namespace: "shop", name: "settings", of: "configmap/shop/settings/more"},
		"no annotation":          {reason: "somebody has the label alone", resource: "configmaps", namespace: "shop", name: "settings"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			found := &metav1.ObjectMeta{Namespace: tc.namespace, Name: tc.name, Annotations: map[string]string{AnnotationHubObject: tc.of}}
			if got := isCopy(tc.resource, found); got != tc.want {
				t.Errorf("%s: it is a copy: %t", tc.reason, got)
			}
		})
	}
}
