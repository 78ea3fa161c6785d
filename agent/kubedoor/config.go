// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package kubedoor

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/spokelet/spokelet/api/wire"
)

// DefaultUserPrefix is put before every user and group of the hub.
const DefaultUserPrefix = "hub:"

// anyGroup in a list of groups passes every group of the hub on.
const anyGroup = "*"

// answerTimeout is how long the API server may take to answer an upgrade
// request. Ordinary requests have the client's own deadline.
const answerTimeout = 30 * time.Second

// Config configures a Door.
type Config struct {
	// Rest reaches the cluster's API server as the agent, whose account may
	// impersonate. It must not impersonate by itself.
	Rest *rest.Config
	// Enabled opens the door to the hub's users; one that is not enabled refuses
	// them all. Pods opens it to the virtual kubelet.
	Enabled bool
	// UserPrefix is put before every user and group of the hub, so that no name
	// of the hub is one of this cluster. Default DefaultUserPrefix.
	UserPrefix string
	// Namespaces, when not empty, are the only ones that can be reached. Of
	// cluster-scoped requests only discovery is then left.
	Namespaces []string
	// Groups are the only groups of the hub that are passed on, without prefix.
	// None are when it is empty, all are with "*" in it.
	Groups []string
	// Pods finds the pods that run for the hub. Nil: nothing is served to the
	// hub's virtual kubelet.
	Pods Pods
	// NodeAccount is the user as whom the virtual kubelet's requests are made.
	NodeAccount string
	Logger      logr.Logger
}

// Pods finds the pods that run in this cluster for the hub.
type Pods interface {
	// Locate returns the namespace here of a hub's pod and the hub's UID of it.
	Locate(key wire.PodKey) (namespace string, uid types.UID, ok bool)
}

// Default fills what was left empty.
func (c *Config) Default() {
	if c.UserPrefix == "" {
		c.UserPrefix = DefaultUserPrefix
	}
}

// Validate returns an error for a configuration that is unsafe or incomplete.
func (c *Config) Validate() error {
	if c.Rest == nil {
		return errors.New("kube door: rest config is missing")
	}
	if c.Rest.Impersonate.UserName != "" {
		return errors.New("kube door: rest config impersonates by itself")
	}
	if c.Pods != nil && c.NodeAccount == "" {
		return errors.New("kube door: account of the virtual kubelet is missing")
	}
	// Such a prefix would make the hub's users this cluster's own components.
	if strings.HasPrefix(c.UserPrefix, "system:") || !strings.HasSuffix(c.UserPrefix, ":") {
		return fmt.Errorf("kube door: user prefix %q must end with a colon and not begin with %q", c.UserPrefix, "system:")
	}
	return nil
}

// upstream sends requests to the API server: ordinary requests through a pool of HTTP/2
// connections, each upgrade through an HTTP/1.1 connection of its own.
type upstream struct {
	base     *url.URL
	pool     http.RoundTripper
	upgrades http.RoundTripper
}

func newUpstream(cfg *rest.Config) (*upstream, error) {
	base, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("kube door: API server's address: %w", err)
	}
	// Answers are passed on as they are; unpacking them here would cost time
	// and lose their length.
	pooled := rest.CopyConfig(cfg)
	pooled.DisableCompression = true
	pool, err := rest.TransportFor(pooled)
	if err != nil {
		return nil, fmt.Errorf("kube door: transport: %w", err)
	}
	upgrades, err := rest.HTTPWrappersForConfig(cfg, &perRequestTransport{cfg: cfg})
	if err != nil {
		return nil, fmt.Errorf("kube door: transport for upgrades: %w", err)
	}
	return &upstream{base: base, pool: pool, upgrades: upgrades}, nil
}

// perRequestTransport opens one HTTP/1.1 connection per request and never reuses it. The
// files that say whom to trust are read anew each time, so that a rotated one is
// honoured; what comes of them is made anew only when they have changed, for a
// connection keeps it as long as it lasts.
type perRequestTransport struct {
	cfg *rest.Config

	mu   sync.Mutex // guards what is below
	read rest.TLSClientConfig
	tls  *tls.Config // of read
}

func (s *perRequestTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	tlsConfig, err := s.tlsConfig()
	if err != nil {
		return nil, fmt.Errorf("TLS configuration: %w", err)
	}
	t := &http.Transport{
		Proxy:                 s.cfg.Proxy,
		DialContext:           s.cfg.Dial,
		TLSClientConfig:       tlsConfig,
		TLSHandshakeTimeout:   answerTimeout,
		ResponseHeaderTimeout: answerTimeout,
		DisableKeepAlives:     true,
		DisableCompression:    true,
	}
	if t.Proxy == nil {
		t.Proxy = http.ProxyFromEnvironment
	}
	return t.RoundTrip(r)
}

// tlsConfig is what the files say now. It is shared, and not to be changed.
func (s *perRequestTransport) tlsConfig() (*tls.Config, error) {
	cfg := rest.CopyConfig(s.cfg)
	cfg.NextProtos = []string{"http/1.1"}
	if err := rest.LoadTLSFiles(cfg); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tls != nil && bytes.Equal(cfg.CAData, s.read.CAData) && bytes.Equal(cfg.CertData, s.read.CertData) && bytes.Equal(cfg.KeyData, s.read.KeyData) {
		return s.tls, nil
	}
	made, err := rest.TLSConfigFor(cfg)
	if err != nil {
		return nil, err
	}
	s.read, s.tls = cfg.TLSClientConfig, made
	return made, nil
}
