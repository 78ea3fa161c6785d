// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

const (
	// kubeletDeadline bounds one kubelet's answer.
	kubeletDeadline = 10 * time.Second

	// kubeletsAtOnce bounds the kubelets that are asked at the same time.
	kubeletsAtOnce = 16

	kubeletPort = 10250
)

var errAddress = errors.New("node has no address that may be dialled")

// KubeletConfig says how the kubelets are reached. All fields but InsecureTLS are
// needed.
type KubeletConfig struct {
	// REST is the agent's own. Of it the cluster's CA is used, and no credential.
	REST *rest.Config
	// Tokens makes tokens of the accounts in the agent's namespace.
	Tokens TokenCreator
	// Account is the service account as which the kubelets are asked: one that
	// may read their figures and nothing else, for whoever controls a node gets
	// its token.
	Account string
	// InsecureTLS accepts any certificate, for clusters whose kubelets sign their
	// own; whoever can stand in for a kubelet then gets that token too.
	InsecureTLS bool
}

// Validate reports what is missing.
func (c KubeletConfig) Validate() error {
	if c.REST == nil || c.Tokens == nil || c.Account == "" {
		return errors.New("kubelets need a rest config, a creator of tokens and an account")
	}
	return nil
}

// Kubelets is the way to the kubelets, an http.RoundTripper: a token of the
// account over TLS that is verified against the cluster's CA.
type Kubelets struct {
	next  http.RoundTripper
	token *accountToken
}

// NewKubelets returns a way to the kubelets that holds no token yet.
func NewKubelets(config KubeletConfig) (*Kubelets, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	// The agent's credential may impersonate: no kubelet is to see it.
	nobody := rest.AnonymousClientConfig(config.REST)
	// The name that the API server is verified by is no kubelet's.
	nobody.ServerName = ""
	nobody.NextProtos = nil
	nobody.Dial = (&net.Dialer{Timeout: kubeletDeadline, KeepAlive: 30 * time.Second}).DialContext
	// A kubelet is a neighbour, not behind the proxy that the hub is behind.
	nobody.Proxy = http.ProxyURL(nil)
	if config.InsecureTLS {
		nobody.Insecure = true
		nobody.CAData, nobody.CAFile = nil, ""
	}
	next, err := rest.TransportFor(nobody)
	if err != nil {
		return nil, fmt.Errorf("kubelets cannot be reached: %w", err)
	}
	return &Kubelets{next: next, token: newAccountToken(config.Tokens, config.Account)}, nil
}

// RoundTrip sends a request without a body, as the account.
func (k *Kubelets) RoundTrip(request *http.Request) (*http.Response, error) {
	bearer, err := k.token.get(request.Context())
	if err != nil {
		return nil, err
	}
	request = request.Clone(request.Context())
	request.Header.Set("Authorization", "Bearer "+bearer)
	return k.next.RoundTrip(request)
}

// CloseIdleConnections closes the connections that no request uses.
func (k *Kubelets) CloseIdleConnections() { utilnet.CloseIdleConnectionsFor(k.next) }

// kubeletResponse is what one kubelet said.
type kubeletResponse[T any] struct {
	node  string
	value T
	err   error
}

// getFromKubelets asks every node's kubelet for path and reads the answers, kubeletsAtOnce
// at a time. It returns one answer for each node, in their order.
func getFromKubelets[T any](ctx context.Context, transport http.RoundTripper, nodes []*corev1.Node, path string, read func(io.Reader) (T, error)) []kubeletResponse[T] {
	answers := make([]kubeletResponse[T], len(nodes))
	slots := make(chan struct{}, kubeletsAtOnce)
	var all sync.WaitGroup
	for i, node := range nodes {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			value, err := getFromKubelet(ctx, transport, node, path, read)
			answers[i] = kubeletResponse[T]{node: node.Name, value: value, err: err}
		})
	}
	all.Wait()
	return answers
}

func getFromKubelet[T any](ctx context.Context, transport http.RoundTripper, node *corev1.Node, path string, read func(io.Reader) (T, error)) (T, error) {
	var none T
	ctx, cancel := context.WithTimeout(ctx, kubeletDeadline)
	defer cancel()
	host, err := kubeletAddress(node)
	if err != nil {
		return none, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+host+path, nil)
	if err != nil {
		return none, fmt.Errorf("request cannot be made: %w", err)
	}
	response, err := transport.RoundTrip(request) // follows no redirect
	if err != nil {
		return none, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return none, fmt.Errorf("kubelet answered %d", response.StatusCode)
	}
	return read(response.Body)
}

// kubeletAddress is where the kubelet listens, as metrics-server and the API
// server read it: an IP that the node states, internal ones first. Names are not
// resolved, and addresses of this host or link are not a node's.
func kubeletAddress(node *corev1.Node) (string, error) {
	port := int(node.Status.DaemonEndpoints.KubeletEndpoint.Port)
	if port == 0 {
		port = kubeletPort
	}
	for _, kind := range []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP} {
		for _, address := range node.Status.Addresses {
			ip, err := netip.ParseAddr(address.Address)
			if address.Type == kind && err == nil && ip.Unmap().IsGlobalUnicast() {
				return net.JoinHostPort(ip.String(), strconv.Itoa(port)), nil
			}
		}
	}
	return "", errAddress
}
