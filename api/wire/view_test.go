// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func validView() View {
	return View{
		Requester: Requester{User: "alice", Groups: []string{"platform"}},
		Target:    Target{Resource: "pods", Namespace: "shop"}, LabelSelector: "app=nginx", MaxBytes: 1024,
	}
}

func validAction() Action {
	return Action{
		Requester: Requester{User: "alice"}, Verb: VerbCreate,
		Template: json.RawMessage(`{"kind":"ConfigMap"}`), MaxBytes: 1024,
	}
}

func body(t testing.TB, v any) []byte {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestWhatIsSentIsReceived(t *testing.T) {
	view, action := validView(), validAction()
	gotView, err := DecodeView(body(t, view))
	if diff := cmp.Diff(view, gotView); err != nil || diff != "" {
		t.Errorf("view: %v (-sent +received):\n%s", err, diff)
	}
	gotAction, err := DecodeAction(body(t, action))
	if diff := cmp.Diff(action, gotAction); err != nil || diff != "" {
		t.Errorf("action: %v (-sent +received):\n%s", err, diff)
	}
	seen := ViewResult{Result: json.RawMessage(`{"items":[]}`), Cut: 3, ClusterScoped: true}
	gotSeen, err := DecodeViewResult(body(t, seen))
	if diff := cmp.Diff(seen, gotSeen); err != nil || diff != "" {
		t.Errorf("result of a view: %v (-sent +received):\n%s", err, diff)
	}
	done := ActionResult{Result: json.RawMessage(`{}`), Warnings: []string{"old"}}
	gotDone, err := DecodeActionResult(body(t, done))
	if diff := cmp.Diff(done, gotDone); err != nil || diff != "" {
		t.Errorf("result of an action: %v (-sent +received):\n%s", err, diff)
	}
}

func TestViewsThatAskTheSameHaveOneKey(t *testing.T) {
	a, b, other := validView(), validView(), validView()
	other.Requester.User = "bob"
	keys := map[string]int{}
	for _, v := range []View{a, b, other} {
		key, err := v.Key()
		if err != nil || len(key) != 64 {
			t.Fatalf("key %q: %v", key, err)
		}
		keys[key]++
	}
	if len(keys) != 2 {
		t.Errorf("%d keys, want one for the same user and another for another", len(keys))
	}
}

func TestBadViewsAndActionsAreRefused(t *testing.T) {
	long := strings.Repeat("x", maxName+1)
	view := func(change func(*View)) func() error {
		return func() error {
			v := validView()
			change(&v)
			_, err := DecodeView(body(t, v))
			return err
		}
	}
	action := func(change func(*Action)) func() error {
		return func() error {
			a := validAction()
			change(&a)
			_, err := DecodeAction(body(t, a))
			return err
		}
	}
	result := func(text string) func() error {
		return func() error {
			_, err := DecodeViewResult([]byte(text))
			return err
		}
	}
	done := func(text string) func() error {
		return func() error {
			_, err := DecodeActionResult([]byte(text))
			return err
		}
	}
	cases := map[string]func() error{
		"a view by nobody":               view(func(v *View) { v.Requester.User = "" }),
		"a view by a long name":          view(func(v *View) { v.Requester.User = long }),
		"a view with a group of no name": view(func(v *View) { v.Requester.Groups = []string{""} }),
		"a view with too many groups":    view(func(v *View) { v.Requester.Groups = make([]string, maxGroups+1) }),
		"a view of nothing":              view(func(v *View) { v.Target = Target{} }),
		"a view of a long name":          view(func(v *View) { v.Target.Name = long }),
		"a view of no size":              view(func(v *View) { v.MaxBytes = 0 }),
		"a view of any size":             view(func(v *View) { v.MaxBytes = MaxViewBytes + 1 }),
		"a view with a bad selector":     view(func(v *View) { v.LabelSelector = "a in (" }),
		"a view with a bad field":        view(func(v *View) { v.FieldSelector = "a" }),
		"a view with a long selector":    view(func(v *View) { v.FieldSelector = "a=" + strings.Repeat("x", maxSelector) }),
		"a view with another policy":     view(func(v *View) { v.Secrets = "Some" }),
		"no view":                        func() error { _, err := DecodeView([]byte("[]")); return err },
		"an action by nobody":            action(func(a *Action) { a.Requester.User = "" }),
		"an action of another verb":      action(func(a *Action) { a.Verb = "Restart" }),
		"an action without template":     action(func(a *Action) { a.Template = nil }),
		"an action with a list":          action(func(a *Action) { a.Template = json.RawMessage("[]") }),
		"an action of two targets":       action(func(a *Action) { a.Target.Name = "x" }),
		"a deletion with a template":     action(func(a *Action) { a.Verb = VerbDelete; a.Target = Target{Resource: "pods", Name: "a"} }),
		"a deletion of nothing":          action(func(a *Action) { a.Verb = VerbDelete; a.Template = nil }),
		"an action of no size":           action(func(a *Action) { a.MaxBytes = 0 }),
		"an action with another policy":  action(func(a *Action) { a.Secrets = "Some" }),
		"no action":                      func() error { _, err := DecodeAction([]byte("1")); return err },
		"a result of nothing":            result("{}"),
		"a result and a refusal":         result(`{"result":{},"refusal":{"cause":"Target","message":"m"}}`),
		"a result that is a number":      result(`{"result":1}`),
		"a negative cut":                 result(`{"result":{},"cut":-1}`),
		"a refusal of another cause":     result(`{"refusal":{"cause":"Moon","message":"m"}}`),
		"a refusal without message":      result(`{"refusal":{"cause":"Target"}}`),
		"a long refusal":                 result(`{"refusal":{"cause":"Target","message":"` + strings.Repeat("x", maxReason+1) + `"}}`),
		"no result":                      result("true"),
		"done and refused":               done(`{"result":{},"refusal":{"cause":"Target","message":"m"}}`),
		"warnings without end":           done(`{"warnings":["` + strings.Repeat(`","`, maxWarnings) + `"]}`),
		"a long warning":                 done(`{"warnings":["` + strings.Repeat("x", maxReason+1) + `"]}`),
		"no result of an action":         done("[]"),
	}
	for name, decode := range cases {
		t.Run(name, func(t *testing.T) {
			if err := decode(); !errors.Is(err, ErrInvalidView) {
				t.Errorf("got %v, want ErrInvalidView", err)
			}
		})
	}
}

func TestWhatIsMadeFits(t *testing.T) {
	r := Refuse(CauseRequest, "", strings.Repeat("ä", maxReason))
	if err := r.validate(); err != nil {
		t.Errorf("a refusal that was made is refused: %v", err)
	}
	var done ActionResult
	for range 2 * maxWarnings {
		done.AddWarning(strings.Repeat("ä", maxReason))
	}
	if _, err := DecodeActionResult(body(t, done)); err != nil {
		t.Errorf("warnings that were added are refused: %v", err)
	}
}

// Whatever a peer sends: no panic, and what is accepted survives another trip.
func FuzzQuestion(f *testing.F) {
	f.Add(body(f, validView()))
	f.Add(body(f, validAction()))
	f.Add([]byte(`{"result":{"a":[1e400]},"cut":1}`))
	f.Add([]byte(`{"refusal":{"cause":"Unknown","message":"m"},"warnings":["a"]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if v, err := DecodeView(raw); err == nil {
			if _, err := DecodeView(body(t, v)); err != nil {
				t.Errorf("view: %v", err)
			}
		}
		if a, err := DecodeAction(raw); err == nil {
			if _, err := DecodeAction(body(t, a)); err != nil {
				t.Errorf("action: %v", err)
			}
		}
		if r, err := DecodeViewResult(raw); err == nil && len(r.Result) < 1<<10 {
			if _, err := DecodeViewResult(body(t, r)); err != nil {
				t.Errorf("result of a view: %v", err)
			}
		}
		if r, err := DecodeActionResult(raw); err == nil && len(r.Result) < 1<<10 {
			if _, err := DecodeActionResult(body(t, r)); err != nil {
				t.Errorf("result of an action: %v", err)
			}
		}
	})
}
