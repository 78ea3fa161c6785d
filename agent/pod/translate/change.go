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

// Change returns what of want, a result of [Want], is to be written to live. Only
// what the hub asks for anew is; what others changed in the spoke stays.
func Change(want, live *corev1.Pod) Changes {
	d := &differ{want: want, live: live, before: marksIn(live), now: marksOf(want)}
	// First the resize: it decides what of the marks can be brought up to date.
	resize := d.resize()
	return Changes{Update: d.update(), Resize: resize, Ephemeral: d.ephemeral()}
}

// object is JSON in the making.
type object = map[string]any

// differ holds one comparison.
type differ struct {
	want, live *corev1.Pod
	// before is what live bears, now becomes what it shall bear.
	before, now marks
}

// asked tells whether a mark was not the same before.
func (d *differ) asked(mark string) bool { return d.before[mark] != d.now[mark] }

func (d *differ) update() []byte {
	labels := d.entries(markLabel, d.want.Labels, d.live.Labels)
	annotations := d.entries(markAnnotation, d.want.Annotations, d.live.Annotations)
	if !maps.Equal(d.before, d.now) {
		annotations[AnnotationWritten] = d.now.encode()
	}
	spec := object{}
	put(spec, "initContainers", d.images(d.want.Spec.InitContainers, d.live.Spec.InitContainers))
	put(spec, "containers", d.images(d.want.Spec.Containers, d.live.Spec.Containers))
	if wanted, has := d.want.Spec.ActiveDeadlineSeconds, d.live.Spec.ActiveDeadlineSeconds; wanted != nil && d.asked(markDeadline) && (has == nil || *has != *wanted) {
		spec["activeDeadlineSeconds"] = *wanted
	}
	if len(labels) == 0 && len(annotations) == 0 && len(spec) == 0 {
		return nil
	}
	meta := object{"uid": d.live.UID}
	putMap(meta, "labels", labels)
	putMap(meta, "annotations", annotations)
	return encode(meta, spec)
}

// entries returns what of labels or annotations is new, and null for what was asked
// for before and is not any more.
func (d *differ) entries(kind string, want, live map[string]string) object {
	out := object{}
	for key, value := range want {
		if has, ok := live[key]; key != AnnotationWritten && d.asked(kind+key) && (!ok || has != value) {
			out[key] = value
		}
	}
	for key := range d.before.of(kind) {
		_, wanted := want[key]
		if _, has := live[key]; has && !wanted {
			out[key] = nil
		}
	}
	return out
}

func (d *differ) images(want, live []corev1.Container) []object {
	var out []object
	for i := range want {
		w := &want[i]
		l := named(live, w.Name)
		if l != nil && l.Image != w.Image && d.asked(markImage+w.Name) {
			out = append(out, object{"name": w.Name, "image": w.Image})
		}
	}
	return out
}

// resize also takes back the marks of what is not there yet: a resize that fails is
// asked for again.
func (d *differ) resize() []byte {
	spec := object{}
	if want := d.want.Spec.Resources; want != nil {
		live := d.live.Spec.Resources
		if live == nil {
			live = &corev1.ResourceRequirements{}
		}
		putMap(spec, "resources", d.resources("", want, live))
	}
	put(spec, "initContainers", d.sizes(d.want.Spec.InitContainers, d.live.Spec.InitContainers))
	put(spec, "containers", d.sizes(d.want.Spec.Containers, d.live.Spec.Containers))
	if len(spec) == 0 {
		return nil
	}
	return encode(object{"resourceVersion": d.live.ResourceVersion}, spec)
}

func (d *differ) sizes(want, live []corev1.Container) []object {
	var out []object
	for i := range want {
		w := &want[i]
		l := named(live, w.Name)
		if l == nil {
			continue
		}
		if r := d.resources(w.Name, &w.Resources, &l.Resources); len(r) > 0 {
			out = append(out, object{"name": w.Name, "resources": r})
		}
	}
	return out
}

// resources returns what of the requests and limits of a container, or of the pod,
// differs. None can be removed from a live pod.
func (d *differ) resources(name string, want, live *corev1.ResourceRequirements) object {
	mark := markResources + name
	if !d.asked(mark) {
		return nil
	}
	out := object{}
	putMap(out, "requests", quantities(want.Requests, live.Requests))
	putMap(out, "limits", quantities(want.Limits, live.Limits))
	if len(out) > 0 {
		d.now.keep(mark, d.before)
	}
	return out
}

func quantities(want, live corev1.ResourceList) object {
	out := object{}
	for name, quantity := range want {
		if has, ok := live[name]; !ok || has.Cmp(quantity) != 0 {
			out[string(name)] = quantity.String()
		}
	}
	return out
}

func (d *differ) ephemeral() []byte {
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
	return encode(object{"resourceVersion": d.live.ResourceVersion}, object{"ephemeralContainers": added})
}

func named(in []corev1.Container, name string) *corev1.Container {
	i := slices.IndexFunc(in, func(c corev1.Container) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return &in[i]
}

func put(into object, key string, list []object) {
	if len(list) > 0 {
		into[key] = list
	}
}

func putMap(into object, key string, value object) {
	if len(value) > 0 {
		into[key] = value
	}
}

// encode cannot fail: what it is given is text, numbers, and types of the API.
func encode(meta, spec object) []byte {
	patch := object{"metadata": meta}
	putMap(patch, "spec", spec)
	out, err := json.Marshal(patch)
	if err != nil {
		panic(fmt.Sprintf("encode patch: %v", err))
	}
	return out
}
