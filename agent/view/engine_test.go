// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/api/wire"
)

func TestListFollowsObjects(t *testing.T) {
	runSynctest(t, func(r *rig) {
		r.server.set("configmaps", "shop", "b", data("k", "<v>"))
		r.server.set("configmaps", "shop", "a", data("k", "v"))
		r.server.set("configmaps", "elsewhere", "c", nil)
		key := r.ask(configMaps("shop"), 7)
		first := r.onlyAnswer(key, "the initial state")
		want := `{"apiVersion":"v1","items":[` +
			`{"apiVersion":"v1","data":{"k":"v"},"kind":"ConfigMap","metadata":{"name":"a","namespace":"shop","resourceVersion":"102"}},` +
			`{"apiVersion":"v1","data":{"k":"\u003cv\u003e"},"kind":"ConfigMap","metadata":{"name":"b","namespace":"shop","resourceVersion":"101"}}` +
			`],"kind":"ConfigMapList","metadata":{}}`
		if diff := cmp.Diff(want, string(first.Result)); diff != "" || first.generation != 7 || first.at != 0 {
			t.Errorf("generation %d after %s, want 7 at once (-want +got):\n%s", first.generation, first.at, diff)
		}
		r.sleep(time.Minute)
		r.server.set("configmaps", "shop", "0", nil)
		r.server.set("configmaps", "elsewhere", "d", nil)
		if got := r.onlyAnswer(key, "a new object"); got.at != time.Minute || !cmp.Equal(got.names(t), []string{"shop/0", "shop/a", "shop/b"}) {
			t.Errorf("%v after %s, want it at once, in its place", got.names(t), got.at-time.Minute)
		}
		r.sleep(time.Minute)
		r.server.remove("configmaps", "shop", "a")
		if got := r.onlyAnswer(key, "a deletion"); !cmp.Equal(got.names(t), []string{"shop/0", "shop/b"}) {
			t.Errorf("%v, want what is left", got.names(t))
		}
		if diff := cmp.Diff([]string{"alice watch configmaps shop"}, views(r.server.seen())); diff != "" {
			t.Errorf("one watch is all that it takes (-want +got):\n%s", diff)
		}
	})
}

// views leaves the requests that were made for views.
func views(requests []string) []string {
	var of []string
	for _, r := range requests {
		if !strings.HasPrefix(r, "review") && !strings.HasPrefix(r, " ") {
			of = append(of, r)
		}
	}
	return of
}

func TestChangesArePublishedAtMostOncePerSecond(t *testing.T) {
	runSynctest(t, func(r *rig) {
		key := r.ask(configMaps("shop"), 1)
		r.onlyAnswer(key, "the initial state")
		r.sleep(time.Minute)
		for n := range 30 {
			r.server.set("configmaps", "shop", "a", data("k", strconv.Itoa(n)))
			r.sleep(100 * time.Millisecond)
		}
		r.sleep(time.Minute)
		var at []time.Duration
		all := r.nextAnswer(key)
		for _, a := range all {
			at = append(at, a.at-time.Minute)
		}
		if diff := cmp.Diff([]time.Duration{0, time.Second, 2 * time.Second, 3 * time.Second}, at); diff != "" {
			t.Errorf("times of the answers (-want +got):\n%s", diff)
		}
		if last := string(all[len(all)-1].Result); !strings.Contains(last, `"k":"29"`) {
			t.Errorf("the last answer is %s, want the last state", last)
		}
	})
}

func TestUndoneChangeIsNotPublished(t *testing.T) {
	runSynctest(t, func(r *rig) {
		key := r.ask(configMaps("shop"), 1)
		r.onlyAnswer(key, "the initial state")
		r.server.set("configmaps", "shop", "a", nil)
		r.sleep(time.Millisecond)
		r.server.remove("configmaps", "shop", "a")
		r.sleep(1200 * time.Millisecond)
		r.expectNoAnswer(key, "an object that came and went")
		r.server.set("configmaps", "shop", "b", nil)
		if got := r.onlyAnswer(key, "the next change"); got.at != 1201*time.Millisecond {
			t.Errorf("answered after %s, want at once", got.at)
		}
	})
}

func TestIdleViewSendsNoRequests(t *testing.T) {
	runSynctest(t, func(r *rig) {
		r.ask(configMaps("shop"), 1)
		r.ask(configMap("shop", "none"), 1)
		r.sleep(15 * time.Second) // rights are reviewed when their watches begin
		r.server.seen()
		r.sleep(4 * time.Minute)
		if got := r.server.seen(); len(got) != 0 {
			t.Errorf("requests at rest: %q", got)
		}
	})
}

func TestRenewedWatchPublishesNothing(t *testing.T) {
	runSynctest(t, func(r *rig) {
		r.server.set("configmaps", "shop", "a", nil)
		key := r.ask(configMaps("shop"), 1)
		r.onlyAnswer(key, "the initial state")
		r.sleep(time.Minute)
		r.server.cut("configmaps")
		r.sleep(time.Second)
		r.server.expire("configmaps")
		r.sleep(time.Minute)
		r.expectNoAnswer(key, "a watch that was resumed, and one that began anew")
		r.server.set("configmaps", "shop", "b", nil)
		r.onlyAnswer(key, "a change after both")
	})
}

func TestNewGenerationGetsLastAnswer(t *testing.T) {
	runSynctest(t, func(r *rig) {
		key := r.ask(configMaps("shop"), 1)
		first := r.onlyAnswer(key, "the initial state")
		r.ask(configMap("shop", "a"), 1)
		r.sleep(time.Minute)
		r.server.seen()
		r.ask(configMaps("shop"), 2)
		again := r.onlyAnswer(key, "a new generation")
		if again.generation != 2 || again.at != time.Minute || string(again.Result) != string(first.Result) {
			t.Errorf("generation %d after %s: %s; want 2, at once, the same", again.generation, again.at-time.Minute, again.Result)
		}
		if got := r.server.seen(); len(got) != 0 {
			t.Errorf("requests for an answer that is there: %q", got)
		}
		r.server.set("configmaps", "shop", "a", nil)
		if got := r.onlyAnswer(key, "a change"); got.generation != 2 {
			t.Errorf("generation %d, want that of who asked last", got.generation)
		}
	})
}

func TestSingleObjectView(t *testing.T) {
	runSynctest(t, func(r *rig) {
		v := configMap("shop", "a")
		v.Table, v.MaxBytes = true, 400
		key := r.ask(v, 1)
		got := r.onlyAnswer(key, "an object that does not exist")
		want := &wire.Refusal{Cause: wire.CauseRequest, Status: metav1.StatusReasonNotFound, Message: `configmaps "a" not found`}
		if diff := cmp.Diff(want, got.Refusal); diff != "" {
			t.Errorf("refusal (-want +got):\n%s", diff)
		}
		r.sleep(time.Minute)
		r.server.set("configmaps", "shop", "b", nil)
		r.expectNoAnswer(key, "another object")
		r.server.set("configmaps", "shop", "a", data("k", "v"))
		if got := r.onlyAnswer(key, "it comes"); !strings.Contains(string(got.Result), `"kind":"ConfigMap"`) || got.at != time.Minute {
			t.Errorf("%s after %s, want the object at once", got.Result, got.at-time.Minute)
		}
		r.sleep(time.Minute)
		r.server.set("configmaps", "shop", "a", data("k", strings.Repeat("v", 400)))
		want = &wire.Refusal{
			Cause: wire.CauseLimit, Status: metav1.StatusReasonRequestEntityTooLarge,
			Message: `configmaps "a" has 521 bytes of JSON, the limit of the view is 400`,
		}
		if diff := cmp.Diff(want, r.onlyAnswer(key, "it grows").Refusal); diff != "" {
			t.Errorf("refusal (-want +got):\n%s", diff)
		}
		r.sleep(time.Minute)
		r.server.remove("configmaps", "shop", "a")
		if got := r.onlyAnswer(key, "it goes"); got.Refusal == nil || got.Refusal.Status != metav1.StatusReasonNotFound {
			t.Errorf("%s %+v, want that it is not there", got.Result, got.Refusal)
		}
	})
}

func TestSingleObjectViewIgnoresOtherObjects(t *testing.T) {
	for name, pages := range map[string]bool{"a stream": false, "pages": true} {
		t.Run(name, func(t *testing.T) {
			runSynctest(t, func(r *rig) {
				r.server.pages, r.server.unselective = pages, true
				for _, name := range []string{"a", "b", "c"} {
					r.server.set("configmaps", "shop", name, nil)
				}
				key := r.ask(configMap("shop", "b"), 1)
				if got := string(r.onlyAnswer(key, "one of three").Result); !strings.Contains(got, `"name":"b"`) {
					t.Errorf("%s, want the one that is asked for", got)
				}
				r.sleep(time.Minute)
				r.server.remove("configmaps", "shop", "c")
				r.expectNoAnswer(key, "another one goes")
			})
		})
	}
}

func TestListIsPagedWithoutStreaming(t *testing.T) {
	for name, asTable := range map[string]bool{"objects": false, "a Table": true} {
		t.Run(name, func(t *testing.T) {
			runSynctest(t, func(r *rig) {
				r.server.pages = true
				for n := range 1200 {
					r.server.set("configmaps", "shop", fmt.Sprintf("c%04d", n), nil)
				}
				v := configMaps("shop")
				v.Table = asTable
				key := r.ask(v, 1)
				if got := r.onlyAnswer(key, "three pages").names(t); len(got) != 1200 {
					t.Errorf("%d items, want all of three pages", len(got))
				}
				r.sleep(time.Minute)
				r.server.remove("configmaps", "shop", "c0007")
				if got := r.onlyAnswer(key, "a deletion").names(t); len(got) != 1199 {
					t.Errorf("%d items, want one less", len(got))
				}
			})
		})
	}
}

func TestDeletedViewStopsItsWatch(t *testing.T) {
	runSynctest(t, func(r *rig) {
		key := r.ask(configMaps("shop"), 1)
		other := r.ask(configMaps("other"), 1)
		r.onlyAnswer(key, "the initial state")
		if got := r.server.watches("configmaps"); got != 2 {
			t.Fatalf("%d watches, want one for each view", got)
		}
		r.views.Delete(key)
		r.sleep(time.Second)
		if got := r.engine.Source().Keys(); !cmp.Equal(got, []string{other}) {
			t.Errorf("answers to %v, want the other alone", got)
		}
		if r.server.watches("configmaps") != 1 || r.server.watches("roles") != 1 {
			t.Errorf("%d watches of objects and %d of roles, want those of the other view", r.server.watches("configmaps"), r.server.watches("roles"))
		}
		r.views.Delete(other)
		r.sleep(time.Second)
		if r.server.watches("configmaps") != 0 || r.server.watches("roles") != 0 || r.engine.memory.used.Load() != 0 {
			t.Errorf("%d watches of objects, %d of roles, %d bytes; want none without a view", r.server.watches("configmaps"), r.server.watches("roles"), r.engine.memory.used.Load())
		}
		r.ask(configMaps("shop"), 2)
		r.onlyAnswer(key, "the view again")
		if r.server.watches("roles") != 1 {
			t.Error("rights are not followed again")
		}
	})
}

func TestNextProcessSendsOnlyDifferences(t *testing.T) {
	runSynctest(t, func(r *rig) {
		same, differs := r.ask(configMaps("shop"), 1), r.ask(configMaps("other"), 1)
		gone := r.ask(configMaps("gone"), 1)
		for _, key := range []string{same, differs, gone} {
			r.onlyAnswer(key, "the initial state")
		}
		r.stop()
		r.views.Delete(gone)
		r.server.set("configmaps", "other", "a", nil)
		r.server.answer[""] = status(-1, "", "")
		r.start()
		r.sleep(time.Minute)
		r.expectNoAnswer(same, "while the API server is away")
		if len(r.dropped) != 0 {
			t.Errorf("%v are withdrawn, and may be answered yet", r.dropped)
		}
		r.server.configure(func(s *server) { delete(s.answer, "") })
		r.sleep(time.Minute)
		r.expectNoAnswer(same, "what has not changed")
		if got := r.onlyAnswer(differs, "what has changed").names(t); !cmp.Equal(got, []string{"other/a"}) {
			t.Errorf("%v, want what changed meanwhile", got)
		}
		if !cmp.Equal(r.dropped, []string{gone}) {
			t.Errorf("%v are withdrawn, want the view that is gone, %s", r.dropped, gone)
		}
	})
}

func TestDeletedViewPublishesNothing(t *testing.T) {
	runSynctest(t, func(r *rig) {
		key := r.ask(configMaps("shop"), 1)
		r.onlyAnswer(key, "the initial state")
		r.server.set("configmaps", "shop", "a", nil) // waits for its second
		r.sleep(time.Millisecond)
		r.views.Delete(key)
		r.sleep(time.Minute)
		r.expectNoAnswer(key, "a change before the end")
		if keys := r.engine.Source().Keys(); len(keys) != 0 {
			t.Errorf("%v are published", keys)
		}
	})
}

func TestRefusalReplacesPendingAnswer(t *testing.T) {
	runSynctest(t, func(r *rig) {
		key := r.ask(configMaps("shop"), 1)
		r.onlyAnswer(key, "the initial state")
		r.server.set("configmaps", "shop", "a", nil) // waits for its second
		r.sleep(time.Millisecond)
		r.server.configure(func(s *server) { s.answer["configmaps"] = status(403, metav1.StatusReasonForbidden, "no") })
		r.server.expire("configmaps")
		r.sleep(time.Minute)
		if got := r.onlyAnswer(key, "one answer"); got.Refusal == nil {
			t.Errorf("%s, want the refusal", got.Result)
		}
	})
}

func TestEngineWithoutViewsSendsNoRequests(t *testing.T) {
	runSynctest(t, func(r *rig) {
		r.sleep(time.Hour)
		if got := r.server.requests; len(got) != 0 {
			t.Errorf("requests: %q", got)
		}
	})
	if _, err := New(Config{}); err == nil {
		t.Error("an engine without a door is none")
	}
}
