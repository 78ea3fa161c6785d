// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// HubConfiguration is the file that spokelet-hub reads with --config.
//
// +kubebuilder:object:root=true
type HubConfiguration struct {
	metav1.TypeMeta `json:",inline"`

	// Namespace is where the hub keeps its CA and publishes how to join it.
	// Default "spokelet-system".
	Namespace string `json:"namespace,omitempty"`

	// ServiceAccount is the name of the account the hub runs as, in Namespace.
	// Only it may change the identity of a cluster's record. Default
	// "spokelet-hub".
	ServiceAccount string `json:"serviceAccount,omitempty"`

	// PublicAddress is the host:port that agents dial, as printed by
	// "kubectl spokelet join". It must be set; the hub listens on Listen.
	PublicAddress string `json:"publicAddress"`

	// APIServerURL is the URL of the hub's API server, as its users know it. Its
	// SHA-256 is the hub hash, which names what works leave in the spokes
	// (AppliedManifestWork). Only the first start counts: later ones keep the
	// hash of then. Default: the URL that the hub itself uses.
	APIServerURL string `json:"apiServerURL,omitempty"`

	// Listen holds the addresses of the hub's own ports.
	Listen HubListen `json:"listen,omitempty"`

	// Live configures the aggregated API.
	Live LiveConfiguration `json:"live,omitempty"`

	// Work configures what is done with all works.
	Work HubWorkConfiguration `json:"work,omitempty"`

	// Admission configures the webhook for ManifestWorks.
	Admission AdmissionConfiguration `json:"admission,omitempty"`

	// MCM configures views and actions.
	MCM MCMConfiguration `json:"mcm,omitempty"`

	// Nodes configures the virtual nodes and their kubelet endpoints.
	Nodes NodesConfiguration `json:"nodes,omitempty"`

	// Pods configures which pods the virtual nodes take.
	Pods HubPodsConfiguration `json:"pods,omitempty"`

	// Certificates configures what the hub's CA issues.
	Certificates CertificatesConfiguration `json:"certificates,omitempty"`

	// Budget bounds what clusters may cost the hub.
	Budget BudgetConfiguration `json:"budget,omitempty"`

	// DrainGrace is how long streams may go on after a stop was asked for.
	// Default 20s.
	DrainGrace metav1.Duration `json:"drainGrace,omitempty"`
}

// HubListen holds addresses in the form of net.Listen.
type HubListen struct {
	// Public is the one port that agents reach. Default ":8443".
	Public string `json:"public,omitempty"`
	// Live is the port of the aggregated API. Default ":6443".
	Live string `json:"live,omitempty"`
	// Metrics serves /metrics, /healthz and /readyz. Default ":8080".
	Metrics string `json:"metrics,omitempty"`
	// Webhooks is the port that the API server asks about ManifestWorks.
	// Default ":9443".
	Webhooks string `json:"webhooks,omitempty"`
}

// HubWorkConfiguration applies to all works.
type HubWorkConfiguration struct {
	// Healthy gives every manifest the well-known condition rule Healthy, as if
	// each work asked for it. Clients of Open Cluster Management expect
	// exactly the conditions it documents. Default false.
	Healthy bool `json:"healthy,omitempty"`
}

// AdmissionConfiguration says which ManifestWorks the hub lets in.
type AdmissionConfiguration struct {
	// Enabled serves the webhook and keeps the CA bundle of its registration.
	// Default true.
	Enabled *bool `json:"enabled,omitempty"`
	// ServiceName is the name, in the hub's namespace, of the Service that the
	// registration points to. Default "spokelet-hub".
	ServiceName string `json:"serviceName,omitempty"`
	// ManifestLimit is how many bytes the manifests of one work may have
	// together, as JSON. Between 1 and 1048576, default 512000.
	ManifestLimit int `json:"manifestLimit,omitempty"`
	// NilExecutorValidating also asks for the right execute-as where a work
	// names no executor, as if it named
	// system:serviceaccount::klusterlet-work-sa; Works of multicluster.x-k8s.io
	// name none. Default false.
	NilExecutorValidating bool `json:"nilExecutorValidating,omitempty"`
}

// MCMConfiguration says what comes back of views and actions: of the Works of mcm.ibm.com,
// ManagedClusterViews and ManagedClusterActions. They are served when admission is enabled,
// which records who asks.
type MCMConfiguration struct {
	// MaxResultBytes is how many bytes the result in one status may have, as JSON.
	// Between 1024 and 1048576, default 524288.
	MaxResultBytes int `json:"maxResultBytes,omitempty"`
	// ShowSecrets leaves the values of Secrets in results, which the hub then stores in
	// its etcd. Default false: they are hidden.
	ShowSecrets bool `json:"showSecrets,omitempty"`
	// SpecLimit is how many bytes the spec of one of them, of a WorkSet or of a
	// ResourceView may have, as JSON. Between 1024 and 1048576, default 524288.
	SpecLimit int `json:"specLimit,omitempty"`
	// NamespaceObjects is how many objects of each of these kinds a namespace may have.
	// The hub holds something of each. Default 1000.
	NamespaceObjects int `json:"namespaceObjects,omitempty"`
	// NamespaceBytes is how many bytes the large templates of the objects of each of these
	// kinds in a namespace may have together: those of more than 4096 bytes, which the hub
	// reads when they are needed. Default 32Mi.
	NamespaceBytes resource.Quantity `json:"namespaceBytes,omitempty"`
}

// LiveConfiguration names the Service in front of the aggregated API.
type LiveConfiguration struct {
	// ServiceName is the name, in the hub's namespace, of the Service that the
	// APIService points to. Default "spokelet-hub".
	ServiceName string `json:"serviceName,omitempty"`
	// ServicePort is that Service's port. Default 6443.
	ServicePort int32 `json:"servicePort,omitempty"`
}

// NodesConfiguration places the kubelet endpoints.
type NodesConfiguration struct {
	// Address is the IP that the API server dials for a virtual node, the
	// hub's pod IP. It must be set.
	Address string `json:"address"`
	// PortMin and PortMax bound the ports, one for each node. Default 20000
	// and 29999.
	PortMin int32 `json:"portMin,omitempty"`
	PortMax int32 `json:"portMax,omitempty"`
	// ReconnectGrace is how long after the hub's own start a node without a
	// session keeps its last state. Default 15s.
	ReconnectGrace metav1.Duration `json:"reconnectGrace,omitempty"`
}

// HubTokens says whether the hub issues tokens of its service accounts for pods.
//
// +kubebuilder:validation:Enum=none;hub
type HubTokens string

const (
	// HubTokensNone issues none.
	HubTokensNone HubTokens = "none"
	// HubTokensHub issues those that a pod asks for, to the cluster that it runs in,
	// if the agent there asks for them.
	HubTokensHub HubTokens = "hub"
)

// HubPodsConfiguration applies to the pods that are bound to virtual nodes.
type HubPodsConfiguration struct {
	// DaemonSets has the pods of DaemonSets that name virtual nodes run in the clusters
	// too. Else they stay Pending and say why. Other DaemonSets are kept off. Default
	// false.
	DaemonSets bool `json:"daemonSets,omitempty"`
	// Namespaces are the namespaces of the hub whose ConfigMaps and Secrets the hub may
	// read and send to the clusters whose pods there refer to them. Pods that refer to
	// any run from no other namespace; those that refer to none run from all. ["*"] is
	// every namespace. Default none.
	Namespaces []string `json:"namespaces,omitempty"`
	// UnreachableTolerationSeconds is how long a pod that tolerates the taint of
	// virtual nodes stays bound to one whose cluster is away, unless the pod says
	// so itself; -1 is for ever. It takes the place of the 300 that Kubernetes gives
	// every pod, for pods created from then on; Kubernetes before 1.36 cannot do
	// that. Default: 300, as on other nodes.
	UnreachableTolerationSeconds *int64 `json:"unreachableTolerationSeconds,omitempty"`
	// Tokens says whether the hub issues tokens of its own service accounts for pods:
	// "hub", those that a pod asks for, to the cluster that it runs in and for as long
	// as the pod exists, or "none". Whoever controls such a cluster acts on the hub
	// with the rights of those accounts. A cluster gets them only if its agent's
	// pods.tokens is "hub" as well. Default "none".
	Tokens HubTokens `json:"tokens,omitempty"`
	// TokenNamespaces are the only namespaces of the hub whose accounts get tokens. With
	// Tokens "hub" it must name one.
	TokenNamespaces []string `json:"tokenNamespaces,omitempty"`
}

// CertificatesConfiguration bounds the life of issued certificates.
type CertificatesConfiguration struct {
	// ClusterLife is the life of a cluster's certificate; it is renewed at two
	// thirds. Between 10m and 8760h, default 2160h.
	ClusterLife metav1.Duration `json:"clusterLife,omitempty"`
}

const (
	// defaultManifestLimit is that of Open Cluster Management, 500 KiB.
	defaultManifestLimit = 500 << 10
	// maxManifestLimit is what still fits into the hub's etcd (1.5 MiB a
	// request), with managed fields and status beside it.
	maxManifestLimit = 1 << 20

	// What a result or a spec may be, within what etcd takes.
	defaultResultBytes = 512 << 10
	defaultSpecBytes   = 512 << 10
	minBytes           = 1 << 10
	maxBytes           = 1 << 20

	maxNamespaceObjects = 100_000

	allNamespaces = "*"
)

var errNoTokenNamespaces = errors.New("pods.tokenNamespaces: names no namespace, and pods.tokens is \"hub\"")

// Default fills what was left empty.
func (c *HubConfiguration) Default() {
	setDefault(&c.Namespace, "spokelet-system")
	setDefault(&c.ServiceAccount, "spokelet-hub")
	setDefault(&c.Listen.Public, ":8443")
	setDefault(&c.Listen.Live, ":6443")
	setDefault(&c.Listen.Metrics, ":8080")
	setDefault(&c.Listen.Webhooks, ":9443")
	setDefault(&c.Admission.Enabled, new(true))
	setDefault(&c.Admission.ServiceName, "spokelet-hub")
	setDefault(&c.Admission.ManifestLimit, defaultManifestLimit)
	setDefault(&c.MCM.MaxResultBytes, defaultResultBytes)
	setDefault(&c.MCM.SpecLimit, defaultSpecBytes)
	setDefault(&c.MCM.NamespaceObjects, 1000)
	if c.MCM.NamespaceBytes.IsZero() {
		c.MCM.NamespaceBytes = resource.MustParse("32Mi")
	}
	setDefault(&c.Live.ServiceName, "spokelet-hub")
	setDefault(&c.Live.ServicePort, 6443)
	setDefault(&c.Nodes.PortMin, 20000)
	setDefault(&c.Nodes.PortMax, 29999)
	setDefault(&c.Nodes.ReconnectGrace.Duration, 15*time.Second)
	setDefault(&c.Pods.Tokens, HubTokensNone)
	setDefault(&c.Certificates.ClusterLife.Duration, 90*24*time.Hour)
	setDefault(&c.DrainGrace.Duration, 20*time.Second)
	c.Budget.setDefaults()
}

// Validate reports everything that is wrong, joined.
func (c *HubConfiguration) Validate() error {
	errs := []error{
		checkHostPort("publicAddress", c.PublicAddress),
		checkIP("nodes.address", c.Nodes.Address),
		checkListen("listen.public", c.Listen.Public),
		checkListen("listen.live", c.Listen.Live),
		checkListen("listen.metrics", c.Listen.Metrics),
		checkListen("listen.webhooks", c.Listen.Webhooks),
		checkURL("apiServerURL", c.APIServerURL),
		checkLabel("admission.serviceName", c.Admission.ServiceName),
		checkLimit("admission.manifestLimit", c.Admission.ManifestLimit, maxManifestLimit),
		checkSize("mcm.maxResultBytes", c.MCM.MaxResultBytes),
		checkSize("mcm.specLimit", c.MCM.SpecLimit),
		checkLimit("mcm.namespaceObjects", c.MCM.NamespaceObjects, maxNamespaceObjects),
		checkQuantity("mcm.namespaceBytes", c.MCM.NamespaceBytes, resource.MustParse("1Mi"), resource.MustParse("16Gi")),
		checkPorts("nodes", c.Nodes.PortMin, c.Nodes.PortMax),
		checkBetween("certificates.clusterLife", c.Certificates.ClusterLife.Duration, 10*time.Minute, 365*24*time.Hour),
		checkBetween("drainGrace", c.DrainGrace.Duration, time.Second, 10*time.Minute),
		checkBetween("nodes.reconnectGrace", c.Nodes.ReconnectGrace.Duration, time.Second, 5*time.Minute),
		checkOneOf("pods.tokens", c.Pods.Tokens, HubTokensNone, HubTokensHub),
	}
	errs = append(errs, c.Budget.validate()...)
	return errors.Join(append(errs, c.Pods.validateNamespaces()...)...)
}

func (c *HubPodsConfiguration) validateNamespaces() []error {
	var errs []error
	if c.Tokens == HubTokensHub && len(c.TokenNamespaces) == 0 {
		errs = append(errs, errNoTokenNamespaces)
	}
	errs = append(errs, checkEach(checkLabel, "pods.tokenNamespaces", c.TokenNamespaces))
	if slices.Equal(c.Namespaces, []string{allNamespaces}) {
		return errs
	}
	return append(errs, checkEach(checkLabel, "pods.namespaces", c.Namespaces))
}

func checkOneOf[T ~string](field string, value T, known ...T) error {
	if !slices.Contains(known, value) {
		return fmt.Errorf("%s: %q is none of %q", field, value, known)
	}
	return nil
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func checkHostPort(field, value string) error {
	host, port, err := net.SplitHostPort(value)
	if err != nil || host == "" || port == "" {
		return fmt.Errorf("%s: %q is not of the form host:port", field, value)
	}
	return nil
}

func checkListen(field, value string) error {
	if _, _, err := net.SplitHostPort(value); err != nil {
		return fmt.Errorf("%s: %q is not of the form [host]:port", field, value)
	}
	return nil
}

// checkURL takes what names an API server: nothing but where it is.
func checkURL(field, value string) error {
	if value == "" {
		return nil
	}
	u, err := url.Parse(value)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return fmt.Errorf("%s: %q is not the URL of an API server", field, value)
	}
	return nil
}

func checkLimit(field string, value, most int) error {
	if value < 1 || value > most {
		return fmt.Errorf("%s: %d is not between 1 and %d", field, value, most)
	}
	return nil
}

func checkSize(field string, bytes int) error {
	if bytes < minBytes || bytes > maxBytes {
		return fmt.Errorf("%s: %d is not between %d and %d", field, bytes, minBytes, maxBytes)
	}
	return nil
}

func checkIP(field, value string) error {
	ip, err := netip.ParseAddr(value)
	if err != nil || ip.IsLoopback() || ip.IsUnspecified() || ip.IsLinkLocalUnicast() {
		// The API server refuses to proxy to anything but global unicast.
		return fmt.Errorf("%s: %q is not a global unicast IP", field, value)
	}
	return nil
}

func checkPorts(field string, low, high int32) error {
	if low < 1024 || high > 65535 || low > high {
		return fmt.Errorf("%s: port range %d-%d is not within 1024-65535", field, low, high)
	}
	return nil
}

func checkBetween(field string, value, low, high time.Duration) error {
	if value < low || value > high {
		return fmt.Errorf("%s: %s is not between %s and %s", field, value, low, high)
	}
	return nil
}
