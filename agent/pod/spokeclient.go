// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"errors"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/discovery"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	typedrbacv1 "k8s.io/client-go/kubernetes/typed/rbac/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/spokelet/spokelet/agent/pod/translate"
	"github.com/spokelet/spokelet/internal/watcher"
)

// spokeClient is the spoke's API server as the pods' account sees it: every request goes
// out under that name, over one connection pool.
type spokeClient struct {
	core typedcorev1.CoreV1Interface
	rbac typedrbacv1.RbacV1Interface
	// discovery are those that the API server serves, names the metadata of their objects.
	discovery  discovery.DiscoveryInterfaceWithContext
	metadata   metadata.Interface
	httpClient *http.Client
}

// newSpokeClient impersonates user when it is not empty.
func newSpokeClient(cfg *rest.Config, user string) (*spokeClient, error) {
	cfg = rest.CopyConfig(cfg)
	// The API server's priority and fairness is the limiter.
	cfg.QPS, cfg.Burst, cfg.RateLimiter = -1, 0, nil
	cfg.ContentType = runtime.ContentTypeProtobuf
	cfg.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	if user != "" {
		cfg.Impersonate = rest.ImpersonationConfig{UserName: user}
	}
	pool, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("client of the cluster: %w", err)
	}
	s := &spokeClient{httpClient: pool}
	var errs [4]error
	s.core, errs[0] = typedcorev1.NewForConfigAndClient(cfg, pool)
	s.rbac, errs[1] = typedrbacv1.NewForConfigAndClient(cfg, pool)
	s.discovery, errs[2] = discovery.NewDiscoveryClientForConfigAndClient(cfg, pool)
	s.metadata, errs[3] = metadata.NewForConfigAndClient(cfg, pool)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("client of the cluster: %w", err)
	}
	return s, nil
}

// close gives up idle connections.
func (s *spokeClient) close() { utilnet.CloseIdleConnectionsFor(s.httpClient.Transport) }

// pods are those of a hub, in all namespaces.
func (s *spokeClient) pods(hubID string) watcher.ListWatch {
	selector := labels.Set{translate.LabelHub: hubID}.String() + "," + translate.LabelHubPodUID
	return watcher.NewListWatch(s.core.Pods(metav1.NamespaceAll), func(o *metav1.ListOptions) { o.LabelSelector = selector })
}

// events are those of a namespace about pods.
func (s *spokeClient) events(namespace string) watcher.ListWatch {
	selector := fields.Set{"involvedObject.kind": "Pod"}.String()
	return watcher.NewListWatch(s.core.Events(namespace), func(o *metav1.ListOptions) { o.FieldSelector = selector })
}

// allowedNamespaces are the namespaces whose owner lets pods in, and no others.
func (s *spokeClient) allowedNamespaces() watcher.ListWatch {
	selector := labels.Set{LabelPods: PodsAllowed}.String()
	return watcher.NewListWatch(s.core.Namespaces(), func(o *metav1.ListOptions) { o.LabelSelector = selector })
}

// createdNamespaces are the namespaces that were made for pods.
func (s *spokeClient) createdNamespaces() watcher.ListWatch {
	selector := labels.Set{LabelCreatedBy: Creator}.String()
	return watcher.NewListWatch(s.core.Namespaces(), func(o *metav1.ListOptions) { o.LabelSelector = selector })
}
