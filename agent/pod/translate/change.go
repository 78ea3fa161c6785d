// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Changes are what is to be written to a live pod: strategic merge patches
// (types.StrategicMergePatchType), each nil when there is nothing of its kind. They
// are written in the order Ephemeral, Resize, Update; a refusal of one keeps none of
// the others.
//
// A patch applies to the very pod that it was made from, and those of subresources
// to the very version of it. Otherwise the API server answers that there is a
// conflict, or that a UID is immutable, and the next event of the pod brings another
// patch: of an ephemeral container and a resize at once, the second waits for that.
type Changes struct {
	// Update is for the pod itself: labels, annotations, images, deadline.
	Update []byte
	// Resize is for the subresource resize. An Update follows when the live pod has
	// what it asks for.
	Resize []byte
	// Ephemeral is for the subresource ephemeralcontainers.
	Ephemeral []byte
}

// Empty: there is nothing to write.
func (c Changes) Empty() bool {
	return c.Update == nil && c.Resize == nil && c.Ephemeral == nil
}

// ComputeChanges returns what of want, a result of [Want], is to be written to live. Only
// what the hub asks for anew is; what others changed in the spoke stays.
func ComputeChanges(want, live *corev1.Pod) Changes {
	d := &comparison{want: want, live: live, before: parseDigests(live), now: newDigests(want)}
	// First the resize: it decides what of the marks can be brought up to date.
	resize := d.resize()
	return Changes{Update: d.update(), Resize: resize, Ephemeral: d.ephemeral()}
}

// jsonObject is JSON in the making.
type jsonObject = map[string]any

// comparison holds one comparison.
type comparison struct {
	want, live *corev1.Pod
	// before is what live bears, now becomes what it shall bear.
	before, now digests
}

// isChanged tells whether a mark was not the same before.
func (d *comparison) isChanged(mark string) bool { return d.before[mark] != d.now[mark] }

func (d *comparison) update() []byte {
	labels := d.mapChanges(digestLabel, d.want.Labels, d.live.Labels)
	annotations := d.mapChanges(digestAnnotation, d.want.Annotations, d.live.Annotations)
	if !maps.Equal(d.before, d.now) {
		annotations[AnnotationWritten] = d.now.encode()
	}
	spec := jsonObject{}
	setList(spec, "initContainers", d.imageChanges(d.want.Spec.InitContainers, d.live.Spec.InitContainers))
	setList(spec, "containers", d.imageChanges(d.want.Spec.Containers, d.live.Spec.Containers))
	if wanted, has := d.want.Spec.ActiveDeadlineSeconds, d.live.Spec.ActiveDeadlineSeconds; wanted != nil && d.isChanged(digestDeadline) && (has == nil || *has != *wanted) {
		spec["activeDeadlineSeconds"] = *wanted
	}
	if len(labels) == 0 && len(annotations) == 0 && len(spec) == 0 {
		return nil
	}
	meta := jsonObject{"uid": d.live.UID}
	setMap(meta, "labels", labels)
	setMap(meta, "annotations", annotations)
	return encode(meta, spec)
}

// mapChanges returns what of labels or annotations is new, and null for what was asked
// for before and is not any more.
func (d *comparison) mapChanges(kind string, want, live map[string]string) jsonObject {
	out := jsonObject{}
	for key, value := range want {
		if has, ok := live[key]; key != AnnotationWritten && d.isChanged(kind+key) && (!ok || has != value) {
			out[key] = value
		}
	}
	for key := range d.before.names(kind) {
		_, wanted := want[key]
		if _, has := live[key]; has && !wanted {
			out[key] = nil
		}
	}
	return out
}

func (d *comparison) imageChanges(want, live []corev1.Container) []jsonObject {
	var out []jsonObject
	for i := range want {
		w := &want[i]
		l := findContainer(live, w.Name)
		if l != nil && l.Image != w.Image && d.isChanged(digestImage+w.Name) {
			out = append(out, jsonObject{"name": w.Name, "image": w.Image})
		}
	}
	return out
}

// resize also takes back the marks of what is not there yet: a resize that fails is
// asked for again.
func (d *comparison) resize() []byte {
	spec := jsonObject{}
	if want := d.want.Spec.Resources; want != nil {
		live := d.live.Spec.Resources
		if live == nil {
			live = &corev1.ResourceRequirements{}
		}
		setMap(spec, "resources", d.resourceChange("", want, live))
	}
	setList(spec, "initContainers", d.resourceChanges(d.want.Spec.InitContainers, d.live.Spec.InitContainers))
	setList(spec, "containers", d.resourceChanges(d.want.Spec.Containers, d.live.Spec.Containers))
	if len(spec) == 0 {
		return nil
	}
	return encode(jsonObject{"resourceVersion": d.live.ResourceVersion}, spec)
}

func (d *comparison) resourceChanges(want, live []corev1.Container) []jsonObject {
	var out []jsonObject
	for i := range want {
		w := &want[i]
		l := findContainer(live, w.Name)
		if l == nil {
			continue
		}
		if r := d.resourceChange(w.Name, &w.Resources, &l.Resources); len(r) > 0 {
			out = append(out, jsonObject{"name": w.Name, "resources": r})
		}
	}
	return out
}

// resourceChange returns what of the requests and limits of a container, or of the pod,
// differs. None can be removed from a live pod.
func (d *comparison) resourceChange(name string, want, live *corev1.ResourceRequirements) jsonObject {
	mark := digestResources + name
	if !d.isChanged(mark) {
		return nil
	}
	out := jsonObject{}
	setMap(out, "requests", changedQuantities(want.Requests, live.Requests))
	setMap(out, "limits", changedQuantities(want.Limits, live.Limits))
	if len(out) > 0 {
		d.now.restore(mark, d.before)
	}
	return out
}

func changedQuantities(want, live corev1.ResourceList) jsonObject {
	out := jsonObject{}
	for name, quantity := range want {
		if has, ok := live[name]; !ok || has.Cmp(quantity) != 0 {
			out[string(name)] = quantity.String()
		}
	}
	return out
}

func (d *comparison) ephemeral() []byte {
	var added []corev1.EphemeralContainer
	for i := range d.want.Spec.EphemeralContainers {
		w := &d.want.Spec.EphemeralContainers[i]
		same := func(l corev1.EphemeralContainer) bool { return l.Name == w.Name }
		if !slices.ContainsFunc(d.live.Spec.EphemeralContainers, same) {
			added = append(added, *w)
		}
	}
	if len(added) == 0 {
		return nil
	}
	return encode(jsonObject{"resourceVersion": d.live.ResourceVersion}, jsonObject{"ephemeralContainers": added})
}

func findContainer(in []corev1.Container, name string) *corev1.Container {
	i := slices.IndexFunc(in, func(c corev1.Container) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return &in[i]
}

func setList(into jsonObject, key string, list []jsonObject) {
	if len(list) > 0 {
		into[key] = list
	}
}

func setMap(into jsonObject, key string, value jsonObject) {
	if len(value) > 0 {
		into[key] = value
	}
}

// encode cannot fail: what it is given is text, numbers, and types of the API.
func encode(meta, spec jsonObject) []byte {
	patch := jsonObject{"metadata": meta}
	setMap(patch, "spec", spec)
	out, err := json.Marshal(patch)
	if err != nil {
		panic(fmt.Sprintf("encode patch: %v", err))
	}
	return out
}
