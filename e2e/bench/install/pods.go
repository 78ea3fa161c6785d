// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/spokelet/spokelet/e2e/bench/figure"
	"github.com/spokelet/spokelet/hack/clusters"
)

const (
	// podsNamespace is not there in the spoke before: the agent makes it.
	podsNamespace = "bench-pods"

	hundreds = 600

	// inCluster is the condition of a pod on the hub that was in its cluster, and
	// round one that the bench sets in the spoke.
	inCluster = "spokelet.io/InCluster"
	round     = "BenchRound"
)

func podsOf(on *site) dynamic.ResourceInterface {
	return on.dyn.Resource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}).Namespace(podsNamespace)
}

// newPod is a pod for the virtual node; bound says whether it is there already.
func newPod(name string, bound bool, command ...string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: podsNamespace},
		Spec: corev1.PodSpec{
			SchedulerName:                 "nobody",
			AutomountServiceAccountToken:  new(false),
			TerminationGracePeriodSeconds: new(int64(1)),
			Containers: []corev1.Container{{
				Name: "main", Image: clusters.BusyboxImage, ImagePullPolicy: corev1.PullNever, Command: command,
			}},
		},
	}
	if bound {
		pod.Spec.NodeName = spokeName
	}
	return pod
}

// waitingPod is one that the spoke has no node for: its kubelet, which shares the
// machine, has no part in what is measured.
func waitingPod(name string, bound bool) *corev1.Pod {
	pod := newPod(name, bound, "true")
	pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1000")}
	return pod
}

// preparePods makes the namespace on the hub, once, with the account that pods
// there run as.
func (s *suite) preparePods(ctx context.Context) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: podsNamespace}}
	if _, err := s.hub.kube.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	_, err := s.hub.ctl.Run(ctx, "wait", "-n", podsNamespace, "serviceaccount/default", "--for=create", "--timeout=60s")
	return err
}

func (s *suite) createPod(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	return s.hub.kube.CoreV1().Pods(podsNamespace).Create(ctx, pod, metav1.CreateOptions{})
}

// started runs a shell's command on the virtual node and waits until it does.
func (s *suite) started(ctx context.Context, name, command string) error {
	if err := s.preparePods(ctx); err != nil {
		return err
	}
	if _, err := s.createPod(ctx, newPod(name, true, "/bin/busybox", "sh", "-c", command)); err != nil {
		return err
	}
	_, err := s.hub.ctl.Run(ctx, "wait", "-n", podsNamespace, "pod/"+name, "--for=jsonpath={.status.phase}=Running", "--timeout=60s")
	return err
}

// removePods waits until none is left, on either side.
func (s *suite) removePods(ctx context.Context) error {
	if _, err := s.hub.ctl.Run(ctx, "delete", "pods", "-n", podsNamespace, "--all", "--timeout=120s"); err != nil {
		return err
	}
	_, err := s.spoke.ctl.Run(ctx, "wait", "-n", podsNamespace, "pods", "--all", "--for=delete", "--timeout=120s")
	return err
}

// latency measures one pod at a time: from its binding on the hub until it is in
// the spoke, and from a change of its status there until the hub has it.
func (s *suite) latency(ctx context.Context) ([]figure.Figure, error) {
	if err := s.preparePods(ctx); err != nil {
		return nil, err
	}
	bound, err := s.bindings(ctx)
	if err != nil {
		return nil, err
	}
	told, err := s.statuses(ctx)
	if err != nil {
		return nil, err
	}
	ms := figure.Milliseconds
	return []figure.Figure{
		{Name: "node.pod.running.overhead.ms", Value: ms(bound.Percentile(50)), Unit: "ms", Detail: fmt.Sprintf("n=%d, the binding included, p90 %.1f", samples, ms(bound.Percentile(90)))},
		{Name: "node.pod.status.ms", Value: ms(told.Percentile(50)), Unit: "ms", Detail: fmt.Sprintf("n=%d, p90 %.1f", samples, ms(told.Percentile(90)))},
	}, s.removePods(ctx)
}

func (s *suite) bindings(ctx context.Context) (figure.Durations, error) {
	events, stop, err := open(ctx, podsOf(s.spoke))
	if err != nil {
		return nil, err
	}
	defer stop()
	var taken figure.Durations
	for i := range samples + 1 {
		pod, err := s.createPod(ctx, waitingPod(fmt.Sprintf("one-%d", i), false))
		if err != nil {
			return nil, err
		}
		start := time.Now()
		if err := s.bind(ctx, pod); err != nil {
			return nil, err
		}
		if err := await(events, func(e watch.Event) bool { return is(e, pod.Name) && e.Type == watch.Added }); err != nil {
			return nil, fmt.Errorf("pod %s in the spoke: %w", pod.Name, err)
		}
		if i > 0 { // the first one had to have its namespace made
			taken = append(taken, time.Since(start))
		}
	}
	return taken, nil
}

// bind does what a scheduler does.
func (s *suite) bind(ctx context.Context, pod *corev1.Pod) error {
	return s.hub.kube.CoreV1().Pods(pod.Namespace).Bind(ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: spokeName},
	}, metav1.CreateOptions{})
}

// statuses changes a condition of a pod in the spoke and waits for the hub's pod.
func (s *suite) statuses(ctx context.Context) (figure.Durations, error) {
	events, stop, err := open(ctx, podsOf(s.hub))
	if err != nil {
		return nil, err
	}
	defer stop()
	var taken figure.Durations
	for i := range samples + 1 {
		name, reason := fmt.Sprintf("one-%d", i), fmt.Sprintf("Round%d", i)
		patch := fmt.Sprintf(`{"status":{"conditions":[{"type":%q,"status":"True","reason":%q}]}}`, round, reason)
		start := time.Now()
		if _, err := s.spoke.kube.CoreV1().Pods(podsNamespace).Patch(ctx, name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status"); err != nil {
			return nil, err
		}
		if err := await(events, func(e watch.Event) bool { return is(e, name) && hasCondition(e, round, "True") }); err != nil {
			return nil, fmt.Errorf("status of pod %s on the hub: %w", name, err)
		}
		if i > 0 {
			taken = append(taken, time.Since(start))
		}
	}
	return taken, nil
}

// sixHundred creates pods that are bound, and waits until each of them is in the
// spoke and its status from there on the hub.
func (s *suite) sixHundred(ctx context.Context) ([]figure.Figure, error) {
	if err := s.preparePods(ctx); err != nil {
		return nil, err
	}
	events, stop, err := open(ctx, podsOf(s.hub))
	if err != nil {
		return nil, err
	}
	defer stop()
	const prefix = "many-"
	start := time.Now()
	done := make(chan error, 1)
	go func() { done <- awaitAll(events, prefix, hundreds, conditionTrue(inCluster)) }()
	err = parallel(ctx, writers, hundreds, func(ctx context.Context, i int) error {
		_, err := s.createPod(ctx, waitingPod(fmt.Sprintf("%s%d", prefix, i), true))
		return err
	})
	if err != nil {
		return nil, err
	}
	created := time.Since(start)
	if err := <-done; err != nil {
		return nil, err
	}
	taken := time.Since(start)
	return []figure.Figure{{
		Name: "node.pods600.s", Value: taken.Seconds(), Unit: "s",
		Detail: fmt.Sprintf("%d pods, created by %d writers in %s", hundreds, writers, created.Round(time.Millisecond)),
	}}, s.removePods(ctx)
}

// manySecrets puts Secrets on the hub that no pod refers to.
func (s *suite) manySecrets(ctx context.Context, count, size int) error {
	secrets := s.hub.dyn.Resource(schema.GroupVersionResource{Version: "v1", Resource: "secrets"}).Namespace(podsNamespace)
	if err := s.preparePods(ctx); err != nil {
		return err
	}
	payload := make([]byte, size)
	for i := range payload {
		payload[i] = 'x'
	}
	return parallel(ctx, writers, count, func(ctx context.Context, i int) error {
		return create(ctx, secrets, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Secret",
			"metadata":   map[string]any{"name": fmt.Sprintf("secret-%d", i), "namespace": podsNamespace},
			"stringData": map[string]any{"k": string(payload)},
		}})
	})
}
