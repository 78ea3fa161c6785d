// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	syncv1alpha1 "github.com/spokelet/spokelet/api/sync/v1alpha1"
	"github.com/spokelet/spokelet/api/wire"
)

// AgentConfiguration is the file that spokelet-agent reads with --config. It
// is the ceiling that the spoke's owner sets: the hub can use what is enabled
// here and nothing else.
//
// +kubebuilder:object:root=true
type AgentConfiguration struct {
	metav1.TypeMeta `json:",inline"`

	// Cluster is the name of this cluster on the hub, a DNS label. Required.
	Cluster string `json:"cluster"`

	// Namespace is where the agent keeps its identity. Default "spokelet-agent".
	Namespace string `json:"namespace,omitempty"`

	// Hub says where the hub is and how it is recognised.
	Hub HubReference `json:"hub"`

	// Kube configures the door to this cluster's API server.
	Kube KubeDoorConfiguration `json:"kube,omitempty"`

	// Work configures what the hub may apply here.
	Work WorkConfiguration `json:"work,omitempty"`

	// Pods configures which pods of the hub run here.
	Pods PodConfiguration `json:"pods,omitempty"`

	// Helm configures which charts the hub's users may install here.
	Helm HelmConfiguration `json:"helm,omitempty"`

	// Shared configures how objects are shared with the hub.
	Shared SharedConfiguration `json:"shared,omitempty"`

	// Node configures what the hub's virtual node says of this cluster.
	Node NodeConfiguration `json:"node,omitempty"`

	// HealthListen serves /healthz, /readyz and /metrics. Default ":8080".
	HealthListen string `json:"healthListen,omitempty"`
}

// HubReference is what "kubectl spokelet join" prints.
type HubReference struct {
	// Address is the hub's public host:port. Required.
	Address string `json:"address"`
	// CAFingerprint is the SHA-256 of the hub's CA certificate, DER, in
	// lower-case hex. Required.
	CAFingerprint string `json:"caFingerprint"`
	// TokenFile holds the join token. It is read at each attempt to join: while
	// the agent has no certificate, and again when its certificate has expired or
	// the hub no longer admits it. Default "/etc/spokelet/join/token".
	TokenFile string `json:"tokenFile,omitempty"`
}

// KubeDoorConfiguration is the ceiling of the kube door.
type KubeDoorConfiguration struct {
	// Enabled opens the door. Default true.
	Enabled *bool `json:"enabled,omitempty"`
	// UserPrefix is put before every user and group of the hub. Default "hub:".
	UserPrefix string `json:"userPrefix,omitempty"`
	// Namespaces, when not empty, are the only ones that can be reached;
	// cluster-scoped requests are then refused.
	Namespaces []string `json:"namespaces,omitempty"`
	// Groups are the only groups of the hub that are passed on, without the prefix.
	// "*" alone passes all but those that begin with "system:". Default none.
	Groups []string `json:"groups,omitempty"`
}

// WorkConfiguration is the ceiling of the work engine.
type WorkConfiguration struct {
	// Enabled lets the hub apply works. Default true.
	Enabled *bool `json:"enabled,omitempty"`
	// ServiceAccount is who applied objects are written as. Default
	// klusterlet-work-sa in open-cluster-management-agent.
	ServiceAccount ServiceAccountReference `json:"serviceAccount,omitempty"`
	// Namespaces, when not empty, are the only ones that works may write to;
	// cluster-scoped manifests are then refused.
	Namespaces []string `json:"namespaces,omitempty"`
	// EvictionGrace is how long an anchor whose work is unknown to the hub
	// keeps its objects. Default 60m.
	EvictionGrace metav1.Duration `json:"evictionGrace,omitempty"`
	// AgentID marks the anchors that this agent answers for. Of anchors with
	// another one it evicts none. Default: the hub hash.
	AgentID string `json:"agentID,omitempty"`
	// RawFeedbackJSONString lets feedback rules report objects and lists, as
	// JSON. Default false: they are an error.
	RawFeedbackJSONString bool `json:"rawFeedbackJSONString,omitempty"`
	// MaxJSONRawLength is how many characters such a value may have. Between 1
	// and 1048576, default 1024, which is what the hub's ManifestWork takes.
	MaxJSONRawLength int `json:"maxJSONRawLength,omitempty"`
	// ExecutorValidatingCaches keeps the answers to what executors may do until
	// the roles and bindings of this cluster change. Default false: every
	// apply asks, and every generation.
	ExecutorValidatingCaches bool `json:"executorValidatingCaches,omitempty"`
}

// ServiceAccountReference names a ServiceAccount of the spoke.
type ServiceAccountReference struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
}

// Username is the account's name in the sense of authentication.
func (r ServiceAccountReference) Username() string {
	return "system:serviceaccount:" + r.Namespace + ":" + r.Name
}

// PodTokens says whose service account tokens the pods of the hub get.
//
// +kubebuilder:validation:Enum=spoke;hub;none
type PodTokens string

const (
	// PodTokensSpoke gives them tokens of this cluster, of the service account that
	// the pod names.
	PodTokensSpoke PodTokens = "spoke"
	// PodTokensHub gives them tokens of the hub, of the service account that the pod
	// has there.
	PodTokensHub PodTokens = "hub"
	// PodTokensNone gives them none.
	PodTokensNone PodTokens = "none"
)

// PodConfiguration is the ceiling of the pod engine.
type PodConfiguration struct {
	// Enabled lets pods that are bound to the virtual node run here. Default true.
	Enabled *bool `json:"enabled,omitempty"`
	// ServiceAccount is who pods, and what they refer to, are written as, in the
	// agent's namespace. Default spokelet-node.
	ServiceAccount string `json:"serviceAccount,omitempty"`
	// NamespacePrefix is put before the hub's namespaces. Pods that run under
	// another prefix end when it changes. Default none.
	NamespacePrefix string `json:"namespacePrefix,omitempty"`
	// Namespaces of this cluster, when not empty, are the only ones that take pods.
	// One that was not made for them takes pods only with the label
	// spokelet.io/pods=allowed.
	Namespaces []string `json:"namespaces,omitempty"`
	// Tokens says whose service account tokens pods get: "spoke", those of this
	// cluster, "hub", those of the hub, whose pods.tokens must be "hub" as well, or
	// "none". Default "spoke".
	Tokens PodTokens `json:"tokens,omitempty"`
	// HubAPIServer is where pods of this cluster reach the hub's API server, as in
	// "https://hub.example.com:6443". Pods that get tokens of the hub find it in the
	// environment as the API server of their cluster. Default none: they find the one
	// of this cluster there, which does not know their tokens. Takes Tokens "hub".
	HubAPIServer string `json:"hubAPIServer,omitempty"`
	// HostAccess lets pods reach for the nodes that they run on: host namespaces,
	// host paths and ports, privileges, and any annotation. Default false.
	HostAccess bool `json:"hostAccess,omitempty"`
	// Annotations of the hub's pods that they keep here, besides those without a
	// domain and some that are known to do nothing to nodes and networks: keys
	// ("example.com/team"), and domains with their slash for all keys of them
	// ("example.com/"). Default none.
	Annotations []string `json:"annotations,omitempty"`
}

// HelmConfiguration is the ceiling of actions of Helm. What they do to the cluster takes the
// rights of who asks, as through the kube door.
type HelmConfiguration struct {
	// Charts are the URLs below which charts, and values, may be read:
	// "https://charts.example.com/stable", "oci://registry.example.com/charts". What a
	// server redirects to has to be below one of them, too. Default none: all actions of
	// Helm are refused.
	Charts []string `json:"charts,omitempty"`
	// Memory is what one process of Helm may use. Default 192Mi.
	Memory resource.Quantity `json:"memory,omitempty"`
	// Binary is the program. Default "/spokelet-helm".
	Binary string `json:"binary,omitempty"`
}

// SharedConfiguration names who shares objects. What is shared its rights decide.
type SharedConfiguration struct {
	// ServiceAccount, in the agent's namespace, is impersonated to read and write shared
	// objects. Default "spokelet-shared".
	ServiceAccount string `json:"serviceAccount,omitempty"`
	// Quota bounds what sharing makes in the cluster, whatever the hub says.
	Quota SharedQuotaConfiguration `json:"quota,omitempty"`
}

// SharedQuotaConfiguration bounds the objects of one resource in one namespace that a hub
// may share. All that there are count, whoever made them and whatever is selected of them.
// Beyond it sharing creates none and makes none larger; nothing is deleted.
type SharedQuotaConfiguration struct {
	// Objects is how many there may be. Between 1 and 1000000, default 1000.
	Objects int `json:"objects,omitempty"`
	// Bytes is how large what is shared of them may be together, as JSON. Between 1Ki and
	// 64Gi, default 32Mi.
	Bytes resource.Quantity `json:"bytes,omitempty"`
}

// maxSharedObjects bounds the quota of objects.
const maxSharedObjects = 1_000_000

func (c *SharedQuotaConfiguration) setDefaults() {
	setDefault(&c.Objects, syncv1alpha1.DefaultQuotaObjects)
	if c.Bytes.IsZero() {
		c.Bytes = resource.MustParse(syncv1alpha1.DefaultQuotaBytes)
	}
}

func (c *SharedQuotaConfiguration) validate() error {
	return errors.Join(
		checkLimit("shared.quota.objects", c.Objects, maxSharedObjects),
		checkQuantity("shared.quota.bytes", c.Bytes, resource.MustParse("1Ki"), resource.MustParse("64Gi")),
	)
}

// NodeConfiguration configures the virtual node, or nodes, of the cluster.
type NodeConfiguration struct {
	// KubeletInsecureTLS accepts any serving certificate of a kubelet, for
	// clusters whose kubelets sign their own.
	KubeletInsecureTLS bool `json:"kubeletInsecureTLS,omitempty"`
	// SplitLabel is a label of the nodes, such as topology.kubernetes.io/zone. Each
	// of its values, up to 64, becomes a virtual node of its own on the hub,
	// "<cluster>.<value>"; the nodes without one stay with the cluster's. The hub's
	// record of the cluster has to consent to the label. Default none: the cluster is
	// one node.
	SplitLabel string `json:"splitLabel,omitempty"`
}

const (
	// defaultJSONRawLength is the limit of OCM's ManifestWork.
	defaultJSONRawLength = 1024
	maxJSONRawLength     = 1 << 20
	// maxAgentID is that of a name: an anchor carries it.
	maxAgentID = 253
	// defaultHelmMemory is that of a process of Helm, and minHelmMemory what it does not
	// start below.
	defaultHelmMemory = "192Mi"
	minHelmMemory     = 128 << 20
)

// Default fills what was left empty.
func (c *AgentConfiguration) Default() {
	enabled := true
	setDefault(&c.Namespace, "spokelet-agent")
	setDefault(&c.Hub.TokenFile, "/etc/spokelet/join/token")
	setDefault(&c.Kube.Enabled, &enabled)
	setDefault(&c.Kube.UserPrefix, "hub:")
	setDefault(&c.Work.Enabled, &enabled)
	setDefault(&c.Work.ServiceAccount.Namespace, "open-cluster-management-agent")
	setDefault(&c.Work.ServiceAccount.Name, "klusterlet-work-sa")
	setDefault(&c.Work.EvictionGrace.Duration, time.Hour)
	setDefault(&c.Work.MaxJSONRawLength, defaultJSONRawLength)
	setDefault(&c.Pods.Enabled, &enabled)
	setDefault(&c.Pods.ServiceAccount, "spokelet-node")
	setDefault(&c.Pods.Tokens, PodTokensSpoke)
	setDefault(&c.Helm.Binary, "/spokelet-helm")
	if c.Helm.Memory.IsZero() {
		c.Helm.Memory = resource.MustParse(defaultHelmMemory)
	}
	setDefault(&c.Shared.ServiceAccount, "spokelet-shared")
	c.Shared.Quota.setDefaults()
	setDefault(&c.HealthListen, ":8080")
}

// Validate reports everything that is wrong, joined.
func (c *AgentConfiguration) Validate() error {
	return errors.Join(
		checkLabel("cluster", c.Cluster),
		checkLabel("namespace", c.Namespace),
		checkHostPort("hub.address", c.Hub.Address),
		checkFingerprint("hub.caFingerprint", c.Hub.CAFingerprint),
		checkLabel("work.serviceAccount.namespace", c.Work.ServiceAccount.Namespace),
		checkSubdomain("work.serviceAccount.name", c.Work.ServiceAccount.Name),
		checkSubdomain("pods.serviceAccount", c.Pods.ServiceAccount),
		checkSubdomain("shared.serviceAccount", c.Shared.ServiceAccount),
		c.Shared.Quota.validate(),
		checkPrefix("pods.namespacePrefix", c.Pods.NamespacePrefix),
		checkOneOf("pods.tokens", c.Pods.Tokens, PodTokensSpoke, PodTokensHub, PodTokensNone),
		c.Pods.checkHubAPIServer(),
		checkListen("healthListen", c.HealthListen),
		checkLimit("work.maxJSONRawLength", c.Work.MaxJSONRawLength, maxJSONRawLength),
		checkAgentID("work.agentID", c.Work.AgentID),
		checkSplitLabel("node.splitLabel", c.Node.SplitLabel),
		c.Kube.checkGroups(),
		c.Helm.check(),
		checkEach(checkLabel, "kube.namespaces", c.Kube.Namespaces),
		checkEach(checkLabel, "work.namespaces", c.Work.Namespaces),
		checkEach(checkAnnotation, "pods.annotations", c.Pods.Annotations),
		checkEach(checkLabel, "pods.namespaces", c.Pods.Namespaces),
	)
}

func (c HelmConfiguration) check() error {
	if c.Memory.Value() < minHelmMemory {
		return fmt.Errorf("helm.memory: %s is less than 128Mi", c.Memory.String())
	}
	return checkEach(checkChartURL, "helm.charts", c.Charts)
}

// checkChartURL takes the URL of a server or of a registry. What spokelet-helm would refuse
// (helm/chart, ReadAllowed) is refused when the agent starts.
func checkChartURL(field, value string) error {
	u, err := url.Parse(value)
	switch {
	case err != nil:
		return fmt.Errorf("%s: %q is no URL", field, value)
	case u.Scheme != "https" && u.Scheme != "http" && u.Scheme != "oci", u.Host == "", u.User != nil, u.RawQuery != "", u.Fragment != "":
		return fmt.Errorf("%s: %q is not of the form https://host/path, http://host/path or oci://host/path", field, value)
	case u.Path != "" && strings.TrimSuffix(u.Path, "/") != strings.TrimSuffix(path.Clean(u.Path), "/"),
		strings.Contains(u.Path, `\`), strings.Contains(strings.ToLower(u.EscapedPath()), "%2f"):
		return fmt.Errorf("%s: %q has a path with empty or dotted segments, or escaped separators", field, value)
	default:
		return nil
	}
}

// checkEach has check look at every value of a list.
func checkEach(check func(field, value string) error, field string, values []string) error {
	var errs []error
	for _, value := range values {
		errs = append(errs, check(field, value))
	}
	return errors.Join(errs...)
}

// PodAccount is the user that pods are written as.
func (c *AgentConfiguration) PodAccount() string {
	return ServiceAccountReference{Namespace: c.Namespace, Name: c.Pods.ServiceAccount}.Username()
}

// SharedAccount is the user that shared objects are read and written as.
func (c *AgentConfiguration) SharedAccount() string {
	return ServiceAccountReference{Namespace: c.Namespace, Name: c.Shared.ServiceAccount}.Username()
}

// checkPrefix takes what makes a label of every name that is short enough.
func checkPrefix(field, value string) error {
	if value == "" {
		return nil
	}
	return checkLabel(field, value+"x")
}

func checkSplitLabel(field, value string) error {
	if value == "" {
		return nil
	}
	if err := wire.CheckSplitLabel(value); err != nil {
		return fmt.Errorf("%s: %w", field, err)
	}
	return nil
}

// HubServer is the host and the port of HubAPIServer, empty without one.
func (c PodConfiguration) HubServer() (host, port string) {
	u, err := url.Parse(c.HubAPIServer)
	if err != nil {
		return "", ""
	}
	return u.Hostname(), u.Port()
}

// checkHubAPIServer takes what fits into the variables that clients in a cluster read.
func (c PodConfiguration) checkHubAPIServer() error {
	if c.HubAPIServer == "" {
		return nil
	}
	host, port := c.HubServer()
	if host == "" || port == "" || c.HubAPIServer != "https://"+net.JoinHostPort(host, port) {
		return fmt.Errorf("pods.hubAPIServer: %q is not of the form https://host:port", c.HubAPIServer)
	}
	if c.Tokens != PodTokensHub {
		return fmt.Errorf("pods.hubAPIServer: is for pods.tokens %q, which is %q", PodTokensHub, c.Tokens)
	}
	return nil
}

// checkAnnotation takes a key of annotations, or a domain with its slash.
func checkAnnotation(field, value string) error {
	if domain, ok := strings.CutSuffix(value, "/"); ok {
		return checkSubdomain(field, domain)
	}
	if msgs := validation.IsQualifiedName(value); len(msgs) > 0 {
		return fmt.Errorf("%s: %q: %s", field, value, msgs[0])
	}
	return nil
}

// checkGroups takes names, or one word for all of them. A name that is never passed
// on is a mistake of whoever wrote it.
func (c KubeDoorConfiguration) checkGroups() error {
	for _, group := range c.Groups {
		switch {
		case group == "" || strings.HasPrefix(group, "system:"):
			return fmt.Errorf("kube.groups: %q is never passed on", group)
		case group == "*" && len(c.Groups) > 1:
			return errors.New(`kube.groups: "*" stands alone`)
		}
	}
	return nil
}

func checkLabel(field, value string) error {
	if msgs := validation.IsDNS1123Label(value); len(msgs) > 0 {
		return fmt.Errorf("%s: %q: %s", field, value, msgs[0])
	}
	return nil
}

func checkSubdomain(field, value string) error {
	if msgs := validation.IsDNS1123Subdomain(value); len(msgs) > 0 {
		return fmt.Errorf("%s: %q: %s", field, value, msgs[0])
	}
	return nil
}

// checkAgentID takes what can be read in a log and compared as it stands.
func checkAgentID(field, value string) error {
	plain := func(r rune) bool { return r > ' ' && r <= '~' }
	if len(value) > maxAgentID || strings.ContainsFunc(value, func(r rune) bool { return !plain(r) }) {
		return fmt.Errorf("%s: %q is not up to %d printable characters without space", field, value, maxAgentID)
	}
	return nil
}

func checkFingerprint(field, value string) error {
	if raw, err := hex.DecodeString(value); err != nil || len(raw) != 32 {
		return fmt.Errorf("%s: not the SHA-256 of a certificate in hex", field)
	}
	return nil
}
