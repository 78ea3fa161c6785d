// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	livev1alpha1 "github.com/spokelet/spokelet/api/live/v1alpha1"
)

// proxyStorage makes clusters/proxy known to discovery and OpenAPI.
type proxyStorage struct{ proxy *proxy }

var _ rest.Connecter = &proxyStorage{}

func (*proxyStorage) New() runtime.Object { return &livev1alpha1.ClusterProxyOptions{} }

func (*proxyStorage) Destroy() {}

func (s *proxyStorage) Connect(context.Context, string, runtime.Object, rest.Responder) (http.Handler, error) {
	return s.proxy, nil
}

func (*proxyStorage) NewConnectOptions() (options runtime.Object, subpath bool, subpathKey string) {
	return &livev1alpha1.ClusterProxyOptions{}, true, "path"
}

func (*proxyStorage) ConnectMethods() []string {
	return []string{
		http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut,
		http.MethodPatch, http.MethodDelete, http.MethodOptions,
	}
}
