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

// KubeletTransport returns the way to the kubelets: the agent's own credentials
// over TLS that is verified against the cluster's CA. insecure accepts any
// certificate, for clusters whose kubelets sign their own; whoever can stand in
// for a kubelet then gets the agent's token.
func KubeletTransport(config *rest.Config, insecure bool) (http.RoundTripper, error) {
	own := rest.CopyConfig(config)
	// The name that the API server is verified by is no kubelet's.
	own.ServerName = ""
	own.NextProtos = nil
	own.Dial = (&net.Dialer{Timeout: kubeletDeadline, KeepAlive: 30 * time.Second}).DialContext
	// A kubelet is a neighbour, not behind the proxy that the hub is behind.
	own.Proxy = http.ProxyURL(nil)
	if insecure {
		own.Insecure = true
		own.CAData, own.CAFile = nil, ""
	}
	transport, err := rest.TransportFor(own)
	if err != nil {
		return nil, fmt.Errorf("kubelets cannot be reached: %w", err)
	}
	return transport, nil
}

// answer is what one kubelet said.
type answer[T any] struct {
	node  string
	value T
	err   error
}

// askAll asks every node's kubelet for path and reads the answers, kubeletsAtOnce
// at a time. It returns one answer for each node, in their order.
func askAll[T any](ctx context.Context, transport http.RoundTripper, nodes []*corev1.Node, path string, read func(io.Reader) (T, error)) []answer[T] {
	answers := make([]answer[T], len(nodes))
	slots := make(chan struct{}, kubeletsAtOnce)
	var all sync.WaitGroup
	for i, node := range nodes {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			value, err := ask(ctx, transport, node, path, read)
			answers[i] = answer[T]{node: node.Name, value: value, err: err}
		})
	}
	all.Wait()
	return answers
}

func ask[T any](ctx context.Context, transport http.RoundTripper, node *corev1.Node, path string, read func(io.Reader) (T, error)) (T, error) {
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
