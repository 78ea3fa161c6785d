// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	// KindPod is the Sync kind of [Pod], hub to agent. Its key is
	// "<namespace>/<name>", its UID that of the hub's pod.
	KindPod = "pod"
	// KindPodObject is the Sync kind of [PodObject], hub to agent.
	KindPodObject = "pod.object"
	// KindPodToken is the Sync kind of [PodToken], hub to agent. Its key is
	// "<namespace>/<pod>/<UID of the hub's pod>", its UID that of the pod.
	KindPodToken = "pod.token"
	// KindPodForced is the Sync kind, hub to agent, of pods that were deleted on the hub
	// without a grace. Kinds that are known by a pod's name tell only of the last pod that
	// had it, so the key and the UID are as of a [KindPodToken]; there is no body.
	KindPodForced = "pod.forced"
	// KindPodStatus is the Sync kind of [PodStatus], agent to hub; a status has the
	// key and the UID of its pod.
	KindPodStatus = "pod.status"
	// KindPodEvent is the Sync kind of [PodEvent], agent to hub. Its key is
	// "<namespace>/<pod>/<UID of the event>", its UID that of the hub's pod.
	KindPodEvent = "pod.event"

	// KindPodNamespace is the Sync kind, agent to hub, of the namespaces that the agent
	// made for pods. The key is the name on the hub, the UID that of the hub's namespace
	// ([Pod.NamespaceUID]); there is no body.
	KindPodNamespace = "pod.namespace"
	// KindPodNamespaceGone is the Sync kind, hub to agent, of those of them whose
	// namespace the hub has no more, with the key and the UID that the agent said.
	KindPodNamespaceGone = "pod.namespace.gone"

	// PodNamespacesMax is how many namespaces of one agent a hub keeps.
	PodNamespacesMax = 4096
	// PodsForcedMax is how many pods that were deleted without a grace an agent is told of,
	// the last ones.
	PodsForcedMax = 1024
	// PodEventsMax is how many events of one pod a hub keeps.
	PodEventsMax = 64
	// PodStatusMaxBytes bounds an encoded status: the hub keeps it, and its store has
	// to take what it says.
	PodStatusMaxBytes = 256 << 10
	// PodEventMaxBytes bounds an encoded event.
	PodEventMaxBytes = 16 << 10

	// ConditionInCluster is the condition of a hub's pod that was in its cluster: a
	// status from there was written. It is False when nothing is left there.
	ConditionInCluster corev1.PodConditionType = "spokelet.io/InCluster"

	maxContainers    = 256
	maxPodConditions = 64
	// maxPodMessage bounds why a pod is not in the spoke, in bytes.
	maxPodMessage = 2048
)

// ErrInvalidPod: a key, pod, object, status or event is not one that a peer may
// send.
var ErrInvalidPod = errors.New("invalid pod")

// PodKey names a pod by its namespace and name on the hub.
type PodKey struct{ Namespace, Name string }

// String is the key in Sync: "<namespace>/<name>".
func (k PodKey) String() string { return k.Namespace + "/" + k.Name }

// ParsePodKey is the inverse of String.
func ParsePodKey(s string) (PodKey, error) {
	namespace, name, ok := strings.Cut(s, "/")
	if !ok || len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return PodKey{}, fmt.Errorf("key %.256q is not namespace/name: %w", s, ErrInvalidPod)
	}
	return PodKey{Namespace: namespace, Name: name}, nil
}

// Pod is one pod that is bound to the virtual node of a spoke. A hub that deletes
// the Pod from Sync has no such pod any more, and nobody waits for its end.
type Pod struct {
	// Pod is the hub's: name, namespace, UID, generation, labels, annotations,
	// owners, times of its deletion, and spec. It has no status and no managed
	// fields.
	Pod corev1.Pod `json:"pod"`
	// NamespaceUID is that of the pod's namespace on the hub; empty while the hub does
	// not know it. Who knows it has had a pod of the namespace.
	NamespaceUID types.UID `json:"namespaceUID,omitempty"`
	// Seen: the hub's pod has shown that it was in the spoke. One that is not there
	// any more was deleted there, and is not made again.
	Seen bool `json:"seen,omitempty"`
	// Ended: the hub's pod has succeeded or failed; nothing is run for it again.
	Ended bool `json:"ended,omitempty"`
	// Issued: the hub issues the tokens of its service accounts that the pod asks
	// for, to agents that ask for them.
	Issued bool `json:"issued,omitempty"`
	// Group is the group of nodes that the pod is bound to; empty for the cluster's
	// own node.
	Group string `json:"group,omitempty"`
	// SplitLabel is the label by which the cluster is shown in groups; empty when it is
	// one node. A pod of an agent's other label runs on any node.
	SplitLabel string `json:"splitLabel,omitempty"`
	// Grouped is Pod while one of a group travels: an agent that knows of no groups
	// finds a pod that it cannot read, and neither runs it on any node nor ends one
	// that runs.
	Grouped *corev1.Pod `json:"grouped,omitempty"`
}

// Encode writes the pod as it travels.
func (p Pod) Encode() ([]byte, error) {
	if p.Group != "" {
		whole := p.Pod
		p.Pod, p.Grouped = corev1.Pod{}, &whole
	}
	body, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("encode pod: %w", err)
	}
	return body, nil
}

// restoreGroupedPod takes a pod of a group out of where it travels.
func restoreGroupedPod(p *Pod) error {
	if p.Group == "" && p.Grouped == nil {
		return nil
	}
	if p.Grouped == nil || !IsNodeGroup(p.Group) {
		return fmt.Errorf("pod of group %.64q: %w", p.Group, ErrInvalidPod)
	}
	p.Pod, p.Grouped = *p.Grouped, nil
	return nil
}

// DecodePod reads the body of a [KindPod] that came under a key.
func DecodePod(key string, body []byte) (Pod, error) {
	k, err := ParsePodKey(key)
	if err != nil {
		return Pod{}, err
	}
	var p Pod
	if err := json.Unmarshal(body, &p); err != nil {
		return Pod{}, fmt.Errorf("decode pod: %w: %w", ErrInvalidPod, err)
	}
	if err := restoreGroupedPod(&p); err != nil {
		return Pod{}, err
	}
	if p.Pod.Namespace != k.Namespace || p.Pod.Name != k.Name || p.Pod.UID == "" {
		return Pod{}, fmt.Errorf("pod %s is under the key of another: %w", key, ErrInvalidPod)
	}
	return p, nil
}

// Names of the kinds of a PodObject.
const (
	PodObjectConfigMap = "configmap"
	PodObjectSecret    = "secret"
)

// PodObjectKey names what pods refer to: "<kind>/<namespace>/<name>".
type PodObjectKey struct {
	// Kind is PodObjectConfigMap or PodObjectSecret.
	Kind            string
	Namespace, Name string
}

// String is the key in Sync.
func (k PodObjectKey) String() string { return k.Kind + "/" + k.Namespace + "/" + k.Name }

// ParsePodObjectKey is the inverse of String.
func ParsePodObjectKey(s string) (PodObjectKey, error) {
	kind, rest, _ := strings.Cut(s, "/")
	k, err := ParsePodKey(rest)
	if err != nil || kind != PodObjectConfigMap && kind != PodObjectSecret {
		return PodObjectKey{}, fmt.Errorf("key %.256q is not kind/namespace/name: %w", s, ErrInvalidPod)
	}
	return PodObjectKey{Kind: kind, Namespace: k.Namespace, Name: k.Name}, nil
}

// IsPodNamespace tells whether a key of a [KindPodNamespace] is one.
func IsPodNamespace(key string) bool { return len(validation.IsDNS1123Label(key)) == 0 }

// PodObject is a ConfigMap or a Secret that a pod of the spoke's virtual node
// refers to, as it is on the hub now. Every reference has one.
type PodObject struct {
	// Missing: the hub has no such object.
	Missing bool `json:"missing,omitempty"`
	// Type of a Secret.
	Type corev1.SecretType `json:"type,omitempty"`
	// Text is the data of a ConfigMap that is text, Data all other.
	Text      map[string]string `json:"text,omitempty"`
	Data      map[string][]byte `json:"data,omitempty"`
	Immutable bool              `json:"immutable,omitempty"`
}

// DecodePodObject reads the body of a [KindPodObject].
func DecodePodObject(body []byte) (PodObject, error) {
	var o PodObject
	if err := json.Unmarshal(body, &o); err != nil {
		// The error of the decoder would quote what may be secret.
		return PodObject{}, fmt.Errorf("decode object of a pod: %w", ErrInvalidPod)
	}
	return o, nil
}

// PodStatus is what became of one pod in the spoke.
type PodStatus struct {
	// Gone: nothing runs in the spoke for this UID, and nothing will.
	Gone bool `json:"gone,omitempty"`
	// Lost: the pod was in the spoke and was deleted there, not by the hub. With
	// Gone: it has ended.
	Lost bool `json:"lost,omitempty"`
	// Reason and Message say why the pod is not in the spoke, when it is to be, and with
	// Gone why it never was: a word as of a condition, and a sentence. Retried: it may
	// heal by itself.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	Retried bool   `json:"retried,omitempty"`
	// Generation of the hub's pod that the spoke's is brought to.
	Generation int64 `json:"generation,omitempty"`
	// Status of the pod in the spoke, as it is there; nil while there is none.
	Status *corev1.PodStatus `json:"status,omitempty"`
}

// DecodePodStatus reads the body of a [KindPodStatus] and bounds its lists.
func DecodePodStatus(body []byte) (PodStatus, error) {
	var s PodStatus
	if len(body) > PodStatusMaxBytes {
		return PodStatus{}, fmt.Errorf("%d bytes of status are more than %d: %w", len(body), PodStatusMaxBytes, ErrInvalidPod)
	}
	if err := json.Unmarshal(body, &s); err != nil {
		return PodStatus{}, fmt.Errorf("decode pod status: %w: %w", ErrInvalidPod, err)
	}
	if s.Reason != "" && !IsReason(s.Reason) {
		return PodStatus{}, fmt.Errorf("reason %.64q: %w", s.Reason, ErrInvalidPod)
	}
	s.Message = lineOf(s.Message, maxPodMessage)
	if s.Status == nil {
		return s, nil
	}
	if n := len(s.Status.ContainerStatuses) + len(s.Status.InitContainerStatuses) + len(s.Status.EphemeralContainerStatuses); n > maxContainers {
		return PodStatus{}, fmt.Errorf("%d containers are more than %d: %w", n, maxContainers, ErrInvalidPod)
	}
	if n := len(s.Status.Conditions); n > maxPodConditions {
		return PodStatus{}, fmt.Errorf("%d conditions are more than %d: %w", n, maxPodConditions, ErrInvalidPod)
	}
	return s, nil
}

// PodEvent is an event of the spoke about a pod.
type PodEvent struct {
	// Type, Reason, Message, Count and times as in the spoke's event.
	Type    string           `json:"type"`
	Reason  string           `json:"reason"`
	Message string           `json:"message,omitempty"`
	Count   int32            `json:"count,omitempty"`
	First   metav1.Time      `json:"first,omitzero"`
	Last    metav1.MicroTime `json:"last,omitzero"`
	// FieldPath is the part of the pod, such as "spec.containers{main}".
	FieldPath string `json:"fieldPath,omitempty"`
	// Source is who reported it, such as "kubelet", and Host where.
	Source string `json:"source,omitempty"`
	Host   string `json:"host,omitempty"`
}

// DecodePodEvent reads the body of a [KindPodEvent].
func DecodePodEvent(body []byte) (PodEvent, error) {
	var e PodEvent
	if len(body) > PodEventMaxBytes {
		return PodEvent{}, fmt.Errorf("%d bytes of event are more than %d: %w", len(body), PodEventMaxBytes, ErrInvalidPod)
	}
	if err := json.Unmarshal(body, &e); err != nil {
		return PodEvent{}, fmt.Errorf("decode pod event: %w: %w", ErrInvalidPod, err)
	}
	if e.Type != corev1.EventTypeNormal && e.Type != corev1.EventTypeWarning || e.Reason == "" {
		return PodEvent{}, fmt.Errorf("event of type %.16q and reason %.64q: %w", e.Type, e.Reason, ErrInvalidPod)
	}
	return e, nil
}
