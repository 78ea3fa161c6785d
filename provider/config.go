// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/kubernetes"

	"github.com/spokelet/spokelet/internal/quota"
	"github.com/spokelet/spokelet/provider/pod"
)

// Links reports which clusters are connected.
type Links interface {
	// Subscribe calls f with the links that are up, then with every change,
	// until cancel returns. Calls are serial and must not block.
	Subscribe(f func(Link)) (cancel func())
}

// Link is the state of the session with a cluster.
type Link struct {
	Cluster string
	Up      bool
	// Reason says why a link is down, for people.
	Reason string
}

// Endpoints opens and closes the kubelet endpoints of nodes; *kubelet.Server
// does.
type Endpoints interface {
	// Open serves until Close: ctx bounds the opening alone.
	Open(ctx context.Context, node string, port int32) error
	Close(node string)
}

// Pods keeps the pods of nodes; *pod.Controller does.
type Pods interface {
	// Watch keeps the pods that are bound to a node until stop is called, or ctx
	// ends.
	Watch(ctx context.Context, node string) (stop func())
	// ExpectNode has nothing said of absence in a cluster until the pods of one of its nodes
	// are known, as it is of its own from the start; Release ends that, for a Node that
	// is no more or somebody else's. Neither calls back.
	ExpectNode(node string)
	RemoveNode(node string)
	// IsIdle reports whether no pod is bound to the node of a group.
	IsIdle(node string) bool
	// SetConsent takes what the record of a cluster allows of what its agent says, before
	// the pods of its nodes are watched.
	SetConsent(cluster string, allowed pod.Consent)
}

// DaemonSets reports which DaemonSets of the hub a label would attract; *placement.DaemonSets
// implements it. Provider.DaemonSetsChanged is to be called when that may have changed.
type DaemonSets interface {
	// Objection says, for people, why a node with some labels shall not have more; empty
	// if it may. It is not known until the DaemonSets have been read. It does not call
	// back.
	Objection(have, more map[string]string) (text string, known bool)
}

// Config configures a Provider.
type Config struct {
	// Client is the hub's API server. It should not limit its own rate: the
	// leases of all nodes go through it.
	Client    kubernetes.Interface
	Links     Links
	Endpoints Endpoints
	Pods      Pods

	// DaemonSets may object to the labels of a node's system; nil does not.
	DaemonSets DaemonSets

	// Address is where the API server reaches the kubelet endpoints: the hub
	// pod's own IP. It becomes the InternalIP of every virtual node.
	Address netip.Addr

	// PortMin and PortMax bound the ports of the kubelet endpoints, one for
	// each node. Default 20000 and 29999.
	PortMin, PortMax int32

	// ReconnectGrace is how long after Start a node that was Ready stays so
	// without its agent. Default 15 s.
	ReconnectGrace time.Duration

	// Writes bounds what is written because of what clusters report; nil has no bounds.
	Writes *quota.Writes

	Logger     logr.Logger
	Registerer prometheus.Registerer
}

// Default returns c with what is unset.
func (c Config) Default() Config {
	if c.PortMin == 0 && c.PortMax == 0 {
		c.PortMin, c.PortMax = 20000, 29999
	}
	if c.ReconnectGrace == 0 {
		c.ReconnectGrace = 15 * time.Second
	}
	return c
}

// Validate reports what cannot work.
func (c Config) Validate() error {
	switch {
	case c.Client == nil, c.Links == nil, c.Endpoints == nil, c.Pods == nil, c.Registerer == nil:
		return errors.New("provider needs a client, links, endpoints, pods and a registerer")
	case !c.Address.IsValid() || c.Address.IsLoopback() || c.Address.IsLinkLocalUnicast() || c.Address.IsUnspecified():
		// The API server refuses to proxy to such addresses.
		return errors.New("provider needs an address that the API server may dial")
	case c.PortMin < 1024 || c.PortMax > 65535 || c.PortMin > c.PortMax:
		return errors.New("provider needs a range of unprivileged ports")
	case c.ReconnectGrace < 0:
		return errors.New("provider needs a reconnect grace that is not negative")
	}
	return nil
}
