// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/internal/impersonation"
	"github.com/spokelet/spokelet/tunnel"
)

// podTarget is what a path names of a pod.
type podTarget struct {
	namespace, pod string
	uid            string // empty when it does not matter
	container      string
}

// matches reports whether a pod has the UID of the target, if that has one.
func (t podTarget) matches(pod *corev1.Pod) bool { return t.uid == "" || t.uid == string(pod.UID) }

// hasContainer looks where a kubelet looks: in all kinds of containers.
func hasContainer(pod *corev1.Pod, name string) bool {
	named := func(c corev1.Container) bool { return c.Name == name }
	return slices.ContainsFunc(pod.Spec.Containers, named) || slices.ContainsFunc(pod.Spec.InitContainers, named) ||
		slices.ContainsFunc(pod.Spec.EphemeralContainers, func(c corev1.EphemeralContainer) bool { return c.Name == name })
}

// newRequest returns a request for the pod in the cluster, as its node. The path is of the
// hub's pod; the agent knows where that is, by its UID.
func (e *endpoint) newRequest(ctx context.Context, method string, c podRequest) *http.Request {
	u := &url.URL{
		Scheme: "http", Host: tunnel.DoorKube, RawQuery: c.query.Encode(),
		Path: "/api/v1/namespaces/" + c.pod.Namespace + "/pods/" + c.pod.Name + "/" + c.subresource,
	}
	r := &http.Request{
		Method: method, URL: u, Host: u.Host, Header: http.Header{},
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
	impersonation.Set(r.Header, impersonation.Principal{Kind: impersonation.Node, PodUID: string(c.pod.UID)})
	return r.WithContext(ctx)
}

// pods answers with the pods that are bound to the node.
func (e *endpoint) pods(w http.ResponseWriter, r *http.Request) {
	bound := e.config.Pods.Pods(e.node)
	list := newPodList(len(bound))
	for _, pod := range bound {
		list.Items = append(list.Items, *pod)
	}
	writeList(w, r, list)
}

// runningPods answers with the pods of which a container runs, as a runtime
// knows them: by name, UID and image.
func (e *endpoint) runningPods(w http.ResponseWriter, r *http.Request) {
	list := newPodList(0)
	for _, pod := range e.config.Pods.Pods(e.node) {
		if running := runningContainers(pod); len(running) > 0 {
			list.Items = append(list.Items, corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID},
				Spec:       corev1.PodSpec{Containers: running},
			})
		}
	}
	writeList(w, r, list)
}

func runningContainers(pod *corev1.Pod) []corev1.Container {
	var running []corev1.Container
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses, pod.Status.EphemeralContainerStatuses) {
		if c.State.Running != nil {
			running = append(running, corev1.Container{Name: c.Name, Image: c.Image})
		}
	}
	return running
}

func newPodList(size int) *corev1.PodList {
	return &corev1.PodList{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"},
		Items:    make([]corev1.Pod, 0, size),
	}
}

func writeList(w http.ResponseWriter, r *http.Request, list *corev1.PodList) {
	body, err := json.Marshal(list)
	if err != nil {
		refuse(w, r, &refusal{http.StatusInternalServerError, err.Error()})
		return
	}
	writeJSON(w, body)
}

func writeJSON(w http.ResponseWriter, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(body) // a client that went away needs no answer
}

// configz answers with what is true of a kubelet's configuration here, and says
// nothing about the rest: it belongs to the kubelets of the cluster.
func (e *endpoint) configz(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, fmt.Appendf(nil, `{"kubeletconfig":{"kind":"KubeletConfiguration","apiVersion":"kubelet.config.k8s.io/v1beta1",`+
		`"enableServer":true,"authentication":{"webhook":{"enabled":true,"cacheTTL":%q},"anonymous":{"enabled":false}},`+
		`"authorization":{"mode":"Webhook","webhook":{"cacheAuthorizedTTL":%q,"cacheUnauthorizedTTL":%q}},`+
		`"enableDebuggingHandlers":true,"enableSystemLogHandler":false,"enableSystemLogQuery":false,`+
		`"enableProfilingHandler":false,"enableDebugFlagsHandler":false}}`, tokenTTL, allowTTL, denyTTL))
}
