// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package workagent

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/api/multicluster/v1alpha1"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/workconvert"
)

// kind is an API whose works are served, in one namespace of the hub.
type kind struct {
	dialect   string
	namespace string
	resource  schema.GroupVersionResource
	finalizer string
	// maxName is the length of the longest name that can be served; 0 is any.
	maxName int
	// failed and failure are what Applied says of a work that cannot be served.
	failed, failure string
	// blank returns an empty object, and blankList a list of them.
	blank     func() hubWork
	blankList func() runtime.Object
	client    rest.Interface
}

// hubWork is a work as the hub has it.
type hubWork interface {
	object() hubObject
	wire() wire.Work
	status() any
	// merge brings a report into the status.
	merge(r wire.WorkStatus, now metav1.Time)
	// withoutSpec returns the work without its spec.
	withoutSpec() hubWork
}

// hubObject is an object of a typed client.
type hubObject interface {
	metav1.Object
	runtime.Object
}

// kinds returns what a configuration asks for.
func kinds(cfg Config) ([]*kind, error) {
	hash := workconvert.HubHash(cfg.Hub.Host)
	all := []*kind{{
		dialect: wire.DialectManifestWork, namespace: cfg.Cluster, resource: schema.GroupVersion(workv1.GroupVersion).WithResource("manifestworks"),
		finalizer: workconvert.ManifestWorkFinalizer, maxName: workconvert.MaxManifestWorkName,
		failed: "AppliedManifestWorkFailed", failure: "Failed to apply manifest work",
		blank:     func() hubWork { return &manifestWork{hash: hash} },
		blankList: func() runtime.Object { return &workv1.ManifestWorkList{} },
	}}
	if cfg.WorkNamespace != "" {
		all = append(all, &kind{
			dialect: wire.DialectMulticluster, namespace: cfg.WorkNamespace, resource: v1alpha1.GroupVersion.WithResource("works"),
			finalizer: v1alpha1.WorkFinalizer, failed: "AppliedWorkFailed", failure: "Failed to apply work",
			blank:     func() hubWork { return &multiclusterWork{} },
			blankList: func() runtime.Object { return &v1alpha1.WorkList{} },
		})
	}
	scheme := runtime.NewScheme()
	if err := workv1.Install(scheme); err != nil {
		return nil, fmt.Errorf("types of works: %w", err)
	}
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("types of works: %w", err)
	}
	return all, connect(cfg.Hub, scheme, all)
}

// connect gives every kind its client, over one pool of connections.
func connect(cfg *rest.Config, scheme *runtime.Scheme, all []*kind) error {
	pool, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return fmt.Errorf("client of the hub: %w", err)
	}
	for _, k := range all {
		c := rest.CopyConfig(cfg)
		gv := k.resource.GroupVersion()
		c.GroupVersion, c.APIPath = &gv, "/apis"
		c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
		if k.client, err = rest.RESTClientForConfigAndClient(c, pool); err != nil {
			return fmt.Errorf("client of the hub: %w", err)
		}
	}
	return nil
}

func (k *kind) key(name string) wire.WorkKey {
	return wire.WorkKey{Dialect: k.dialect, Namespace: k.namespace, Name: name}
}

type manifestWork struct {
	workv1.ManifestWork

	hash string
}

func (m *manifestWork) object() hubObject { return &m.ManifestWork }
func (m *manifestWork) wire() wire.Work {
	return workconvert.FromManifestWork(&m.ManifestWork, m.hash, false)
}
func (m *manifestWork) status() any { return m.Status }

func (m *manifestWork) merge(r wire.WorkStatus, now metav1.Time) {
	m.Status = workconvert.MergeManifestWork(m.Status, r, now)
}

func (m *manifestWork) withoutSpec() hubWork {
	out := *m
	out.Spec = workv1.ManifestWorkSpec{}
	return &out
}

type multiclusterWork struct{ v1alpha1.Work }

func (m *multiclusterWork) object() hubObject { return &m.Work }
func (m *multiclusterWork) wire() wire.Work   { return workconvert.FromMulticluster(&m.Work) }
func (m *multiclusterWork) status() any       { return m.Status }

func (m *multiclusterWork) merge(r wire.WorkStatus, now metav1.Time) {
	m.Status = workconvert.MergeMulticluster(m.Status, r, now)
}

func (m *multiclusterWork) withoutSpec() hubWork {
	out := *m
	out.Spec = v1alpha1.WorkSpec{}
	return &out
}

// wrap wraps an object that a client of the kind has read.
func (k *kind) wrap(obj any) (hubWork, bool) {
	w := k.blank()
	switch obj := obj.(type) {
	case *workv1.ManifestWork:
		m, ok := w.(*manifestWork)
		if ok {
			m.ManifestWork = *obj
		}
		return w, ok
	case *v1alpha1.Work:
		m, ok := w.(*multiclusterWork)
		if ok {
			m.Work = *obj
		}
		return w, ok
	default:
		return nil, false
	}
}
