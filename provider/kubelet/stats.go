// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	corev1 "k8s.io/api/core/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/quota"
)

// maxStatsPart bounds what is decoded at once of /stats/summary, which is one pod or
// the node: a container has some 2 KiB. What was read ahead is not counted.
const maxStatsPart = 128 << 10

// statsFilter copies a kubelet's Summary a pod at a time. What it writes it makes
// anew from what was decoded, so that readers see what was checked.
type statsFilter struct {
	nodeScope
	in      *limitedReader
	decoder *json.Decoder
	out     *bufio.Writer

	raw    json.RawMessage // the part that is being read
	paid   int64           // for the largest part so far
	fields map[string]struct{}
	seen   map[wire.PodKey]struct{}
}

// filterStats is a summaryFilter of /stats/summary.
func filterStats(in *limitedReader, out *bufio.Writer, s nodeScope) error {
	f := &statsFilter{
		nodeScope: s, in: in, decoder: json.NewDecoder(in), out: out,
		fields: map[string]struct{}{}, seen: map[wire.PodKey]struct{}{},
	}
	err := f.summary()
	switch {
	case errors.Is(err, errAnswer), errors.Is(err, quota.ErrExhausted):
		return err
	case errors.Is(err, io.EOF): // where there should be more
		return fmt.Errorf("%w: %w", errFigures, io.ErrUnexpectedEOF)
	case err != nil:
		return fmt.Errorf("%w: %w", errFigures, err)
	default:
		return nil
	}
}

func (f *statsFilter) summary() error {
	if err := f.expectDelim('{'); err != nil {
		return err
	}
	_ = f.out.WriteByte('{')
	for f.more() {
		token, err := f.decoder.Token()
		if err != nil {
			return err
		}
		name, _ := token.(string) // the decoder has seen to it
		if err := f.field(name); err != nil {
			return err
		}
	}
	_ = f.out.WriteByte('}')
	return f.expectDelim('}')
}

// field copies one field of the Summary, or leaves it out.
func (f *statsFilter) field(name string) error {
	switch name {
	case "pods":
		return f.podList(name)
	case "node":
		var node stats.NodeStats
		if err := f.decode(&node); err != nil {
			return err
		}
		node.NodeName = f.node
		return f.add(name, node)
	case "spokeletMissingNodes":
		var nodes []string
		if err := f.decode(&nodes); err != nil {
			return err
		}
		return f.add(name, nodes)
	case "spokeletMissingNodeCount", "spokeletMissingPodCount":
		var count int
		if err := f.decode(&count); err != nil {
			return err
		}
		return f.add(name, count)
	default:
		return f.read()
	}
}

// add writes a field of the Summary.
func (f *statsFilter) add(name string, value any) error {
	if err := f.begin(name); err != nil {
		return err
	}
	return f.write(value)
}

// begin writes a field's name. Readers differ in which they take of two.
func (f *statsFilter) begin(name string) error {
	if _, ok := f.fields[name]; ok {
		return fmt.Errorf("field %s is there twice", name)
	}
	if len(f.fields) > 0 {
		_ = f.out.WriteByte(',')
	}
	f.fields[name] = struct{}{}
	_, _ = fmt.Fprintf(f.out, "%q:", name)
	return nil
}

// write writes a value. An error of the writer is that of the client, and is found
// when the writer is flushed.
func (f *statsFilter) write(value any) error {
	body, err := json.Marshal(value)
	if err != nil {
		return err
	}
	_, _ = f.out.Write(body)
	return nil
}

// podList copies the array of pods.
func (f *statsFilter) podList(name string) error {
	if err := f.begin(name); err != nil {
		return err
	}
	_ = f.out.WriteByte('[')
	switch token, err := f.decoder.Token(); {
	case err != nil:
		return err
	case token == nil: // how Go writes none
		return f.out.WriteByte(']')
	case token != json.Delim('['):
		return fmt.Errorf("%v is found for an array", token)
	}
	first := true
	for f.more() {
		var pod stats.PodStats
		if err := f.decode(&pod); err != nil {
			return err
		}
		ok, err := f.restrict(&pod)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		if !first {
			_ = f.out.WriteByte(',')
		}
		first = false
		if err := f.write(pod); err != nil {
			return err
		}
	}
	_ = f.out.WriteByte(']')
	return f.expectDelim(']')
}

// restrict says whether the figures of a pod are passed on, and takes from them what is
// not the pod's.
func (f *statsFilter) restrict(pod *stats.PodStats) (bool, error) {
	hub, ok := f.pod(pod.PodRef.Namespace, pod.PodRef.Name)
	if !ok || pod.PodRef.UID != string(hub.UID) {
		return false, nil
	}
	key := wire.PodKey{Namespace: hub.Namespace, Name: hub.Name}
	if _, ok := f.seen[key]; ok {
		return false, nil
	}
	if err := f.held.Grow(seenCost); err != nil {
		return false, err
	}
	f.seen[key] = struct{}{}
	pod.Containers = containersOf(hub, pod.Containers)
	for i := range pod.VolumeStats {
		if v := &pod.VolumeStats[i]; v.PVCRef != nil && !mountsClaim(hub, *v.PVCRef) {
			v.PVCRef = nil
		}
	}
	return true, nil
}

// containersOf keeps the figures of containers that a pod has, each once.
func containersOf(hub *corev1.Pod, all []stats.ContainerStats) []stats.ContainerStats {
	kept := all[:0]
	for _, c := range all {
		named := func(other stats.ContainerStats) bool { return other.Name == c.Name }
		if !hasContainer(hub, c.Name) || slices.ContainsFunc(kept, named) {
			continue
		}
		// Kubelets have had neither for years, and they name things of their own.
		c.Accelerators, c.UserDefinedMetrics = nil, nil
		kept = append(kept, c)
	}
	return kept
}

// mountsClaim says whether a pod has a volume of a claim.
func mountsClaim(hub *corev1.Pod, claim stats.PVCReference) bool {
	return claim.Namespace == hub.Namespace && slices.ContainsFunc(hub.Spec.Volumes, func(v corev1.Volume) bool {
		switch {
		case v.PersistentVolumeClaim != nil:
			return v.PersistentVolumeClaim.ClaimName == claim.Name
		case v.Ephemeral != nil:
			return hub.Name+"-"+v.Name == claim.Name
		default:
			return false
		}
	})
}

// more reports whether there is another part, which may be read then.
func (f *statsFilter) more() bool {
	f.in.part = maxStatsPart
	return f.decoder.More()
}

// decode reads and decodes a part.
func (f *statsFilter) decode(into any) error {
	if err := f.read(); err != nil {
		return err
	}
	return json.Unmarshal(f.raw, into)
}

// read reads a part into raw. Decoded it may be a hundred times as large, so it is
// paid for before.
func (f *statsFilter) read() error {
	if err := f.decoder.Decode(&f.raw); err != nil {
		return err
	}
	// The decoder holds it too, in a buffer that doubles.
	if cost := quota.DecodedJSON(f.raw) + 4*int64(len(f.raw)); cost > f.paid {
		if err := f.held.Grow(cost - f.paid); err != nil {
			return err
		}
		f.paid = cost
	}
	return nil
}

// expectDelim reads one delimiter.
func (f *statsFilter) expectDelim(want json.Delim) error {
	token, err := f.decoder.Token()
	if err == nil && token != want {
		err = fmt.Errorf("%v is found for %v", token, want)
	}
	return err
}
