// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
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
	"github.com/spokelet/spokelet/api/wire"
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

// copyStore is where copies of one kind are.
type copyStore interface {
	get(ctx context.Context, at namespacedName) (*objectCopy, error)
	create(ctx context.Context, at namespacedName, r *objectCopy) error
	// update replaces the version that r names.
	update(ctx context.Context, at namespacedName, r *objectCopy) error
	delete(ctx context.Context, at namespacedName, r *objectCopy) error
}

func (s *spokeClient) copyStore(kind string) copyStore {
	if kind == wire.PodObjectSecret || kind == kindToken {
		return secrets{s.core}
	}
	return configMaps{s.core}
}

// deleteOptions are the options of a deletion of nothing but what was seen.
func deleteOptions(r *objectCopy) metav1.DeleteOptions {
	return metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &r.uid}}
}

func (r *objectCopy) meta(at namespacedName) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: at.Name, Namespace: at.Namespace, ResourceVersion: r.version,
		Labels:      map[string]string{translate.LabelHub: r.hubID},
		Annotations: map[string]string{AnnotationHubObject: r.source},
	}
}

func newObjectCopy(meta *metav1.ObjectMeta, object wire.PodObject) *objectCopy {
	return &objectCopy{
		uid: meta.UID, version: meta.ResourceVersion,
		hubID: meta.Labels[translate.LabelHub], source: meta.Annotations[AnnotationHubObject],
		object: object,
	}
}

type configMaps struct{ core typedcorev1.CoreV1Interface }

func (c configMaps) get(ctx context.Context, at namespacedName) (*objectCopy, error) {
	found, err := c.core.ConfigMaps(at.Namespace).Get(ctx, at.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return newObjectCopy(&found.ObjectMeta, wire.PodObject{
		Text: found.Data, Data: found.BinaryData, Immutable: found.Immutable != nil && *found.Immutable,
	}), nil
}

func (c configMaps) create(ctx context.Context, at namespacedName, r *objectCopy) error {
	_, err := c.core.ConfigMaps(at.Namespace).Create(ctx, r.configMap(at), metav1.CreateOptions{})
	return err
}

func (c configMaps) update(ctx context.Context, at namespacedName, r *objectCopy) error {
	_, err := c.core.ConfigMaps(at.Namespace).Update(ctx, r.configMap(at), metav1.UpdateOptions{})
	return err
}

func (c configMaps) delete(ctx context.Context, at namespacedName, r *objectCopy) error {
	return c.core.ConfigMaps(at.Namespace).Delete(ctx, at.Name, deleteOptions(r))
}

func (r *objectCopy) configMap(at namespacedName) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: r.meta(at), Data: r.object.Text, BinaryData: r.object.Data, Immutable: &r.object.Immutable,
	}
}

type secrets struct{ core typedcorev1.CoreV1Interface }

func (s secrets) get(ctx context.Context, at namespacedName) (*objectCopy, error) {
	found, err := s.core.Secrets(at.Namespace).Get(ctx, at.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return newObjectCopy(&found.ObjectMeta, wire.PodObject{
		Type: found.Type, Data: found.Data, Immutable: found.Immutable != nil && *found.Immutable,
	}), nil
}

func (s secrets) create(ctx context.Context, at namespacedName, r *objectCopy) error {
	_, err := s.core.Secrets(at.Namespace).Create(ctx, r.secret(at), metav1.CreateOptions{})
	return err
}

func (s secrets) update(ctx context.Context, at namespacedName, r *objectCopy) error {
	_, err := s.core.Secrets(at.Namespace).Update(ctx, r.secret(at), metav1.UpdateOptions{})
	return err
}

func (s secrets) delete(ctx context.Context, at namespacedName, r *objectCopy) error {
	return s.core.Secrets(at.Namespace).Delete(ctx, at.Name, deleteOptions(r))
}

func (r *objectCopy) secret(at namespacedName) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: r.meta(at), Type: r.object.Type, Data: r.object.Data, Immutable: &r.object.Immutable}
}
