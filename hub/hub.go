// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	workv1 "open-cluster-management.io/api/work/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	actionv1beta1 "github.com/spokelet/spokelet/api/action/v1beta1"
	"github.com/spokelet/spokelet/api/config/v1alpha1"
	mcmv1alpha1 "github.com/spokelet/spokelet/api/mcm/v1alpha1"
	workv1alpha1 "github.com/spokelet/spokelet/api/multicluster/v1alpha1"
	syncv1alpha1 "github.com/spokelet/spokelet/api/sync/v1alpha1"
	viewv1beta1 "github.com/spokelet/spokelet/api/view/v1beta1"
	"github.com/spokelet/spokelet/hub/authority"
	"github.com/spokelet/spokelet/hub/fanout"
	"github.com/spokelet/spokelet/hub/mcm"
	"github.com/spokelet/spokelet/hub/placement"
	"github.com/spokelet/spokelet/hub/registration"
	"github.com/spokelet/spokelet/hub/requester"
	hubwork "github.com/spokelet/spokelet/hub/work"
	"github.com/spokelet/spokelet/internal/quota"
	"github.com/spokelet/spokelet/internal/ratelimit"
	"github.com/spokelet/spokelet/provider"
	"github.com/spokelet/spokelet/provider/pod"
	"github.com/spokelet/spokelet/tunnel"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// Options is what a hub runs with.
type Options struct {
	// Config is valid and defaulted.
	Config *v1alpha1.HubConfiguration
	// Client reaches the hub's API server, without a rate limit of its own.
	Client *rest.Config
	// Logger of the hub and its parts.
	Logger logr.Logger
	// Version is the version of the build.
	Version string
}

// hub is the parts of a running hub.
type hub struct {
	opts         Options
	kube         kubernetes.Interface
	dyn          dynamic.Interface
	mgr          ctrl.Manager
	authority    *authority.Authority
	sync         *resource.Hub
	hash         string
	works        *hubwork.Works
	registration *registration.Registration
	pods         *pod.Controller
	nodes        *provider.Provider
	// daemonSets are those of the hub that virtual nodes have to reckon with.
	daemonSets *placement.DaemonSets
	tunnel     *tunnel.Server
	ready      readiness
	// requesters is the registration of the webhook that records who asks for views and actions.
	requesters *requester.Registration
	// memory, shared and writes are what clusters may cost, each and together.
	memory *quota.Memory
	shared *quota.Memory
	writes *quota.Writes
	// streams are those of users in clusters' sessions: of pods and of clusters/proxy.
	streams *quota.Slots
	// logLimiter bounds what is logged about invalid node summaries of clusters.
	logLimiter ratelimit.LogLimiter
}

// gcPercent is how much the heap may grow between two collections, in percent
// of what lives; Go's default is 100. Nearly all of a hub's memory is
// connections at rest, of which little becomes garbage: collecting twice as
// often takes a third off the memory of each cluster.
const gcPercent = 50

// Run runs a hub until ctx ends or a part fails. It sets the process's pace of
// garbage collection, unless GOGC does.
func Run(ctx context.Context, opts Options) error {
	if _, set := os.LookupEnv("GOGC"); !set {
		debug.SetGCPercent(gcPercent)
	}
	h := &hub{opts: opts, sync: resource.NewHub(), requesters: &requester.Registration{}}
	for _, step := range []func(context.Context) error{
		h.addBudgets, h.addClients, h.install, h.resolveHubHash, h.addManager, h.addAuthority, h.addWorks, h.addPods, h.addNodes,
		h.addRegistration, h.addTunnel, h.addMCM, h.addSharing, h.addLive, h.addAdmission, h.startPublishing,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return h.mgr.Start(ctx)
}

// addClients makes the clients that the parts share.
func (h *hub) addClients(context.Context) error {
	var err error
	if h.kube, err = kubernetes.NewForConfig(h.opts.Client); err != nil {
		return fmt.Errorf("hub client: %w", err)
	}
	if h.dyn, err = dynamic.NewForConfig(h.opts.Client); err != nil {
		return fmt.Errorf("hub client: %w", err)
	}
	return nil
}

// newScheme knows the types that the hub reads and writes.
func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, clusterv1.Install, workv1.Install, workv1alpha1.AddToScheme,
		mcmv1alpha1.AddToScheme, viewv1beta1.AddToScheme, actionv1beta1.AddToScheme, syncv1alpha1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("scheme: %w", err)
		}
	}
	return scheme, nil
}

func (h *hub) addManager(context.Context) error {
	scheme, err := newScheme()
	if err != nil {
		return err
	}
	h.mgr, err = ctrl.NewManager(h.opts.Client, ctrl.Options{
		Scheme: scheme,
		Logger: h.opts.Logger,
		Cache:  cacheOptions(h.opts.Config.Namespace),
		Client: client.Options{Cache: &client.CacheOptions{
			// The hub's memory does not follow what others keep in it.
			DisableFor: []client.Object{&corev1.Secret{}, &corev1.ConfigMap{}},
		}},
		Metrics:                 metricsserver.Options{BindAddress: h.opts.Config.Listen.Metrics, ExtraHandlers: h.healthHandlers()},
		GracefulShutdownTimeout: shutdownTimeout(h.opts.Config.DrainGrace),
	})
	if err != nil {
		return fmt.Errorf("manager: %w", err)
	}
	return nil
}

// cacheOptions are what the hub keeps of objects. Who may write in one namespace chooses
// their number and their size: the hub's memory must not follow.
func cacheOptions(namespace string) cache.Options {
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			// A work is as large as its manifests: no second copy of them is kept.
			&workv1.ManifestWork{}: {Transform: stripCopies},
			&workv1alpha1.Work{}:   {Transform: stripCopies},
			// Of views and actions neither results nor large templates are.
			&mcmv1alpha1.Work{}:                   {Transform: mcm.Strip},
			&viewv1beta1.ManagedClusterView{}:     {Transform: mcm.Strip},
			&actionv1beta1.ManagedClusterAction{}: {Transform: mcm.Strip},
			&mcmv1alpha1.WorkSet{}:                {Transform: fanout.Strip},
			&mcmv1alpha1.ResourceView{}:           {Transform: fanout.Strip},
			&corev1.Secret{}:                      registration.TokensInCache(namespace),
		},
	}
}

// stripCopies takes from a work what nobody in the hub reads: who wrote which
// field, and what kubectl remembers of the work. The hub writes works by patches
// alone, so that both stay with the API server.
func stripCopies(in any) (any, error) {
	if work, ok := in.(client.Object); ok {
		work.SetManagedFields(nil)
		delete(work.GetAnnotations(), corev1.LastAppliedConfigAnnotation)
	}
	return in, nil
}

// addAuthority opens the CA and keeps following its Secret.
func (h *hub) addAuthority(ctx context.Context) error {
	var err error
	h.authority, err = authority.Open(ctx, authority.Config{
		Secrets:         h.kube.CoreV1(),
		Namespace:       h.opts.Config.Namespace,
		CertificateLife: h.opts.Config.Certificates.ClusterLife.Duration,
		Logger:          h.opts.Logger.WithName("authority"),
	})
	if err != nil {
		return err
	}
	return h.mgr.Add(h.authority)
}

func (h *hub) addRegistration(context.Context) error {
	var err error
	h.registration, err = registration.New(registration.Config{
		Client:    h.mgr.GetClient(),
		Live:      h.mgr.GetAPIReader(),
		Events:    h.mgr.GetEventRecorder("spokelet-hub"),
		Authority: h.authority,
		Works:     h.works,
		Nodes:     nodeRemover{h},
		// The tunnel is made after this, and serves only after the manager has
		// started.
		Disconnect:      func(cluster string, reason error) { h.tunnel.Disconnect(cluster, reason) },
		MarkTokenHolder: tunnel.MarkTokenHolder,
		HubNamespace:    h.opts.Config.Namespace,
		ReconnectGrace:  h.opts.Config.Nodes.ReconnectGrace.Duration,
		Writes:          h.writes,
		Registerer:      registerer(),
		Logger:          h.opts.Logger.WithName("registration"),
	})
	if err != nil {
		return err
	}
	return h.registration.SetupWithManager(h.mgr)
}
