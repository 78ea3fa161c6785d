// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"crypto/tls"
	"errors"
	"net"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/hub/requester"
	"github.com/spokelet/spokelet/internal/rbacwatch"
)

const (
	// Path is where works in namespaces that the hub made are judged.
	Path = "/validate-work-open-cluster-management-io-v1-manifestwork"
	// AdoptedPath is where those in namespaces that others made are judged: the
	// works of clusters of another controller pass there.
	AdoptedPath = Path + "/adopted"
)

// DefaultManifestLimit is that of Open Cluster Management.
const DefaultManifestLimit = 500 << 10

// Clusters looks up whose a cluster is.
type Clusters interface {
	// Foreign is true for the namespace of a cluster that another controller
	// looks after. A namespace without a cluster is not foreign: its cluster may
	// come.
	Foreign(ctx context.Context, namespace string) (bool, error)
}

// ClustersFunc is Clusters.
type ClustersFunc func(ctx context.Context, namespace string) (bool, error)

// Foreign calls f.
func (f ClustersFunc) Foreign(ctx context.Context, namespace string) (bool, error) {
	return f(ctx, namespace)
}

// Usage is what a namespace holds of one resource.
type Usage struct {
	Objects int
	// Bytes are those of large templates.
	Bytes int64
}

// Stored counts what namespaces hold of the views and actions whose authors are recorded.
type Stored interface {
	Usage(ctx context.Context, resource metav1.GroupResource, namespace string) (Usage, error)
}

// StoredFunc is Stored.
type StoredFunc func(ctx context.Context, resource metav1.GroupResource, namespace string) (Usage, error)

// Usage calls f.
func (f StoredFunc) Usage(ctx context.Context, resource metav1.GroupResource, namespace string) (Usage, error) {
	return f(ctx, resource, namespace)
}

// Limits are those of views and actions: the hub holds all that there are.
type Limits struct {
	// Spec is how many bytes the spec of one may have.
	Spec int
	// Namespace is what a namespace may hold of each resource.
	Namespace Usage
}

// Config is what the server is made of.
type Config struct {
	// Listener accepts the connections of the API server. The server closes it.
	// Required by New.
	Listener net.Listener
	// Certificate is asked in every handshake, and so may rotate. Required by
	// New.
	Certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// Self is the name of the hub's own account, which may set the requester of an
	// object. Required.
	Self string
	// Registration is the one of the webhook that records authors. Required.
	Registration *requester.Registration
	// Access, Clusters and Stored are required.
	Access   rbacwatch.AccessReviewer
	Clusters Clusters
	Stored   Stored
	// Limits of views and actions. Required.
	Limits Limits
	// ManifestLimit is how many bytes the manifests of a work may have. Default
	// DefaultManifestLimit.
	ManifestLimit int
	// NilExecutorValidating asks for the right where a work has no executor, as
	// if it named klusterlet-work-sa in no namespace. Works of multicluster.x-k8s.io
	// have none.
	NilExecutorValidating bool
	Logger                logr.Logger
	Registerer            prometheus.Registerer
}

// Default fills what was left empty.
func (c *Config) Default() {
	if c.ManifestLimit == 0 {
		c.ManifestLimit = DefaultManifestLimit
	}
}

// Validate reports missing or contradictory fields.
func (c *Config) Validate() error {
	switch {
	case c.Listener == nil || c.Certificate == nil:
		return errors.New("admission: listener or certificate is missing")
	case c.Access == nil || c.Clusters == nil || c.Stored == nil:
		return errors.New("admission: access, clusters or what is stored are missing")
	case c.Limits.Spec <= 0 || c.Limits.Namespace.Objects <= 0 || c.Limits.Namespace.Bytes <= 0:
		return errors.New("admission: limits of views and actions are missing")
	case c.Registration == nil:
		return errors.New("admission: the registration of the webhook is missing")
	case c.Self == "":
		return errors.New("admission: the hub's own account is missing")
	case c.ManifestLimit < 0:
		return errors.New("admission: manifest limit is negative")
	}
	return nil
}
