// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podrefs says which ConfigMaps and Secrets a pod refers to.
//
// The hub sends them along with the pod, and the agent waits for them and copies
// them: both ask here, so that they agree. It is a pure function of the pod's spec.
package podrefs

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/spokelet/spokelet/api/wire"
)

const (
	// RootCA is the ConfigMap that every cluster puts into every namespace. It holds
	// that cluster's own authority, so that only a pod that talks to another cluster
	// has it from there.
	RootCA = "kube-root-ca.crt"
	// TokenPath is where the API server's admission mounts a service account's token.
	TokenPath = "/var/run/secrets/kubernetes.io/serviceaccount" //nolint:gosec // a path, not a credential

	tokenVolumePrefix = "kube-api-access-"
)

// Ref names one object in the pod's namespace.
type Ref struct {
	// Kind is wire.PodObjectConfigMap or wire.PodObjectSecret.
	Kind string
	Name string
	// Optional: the pod runs without it.
	Optional bool
}

// Of returns what pod refers to, sorted by kind and name, each object once. An
// object that is referred to twice is optional only if both references are.
//
// A pull secret is optional: a kubelet starts a pod without it, and the pull says
// what is wrong. What is mounted by [TokenVolumes] is not asked for.
func Of(pod *corev1.Pod) []Ref {
	c := collect(pod)
	delete(c, rootCA)
	return c.sorted()
}

// BeforeAdmission is [Of] for a pod that is made in a cluster from one of another, before the
// admission there: what looks like one of [TokenVolumes] is the maker's own, and what
// it holds is asked for as well.
func BeforeAdmission(pod *corev1.Pod) []Ref {
	c := collectExcept(pod, nil)
	delete(c, rootCA)
	return c.sorted()
}

// collect leaves out what is mounted by [TokenVolumes].
func collect(pod *corev1.Pod) refSet {
	return collectExcept(pod, TokenVolumes(&pod.Spec))
}

// collectExcept leaves out what is mounted by some volumes.
func collectExcept(pod *corev1.Pod, without []string) refSet {
	c := refSet{}
	for _, s := range pod.Spec.ImagePullSecrets {
		c.add(wire.PodObjectSecret, s.Name, true)
	}
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; !slices.Contains(without, v.Name) {
			c.volume(&v.VolumeSource)
		}
	}
	Containers(&pod.Spec, c.container)
	return c
}

// Containers visits the containers of every kind, ephemeral ones included, in the
// order init, main, ephemeral. What a visitor changes is changed in spec.
func Containers(spec *corev1.PodSpec, visit func(*corev1.Container)) {
	for i := range spec.InitContainers {
		visit(&spec.InitContainers[i])
	}
	for i := range spec.Containers {
		visit(&spec.Containers[i])
	}
	for i := range spec.EphemeralContainers {
		// The one is made to be the other: nothing is written by those who only read.
		visit((*corev1.Container)(&spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
}

// TokenVolumes names the volumes that the admission of the pod's own cluster put
// there for the token of its service account: of its prefix, projected, and mounted
// at [TokenPath] and nowhere else. Another cluster puts in its own. Ephemeral
// containers do not count: what a volume is does not change while a pod runs.
func TokenVolumes(spec *corev1.PodSpec) []string {
	at, elsewhere := map[string]bool{}, map[string]bool{}
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		for i := range c.VolumeMounts {
			m := &c.VolumeMounts[i]
			if m.MountPath == TokenPath {
				at[m.Name] = true
				continue
			}
			elsewhere[m.Name] = true
		}
	}
	var names []string
	for i := range spec.Volumes {
		v := &spec.Volumes[i]
		if v.Projected != nil && strings.HasPrefix(v.Name, tokenVolumePrefix) && at[v.Name] && !elsewhere[v.Name] {
			names = append(names, v.Name)
		}
	}
	return names
}

type object struct{ kind, name string }

var rootCA = object{wire.PodObjectConfigMap, RootCA}

// refSet tells of each object whether every reference to it is optional.
type refSet map[object]bool

func (c refSet) add(kind, name string, optional bool) {
	if name == "" {
		return
	}
	key := object{kind, name}
	before, seen := c[key]
	c[key] = optional && (before || !seen)
}

func (c refSet) container(from *corev1.Container) {
	for i := range from.EnvFrom {
		if r := from.EnvFrom[i].ConfigMapRef; r != nil {
			c.add(wire.PodObjectConfigMap, r.Name, isTrue(r.Optional))
		}
		if r := from.EnvFrom[i].SecretRef; r != nil {
			c.add(wire.PodObjectSecret, r.Name, isTrue(r.Optional))
		}
	}
	for i := range from.Env {
		if source := from.Env[i].ValueFrom; source != nil {
			c.value(source)
		}
	}
}

func (c refSet) value(from *corev1.EnvVarSource) {
	if r := from.ConfigMapKeyRef; r != nil {
		c.add(wire.PodObjectConfigMap, r.Name, isTrue(r.Optional))
	}
	if r := from.SecretKeyRef; r != nil {
		c.add(wire.PodObjectSecret, r.Name, isTrue(r.Optional))
	}
}

func (c refSet) volume(from *corev1.VolumeSource) {
	if s := from.ConfigMap; s != nil {
		c.add(wire.PodObjectConfigMap, s.Name, isTrue(s.Optional))
	}
	if s := from.Secret; s != nil {
		c.add(wire.PodObjectSecret, s.SecretName, isTrue(s.Optional))
	}
	if from.Projected == nil {
		return
	}
	for i := range from.Projected.Sources {
		c.projection(&from.Projected.Sources[i])
	}
}

func (c refSet) projection(from *corev1.VolumeProjection) {
	if s := from.ConfigMap; s != nil {
		c.add(wire.PodObjectConfigMap, s.Name, isTrue(s.Optional))
	}
	if s := from.Secret; s != nil {
		c.add(wire.PodObjectSecret, s.Name, isTrue(s.Optional))
	}
}

func (c refSet) sorted() []Ref {
	refs := make([]Ref, 0, len(c))
	for key, optional := range c {
		refs = append(refs, Ref{Kind: key.kind, Name: key.name, Optional: optional})
	}
	slices.SortFunc(refs, func(a, b Ref) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return refs
}

func isTrue(b *bool) bool { return b != nil && *b }
