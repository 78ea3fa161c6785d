// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package action

import (
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/spokelet/spokelet/api/wire"
)

// The points at which a process dies, by the last request that it makes.
func atStart() *fault {
	return &fault{method: http.MethodPost, path: entriesPath, after: true, stays: true}
}
func atOutcome() *fault {
	return &fault{method: http.MethodPut, path: entriesPath, after: true, stays: true}
}
func unrecorded() *fault { return &fault{method: http.MethodPut, path: entriesPath, stays: true} }

const widgetTemplate = `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w","namespace":"app"},"spec":{"size":1}}`

// What others do meanwhile.
func theirs(r *rig) { r.server.put(settingsPath, settings(map[string]any{"theirs": "2"})) }
func gone(r *rig)   { r.server.drop(settingsPath) }
func newer(r *rig)  { gone(r); theirs(r) }

// crash is a process that dies in the middle of an action, and another that goes on.
type crash struct {
	reason    string
	action    wire.Action
	before    func(*rig)
	crash     func() *fault
	meanwhile func(*rig)
	refused   wire.Cause
	writes    []string
	left      map[string]any // data of the object; nil if there is none
}

var (
	create = action(wire.VerbCreate, settingsTemplate)
	update = action(wire.VerbUpdate, settingsTemplate)
	remove = deletion(settingsTarget())
)

var crashes = map[string]crash{
	"create: started": {
		reason: "it may have been created and deleted", action: create, crash: atStart,
		refused: wire.CauseUnknown,
	},
	"create: started, and another has the name": {
		reason: "the object has no mark", action: create, crash: atStart, meanwhile: theirs,
		refused: wire.CauseUnknown, left: map[string]any{"theirs": "2"},
	},
	"create: written": {
		reason: "the object has the mark", action: create, crash: unrecorded,
		writes: []string{"POST"}, left: map[string]any{"ours": "1"},
	},
	"create: written, and deleted since": {
		reason: "nothing tells", action: create, crash: unrecorded, meanwhile: gone,
		refused: wire.CauseUnknown, writes: []string{"POST"},
	},
	"create: recorded": {
		reason: "the action log has the outcome", action: create, crash: atOutcome,
		writes: []string{"POST"}, left: map[string]any{"ours": "1"},
	},
	"create: recorded, and deleted since": {
		reason: "it was done, whatever became of it", action: create, crash: atOutcome, meanwhile: gone,
		writes: []string{"POST"},
	},
	"create: refused, and recorded": {
		reason: "the action log has the refusal", action: create, before: theirs, crash: atOutcome, meanwhile: gone,
		refused: wire.CauseRequest,
	},
	"update: started": {
		reason: "the object is as it was recorded, so it is updated now", action: update, before: theirs, crash: atStart,
		writes: []string{"PATCH"}, left: map[string]any{"theirs": "2", "ours": "1"},
	},
	"update: started, and written by another": {
		reason: "the mark may have been overwritten", action: update, before: theirs, crash: atStart, meanwhile: theirs,
		refused: wire.CauseUnknown, left: map[string]any{"theirs": "2"},
	},
	"update: written": {
		reason: "the object has the mark", action: update, before: theirs, crash: unrecorded,
		writes: []string{"PATCH"}, left: map[string]any{"theirs": "2", "ours": "1"},
	},
	"update: written, and deleted since": {
		reason: "nothing tells", action: update, before: theirs, crash: unrecorded, meanwhile: gone,
		refused: wire.CauseUnknown, writes: []string{"PATCH"},
	},
	"update: written, and another one since": {
		reason: "the mark went with the object", action: update, before: theirs, crash: unrecorded, meanwhile: newer,
		refused: wire.CauseUnknown, writes: []string{"PATCH"}, left: map[string]any{"theirs": "2"},
	},
	"update: recorded": {
		reason: "the action log has the outcome", action: update, before: theirs, crash: atOutcome, meanwhile: theirs,
		writes: []string{"PATCH"}, left: map[string]any{"theirs": "2"},
	},
	"delete: started": {
		reason: "the object is there as it was recorded, so it is deleted now", action: remove, before: theirs, crash: atStart,
		writes: []string{"DELETE"},
	},
	"delete: started, and written by another": {
		reason: "it is the same object", action: remove, before: theirs, crash: atStart, meanwhile: theirs,
		writes: []string{"DELETE"},
	},
	"delete: started, and another one since": {
		reason: "the new one is not what was to be deleted", action: remove, before: theirs, crash: atStart, meanwhile: newer,
		left: map[string]any{"theirs": "2"},
	},
	"delete: written": {
		reason: "the object is gone", action: remove, before: theirs, crash: unrecorded,
		writes: []string{"DELETE"},
	},
	"delete: recorded": {
		reason: "the action log has the outcome", action: remove, before: theirs, crash: atOutcome, meanwhile: theirs,
		writes: []string{"DELETE"}, left: map[string]any{"theirs": "2"},
	},
	"update of another kind: started, and its kind is gone": {
		reason: "it cannot be done any more, and may have been", action: action(wire.VerbUpdate, widgetTemplate),
		before: func(r *rig) {
			r.server.put(widgetPath, map[string]any{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": "w", "namespace": "app"}})
		},
		crash: atStart,
		meanwhile: func(r *rig) {
			r.discovery.Resources = r.discovery.Resources[:2]
			r.resources.Reset()
		},
		refused: wire.CauseUnknown,
	},
	"delete of another kind: started, and its version is gone": {
		reason: "the object is there, in a version that the action log does not know", action: deletion(wire.Target{Resource: "widgets", Namespace: "app", Name: "w"}),
		before: func(r *rig) {
			r.server.put(widgetPath, map[string]any{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": "w", "namespace": "app"}})
		},
		crash: atStart,
		meanwhile: func(r *rig) {
			r.server.refuse = func(_, path string) *metav1.Status { return unservedAt(path, "example.com/v1/") }
		},
		refused: wire.CauseUnknown,
	},
}

func TestCrashIsRecoveredAndNothingDoneTwice(t *testing.T) {
	for name, tc := range crashes {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig()
				if tc.before != nil {
					tc.before(r)
				}
				first := r.start(t, tc.crash())
				first.send(t, version(t, tc.action, 1))
				synctest.Wait()
				if first.answered() {
					t.Fatal("it has not died")
				}
				first.stop()
				if tc.meanwhile != nil {
					tc.meanwhile(r)
				}
				for range 2 { // the third finds what the second has recorded
					next := r.start(t, nil)
					next.send(t, version(t, tc.action, 1))
					synctest.Wait()
					if got := causeIn(next.result(t)); got != tc.refused {
						t.Errorf("%s: %+v, want cause %q", tc.reason, next.result(t).Refusal, tc.refused)
					}
					next.stop()
				}
				if diff := cmp.Diff(tc.writes, methods(r.server.writes("/api/v1/namespaces/app"))); diff != "" {
					t.Errorf("%s: writes (-want +got):\n%s", tc.reason, diff)
				}
				if diff := cmp.Diff(tc.left, dataOf(r.server)); diff != "" {
					t.Errorf("%s: what is left (-want +got):\n%s", tc.reason, diff)
				}
			})
		})
	}
}

func causeIn(r wire.ActionResult) wire.Cause {
	if r.Refusal == nil {
		return ""
	}
	return r.Refusal.Cause
}

func methods(requests []string) (all []string) {
	for _, request := range requests {
		method, _, _ := strings.Cut(request, " ")
		all = append(all, method)
	}
	return all
}

func dataOf(s *apiServer) map[string]any {
	obj := s.object(settingsPath)
	if obj == nil {
		return nil
	}
	data, _ := obj.Object["data"].(map[string]any)
	return data
}

func TestPendingDeletionIsNotRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		held := settings(nil)
		held["metadata"].(map[string]any)["finalizers"] = []any{"example.com/hold"}
		r.server.put(settingsPath, held)
		first := r.start(t, unrecorded())
		first.send(t, version(t, deletion(settingsTarget()), 1))
		synctest.Wait()
		first.stop()
		next := r.start(t, nil)
		next.send(t, version(t, deletion(settingsTarget()), 1))
		synctest.Wait()
		if result := next.result(t); result.Refusal != nil || len(result.Result) > 0 {
			t.Errorf("%+v, want that it is done", result)
		}
		if got := r.server.writes(settingsPath); len(got) != 1 {
			t.Errorf("writes are %v, want one", got)
		}
	})
}

// TestFaultsOfAPIServer breaks one request of an action, whose process lives on.
func TestFaultsOfAPIServer(t *testing.T) {
	cases := map[string]struct {
		reason  string
		verb    wire.Verb
		fault   *fault
		refuse  func(method, path string) *metav1.Status
		refused wire.Cause
		tries   int // writes of the object that took effect
	}{
		"the action log is not read":              {"nothing was written: once more", wire.VerbCreate, &fault{method: "GET", path: entriesPath}, nil, "", 1},
		"the entry is not made":                   {"nothing was written: once more", wire.VerbCreate, &fault{method: "POST", path: entriesPath}, nil, "", 1},
		"the entry is made without an answer":     {"it is this process's, which has not begun", wire.VerbCreate, &fault{method: "POST", path: entriesPath, after: true}, nil, "", 1},
		"an update's entry without an answer":     {"likewise", wire.VerbUpdate, &fault{method: "POST", path: entriesPath, after: true}, nil, "", 1},
		"a deletion's entry without an answer":    {"likewise", wire.VerbDelete, &fault{method: "POST", path: entriesPath, after: true}, nil, "", 1},
		"the creation is cut":                     {"it may yet take effect", wire.VerbCreate, &fault{method: "POST", path: "/app/"}, nil, wire.CauseUnknown, 0},
		"the creation is not sent":                {"no connection was made: once more", wire.VerbCreate, &fault{method: "POST", path: "/app/", err: &net.OpError{Op: "dial", Err: errCut}}, nil, "", 1},
		"the creation has no answer":              {"the object has the mark", wire.VerbCreate, &fault{method: "POST", path: "/app/", after: true}, nil, "", 1},
		"the creation is rejected for its rate":   {"nothing was written: once more", wire.VerbCreate, nil, refuseOnce("POST", "/api/v1/namespaces/app/configmaps", 429, metav1.StatusReasonTooManyRequests), "", 1},
		"the creation meets an expired token":     {"nothing was written: once more", wire.VerbCreate, nil, refuseOnce("POST", "/api/v1/namespaces/app/configmaps", 401, metav1.StatusReasonUnauthorized), "", 1},
		"the creation fails":                      {"nothing tells", wire.VerbCreate, nil, refuseOnce("POST", "/api/v1/namespaces/app/configmaps", 500, metav1.StatusReasonInternalError), wire.CauseUnknown, 0},
		"the object is not read":                  {"nothing was written: once more", wire.VerbUpdate, &fault{method: "GET", path: settingsPath}, nil, "", 1},
		"the object cannot be read for a moment":  {"nothing was written: once more", wire.VerbUpdate, nil, refuseOnce("GET", settingsPath, 500, metav1.StatusReasonInternalError), "", 1},
		"the patch is cut":                        {"the object is as it was: once more", wire.VerbUpdate, &fault{method: "PATCH", path: settingsPath}, nil, "", 1},
		"the patch has no answer":                 {"the object has the mark", wire.VerbUpdate, &fault{method: "PATCH", path: settingsPath, after: true}, nil, "", 1},
		"the deletion is cut":                     {"the object is there: once more", wire.VerbDelete, &fault{method: "DELETE", path: settingsPath}, nil, "", 1},
		"the deletion has no answer":              {"the object is gone", wire.VerbDelete, &fault{method: "DELETE", path: settingsPath, after: true}, nil, "", 1},
		"no answer, and then a failure":           {"the second try has begun", wire.VerbCreate, &fault{method: "POST", path: entriesPath, after: true}, refuseOnce("POST", "/api/v1/namespaces/app/configmaps", 500, metav1.StatusReasonInternalError), wire.CauseUnknown, 0},
		"the outcome is not written":              {"it is known: once more", wire.VerbCreate, &fault{method: "PUT", path: entriesPath}, nil, "", 1},
		"the outcome is written without answer":   {"the action log has it", wire.VerbCreate, &fault{method: "PUT", path: entriesPath, after: true}, nil, "", 1},
		"a deletion's outcome is not written":     {"it is known: once more", wire.VerbDelete, &fault{method: "PUT", path: entriesPath}, nil, "", 1},
		"the refusal of a creation is not stored": {"it is known: once more", wire.VerbCreate, &fault{method: "PUT", path: entriesPath}, refuseOnce("POST", "/api/v1/namespaces/app/configmaps", 403, metav1.StatusReasonForbidden), wire.CauseRequest, 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig()
				a := action(tc.verb, settingsTemplate)
				if tc.verb == wire.VerbDelete {
					a = deletion(settingsTarget())
				}
				if tc.verb != wire.VerbCreate {
					r.server.put(settingsPath, settings(nil))
				}
				r.server.refuse = tc.refuse
				p := r.start(t, tc.fault)
				p.send(t, version(t, a, 1))
				time.Sleep(time.Minute)
				if got := causeIn(p.result(t)); got != tc.refused {
					t.Errorf("%s: %+v, want cause %q", tc.reason, p.result(t).Refusal, tc.refused)
				}
				if got := r.server.writes("/api/v1/namespaces/app"); len(got) != tc.tries {
					t.Errorf("%s: writes are %v, want %d", tc.reason, got, tc.tries)
				}
				n := r.server.requests()
				time.Sleep(time.Hour)
				if r.server.requests() != n {
					t.Error("requests are made at rest")
				}
			})
		})
	}
}

func TestEntryOfOtherProcessIsResolved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		// Its lease has just ended.
		r.server.refuse = func(method, path string) *metav1.Status {
			if method == "POST" && path == entriesPath && r.server.objects[entryPath(1)] == nil {
				r.server.store(entryPath(1), &unstructured.Unstructured{Object: map[string]any{
					"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "action-" + actionUID + "-1"},
					"data": map[string]any{entryKey: `{"verb":"Create","resource":{"Version":"v1","Resource":"configmaps"},"namespace":"app","name":"settings","process":"another"}`},
				}})
			}
			return nil
		}
		p := r.start(t, nil)
		p.send(t, version(t, action(wire.VerbCreate, settingsTemplate), 1))
		time.Sleep(time.Minute)
		if got := causeIn(p.result(t)); got != wire.CauseUnknown || r.server.object(settingsPath) != nil {
			t.Errorf("cause %q, and the object is %v", got, r.server.object(settingsPath))
		}
	})
}

func TestGeneratedNameIsThatOfEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		p := r.start(t, &fault{method: "POST", path: entriesPath, after: true})
		p.send(t, version(t, action(wire.VerbCreate, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"x-","namespace":"app"}}`), 1))
		time.Sleep(time.Minute)
		name, _, _ := unstructured.NestedString(decode(t, p.result(t)), "metadata", "name")
		recorded, _, _ := unstructured.NestedString(r.server.object(entryPath(1)).Object, "data", entryKey)
		if !strings.Contains(recorded, `"name":"`+name+`"`) {
			t.Errorf("the object is named %q, the action log has %s", name, recorded)
		}
	})
}

func TestDuplicateCreateIsResolvedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		r.server.refuse = r.sentTwice
		p := r.start(t, &fault{method: "GET", path: settingsPath})
		p.send(t, version(t, action(wire.VerbCreate, settingsTemplate), 1))
		time.Sleep(time.Minute)
		decode(t, p.result(t))
	})
}

// sentTwice has each creation of the settings be the second copy of its request.
func (r *rig) sentTwice(method, path string) *metav1.Status {
	if method == "POST" && path == "/api/v1/namespaces/app/configmaps" && r.server.objects[settingsPath] == nil {
		ours := &unstructured.Unstructured{Object: settings(nil)}
		ours.SetAnnotations(map[string]string{Annotation: actionUID + "/1"})
		r.server.store(settingsPath, ours)
	}
	return nil
}

func TestUnansweredRequestTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		cfg := r.config(nil)
		cfg.Guard = func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(request *http.Request) (*http.Response, error) {
				response, err := next.RoundTrip(request)
				if request.Method == http.MethodPost {
					<-request.Context().Done()
					return nil, request.Context().Err()
				}
				return response, err
			})
		}
		p := startEngine(t, cfg)
		p.send(t, version(t, action(wire.VerbCreate, settingsTemplate), 1))
		time.Sleep(2 * requestTimeout)
		decode(t, p.result(t))
	})
}

func TestWarningSurvivesCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		const web = `{"apiVersion":"extensions/v1beta1","kind":"Deployment","metadata":{"name":"web","namespace":"app"},"spec":{"template":{"metadata":{"labels":{"app":"web"}}}}}`
		first := r.start(t, unrecorded())
		first.send(t, version(t, action(wire.VerbCreate, web), 1))
		synctest.Wait()
		first.stop()
		next := r.start(t, nil)
		next.send(t, version(t, action(wire.VerbCreate, web), 1))
		synctest.Wait()
		if result := next.result(t); result.Refusal != nil || len(result.Warnings) != 1 {
			t.Errorf("%+v, want one warning", result)
		}
	})
}

func TestUnansweredCreateIsNotRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		cfg := r.config(nil)
		cuts := 0
		cfg.Guard = func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(request *http.Request) (*http.Response, error) {
				cuts++
				switch cuts {
				case 1:
					return nil, errCut // the creation, which may take effect yet
				case 2:
					return nil, &net.OpError{Op: "dial", Err: errCut} // the look
				default:
					return next.RoundTrip(request)
				}
			})
		}
		p := startEngine(t, cfg)
		p.send(t, version(t, action(wire.VerbCreate, settingsTemplate), 1))
		time.Sleep(time.Minute)
		if got := causeIn(p.result(t)); got != wire.CauseUnknown {
			t.Errorf("cause %q, want that the outcome is unknown", got)
		}
		if got := r.server.writes("/api/v1/namespaces/app"); len(got) > 0 {
			t.Errorf("writes are %v after the one that was cut", got)
		}
	})
}
