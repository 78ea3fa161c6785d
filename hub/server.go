// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/spokelet/spokelet/api/config/v1alpha1"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/hub/authority"
	"github.com/spokelet/spokelet/hub/live"
	"github.com/spokelet/spokelet/hub/registration"
	hubwork "github.com/spokelet/spokelet/hub/work"
	"github.com/spokelet/spokelet/provider"
	"github.com/spokelet/spokelet/provider/kubelet"
	"github.com/spokelet/spokelet/provider/pod"
	"github.com/spokelet/spokelet/tunnel"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// shutdownMargin is what the manager has after the streams were ended.
const shutdownMargin = 10 * time.Second

// registerer is the registry that the metrics server shows; it has the
// process's own metrics already.
func registerer() prometheus.Registerer { return metrics.Registry }

// shutdownTimeout leaves the manager a little longer than the streams have.
func shutdownTimeout(drain metav1.Duration) *time.Duration {
	d := drain.Duration + shutdownMargin
	return &d
}

// readiness is true while the public port serves.
type readiness struct{ atomic.Bool }

func (r *readiness) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	if r.Load() {
		return
	}
	http.Error(w, "public port is not served", http.StatusServiceUnavailable)
}

// healthHandlers serves liveness and readiness beside the metrics.
func (h *hub) healthHandlers() map[string]http.Handler {
	return map[string]http.Handler{
		"/healthz": http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
		"/readyz":  &h.ready,
	}
}

func (h *hub) addTunnel(context.Context) error {
	server, err := tunnel.NewServer(tunnel.ServerConfig{
		TLS:        h.authority.TLS,
		HubID:      h.authority.HubID(),
		Admission:  h.registration.Gate(),
		Issuer:     h.registration.Issuer(),
		Enroll:     h.registration.Enroller(),
		Logger:     h.opts.Logger.WithName("tunnel"),
		Registerer: registerer(),
		Version:    h.opts.Version,
		Limits:     tunnel.Limits{DrainGrace: h.opts.Config.DrainGrace.Duration},
	})
	if err != nil {
		return err
	}
	h.tunnel = server
	return errors.Join(
		h.mgr.Add(manager.RunnableFunc(h.serveTunnel)),
		h.mgr.Add(manager.RunnableFunc(h.watchSessions)),
	)
}

func (h *hub) serveTunnel(ctx context.Context) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", h.opts.Config.Listen.Public)
	if err != nil {
		return fmt.Errorf("public port: %w", err)
	}
	h.ready.Store(true)
	stop := context.AfterFunc(ctx, func() { h.ready.Store(false) })
	defer stop()
	return h.tunnel.Serve(ctx, listener)
}

func (h *hub) addWorks(context.Context) error {
	works, err := hubwork.New(hubwork.Config{
		Sync:       h.sync,
		Client:     h.mgr.GetClient(),
		Events:     h.mgr.GetEventRecorder("spokelet-hub"),
		Logger:     h.opts.Logger.WithName("work"),
		Registerer: registerer(),
		HubHash:    h.hash,
		Healthy:    h.opts.Config.Work.Healthy,
		Writes:     h.writes,
	})
	if err != nil {
		return err
	}
	h.works = works
	return works.SetupWithManager(h.mgr)
}

// nodeAddress is that of all virtual nodes and their pods.
func (h *hub) nodeAddress() (netip.Addr, error) {
	address, err := netip.ParseAddr(h.opts.Config.Nodes.Address)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("nodes.address: %w", err)
	}
	return address, nil
}

// addPods makes what keeps the pods of the virtual nodes.
func (h *hub) addPods(context.Context) error {
	address, err := h.nodeAddress()
	if err != nil {
		return err
	}
	pods, err := pod.New(pod.Config{
		Client:     h.kube,
		Sync:       h.sync,
		Address:    address,
		Writes:     h.writes,
		DaemonSets: h.opts.Config.Pods.DaemonSets,
		Objects:    pod.ObjectPolicy{Namespaces: h.opts.Config.Pods.Namespaces},
		Tokens: pod.TokenPolicy{
			Issue:      h.opts.Config.Pods.Tokens == v1alpha1.HubTokensHub,
			Namespaces: h.opts.Config.Pods.TokenNamespaces,
		},
		Logger:     h.opts.Logger.WithName("pod"),
		Registerer: registerer(),
	})
	if err != nil {
		return err
	}
	h.pods = pods
	return h.mgr.Add(pods)
}

// addNodes makes the virtual nodes, their kubelet endpoints, and what feeds
// them.
func (h *hub) addNodes(ctx context.Context) error {
	address, err := h.nodeAddress()
	if err != nil {
		return err
	}
	endpoints, err := h.newKubeletServer(ctx, address)
	if err != nil {
		return err
	}
	h.nodes, err = provider.New(provider.Config{
		Client:         h.kube,
		Links:          linkSource{h},
		Endpoints:      endpoints,
		Pods:           h.pods,
		DaemonSets:     h.daemonSets,
		Writes:         h.writes,
		Address:        address,
		PortMin:        h.opts.Config.Nodes.PortMin,
		PortMax:        h.opts.Config.Nodes.PortMax,
		ReconnectGrace: h.opts.Config.Nodes.ReconnectGrace.Duration,
		Logger:         h.opts.Logger.WithName("node"),
		Registerer:     registerer(),
	})
	if err != nil {
		return err
	}
	h.sync.Mirror(wire.NodeSummaryKind, resource.HubReceiver{
		Put: h.handleNodeSummary, Known: func(_, key string) bool { return key == wire.NodeSummaryKey },
	})
	h.sync.Mirror(wire.NodeGroupKind, resource.HubReceiver{Put: h.handleNodeGroup, Known: h.nodes.HasGroupSummary})
	h.pods.OnIdle(h.nodes.NotifyGroupIdle)
	return errors.Join(h.mgr.Add(h.daemonSets), h.nodes.SetupWithManager(h.mgr))
}

func (h *hub) newKubeletServer(ctx context.Context, address netip.Addr) (*kubelet.Server, error) {
	certificate, err := h.authority.Serving(authority.Names{IPs: []net.IP{address.AsSlice()}})
	if err != nil {
		return nil, err
	}
	auth, err := kubelet.NewAuth(h.kube)
	if err != nil {
		return nil, err
	}
	// A port that opened before the CA is known would refuse the API server.
	go auth.Run(ctx)
	if err := auth.Await(ctx); err != nil {
		return nil, err
	}
	return kubelet.New(kubelet.Config{
		Certificate:   certificate.GetCertificate,
		Authenticator: auth.Authenticator,
		Authorizer:    auth.Authorizer,
		Door:          kubelet.DoorFunc(h.nodeTransport),
		Pods:          h.pods,
		Memory:        h.memory,
		Streams:       h.streams,
		Logger:        h.opts.Logger.WithName("kubelet"),
	})
}

// handleNodeSummary passes the node summary of a cluster to the virtual node and the record.
func (h *hub) handleNodeSummary(cluster string, r resource.Resource) {
	err := applySummary(r.Body,
		func(s wire.NodeSummary) { h.nodes.SetSummary(cluster, s) },
		func(s registration.Summary) { h.registration.UpdateSummary(cluster, s) })
	if err != nil {
		h.logInvalid(err, "node summary was refused", cluster)
	}
}

// handleNodeGroup passes the summary of a group of nodes to the virtual node of the group.
func (h *hub) handleNodeGroup(cluster string, r resource.Resource) {
	s, err := wire.DecodeNodeGroup(r.Key, r.Body)
	if err != nil {
		h.logInvalid(err, "summary of a group of nodes was refused", cluster)
		return
	}
	h.nodes.SetGroupSummary(cluster, r.Key, s)
}

// logInvalid logs, at a limited rate, that a summary of a cluster is invalid.
func (h *hub) logInvalid(err error, message, cluster string) {
	if h.logLimiter.Allow(cluster) {
		h.opts.Logger.Error(err, message, "cluster", cluster)
	}
}

// applySummary decodes a summary once for the node and for the record. An invalid one
// reaches neither: both keep the last one.
func applySummary(body []byte, node func(wire.NodeSummary), record func(registration.Summary)) error {
	s, err := wire.DecodeNodeSummary(body)
	if err != nil {
		return err
	}
	whole := s.Whole()
	capacity, capErr := whole.Capacity.ResourceList()
	allocatable, allocErr := whole.Allocatable.ResourceList()
	if err := errors.Join(capErr, allocErr); err != nil {
		return err
	}
	node(s)
	record(registration.Summary{
		KubernetesVersion: s.KubernetesVersion,
		Capacity:          capacity,
		Allocatable:       allocatable,
	})
	return nil
}

func (h *hub) addLive(ctx context.Context) error {
	service := h.opts.Config.Live.ServiceName + "." + h.opts.Config.Namespace + ".svc"
	issued, err := h.authority.Serving(authority.Names{DNS: []string{service}})
	if err != nil {
		return err
	}
	certificate, err := live.NewServingCertificate(issued.PEM)
	if err != nil {
		return err
	}
	h.authority.OnChange(func() {
		if err := certificate.Refresh(); err != nil {
			h.opts.Logger.Error(err, "live API keeps its old certificate")
		}
	})
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", h.opts.Config.Listen.Live)
	if err != nil {
		return fmt.Errorf("live API: %w", err)
	}
	server, err := live.New(ctx, live.Config{
		Listener:    listener,
		Certificate: certificate,
		Rest:        h.opts.Client,
		Sessions:    liveSessions{h.tunnel.Sessions()},
		Records:     live.ManagedClusters{Cache: h.mgr.GetCache()},
		Memory:      h.memory,
		Streams:     h.streams,
		Logger:      h.opts.Logger.WithName("live"),
	})
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	return h.mgr.Add(server)
}
