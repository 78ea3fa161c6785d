// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// LabelHub marks what an agent makes for pods of the hub. Its value is the hub's
	// id.
	LabelHub = "spokelet.io/hub"
	// LabelHubPodUID is the UID of the hub's pod, on the pod that runs for it.
	LabelHubPodUID = "spokelet.io/hub-pod-uid"
	// AnnotationWritten holds what was asked for of that which can change.
	AnnotationWritten = "spokelet.io/hub-written"
)

// Tokens says whether pods get tokens of service accounts.
type Tokens string

const (
	// TokensNone: pods have no token and run as the default service account.
	TokensNone Tokens = "none"
	// TokensSpoke: the spoke issues tokens of its own service account of the name
	// that the pod says.
	TokensSpoke Tokens = "spoke"
	// TokensHub: the hub issues tokens of the account that the pod has there. In the
	// spoke it runs as the default service account, without a token of that.
	TokensHub Tokens = "hub"
)

// Options are the spoke's side of a pod.
type Options struct {
	// HubID is the value of LabelHub.
	HubID string
	// Namespace of the pod in the spoke.
	Namespace string
	Tokens    Tokens
	// Issued: the hub issues the tokens that this pod asks for.
	Issued bool
	// APIHost and APIPort are those of the hub's API server, for pods with its
	// tokens; empty when it is left to them to find it.
	APIHost, APIPort string
	// HostAccess permits what Pod Security's profile "baseline" refuses, and all
	// annotations.
	HostAccess bool
	// Annotations that the spoke's owner allows besides those that always travel: keys,
	// and domains with their slash for all keys of them.
	Annotations []string
}

// NewPod returns the pod to create in the spoke for one of the hub. It shares nothing
// with hub. The error is a [*RefusedError].
func NewPod(hub *corev1.Pod, o Options) (*corev1.Pod, error) {
	spec := newSpec(&hub.Spec, o)
	pod := &corev1.Pod{ObjectMeta: newMeta(hub, o), Spec: *spec.DeepCopy()}
	if o.usesHubTokens(&hub.Spec) {
		newTokenInjector(hub, o).inject(&pod.Spec)
	}
	if err := checkPermitted(hub, &pod.ObjectMeta, &pod.Spec, o); err != nil {
		return nil, err
	}
	pod.Annotations[AnnotationWritten] = newDigests(pod).encode()
	return pod, nil
}

// NewDesiredPod returns [Pod] with the ephemeral containers, for [Change]. If the error is a
// [*RefusedError] and the pod is not nil, the pod is permitted and some of its
// ephemeral containers are not, and are left out.
func NewDesiredPod(hub *corev1.Pod, o Options) (*corev1.Pod, error) {
	pod, err := NewPod(hub, o)
	if err != nil {
		return nil, err
	}
	return pod, addEphemeral(pod, hub, o)
}

func newMeta(hub *corev1.Pod, o Options) metav1.ObjectMeta {
	meta := metav1.ObjectMeta{
		Name: hub.Name, Namespace: o.Namespace,
		Labels:      map[string]string{},
		Annotations: map[string]string{},
	}
	maps.Copy(meta.Labels, hub.Labels)
	meta.Labels[LabelHub] = o.HubID
	meta.Labels[LabelHubPodUID] = string(hub.UID)
	for key, value := range hub.Annotations {
		if !isHubOnly(key) && o.allowsAnnotation(key) {
			meta.Annotations[key] = value
		}
	}
	return meta
}
