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
	markLabel      = "label:"
	markAnnotation = "annotation:"
	markImage      = "image:"
	// markResources is of a container, or with no name of the pod.
	markResources = "resources:"
	markDeadline  = "deadline:"
)

// marks are what was asked for of that which can change on a live pod: a digest for
// each label, annotation, image, and so on. An annotation holds them, which is read
// by whoever may read the pod.
type marks map[string]string

func marksOf(want *corev1.Pod) marks {
	m := marks{}
	for key, value := range want.Labels {
		m.set(markLabel+key, value)
	}
	for key, value := range want.Annotations {
		if key != AnnotationWritten {
			m.set(markAnnotation+key, value)
		}
	}
	if deadline := want.Spec.ActiveDeadlineSeconds; deadline != nil {
		m.set(markDeadline, strconv.FormatInt(*deadline, 10))
	}
	if want.Spec.Resources != nil {
		m.resources("", want.Spec.Resources)
	}
	m.containers(want.Spec.InitContainers)
	m.containers(want.Spec.Containers)
	return m
}

func (m marks) containers(list []corev1.Container) {
	for i := range list {
		m.set(markImage+list[i].Name, list[i].Image)
		m.resources(list[i].Name, &list[i].Resources)
	}
}

func (m marks) resources(name string, r *corev1.ResourceRequirements) {
	if len(r.Requests)+len(r.Limits) == 0 {
		return
	}
	text, err := json.Marshal([]map[corev1.ResourceName]string{texts(r.Requests), texts(r.Limits)})
	if err != nil {
		panic(fmt.Sprintf("encode resources: %v", err)) // maps of text
	}
	m.set(markResources+name, string(text))
}

func texts(list corev1.ResourceList) map[corev1.ResourceName]string {
	out := make(map[corev1.ResourceName]string, len(list))
	for name, quantity := range list {
		out[name] = quantity.String()
	}
	return out
}

func (m marks) set(mark, value string) {
	sum := sha256.Sum256([]byte(value))
	m[mark] = hex.EncodeToString(sum[:8])
}

// keep sets a mark to what it was before.
func (m marks) keep(mark string, before marks) {
	if old, ok := before[mark]; ok {
		m[mark] = old
		return
	}
	delete(m, mark)
}

// of returns the names that have a mark of a kind.
func (m marks) of(kind string) map[string]struct{} {
	names := map[string]struct{}{}
	for mark := range m {
		if name, ok := strings.CutPrefix(mark, kind); ok {
			names[name] = struct{}{}
		}
	}
	return names
}

func (m marks) encode() string {
	out, err := json.Marshal(m)
	if err != nil {
		panic(fmt.Sprintf("encode marks: %v", err)) // a map of text
	}
	return string(out)
}

// marksIn reads what a live pod bears. Nothing that can be read is no marks: then
// all is asked for again, and nothing removed.
func marksIn(live *corev1.Pod) marks {
	var m marks
	if json.Unmarshal([]byte(live.Annotations[AnnotationWritten]), &m) != nil {
		return nil
	}
	return m
}
