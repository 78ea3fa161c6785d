// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharedobject

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// words are keys and texts that one or the other encoding treats apart.
var words = []string{
	"", "a", "b", "spec", "status", "metadata", "name", "/", "~", "~0", "~1", "a/b", "a~b", "0", "-", "<&>", "日", "\u2028", "\"\\", "a b", "\u0000",
}

// random makes contents.
type random struct{ *rand.Rand }

func (r random) word() string { return words[r.IntN(len(words))] }

func (r random) value(depth int) any {
	switch n := r.IntN(8); {
	case n == 0:
		return nil
	case n == 1:
		return r.IntN(2) == 0
	case n == 2:
		return r.Int64() - 1<<62
	case n == 3:
		return float64(r.IntN(100)) + 0.5
	case n < 6 || depth == 0:
		return r.word()
	case n == 6:
		list := make([]any, r.IntN(3))
		for i := range list {
			list[i] = r.value(depth - 1)
		}
		return list
	}
	values := map[string]any{}
	for range r.IntN(4) {
		values[r.word()] = r.value(depth - 1)
	}
	return values
}

func (r random) texts() map[string]any {
	values := map[string]any{}
	for range r.IntN(4) {
		values[r.word()] = r.word()
	}
	return values
}

// change makes another of some members of a content.
func (r random) change(c Content) Content {
	out := Content{}
	for key, value := range c {
		if r.IntN(4) > 0 {
			out[key] = value
		}
	}
	for range r.IntN(4) {
		if key := r.word(); key != keyMetadata {
			out[key] = r.value(3)
		}
	}
	meta := map[string]any{}
	for _, key := range []string{keyLabels, keyAnnotations} {
		values := r.texts()
		for k, v := range stringsOf(out, key) {
			if r.IntN(3) > 0 {
				values[k] = v
			}
		}
		if len(values) > 0 {
			meta[key] = values
		}
	}
	delete(out, keyMetadata)
	if len(meta) > 0 {
		out[keyMetadata] = meta
	}
	return out
}

// FuzzPatch: whatever two contents are, the patched object has the second one, and keeps
// what is of its side alone.
func FuzzPatch(f *testing.F) {
	for seed := range uint64(200) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := random{rand.New(rand.NewPCG(seed, seed))}
		from := r.change(nil)
		to := r.change(from)
		obj := complete(from.Object("example.com/v1", "Widget", "ns", "n"))
		if r.IntN(2) == 0 {
			annotations := obj.GetAnnotations()
			if annotations == nil {
				annotations = map[string]string{}
			}
			annotations[corev1.LastAppliedConfigAnnotation] = r.word()
			obj.SetAnnotations(annotations)
		}
		before := encode(t, from) + encode(t, to)
		got := patched(t, obj, to, r.IntN(2) == 0)
		if diff := cmp.Diff(to, Of(got)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if encode(t, from)+encode(t, to) != before {
			t.Error("a content was changed")
		}
	})
}

// FuzzDecode: what is taken from a peer is a content, and is the same on each later trip.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"metadata": {"labels": {"l": "1"}, "annotations": {"a": "<>"}}, "spec": {"n": [1, 1.5, null, 1e20]}, "status": {}}`))
	f.Add([]byte(`{"metadata": {"finalizers": ["f"]}}`))
	f.Add([]byte(`{"a": 1.0, "a": -0.0, "b": "\ud800"}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		c, err := Decode(raw)
		if err != nil {
			if !errors.Is(err, ErrInvalid) || c != nil {
				t.Errorf("refused %v: %v", c, err)
			}
			return
		}
		obj := complete(c.Object("example.com/v1", "Widget", "ns", "n"))
		if diff := cmp.Diff(c, Of(obj)); diff != "" {
			t.Errorf("more is taken than is shared (-taken +shared):\n%s", diff)
		}
		// Another trip makes an integer of a float that has no fraction.
		once := contentOf(t, encode(t, c))
		twice := contentOf(t, encode(t, once))
		if diff := cmp.Diff(once, twice); diff != "" {
			t.Errorf("(-once +twice):\n%s", diff)
		}
		if patch, err := (Target{}).Patch(once, twice); patch != nil || err != nil {
			t.Errorf("a patch to the same is %s, %v", patch, err)
		}
	})
}
