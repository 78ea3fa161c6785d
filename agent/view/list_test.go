// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/testing/testscale"
)

func mappingOf(resource, kind string) *meta.RESTMapping {
	return &meta.RESTMapping{
		Resource:         schema.GroupVersionResource{Version: "v1", Resource: resource},
		GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: kind}, Scope: meta.RESTScopeNamespace,
	}
}

func secretsMapping() *meta.RESTMapping { return mappingOf("secrets", "Secret") }

// testList has room for items of so many bytes together, separators included.
func testList(budget int) *list {
	l := newList(wire.View{}, mappingOf("configmaps", "ConfigMap"), &memoryBudget{limit: 1 << 30})
	l.spec.MaxBytes = l.overhead + budget
	return l
}

// object is an item whose JSON has so many bytes.
func object(key string, size int) item {
	return item{key: key, raw: []byte(`{"` + strings.Repeat("x", size-6) + `":0}`)}
}

func (l *list) add(t *testing.T, items ...item) {
	t.Helper()
	for _, i := range items {
		if _, err := l.update(i); err != nil {
			t.Fatal(err)
		}
	}
}

func TestListIsCutAtWholeItems(t *testing.T) {
	cases := map[string]struct {
		reason   string
		events   []item
		keys     []string
		cut      int
		restarts bool
	}{
		"all fit": {
			reason: "100 bytes are 100 bytes",
			events: []item{object("b", 49), object("a", 49)}, keys: []string{"a", "b"},
		},
		"one does not": {
			reason: "the last in order goes, whichever came last",
			events: []item{object("c", 40), object("b", 40), object("a", 40)}, keys: []string{"a", "b"}, cut: 1,
		},
		"one behind the cut that would fit": {
			reason: "what is shown has no gaps",
			events: []item{object("a", 60), object("b", 60), object("c", 20)}, keys: []string{"a"}, cut: 2,
		},
		"one before the first behind the cut": {
			reason: "it fits",
			events: []item{object("a", 40), object("c", 80), object("b", 30)}, keys: []string{"a", "b"}, cut: 1,
		},
		"the first is too large": {
			reason: "nothing is shown, and nothing would be if it were read anew",
			events: []item{object("a", 200), object("b", 10)}, cut: 2,
		},
		"one grows": {
			reason: "those behind it make room",
			events: []item{object("a", 30), object("b", 30), object("c", 30), object("a", 50)}, keys: []string{"a", "b"}, cut: 1,
		},
		"the last grows out": {
			reason: "it is counted in place of being shown",
			events: []item{object("a", 30), object("b", 30), object("b", 90)}, keys: []string{"a"}, cut: 1,
		},
		"half of the room is free, and the next fits": {
			reason: "it is to be read anew",
			events: []item{object("a", 40), object("b", 40), object("c", 40), {key: "b", deleted: true}}, keys: []string{"a"}, cut: 1,
			restarts: true,
		},
		"half of the room is free, and the next does not fit": {
			reason: "nothing would be gained",
			events: []item{object("a", 40), object("b", 40), object("c", 99), {key: "b", deleted: true}}, keys: []string{"a"}, cut: 1,
		},
		"half of the room is free, and the next has shrunk": {
			reason: "it fits now",
			events: []item{object("a", 40), object("b", 40), object("c", 99), object("c", 20), {key: "b", deleted: true}}, keys: []string{"a"}, cut: 1,
			restarts: true,
		},
		"less than half is free": {
			reason: "a change at the edge is not worth a list",
			events: []item{object("a", 60), object("b", 30), object("c", 20), {key: "b", deleted: true}}, keys: []string{"a"}, cut: 1,
		},
		"the first behind the cut goes": {
			reason: "what the next takes is not known: it may fit",
			events: []item{object("a", 40), object("c", 99), object("d", 99), {key: "c", deleted: true}}, keys: []string{"a"}, cut: 1,
			restarts: true,
		},
		"all behind the cut go": {
			reason: "what comes has room again",
			events: []item{object("a", 60), object("b", 60), {key: "b", deleted: true}, object("c", 30)}, keys: []string{"a", "c"},
		},
		"one behind the cut changes": {
			reason: "it is counted once",
			events: []item{object("a", 60), object("b", 60), object("b", 70), object("b", 80)}, keys: []string{"a"}, cut: 1,
		},
		"one that is not there goes": {
			reason: "nothing changes",
			events: []item{object("a", 60), object("b", 60), {key: "x", deleted: true}}, keys: []string{"a"}, cut: 1,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			l := testList(100)
			l.add(t, tc.events...)
			if diff := cmp.Diff(tc.keys, slices.Clone(l.keys)); diff != "" && len(tc.keys)+len(l.keys) > 0 {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if len(l.omitted) != tc.cut || l.shouldReload() != tc.restarts {
				t.Errorf("%s: %d are cut, reads anew: %t; want %d, %t", tc.reason, len(l.omitted), l.shouldReload(), tc.cut, tc.restarts)
			}
			var result struct {
				Metadata struct {
					RemainingItemCount int `json:"remainingItemCount"`
				} `json:"metadata"`
			}
			answer, err := wire.DecodeViewResult(l.encode(nil))
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(answer.Result, &result); err != nil || answer.Cut != tc.cut || result.Metadata.RemainingItemCount != tc.cut {
				t.Errorf("%v: %s says that %d and %d are cut, want %d", err, answer.Result, answer.Cut, result.Metadata.RemainingItemCount, tc.cut)
			}
		})
	}
}

func TestUpdateReportsVisibleChanges(t *testing.T) {
	l := testList(100)
	l.add(t, object("a", 60), object("b", 60))
	for _, i := range []item{object("a", 60), object("b", 50), {key: "x", deleted: true}} {
		if changed, err := l.update(i); changed || err != nil {
			t.Errorf("%s: changed is %t: %v", i.key, changed, err)
		}
	}
}

func TestItemsShareMemoryOfAnswer(t *testing.T) {
	l := testList(100)
	l.add(t, object("a", 40), object("b", 41))
	body := l.encode(nil)
	for key, raw := range l.items {
		if &raw[0] != &body[bytes.Index(body, raw)] || cap(raw) != len(raw) {
			t.Errorf("%s is kept beside the answer", key)
		}
	}
}

func TestKindsAreQuotedAsJSON(t *testing.T) {
	l := newList(wire.View{MaxBytes: 1000}, mappingOf("odds", "Odd\a\x00"), &memoryBudget{limit: 1000})
	if got, err := wire.DecodeViewResult(l.encode(nil)); err != nil || !strings.Contains(string(got.Result), `"kind":"Odd\u0007\u0000List"`) {
		t.Errorf("%s: %v", got.Result, err)
	}
}

func TestEncodeReusesEqualAnswer(t *testing.T) {
	l := testList(100)
	l.add(t, object("a", 40), object("b", 41))
	body := l.encode(nil)
	other := item{key: "b", raw: []byte(`{"other":0}`)}
	l.add(t, other, object("b", 41)) // a change, and back
	if again := l.encode(body); &again[0] != &body[0] {
		t.Error("the answer is kept twice")
	}
	for key, raw := range l.items {
		if at := bytes.Index(body, raw); &raw[0] != &body[at] || cap(raw) != len(raw) {
			t.Errorf("%s is kept beside the answer", key)
		}
	}
	l.add(t, other)
	if changed := l.encode(body); !bytes.Contains(changed, other.raw) || bytes.Contains(body, other.raw) {
		t.Errorf("%s, and %s before; want the change in a body of its own", changed, body)
	}
}

func TestListCannotGrowAtMemoryLimit(t *testing.T) {
	l := testList(1000)
	l.add(t, object("a", 40), object("b", 40))
	l.memory.limit = l.memory.used.Load() - 1 // others have taken the rest
	for _, step := range []struct {
		reason string
		item   item
	}{
		{reason: "another value of the same size", item: item{key: "a", raw: bytes.ToUpper(object("a", 40).raw)}},
		{reason: "a smaller object", item: object("b", 20)},
		{reason: "one object less", item: item{key: "a", deleted: true}},
	} {
		if changed, err := l.update(step.item); !changed || err != nil {
			t.Errorf("%s: changed is %t: %v", step.reason, changed, err)
		}
		l.memory.limit = l.memory.used.Load() - 1
	}
	l.memory.limit = l.memory.used.Load()
	if _, err := l.update(object("c", 10)); !errors.Is(err, errLimit) {
		t.Errorf("%v, want that one more object is too much, at once", err)
	}
}

func TestReloadTakesNoMemory(t *testing.T) {
	runSynctest(t, func(r *rig) {
		for n := range 10 {
			r.server.set("configmaps", "shop", strconv.Itoa(n), data("k", strings.Repeat("v", 200)))
		}
		key := r.ask(configMaps("shop"), 1)
		r.onlyAnswer(key, "the initial state")
		held := r.engine.memory.used.Load()
		r.engine.memory.limit = held
		r.sleep(time.Minute)
		r.server.expire("configmaps")
		r.sleep(time.Minute)
		r.expectNoAnswer(key, "all is read anew, and the same")
		if now := r.engine.memory.used.Load(); now != held {
			t.Errorf("%d bytes are held, want %d as before", now, held)
		}
		v := r.engine.views[key]
		v.mu.Lock()
		defer v.mu.Unlock()
		if v.list == nil {
			t.Error("nothing is shown")
			return
		}
		for name, raw := range v.list.items {
			if &raw[0] != &v.body[bytes.Index(v.body, raw)] {
				t.Errorf("%s is kept beside the answer that was given before", name)
			}
		}
	})
}

func TestReloadSharesUnchangedItems(t *testing.T) {
	e := newEngine(t, newServer())
	v := newView(e, "k", wire.View{MaxBytes: 1000}, 1)
	s := &viewSink{view: v, mapping: mappingOf("configmaps", "ConfigMap"), feed: &feed{columns: func() json.RawMessage { return nil }}}
	read := func(values ...string) {
		s.StartSync()
		for n, value := range values {
			s.HandleEvent(&unstructured.Unstructured{Object: map[string]any{
				"metadata": map[string]any{"name": strconv.Itoa(n)}, "data": value,
			}}, false)
		}
	}
	read("a", "b")
	s.FinishSync("1")
	shown := v.list
	read("a", "other")
	if &s.next.items["/0"][0] != &shown.items["/0"][0] || &s.next.items["/1"][0] == &shown.items["/1"][0] {
		t.Error("want the memory of the first item alone shared")
	}
	if held := e.memory.used.Load(); held != s.next.accounted || shown.accounted != 0 {
		t.Errorf("%d bytes are held, want the %d of one list", held, s.next.accounted)
	}
}

func TestReloadedListIsCountedOnce(t *testing.T) {
	e := newEngine(t, newServer())
	s := &viewSink{view: &view{engine: e, spec: wire.View{MaxBytes: 1000}}, mapping: mappingOf("configmaps", "ConfigMap"), feed: &feed{
		columns: func() json.RawMessage { return nil },
	}}
	obj := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "a"}}}
	s.StartSync()
	s.HandleEvent(obj, false)
	once := e.memory.used.Load()
	s.StartSync()
	s.HandleEvent(obj, false)
	if twice := e.memory.used.Load(); once == 0 || twice != once {
		t.Errorf("%d bytes at first, then %d", once, twice)
	}
	if s.dropNext(); e.memory.used.Load() != 0 {
		t.Errorf("%d bytes are left", e.memory.used.Load())
	}
}

// TestListIsAlwaysPrefix compares lists with all that they were given.
func TestListIsAlwaysPrefix(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range testscale.Of(60, 300) {
		const budget = 500
		l, all := testList(budget), map[string]int{}
		for step := range 200 {
			key := fmt.Sprintf("%02d", random.IntN(40))
			if _, ok := all[key]; ok && step < 20 {
				continue
			}
			if random.IntN(3) == 0 && step > 20 {
				delete(all, key)
				l.add(t, item{key: key, deleted: true})
			} else {
				all[key] = 6 + random.IntN(150)
				l.add(t, object(key, all[key]))
			}
			size, keys := 0, slices.Sorted(maps.Keys(all))
			for i, key := range l.keys {
				size += all[key] + separator
				if keys[i] != key {
					t.Fatalf("%v of %v is no prefix", l.keys, keys)
				}
			}
			if l.size != size || size > budget || len(l.keys)+len(l.omitted) != len(all) {
				t.Fatalf("%d bytes are counted of %d, %d items and %d cut of %d", l.size, size, len(l.keys), len(l.omitted), len(all))
			}
			if l.firstOmitted != nil && l.firstOmitted.key != keys[len(l.keys)] {
				t.Fatalf("the first behind is %q, want %q", l.firstOmitted.key, keys[len(l.keys)])
			}
			if step < 20 && l.shouldReload() {
				t.Fatal("a list of which nothing went would be read anew")
			}
			answer, err := wire.DecodeViewResult(l.encode(nil))
			if err != nil || len(answer.Result) > l.spec.MaxBytes {
				t.Fatalf("%d bytes of %d: %v", len(answer.Result), l.spec.MaxBytes, err)
			}
		}
		if l.release(); l.memory.used.Load() != 0 {
			t.Fatalf("%d bytes are left", l.memory.used.Load())
		}
	}
}

func TestLimitBelowEmptyListIsRefused(t *testing.T) {
	l := testList(-1)
	l.add(t, object("a", 10))
	answer, err := wire.DecodeViewResult(l.encode(nil))
	if err != nil || answer.Refusal == nil || answer.Refusal.Cause != wire.CauseLimit {
		t.Errorf("%s %+v: %v; want that the limit is too low", answer.Result, answer.Refusal, err)
	}
}

func TestListIsReloadedAtMostOncePerSecond(t *testing.T) {
	runSynctest(t, func(r *rig) {
		large := data("k", strings.Repeat("v", 1500))
		r.server.set("configmaps", "shop", "a", nil)
		r.server.set("configmaps", "shop", "z", large)
		v := configMaps("shop")
		v.MaxBytes = 1000
		key := r.ask(v, 1)
		r.sleep(time.Minute)
		r.server.seen()
		for range 50 {
			r.server.set("configmaps", "shop", "m", large) // the first behind the cut,
			r.sleep(20 * time.Millisecond)
			r.server.remove("configmaps", "shop", "m") // behind which there may be one that fits
			r.sleep(20 * time.Millisecond)
		}
		if n := len(views(r.server.seen())); n > 3 {
			t.Errorf("%d watches in two seconds", n)
		}
		r.nextAnswer(key)
		r.server.remove("configmaps", "shop", "z")
		r.sleep(2 * time.Second)
		all := r.nextAnswer(key)
		if last := all[len(all)-1]; last.Cut != 0 || !cmp.Equal(last.names(t), []string{"shop/a"}) {
			t.Errorf("%v and %d cut, want what is there at the end", last.names(t), last.Cut)
		}
	})
}

func TestAnswerMarksClusterScopedObjects(t *testing.T) {
	runSynctest(t, func(r *rig) {
		r.server.set("nodes", "", "a", nil)
		v := wire.View{Target: wire.Target{Kind: "Node", Namespace: "ignored"}}
		if got := r.onlyAnswer(r.ask(v, 1), "nodes"); !got.ClusterScoped || !cmp.Equal(got.names(t), []string{"/a"}) {
			t.Errorf("%+v, want a list of what is in no namespace", got)
		}
	})
}

func TestCutListIsReloadedWhenItHasRoom(t *testing.T) {
	runSynctest(t, func(r *rig) {
		for n := range 100 {
			r.server.set("configmaps", "shop", fmt.Sprintf("c%02d", n), data("k", strings.Repeat("v", 1000)))
		}
		v := configMaps("shop")
		v.MaxBytes = 50_000
		key := r.ask(v, 1)
		got := r.onlyAnswer(key, "the initial state")
		if len(got.names(t))+got.Cut != 100 || got.Cut < 50 || len(got.Result) > 50_000 {
			t.Fatalf("%d items, %d cut, %d bytes", len(got.names(t)), got.Cut, len(got.Result))
		}
		r.sleep(time.Minute)
		r.server.seen()
		r.server.set("configmaps", "shop", "c99", data("k", "changed"))
		r.expectNoAnswer(key, "a change behind the cut")
		for n := range 30 {
			r.server.remove("configmaps", "shop", fmt.Sprintf("c%02d", n))
		}
		r.sleep(time.Minute)
		all := r.nextAnswer(key)
		last := all[len(all)-1]
		if names := last.names(t); names[0] != "shop/c30" || len(names) < 40 || len(names)+last.Cut != 70 {
			t.Errorf("%d items from %s, %d cut; want those that have room now", len(names), names[0], last.Cut)
		}
		if got := views(r.server.seen()); len(got) != 1 {
			t.Errorf("%q, want one new watch", got)
		}
	})
}
