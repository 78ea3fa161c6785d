// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// defaultAnnotations are the annotations that go along to every spoke: a key, or a domain with
// its slash for all keys of it. A list of those that may not would never be complete:
// runtimes, networks, meshes, clouds and autoscalers all read annotations of pods, and
// many let a pod out of its namespace after it was checked.
var defaultAnnotations = []string{
	"kubectl.kubernetes.io/", // restartedAt, default-container
	"batch.kubernetes.io/",   // the index of a Job's pod, which its container reads
	"app.kubernetes.io/",
	"prometheus.io/",
	"checksum/", // of configurations, by charts
	// It confines containers on old nodes. Values that set one free are refused.
	corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix,
}

// allowsAnnotation tells whether an annotation goes along. One without a domain is the user's
// own, unless it has a dot: some runtimes have keys such as io.kubernetes.cri-o.Devices.
func (o Options) allowsAnnotation(annotation string) bool {
	if o.HostAccess || !strings.ContainsAny(annotation, "./") {
		return true
	}
	listed := func(text string) bool {
		return text == annotation || strings.HasSuffix(text, "/") && strings.HasPrefix(annotation, text)
	}
	return slices.ContainsFunc(defaultAnnotations, listed) || slices.ContainsFunc(o.Annotations, listed)
}

// LeftOutAnnotations names the annotations of a pod that the spoke would take if its
// owner said so, sorted.
func LeftOutAnnotations(hub *corev1.Pod, o Options) []string {
	var left []string
	for key := range hub.Annotations {
		if !isHubOnly(key) && !o.allowsAnnotation(key) {
			left = append(left, key)
		}
	}
	slices.Sort(left)
	return left
}

// isHubOnly tells the annotations that mean something on the hub only. Those of
// seccomp mean nothing there, as its API server has long had fields instead; an old
// spoke would still obey them, unseen by the checks of the fields.
func isHubOnly(annotation string) bool {
	switch annotation {
	case corev1.LastAppliedConfigAnnotation, AnnotationWritten, corev1.SeccompPodAnnotationKey,
		corev1.PodDeletionCost: // for controllers of the hub, and no scale for those of the spoke's owner
		return true
	}
	return strings.HasPrefix(annotation, staticPrefix) || strings.HasPrefix(annotation, corev1.SeccompContainerAnnotationKeyPrefix)
}
