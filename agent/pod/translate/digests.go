// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Kinds of marks; the name of what is marked follows.
const (
	digestLabel      = "label:"
	digestAnnotation = "annotation:"
	digestImage      = "image:"
	// digestResources is of a container, or with no name of the pod.
	digestResources = "resources:"
	digestDeadline  = "deadline:"
)

// digests are what was asked for of that which can change on a live pod: a digest for
// each label, annotation, image, and so on. An annotation holds them, which is read
// by whoever may read the pod.
type digests map[string]string

func newDigests(want *corev1.Pod) digests {
	m := digests{}
	for key, value := range want.Labels {
		m.set(digestLabel+key, value)
	}
	for key, value := range want.Annotations {
		if key != AnnotationWritten {
			m.set(digestAnnotation+key, value)
		}
	}
	if deadline := want.Spec.ActiveDeadlineSeconds; deadline != nil {
		m.set(digestDeadline, strconv.FormatInt(*deadline, 10))
	}
	if want.Spec.Resources != nil {
		m.setResources("", want.Spec.Resources)
	}
	m.setContainers(want.Spec.InitContainers)
	m.setContainers(want.Spec.Containers)
	return m
}

func (m digests) setContainers(list []corev1.Container) {
	for i := range list {
		m.set(digestImage+list[i].Name, list[i].Image)
		m.setResources(list[i].Name, &list[i].Resources)
	}
}

func (m digests) setResources(name string, r *corev1.ResourceRequirements) {
	if len(r.Requests)+len(r.Limits) == 0 {
		return
	}
	text, err := json.Marshal([]map[corev1.ResourceName]string{quantityTexts(r.Requests), quantityTexts(r.Limits)})
	if err != nil {
		panic(fmt.Sprintf("encode resources: %v", err)) // maps of text
	}
	m.set(digestResources+name, string(text))
}

func quantityTexts(list corev1.ResourceList) map[corev1.ResourceName]string {
	out := make(map[corev1.ResourceName]string, len(list))
	for name, quantity := range list {
		out[name] = quantity.String()
	}
	return out
}

func (m digests) set(mark, value string) {
	sum := sha256.Sum256([]byte(value))
	m[mark] = hex.EncodeToString(sum[:8])
}

// restore sets a mark to what it was before.
func (m digests) restore(mark string, before digests) {
	if old, ok := before[mark]; ok {
		m[mark] = old
		return
	}
	delete(m, mark)
}

// names returns the names that have a mark of a kind.
func (m digests) names(kind string) map[string]struct{} {
	names := map[string]struct{}{}
	for mark := range m {
		if name, ok := strings.CutPrefix(mark, kind); ok {
			names[name] = struct{}{}
		}
	}
	return names
}

func (m digests) encode() string {
	out, err := json.Marshal(m)
	if err != nil {
		panic(fmt.Sprintf("encode marks: %v", err)) // a map of text
	}
	return string(out)
}

// parseDigests reads what a live pod bears. Nothing that can be read is no marks: then
// all is asked for again, and nothing removed.
func parseDigests(live *corev1.Pod) digests {
	var m digests
	if json.Unmarshal([]byte(live.Annotations[AnnotationWritten]), &m) != nil {
		return nil
	}
	return m
}
