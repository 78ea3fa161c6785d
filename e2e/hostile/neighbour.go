// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/e2e/env"
)

const (
	// neighbourNamespace is the namespace of the hub's cluster that attacks come from.
	neighbourNamespace = "neighbours"
	// neighbourPods is how many addresses they come from.
	neighbourPods = 4
)

// loadNeighbour makes the image of the neighbours known to the hub's nodes and returns
// its reference.
func (s *Site) loadNeighbour(ctx context.Context) (string, error) {
	img, err := s.env.Build.ToolImage(ctx, "neighbour")
	if err != nil {
		return "", err
	}
	if err := s.env.Set.Hub().LoadImage(ctx, img.Archive); err != nil {
		return "", fmt.Errorf("image of the neighbour: %w", err)
	}
	return img.Ref, nil
}

// startNeighbours starts them, before anything is measured: what it takes to start a
// pod is no attack.
func (s *Site) startNeighbours(ctx context.Context) error {
	ref, err := s.loadNeighbour(ctx)
	if err != nil {
		return err
	}
	pods := s.kube.CoreV1().Pods(neighbourNamespace)
	for i := range neighbourPods {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: neighbourName(i)},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: "neighbour", Image: ref,
				Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: apiresource.MustParse("256Mi")}},
			}}},
		}
		if _, err := pods.Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("neighbour: %w", err)
		}
	}
	_, err = s.env.Kubectl(s.env.Set.Hub()).Run(ctx, "wait", "-n", neighbourNamespace, "--for=condition=Ready", "pod", "--all", "--timeout=60s")
	return err
}

func neighbourName(i int) string { return fmt.Sprintf("neighbour-%d", i) }

// fromNeighbours has all neighbours attack the hub at once, as the program neighbour does
// under that name.
func (s *Site) fromNeighbours(attack string) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		service, err := s.kube.CoreV1().Services(env.HubNamespace).Get(ctx, "spokelet-hub", metav1.GetOptions{})
		if err != nil {
			return "", fmt.Errorf("service of the hub: %w", err)
		}
		texts, errs := make([]string, neighbourPods), make([]error, neighbourPods)
		atOnce(neighbourPods, func(i int) error {
			texts[i], errs[i] = s.attackFrom(ctx, neighbourName(i), attack, service.Spec.ClusterIP)
			return errs[i]
		})
		return strings.Join(texts, "; "), errors.Join(errs...)
	}
}

// attackFrom has one of the neighbours attack and returns how it went.
func (s *Site) attackFrom(ctx context.Context, pod, attack, hub string) (string, error) {
	text, err := s.kube.CoreV1().Pods(neighbourNamespace).ProxyGet("http", pod, "8080", "/"+attack, map[string]string{"hub": hub}).DoRaw(ctx)
	if err != nil {
		return "", fmt.Errorf("%s: %w", pod, err)
	}
	return string(text), nil
}
