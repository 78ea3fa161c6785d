// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/sharedobject"
)

// A field is one that users write. Absent is an empty text.
type field struct {
	// path is what conflicts call it.
	path string
	get  func(obj map[string]any) string
	set  func(obj map[string]any, value string)
}

func nested(keys ...string) field {
	return field{
		path: "." + strings.Join(keys, "."),
		get: func(obj map[string]any) string {
			value, _, _ := unstructured.NestedString(obj, keys...)
			return value
		},
		set: func(obj map[string]any, value string) { _ = unstructured.SetNestedField(obj, value, keys...) },
	}
}

// item is the value of an item of .spec.list.
func item(key string) field {
	find := func(obj map[string]any) ([]any, map[string]any) {
		list, _, _ := unstructured.NestedSlice(obj, "spec", "list")
		for _, item := range list {
			if item := item.(map[string]any); item["k"] == key {
				return list, item
			}
		}
		return list, nil
	}
	return field{
		path: fmt.Sprintf(".spec.list[k=%q].v", key),
		get: func(obj map[string]any) string {
			_, item := find(obj)
			value, _ := item["v"].(string)
			return value
		},
		set: func(obj map[string]any, value string) {
			list, item := find(obj)
			if item == nil {
				item = map[string]any{"k": key}
				list = append(list, item)
			}
			item["v"] = value
			_ = unstructured.SetNestedSlice(obj, list, "spec", "list")
		},
	}
}

var modelFields = []field{
	nested("spec", "a"), nested("spec", "b"), nested("spec", "c", "d"), nested("status", "x"),
	nested("metadata", "labels", "l"), item("i"), item("j"),
}

func (f field) status() bool { return strings.HasPrefix(f.path, ".status") }

// model is what users have done to objects since both sides were last the same, and what
// may come of it.
type model struct {
	objects map[string]*past
	// lastDecision is the number of the last decision that was told, 0 for none.
	lastDecision func() int64
}

// past is that of one object.
type past struct {
	fields map[string]*values
	// ever are all values of a field that there were, and new counts them.
	ever map[string]map[string]bool
	// made: it was there, or was created since; young: it was created since, twice: more
	// than once, perhaps by both sides.
	made, young, twice bool
	// death is the last deletion, nil for none; loose: there was one, or a creation, that
	// makes it undecided which changes the deletion was made in knowledge of.
	death *death
	loose bool
	// wrote are the sides whose users wrote the status.
	wrote map[wire.SharedSide]bool
}

// values are the heads of one field: what was written and was not superseded by who had
// seen it.
type values []head

// head is what users of a side have written. It is not fresh if it was there before: a side
// on which nothing is another than before has not changed.
type head struct {
	side  wire.SharedSide
	value string
	fresh bool
}

// supersede removes what a user of a side has seen. Where both sides have written the same
// that is what this side has written.
func (v *values) supersede(side wire.SharedSide, saw string) {
	for _, by := range []wire.SharedSide{side, oppositeSide(side), ""} {
		if i := slices.IndexFunc(*v, func(h head) bool { return h.value == saw && h.side == by }); i >= 0 {
			*v = slices.Delete(*v, i, i+1)
			return
		}
	}
}

// add notes what a user of a side has written. What both sides have written is no conflict.
func (v *values) add(side wire.SharedSide, value string, fresh bool) {
	for i, h := range *v {
		if h.value == value {
			(*v)[i].fresh, fresh = false, false
		}
	}
	*v = append(*v, head{side: side, value: value, fresh: fresh})
}

func (v *values) has(value string) bool {
	return slices.ContainsFunc(*v, func(h head) bool { return h.value == value })
}

type death struct {
	side wire.SharedSide
	// concurrent: something was changed on the other side that the deletion did not know
	// of, in the fields unseen; unclear: perhaps.
	concurrent, unclear bool
	unseen              []overlooked
}

// overlooked is a change of a field, made when the last decision that was told had that
// number; 0 is before all since both sides were the same.
type overlooked struct {
	path  string
	after int64
}

func newModel() *model { return &model{objects: map[string]*past{}} }

func (m *model) getPast(name string) *past {
	p := m.objects[name]
	if p == nil {
		p = &past{fields: map[string]*values{}, ever: map[string]map[string]bool{}, wrote: map[wire.SharedSide]bool{}}
		for _, f := range modelFields {
			p.fields[f.path] = &values{}
			p.ever[f.path] = map[string]bool{"": true}
		}
		m.objects[name] = p
	}
	return p
}

// write notes that a user saw one value of a field and has written another, after a decision.
func (p *past) write(side wire.SharedSide, f field, saw, wrote string, after int64) {
	heads := p.fields[f.path]
	fresh := !p.ever[f.path][wrote]
	heads.supersede(side, saw)
	heads.add(side, wrote, fresh)
	p.ever[f.path][wrote] = true
	if f.status() {
		p.wrote[side] = true
	}
	if d := p.death; d != nil {
		d.unclear = d.unclear || !fresh || d.side == side
		d.concurrent, d.unseen = true, append(d.unseen, overlooked{f.path, after})
	}
}

// create notes that a user has created the object with a content.
func (p *past) create(side wire.SharedSide, obj map[string]any) {
	p.twice = p.young
	p.made, p.young, p.loose = true, true, p.loose || p.death != nil
	if p.death != nil {
		p.death.unclear = true
	}
	for _, f := range modelFields {
		value := f.get(obj)
		p.fields[f.path].add(side, value, !p.ever[f.path][value])
		p.ever[f.path][value] = true
		if f.status() && value != "" {
			p.wrote[side] = true
		}
	}
}

// delete notes that a user saw a content and has deleted it; the other side has another,
// or nil.
func (p *past) delete(side wire.SharedSide, saw, has map[string]any) {
	d := &death{side: side, unclear: p.twice}
	if p.death != nil && p.death.side != side {
		d.unclear = true
	}
	for _, f := range modelFields {
		heads := p.fields[f.path]
		for _, h := range *heads {
			if h.side == oppositeSide(side) && h.value == f.get(saw) {
				d.unclear = true // it may be what this side wrote, or what it has seen
			}
			if h.value != f.get(saw) {
				d.concurrent, d.unseen = true, append(d.unseen, overlooked{path: f.path})
				d.unclear = d.unclear || !h.fresh
			}
		}
		if has != nil {
			heads.add("", f.get(has), false)
		}
	}
	p.death, p.loose = d, true
}

// reset begins anew with what both sides have.
func (m *model) reset(name string, c sharedobject.Content) {
	if c == nil {
		ever := m.getPast(name).ever
		delete(m.objects, name)
		m.getPast(name).ever = ever
		return
	}
	p := m.getPast(name)
	for _, f := range modelFields {
		*p.fields[f.path] = values{{value: f.get(c)}}
	}
	p.made, p.young, p.twice, p.death, p.loose, p.wrote = true, false, false, nil, false, map[wire.SharedSide]bool{}
}

// check says what is wrong with what both sides have in the end, given the fields that
// conflicts have named after a decision, since both sides were the same for 0. With lossy
// some outcomes were lost on the way, and what was decided for that is named.
func (p *past) check(c sharedobject.Content, winner wire.SharedSide, namedAfter func(int64) []string, lossy bool) (wrong []string) {
	named := namedAfter(0)
	if p.made && p.death == nil && c == nil {
		return []string{"it is gone, and nobody has deleted it"}
	}
	if wrong := p.checkDeleted(c != nil, winner, namedAfter, lossy); wrong != "" || c == nil {
		return nonEmpty(wrong)
	}
	for _, f := range modelFields {
		value, heads, told := f.get(c), p.fields[f.path], names(named, f.path)
		if !heads.has(value) && !p.loose && (!lossy || !told) {
			wrong = append(wrong, fmt.Sprintf("%s is %q, not one of %v", f.path, value, *heads))
		}
		if !p.ever[f.path][value] {
			wrong = append(wrong, fmt.Sprintf("%s is %q, which nobody has written", f.path, value))
		}
		fresh := 0
		for _, h := range *heads {
			if h.fresh {
				fresh++
			}
		}
		if fresh > 1 && !told && !p.loose {
			wrong = append(wrong, fmt.Sprintf("%s is %q, of %v, and no conflict was told", f.path, value, *heads))
		}
	}
	return wrong
}

// checkDeleted says what is wrong with an object that was deleted.
func (p *past) checkDeleted(present bool, winner wire.SharedSide, namedAfter func(int64) []string, lossy bool) string {
	d, named := p.death, slices.Contains(namedAfter(0), conflictDeletion)
	unnamed := func(c overlooked) bool { return !names(namedAfter(c.after), c.path) }
	switch {
	case d == nil || d.unclear:
		return ""
	case lossy && p.young:
		return "" // a creation whose outcome got lost is made again, whoever undid it
	case d.concurrent && !slices.ContainsFunc(d.unseen, unnamed):
		return "" // what it did not know of was decided before it arrived, as a change of a field
	case d.concurrent && !named:
		return fmt.Sprintf("it was deleted by the %s and changed on the other side, and no conflict was told", d.side)
	case d.concurrent && present == (d.side == winner) && !lossy:
		return fmt.Sprintf("it was deleted by the %s and changed on the other side, and is there: %t", d.side, present)
	case !d.concurrent && present && (!lossy || !named):
		return fmt.Sprintf("it was deleted by the %s and is there", d.side)
	}
	return ""
}

func nonEmpty(text string) []string {
	if text == "" {
		return nil
	}
	return []string{text}
}

// names reports whether conflicts name a field, or what it is a part of.
func names(conflicts []string, path string) bool {
	return slices.ContainsFunc(conflicts, func(named string) bool {
		rest, ok := strings.CutPrefix(path, named)
		return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
	})
}

// What users do, noted in the model at the moment at which it takes effect.

func (m *model) userWrites(s *fakeStore, side wire.SharedSide, name string, f field, value string) bool {
	sub := ""
	s.mu.Lock()
	if status, _ := s.served(widgets); status && f.status() {
		sub = "status"
	}
	s.mu.Unlock()
	after := m.lastDecision()
	_, err := s.change("user", widget(name), sub, func(obj map[string]any) error {
		if obj["metadata"].(map[string]any)["deletionTimestamp"] != nil {
			return fmt.Errorf("it is being deleted")
		}
		m.getPast(name).write(side, f, f.get(obj), value, after)
		f.set(obj, value)
		return nil
	})
	return err == nil
}

func (m *model) userCreates(s *fakeStore, side wire.SharedSide, name string, c sharedobject.Content) bool {
	if s.make(name, c) != nil {
		return false
	}
	m.getPast(name).create(side, c)
	return true
}

func (m *model) userDeletes(s, other *fakeStore, side wire.SharedSide, name string) bool {
	for {
		obj, err := s.get(widget(name))
		if err != nil {
			return false
		}
		uid, version := obj.GetUID(), obj.GetResourceVersion()
		if s.remove(widget(name), &metav1.Preconditions{UID: &uid, ResourceVersion: &version}) == nil {
			m.getPast(name).delete(side, obj.Object, other.content(name))
			return true
		}
	}
}

// randomEarlierValue is some value that a field has had.
func (m *model) randomEarlierValue(name string, f field, n int) string {
	all := slices.Sorted(maps.Keys(m.getPast(name).ever[f.path]))
	return all[n%len(all)]
}
