// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/tunnel/resource"
)

func TestAPIServerRefusalIsPublished(t *testing.T) {
	cases := map[string]struct {
		reason string
		status metav1.Status
		// want is nil where the last answer is to stand.
		want *wire.Refusal
		// requests are those of a quarter of an hour: a refusal is looked at again in 5
		// to 10 minutes, everything else after half a minute at most.
		requests func(n int) bool
	}{
		"forbidden": {
			reason: "the requester has no right",
			status: status(http.StatusForbidden, metav1.StatusReasonForbidden, "no"),
			want:   &wire.Refusal{Cause: wire.CauseRequest, Status: metav1.StatusReasonForbidden, Message: "no"},
		},
		"a bad request": {
			reason: "a field selector that the resource does not support",
			status: status(http.StatusBadRequest, metav1.StatusReasonBadRequest, "field label not supported: a"),
			want:   &wire.Refusal{Cause: wire.CauseRequest, Status: metav1.StatusReasonBadRequest, Message: "field label not supported: a"},
		},
		"a method that is not allowed": {
			reason: "the resource cannot be watched",
			status: status(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "no watch"),
			want:   &wire.Refusal{Cause: wire.CauseRequest, Status: metav1.StatusReasonMethodNotAllowed, Message: "no watch"},
		},
		"unauthorized": {
			reason:   "it is said, but it is about the agent's credential, of which nothing is watched",
			status:   status(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "Unauthorized"),
			want:     &wire.Refusal{Cause: wire.CauseRequest, Status: metav1.StatusReasonUnauthorized, Message: "Unauthorized"},
			requests: func(n int) bool { return n > 15*2 },
		},
		"not found": {
			reason: "the resource is not served any more, and the message is that of one that never was",
			status: status(http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource"),
			want:   &wire.Refusal{Cause: wire.CauseTarget, Status: metav1.StatusReasonNotFound, Message: `resource "configmaps": the cluster has no such resource`},
			// The definitions that there are have it tried again three times.
			requests: func(n int) bool { return n <= 8 },
		},
		"a server without strength": {
			reason:   "it passes",
			status:   status(http.StatusInternalServerError, metav1.StatusReasonInternalError, "etcd"),
			requests: func(n int) bool { return n > 15*2 },
		},
		"a server without time": {
			reason:   "it passes",
			status:   status(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "later"),
			requests: func(n int) bool { return n > 15*2 },
		},
		"no server": {
			reason:   "it restarts",
			status:   status(-1, "", ""),
			requests: func(n int) bool { return n > 15*2 },
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			runSynctest(t, func(r *rig) {
				key := r.ask(configMaps("shop"), 1)
				first := r.onlyAnswer(key, "the initial state")
				r.server.configure(func(s *server) { s.answer["configmaps"] = tc.status })
				r.server.expire("configmaps")
				r.server.seen()
				r.sleep(15 * time.Minute)
				requests := len(views(r.server.seen()))
				if tc.want == nil {
					r.expectNoAnswer(key, tc.reason)
				} else if diff := cmp.Diff(tc.want, r.onlyAnswer(key, tc.reason).Refusal); diff != "" {
					t.Errorf("%s: refusal (-want +got):\n%s", tc.reason, diff)
				}
				if tc.requests == nil {
					tc.requests = func(n int) bool { return n <= 8 } // a watch and a list each time
				}
				if !tc.requests(requests) {
					t.Errorf("%s: %d requests in a quarter of an hour", tc.reason, requests)
				}
				r.server.configure(func(s *server) { delete(s.answer, "configmaps") })
				r.sleep(10 * time.Minute)
				if tc.want == nil {
					r.expectNoAnswer(key, "nothing has changed")
				} else if got := r.onlyAnswer(key, "it passes"); string(got.Result) != string(first.Result) {
					t.Errorf("%s %+v, want the first answer again", got.Result, got.Refusal)
				}
			})
		})
	}
}

func TestViewsRefusedWithoutRequest(t *testing.T) {
	cases := map[string]struct {
		reason string
		view   wire.View
		want   wire.Refusal
	}{
		"Secrets, where they are refused": {
			reason: "the hub's policy",
			view:   wire.View{Target: wire.Target{Resource: "Secret", Namespace: "shop", Name: "a"}, Secrets: wire.SecretsRefused},
			want:   wire.Refusal{Cause: wire.CauseRequest, Status: metav1.StatusReasonForbidden, Message: "viewing secrets is not allowed"},
		},
		"Secrets by their kind": {
			reason: "as ManagedClusterView names them",
			view:   wire.View{Target: wire.Target{Kind: "Secret", Version: "v1"}, Secrets: wire.SecretsRefused},
			want:   wire.Refusal{Cause: wire.CauseRequest, Status: metav1.StatusReasonForbidden, Message: "viewing secrets is not allowed"},
		},
		"a requester whom the door refuses": {
			reason: "as at the door",
			view:   wire.View{Requester: wire.Requester{User: "mallory"}, Target: wire.Target{Resource: "configmaps"}},
			want:   wire.Refusal{Cause: wire.CauseRequest, Status: metav1.StatusReasonForbidden, Message: "mallory is not let in"},
		},
		"a namespace that is a path": {
			reason: "it would be another request",
			view:   wire.View{Target: wire.Target{Resource: "configmaps", Namespace: "../.."}},
			want:   wire.Refusal{Cause: wire.CauseTarget, Status: metav1.StatusReasonInvalid, Message: `invalid target: namespace "../.." may not contain '/'`},
		},
		"an object without its namespace": {
			reason: "there may be several",
			view:   wire.View{Target: wire.Target{Resource: "configmaps", Name: "a"}},
			want:   wire.Refusal{Cause: wire.CauseTarget, Status: metav1.StatusReasonInvalid, Message: `invalid target: configmaps "a" needs a namespace`},
		},
		"a resource that does not exist": {
			reason: "it waits for its definition",
			view:   wire.View{Target: wire.Target{Resource: "widgets"}},
			want:   wire.Refusal{Cause: wire.CauseTarget, Status: metav1.StatusReasonNotFound, Message: `resource "widgets": the cluster has no such resource`},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			runSynctest(t, func(r *rig) {
				key := r.ask(tc.view, 3)
				got := r.onlyAnswer(key, tc.reason)
				if diff := cmp.Diff(&tc.want, got.Refusal); diff != "" || got.generation != 3 {
					t.Errorf("%s: generation %d, refusal (-want +got):\n%s", tc.reason, got.generation, diff)
				}
				if requests := views(r.server.seen()); len(requests) != 0 {
					t.Errorf("%s: requests were made: %q", tc.reason, requests)
				}
			})
		})
	}
}

func TestSecretsAreRefusedUnderAnyName(t *testing.T) {
	runSynctest(t, func(r *rig) {
		r.server.configure(func(s *server) { s.resources["secrets.v1."] = s.resources["secrets"] })
		v := wire.View{Target: wire.Target{Resource: "secrets.v1."}, Secrets: wire.SecretsRefused}
		if got := r.onlyAnswer(r.ask(v, 1), "another spelling").Refusal; got == nil || got.Message != errSecretsRefused.Error() {
			t.Errorf("%+v, want that they are not allowed", got)
		}
	})
}

func TestInvalidBodyIsRefused(t *testing.T) {
	runSynctest(t, func(r *rig) {
		if err := r.views.Put(resource.Resource{Key: "k", Generation: 1, Body: []byte(`{"target":{}}`)}); err != nil {
			t.Fatal(err)
		}
		if got := r.onlyAnswer("k", "a view without requester").Refusal; got == nil || got.Cause != wire.CauseTarget || got.Status != metav1.StatusReasonInvalid {
			t.Errorf("refusal %+v, want that it is invalid", got)
		}
		r.views.Delete("k")
		r.sleep(time.Second)
		if keys := r.engine.Source().Keys(); len(keys) != 0 {
			t.Errorf("the answer stays when it is withdrawn: %v", keys)
		}
	})
}

func TestViewWaitsForDefinition(t *testing.T) {
	runSynctest(t, func(r *rig) {
		key := r.ask(wire.View{Target: wire.Target{Resource: "widgets", Namespace: "shop"}}, 1)
		if got := r.onlyAnswer(key, "no definition").Refusal; got == nil || got.Cause != wire.CauseTarget {
			t.Fatalf("refusal %+v, want that there is no such resource", got)
		}
		r.sleep(time.Minute)
		r.server.seen()
		r.sleep(4 * time.Minute)
		if got := r.server.seen(); len(got) != 0 {
			t.Errorf("requests while it waits: %q", got)
		}
		r.server.define("widgets", "Widget")
		if got := r.onlyAnswer(key, "a definition"); got.at != 5*time.Minute || string(got.Result) != `{"apiVersion":"example.com/v1","items":[],"kind":"WidgetList","metadata":{}}` {
			t.Errorf("%s %+v after %s, want an empty list at once", got.Result, got.Refusal, got.at-5*time.Minute)
		}
		r.sleep(20 * time.Second)
		if got := r.server.watches("customresourcedefinitions"); got != 0 {
			t.Errorf("%d watches of definitions, want none when nobody waits", got)
		}
		r.server.set("widgets", "shop", "a", nil)
		r.onlyAnswer(key, "an object")
		r.server.undefine("widgets")
		r.sleep(time.Second)
		if got := r.onlyAnswer(key, "the definition goes").Refusal; got == nil || got.Cause != wire.CauseTarget {
			t.Errorf("refusal %+v, want that there is no such resource", got)
		}
		r.sleep(time.Minute)
		r.server.define("widgets", "Widget")
		if got := r.onlyAnswer(key, "the definition again").names(t); len(got) != 0 {
			t.Errorf("%v, want none of the former", got)
		}
	})
}

func TestViewWaitsForServedResource(t *testing.T) {
	runSynctest(t, func(r *rig) {
		key := r.ask(wire.View{Target: wire.Target{Resource: "widgets"}}, 1)
		r.onlyAnswer(key, "no definition")
		r.sleep(time.Minute)
		r.server.set("customresourcedefinitions", "", "widgets.example.com", nil)
		r.sleep(5 * time.Second)
		r.expectNoAnswer(key, "a definition that is not served yet")
		r.server.configure(func(s *server) {
			s.resources["widgets"] = (&kind{name: "widgets", group: "example.com", kind: "Widget"}).init()
		})
		r.sleep(5 * time.Second)
		r.onlyAnswer(key, "it is served")
	})
}

func TestDefinitionDuringLookupIsSeen(t *testing.T) {
	runSynctest(t, func(r *rig) {
		end := make(chan struct{})
		r.engine.cfg.Resources = resources{server: r.server, slow: map[string]chan struct{}{"widgets": end}}
		other := r.ask(wire.View{Target: wire.Target{Resource: "gadgets"}}, 1) // has definitions watched
		r.onlyAnswer(other, "no definition")
		key := r.ask(wire.View{Target: wire.Target{Resource: "widgets"}}, 1)
		r.server.define("widgets", "Widget")
		r.sleep(time.Minute)
		r.expectNoAnswer(key, "a lookup that is under way")
		close(end)
		r.sleep(0)
		all := r.nextAnswer(key)
		if last := all[len(all)-1]; last.Refusal != nil || last.at != time.Minute {
			t.Errorf("%+v after %s, want a list at once", last.Refusal, last.at)
		}
	})
}

func TestFailedLookupIsNotPublished(t *testing.T) {
	runSynctest(t, func(r *rig) {
		r.server.answer["discovery"] = metav1.Status{Message: "connection refused"}
		key := r.ask(configMaps("shop"), 1)
		r.sleep(time.Minute)
		r.expectNoAnswer(key, "while the API server is away")
		r.server.configure(func(s *server) { delete(s.answer, "discovery") })
		r.sleep(30 * time.Second)
		r.onlyAnswer(key, "when it is back")
	})
}

func TestViewsBeyondLimitWait(t *testing.T) {
	runSynctest(t, func(r *rig) {
		r.engine.maxViews = 2
		first, second := r.ask(configMaps("a"), 1), r.ask(configMaps("b"), 1)
		third := r.ask(configMaps("c"), 1)
		r.onlyAnswer(first, "the first")
		r.onlyAnswer(second, "the second")
		want := &wire.Refusal{
			Cause: wire.CauseLimit, Status: metav1.StatusReasonTooManyRequests,
			Message: "the agent runs 2 views already, which is the limit",
		}
		if diff := cmp.Diff(want, r.onlyAnswer(third, "the third").Refusal); diff != "" {
			t.Errorf("refusal (-want +got):\n%s", diff)
		}
		r.ask(configMaps("c"), 2)
		if got := r.onlyAnswer(third, "asked once more"); got.Refusal == nil || got.generation != 2 {
			t.Errorf("%+v, want the refusal for the new generation", got)
		}
		r.views.Delete(first)
		if got := r.onlyAnswer(third, "when there is room"); got.Refusal != nil || got.generation != 2 {
			t.Errorf("%+v, want a list", got)
		}
	})
}

func TestAnswersBeyondMemoryWait(t *testing.T) {
	runSynctest(t, func(r *rig) {
		r.engine.memory.limit = 3000
		for _, namespace := range []string{"a", "b"} {
			for n := range 10 {
				r.server.set("configmaps", namespace, strconv.Itoa(n), data("k", strings.Repeat("v", 100)))
			}
		}
		first, second := r.ask(configMaps("a"), 1), r.ask(configMaps("b"), 1)
		r.onlyAnswer(first, "the first")
		got := r.onlyAnswer(second, "the second")
		if got.Refusal == nil || got.Refusal.Cause != wire.CauseLimit || !strings.Contains(got.Refusal.Message, "3000 bytes") {
			t.Errorf("refusal %+v, want one that names the limit", got.Refusal)
		}
		if held := r.engine.memory.used.Load(); held < 1000 || held > 3000 {
			t.Errorf("%d bytes are held, want those of the first", held)
		}
		r.views.Delete(first)
		if got := r.onlyAnswer(second, "when there is room"); len(got.names(t)) != 10 {
			t.Errorf("%v, want all", got.names(t))
		}
	})
}

func TestRefusalOf(t *testing.T) {
	cases := map[string]struct {
		reason string
		err    error
		want   *wire.Refusal
	}{
		"none":      {reason: "there is nothing to say"},
		"transport": {reason: "it says nothing of the request", err: errors.New("broken pipe")},
		"no object": {
			reason: "what cannot be read will not be readable in a moment",
			err:    fmt.Errorf("%w: an event with a Status", errUnexpectedObject),
			want:   wire.Refuse(wire.CauseRequest, metav1.StatusReasonNotAcceptable, errUnexpectedObject.Error()+": an event with a Status"),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, refusalOf(tc.err)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
