// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/spokelet/spokelet/api/wire"
)

// sharing is a rig that shares the widget a with the agent of c1.
func sharing(t *testing.T, change ...func(*unstructured.Unstructured)) (*rig, *agent) {
	t.Helper()
	r := newRig(t, sharedResource("s"))
	r.api.set(widgets, widget("c1", "a", 1, change...))
	r.start(t)
	return r, r.connect(t, "c1")
}

func TestWriteIsExecutedAndAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a := sharing(t)
		check := func(reason, name string, generation int64, want string) {
			t.Helper()
			r.settle()
			o, ok := a.getObject("s/" + name)
			if o.Applied != generation || o.Refused != 0 {
				t.Errorf("%s: known %t, applied %d, refused %d for %q, want %d", reason, ok, o.Applied, o.Refused, o.Reason, generation)
			}
			if string(o.Content) != want {
				t.Errorf("%s: content %s, want %s", reason, o.Content, want)
			}
		}
		check("a change", "a", a.requestWrite("s/a", wire.PartObject, `{"metadata":{"labels":{"x":"y"}},"spec":{"size":2}}`), `{"metadata":{"labels":{"x":"y"}},"spec":{"size":2}}`)
		check("the status alone", "a", a.requestWrite("s/a", wire.PartStatus, `{"spec":{"size":9},"status":{"ok":true}}`),
			`{"metadata":{"labels":{"x":"y"}},"spec":{"size":2},"status":{"ok":true}}`)
		check("all but the status", "a", a.requestWrite("s/a", wire.PartObject, `{"spec":{"size":3},"status":{"ok":false}}`), `{"spec":{"size":3},"status":{"ok":true}}`)
		check("what is so already", "a", a.requestWrite("s/a", wire.PartObject, `{"spec":{"size":3},"status":{"ok":true}}`), `{"spec":{"size":3},"status":{"ok":true}}`)
		check("a new one", "b", a.requestWrite("s/b", wire.PartObject, `{"metadata":{"annotations":{"k":"v"}},"spec":{"size":1},"status":{"ok":true}}`),
			`{"metadata":{"annotations":{"k":"v"}},"spec":{"size":1}}`)
		generation := a.requestWrite("s/b", wire.PartDeletion, "")
		check("a deletion", "b", generation, "")
		if o, _ := a.getObject("s/b"); !o.Deleted || o.uid == "" {
			t.Errorf("deleted %t, uid %q", o.Deleted, o.uid)
		}
		want := []string{
			"patch widgets.example.com c1 a", "patch widgets.example.com c1 a status", "patch widgets.example.com c1 a",
			"create widgets.example.com c1 b", "delete widgets.example.com c1 b",
		}
		if diff := cmp.Diff(want, r.api.writes()); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
	})
}

func TestWriteWithoutStatusSubresourceIncludesStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, sharedResource("s"))
		r.api.set(definitionResource, definitionOf(false))
		r.start(t)
		a := r.connect(t, "c1")
		a.requestWrite("s/a", wire.PartObject, `{"spec":{"size":1},"status":{"ok":true}}`)
		r.settle()
		a.requestWrite("s/a", wire.PartObject, `{"spec":{"size":1},"status":{"ok":false}}`)
		r.settle()
		if o, _ := a.getObject("s/a"); string(o.Content) != `{"spec":{"size":1},"status":{"ok":false}}` {
			t.Errorf("content %s", o.Content)
		}
		generation := a.requestWrite("s/a", wire.PartStatus, `{"status":{"ok":true}}`)
		r.settle()
		if o, _ := a.getObject("s/a"); o.Refused != generation {
			t.Errorf("a status without subresource is not refused: %+v", o)
		}
	})
}

// An agent that sees another version without the answer takes its write for not done.
func TestPublishedObjectNamesAppliedWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for reason, w := range map[string]struct {
			key, to string
			part    wire.SharedPart
		}{
			"a change":   {key: "s/a", to: `{"spec":{"size":2}}`, part: wire.PartObject},
			"a creation": {key: "s/b", to: `{"spec":{"size":2}}`, part: wire.PartObject},
			"a deletion": {key: "s/a", part: wire.PartDeletion},
		} {
			r, a := sharing(t)
			a.takeLog()
			// The watch reports the write, and the answer comes a second later.
			r.api.mu.Lock()
			r.api.lose = func(string) error {
				r.api.mu.Unlock()
				defer r.api.mu.Lock()
				time.Sleep(time.Second)
				return nil
			}
			r.api.mu.Unlock()
			generation := a.requestWrite(w.key, w.part, w.to)
			time.Sleep(time.Second / 2)
			synctest.Wait()
			if seen := a.takeLog(); len(seen) > 0 {
				t.Errorf("%s: before the answer was known: %v", reason, seen)
			}
			r.settle()
			if o, _ := a.getObject(w.key); o.Applied != generation || len(a.takeLog()) != 1 || w.part == wire.PartDeletion && !o.Deleted {
				t.Errorf("%s: %+v", reason, o)
			}
			r.stop()
		}
	})
}

func TestResponseBeforeWatchEventStaysPublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a := sharing(t)
		r.api.edit(t, widgets, "c1", "a", func(w *unstructured.Unstructured) { w.SetFinalizers([]string{"a/b"}) })
		r.settle()
		a.takeLog()
		r.api.pause()
		first := a.requestWrite("s/a", wire.PartObject, `{"spec":{"size":2}}`)
		r.settle()
		if o, _ := a.getObject("s/a"); o.Applied != first || r.sizeOf("c1", "a") != 2 {
			t.Fatalf("known %+v", o)
		}
		second := a.requestWrite("s/a", wire.PartObject, `{"spec":{"size":3}}`)
		r.settle()
		third := a.requestWrite("s/a", wire.PartDeletion, "")
		r.settle()
		if o, _ := a.getObject("s/a"); o.Applied != second || o.Deleting {
			t.Errorf("before the watch: %+v", o)
		}
		r.api.resume()
		r.settle()
		if o, _ := a.getObject("s/a"); o.Applied != third || !o.Deleting {
			t.Errorf("after the watch: %+v", o)
		}
		if diff := cmp.Diff([]string{"put a", "put a", "put a"}, a.takeLog()); diff != "" {
			t.Errorf("log (-want +got):\n%s", diff)
		}
	})
}

func TestOutdatedWriteIsNotExecuted(t *testing.T) {
	tests := map[string]struct {
		reason, seen, uid string
	}{
		"another content": {reason: "the agent merges again", seen: strings.Repeat("0", 32)},
		"another object":  {reason: "the name was taken again", seen: "", uid: "another"},
		"none":            {reason: "there is one", seen: "none"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, a := sharing(t)
				if tc.seen == "" {
					now, _ := a.getObject("s/a")
					tc.seen = now.Version
				}
				if tc.seen == "none" {
					tc.seen = ""
				}
				a.takeLog()
				a.requestWriteFrom("s/a", wire.PartObject, `{"spec":{"size":2}}`, tc.seen, tc.uid)
				r.settle()
				if got := r.api.writes(); len(got) > 0 || len(a.takeLog()) > 0 {
					t.Errorf("%s: requests %v", tc.reason, got)
				}
			})
		})
	}
}

// The API server has another version than we, and says so.
func TestConflictingWriteWaitsForWatch(t *testing.T) {
	tests := map[string]struct {
		reason string
		change func(t *testing.T, r *rig)
		done   bool
	}{
		"of another content": {
			reason: "the agent is told of it, and merges again",
			change: func(t *testing.T, r *rig) { r.api.edit(t, widgets, "c1", "a", resize(5)) },
		},
		"of the same content": {
			reason: "the write is made from what there is", done: true,
			change: func(t *testing.T, r *rig) {
				r.api.edit(t, widgets, "c1", "a", func(w *unstructured.Unstructured) { w.SetFinalizers([]string{"a/b"}) })
			},
		},
	}
	for name, tc := range tests {
		for _, part := range []wire.SharedPart{wire.PartObject, wire.PartDeletion} {
			t.Run(name+" "+string(part), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r, a := sharing(t)
					r.api.pause()
					tc.change(t, r)
					to := `{"spec":{"size":2}}`
					if part == wire.PartDeletion {
						to = ""
					}
					generation := a.requestWrite("s/a", part, to)
					r.settle()
					if len(r.api.writes()) == 0 {
						t.Fatal("nothing was tried")
					}
					before, _ := a.getObject("s/a")
					r.api.resume()
					r.settle()
					o, _ := a.getObject("s/a")
					if got := o.Applied == generation; got != tc.done || before.Applied != 0 || o.Refused != 0 {
						t.Errorf("%s: applied %t, before %+v", tc.reason, got, before)
					}
				})
			})
		}
	}
}

func TestCreationOfExistingObjectPublishesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a := sharing(t)
		r.api.pause()
		r.api.set(widgets, widget("c1", "b", 7))
		a.requestWrite("s/b", wire.PartObject, `{"spec":{"size":2}}`)
		r.settle()
		if o, _ := a.getObject("s/b"); string(o.Content) != `{"spec":{"size":7}}` || o.Refused != 0 {
			t.Errorf("known %+v", o)
		}
		r.api.resume()
	})
}

// A patch that removes what is not there is refused before versions are compared.
func TestRefusedOutdatedPatchIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a := sharing(t, func(w *unstructured.Unstructured) { w.SetLabels(map[string]string{"x": "y", "z": "z"}) })
		r.api.pause()
		r.api.edit(t, widgets, "c1", "a", func(w *unstructured.Unstructured) { w.SetLabels(map[string]string{"z": "z"}) })
		a.requestWrite("s/a", wire.PartObject, `{"metadata":{"labels":{"z":"z"}},"spec":{"size":2}}`)
		r.settle()
		o, _ := a.getObject("s/a")
		if o.Refused != 0 || string(o.Content) != `{"metadata":{"labels":{"z":"z"}},"spec":{"size":1}}` {
			t.Errorf("known %+v", o)
		}
		r.api.resume()
	})
}

func TestPermanentRefusalIsAnswered(t *testing.T) {
	gr := schema.ParseGroupResource(widgets)
	tests := map[string]struct {
		reason  string
		err     error
		refused bool
	}{
		"forbidden":   {reason: "rights are for people to change", err: apierrors.NewForbidden(gr, "a", errors.New("no")), refused: true},
		"invalid":     {reason: "it is the same each time", err: apierrors.NewInvalid(schema.GroupKind{Kind: "Widget"}, "a", nil), refused: true},
		"bad":         {reason: "it is the same each time", err: apierrors.NewBadRequest("no"), refused: true},
		"too large":   {reason: "it is the same each time", err: apierrors.NewRequestEntityTooLargeError("no"), refused: true},
		"no method":   {reason: "it is the same each time", err: apierrors.NewMethodNotSupported(gr, "patch"), refused: true},
		"too many":    {reason: "it passes", err: apierrors.NewTooManyRequests("later", 1)},
		"a timeout":   {reason: "it passes", err: apierrors.NewTimeoutError("later", 1)},
		"an outage":   {reason: "it passes", err: apierrors.NewInternalError(errors.New("etcd"))},
		"no network":  {reason: "it passes", err: errors.New("connection refused")},
		"credentials": {reason: "they are renewed", err: apierrors.NewUnauthorized("who")},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, a := sharing(t)
				r.api.refuse = func(request string) error {
					if strings.HasPrefix(request, "patch") {
						return tc.err
					}
					return nil
				}
				generation := a.requestWrite("s/a", wire.PartObject, `{"spec":{"size":2}}`)
				r.settle()
				o, _ := a.getObject("s/a")
				if got := o.Refused == generation; got != tc.refused || o.Applied != 0 {
					t.Errorf("%s: %+v", tc.reason, o)
				}
				if tc.refused && (!strings.HasPrefix(o.Reason, "hub: ") || len(r.api.writes()) != 1) {
					t.Errorf("%s: reason %q after %v", tc.reason, o.Reason, r.api.writes())
				}
				r.api.mu.Lock()
				r.api.refuse = nil
				r.api.mu.Unlock()
				time.Sleep(time.Minute)
				synctest.Wait()
				if o, _ = a.getObject("s/a"); (o.Applied == generation) == tc.refused {
					t.Errorf("%s: after it has passed: %+v", tc.reason, o)
				}
			})
		})
	}
}

// The request was executed, and its answer was lost.
func TestWriteWithLostResponseIsDoneOnce(t *testing.T) {
	for _, part := range []wire.SharedPart{wire.PartObject, wire.PartDeletion} {
		t.Run(string(part), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, a := sharing(t)
				a.takeLog()
				r.api.pause()
				r.api.lose = func(string) error { return errors.New("connection reset") }
				to := `{"spec":{"size":2}}`
				if part == wire.PartDeletion {
					to = ""
				}
				generation := a.requestWrite("s/a", part, to)
				synctest.Wait()
				r.api.mu.Lock()
				r.api.lose = nil
				r.api.mu.Unlock()
				r.api.resume()
				r.settle()
				o, _ := a.getObject("s/a")
				if seen := a.takeLog(); o.Applied != generation || len(seen) != 1 {
					t.Errorf("log %v, known %+v", seen, o)
				}
			})
		})
	}
}

func TestAnswerForAbsentObjectStaysWhileRequested(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a := sharing(t)
		r.api.refuse = func(request string) error {
			if strings.HasPrefix(request, "create") {
				return apierrors.NewForbidden(schema.ParseGroupResource(widgets), "b", errors.New("no"))
			}
			return nil
		}
		generation := a.requestWrite("s/b", wire.PartObject, `{"spec":{"size":2}}`)
		r.settle()
		if o, ok := a.getObject("s/b"); !ok || o.Refused != generation || o.Version != "" || o.Deleted {
			t.Errorf("known %+v", o)
		}
		a.writes.Delete("s/b")
		r.settle()
		if o, ok := a.getObject("s/b"); ok {
			t.Errorf("still known: %+v", o)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, s := range r.shares {
			if len(s.requests) > 0 || len(s.entries) != 1 {
				t.Errorf("%d records and %d entries are left", len(s.requests), len(s.entries))
			}
		}
	})
}

func TestDroppedAnswerIsNotRepublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a := sharing(t)
		a.requestWrite("s/a", wire.PartObject, `{"spec":{"size":2}}`)
		r.settle()
		a.takeLog()
		a.writes.Delete("s/a")
		r.settle()
		if seen := a.takeLog(); len(seen) > 0 {
			t.Errorf("log %v", seen)
		}
		if held := r.memory.Held(); held != 0 {
			t.Errorf("%d bytes are held", held)
		}
	})
}
