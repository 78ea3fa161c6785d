// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func goodView() View {
	return View{
		Requester:     Requester{User: "alice", Groups: []string{"dev", "system:authenticated"}},
		Target:        Target{Resource: "pods", Group: "", Version: "v1", Namespace: "ns"},
		LabelSelector: "app in (a,b),tier!=db", FieldSelector: "status.phase=Running", Table: true, MaxBytes: 512 << 10,
	}
}

func bodyOf(t testing.TB, v any) []byte {
	t.Helper()
	body, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func TestViewsComeBack(t *testing.T) {
	tests := map[string]View{
		"a list":      goodView(),
		"one object":  {Requester: Requester{User: "u"}, Target: Target{Kind: "Deployment", Group: "apps", Name: "d"}, Secrets: SecretsRefused, MaxBytes: 1},
		"releases":    {Requester: Requester{User: "u"}, Releases: true, Target: Target{Namespace: "shop", Name: "web"}, LabelSelector: "status=deployed", Secrets: SecretsShown, MaxBytes: 1},
		"all of them": {Requester: Requester{User: "u"}, Releases: true, MaxBytes: 1},
		"all secrets": {Requester: Requester{User: "u"}, Target: Target{Resource: "secrets"}, Secrets: SecretsShown, MaxBytes: MaxViewBytes},
	}
	for name, want := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := DecodeView(bodyOf(t, want))
			if diff := cmp.Diff(want, got, bytesAtOnce); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestViewsThatNoHubSendsAreRefused(t *testing.T) {
	tests := map[string]struct {
		reason string
		spoil  func(*View)
	}{
		"of nobody":              {reason: "nobody would be impersonated", spoil: func(v *View) { v.Requester.User = "" }},
		"of a long name":         {reason: "it becomes a header", spoil: func(v *View) { v.Requester.User = strings.Repeat("u", maxName+1) }},
		"of many groups":         {reason: "they become headers", spoil: func(v *View) { v.Requester.Groups = slices.Repeat([]string{"g"}, maxGroups+1) }},
		"of an empty group":      {reason: "it is none", spoil: func(v *View) { v.Requester.Groups = []string{"a", ""} }},
		"of a long group":        {reason: "it becomes a header", spoil: func(v *View) { v.Requester.Groups = []string{strings.Repeat("g", maxName+1)} }},
		"of no resource":         {reason: "there is nothing to look at", spoil: func(v *View) { v.Target.Resource = "" }},
		"of no target":           {reason: "there is nothing to look at", spoil: func(v *View) { v.Target = Target{} }},
		"of a long resource":     {reason: "names are bounded", spoil: func(v *View) { v.Target.Resource = strings.Repeat("r", maxName+1) }},
		"of a long name there":   {reason: "names are bounded", spoil: func(v *View) { v.Target.Name = strings.Repeat("n", maxName+1) }},
		"an odd policy":          {reason: "a later one may hide more", spoil: func(v *View) { v.Secrets = "Sometimes" }},
		"of no bytes":            {reason: "nothing would fit", spoil: func(v *View) { v.MaxBytes = 0 }},
		"of negative bytes":      {reason: "nothing would fit", spoil: func(v *View) { v.MaxBytes = -1 }},
		"of too many bytes":      {reason: "no status would take it", spoil: func(v *View) { v.MaxBytes = MaxViewBytes + 1 }},
		"no label selector":      {reason: "the API server would refuse it", spoil: func(v *View) { v.LabelSelector = "a in" }},
		"an open label selector": {reason: "the API server would refuse it", spoil: func(v *View) { v.LabelSelector = "a in (" }},
		"no field selector":      {reason: "the API server would refuse it", spoil: func(v *View) { v.FieldSelector = "a" }},
		"a long label selector":  {reason: "selectors are bounded", spoil: func(v *View) { v.LabelSelector = "a in (" + strings.Repeat("b,", maxSelector/2) + "c)" }},
		"a long field selector":  {reason: "selectors are bounded", spoil: func(v *View) { v.FieldSelector = "a=" + strings.Repeat("b", maxSelector) }},
		"several things at once": {reason: "one is enough", spoil: func(v *View) { *v = View{} }},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			v := goodView()
			tc.spoil(&v)
			if got, err := DecodeView(bodyOf(t, v)); !errors.Is(err, ErrInvalidView) || !cmp.Equal(got, View{}) {
				t.Errorf("%s: %v, %+v", tc.reason, err, got)
			}
		})
	}
	for _, body := range []string{"", "null", "[]", `{"maxBytes":"1"}`, `{"requester":`} {
		if _, err := DecodeView([]byte(body)); !errors.Is(err, ErrInvalidView) {
			t.Errorf("DecodeView(%q): %v", body, err)
		}
	}
}

func TestViewsThatAskTheSameAreOne(t *testing.T) {
	key := func(change func(*View)) string {
		v := goodView()
		change(&v)
		k, err := v.Key()
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	one := key(func(*View) {})
	if len(one) != 64 || strings.Trim(one, "0123456789abcdef") != "" {
		t.Errorf("key %q is no SHA-256", one)
	}
	if again := key(func(*View) {}); again != one {
		t.Errorf("the same view has the keys %s and %s", one, again)
	}
	seen := map[string]string{one: "the view"}
	for what, change := range map[string]func(*View){
		"another user":          func(v *View) { v.Requester.User = "bob" },
		"another group":         func(v *View) { v.Requester.Groups = v.Requester.Groups[:1] },
		"another resource":      func(v *View) { v.Target.Resource = "secrets" },
		"another API group":     func(v *View) { v.Target.Group = "apps" },
		"another version":       func(v *View) { v.Target.Version = "v2" },
		"another kind":          func(v *View) { v.Target.Kind = "Pod" },
		"another namespace":     func(v *View) { v.Target.Namespace = "other" },
		"another name":          func(v *View) { v.Target.Name = "p" },
		"another selector":      func(v *View) { v.LabelSelector = "a" },
		"another field":         func(v *View) { v.FieldSelector = "" },
		"no table":              func(v *View) { v.Table = false },
		"releases":              func(v *View) { v.Releases = true },
		"another secret policy": func(v *View) { v.Secrets = SecretsShown },
		"another bound":         func(v *View) { v.MaxBytes-- },
	} {
		k := key(change)
		if before, taken := seen[k]; taken {
			t.Errorf("%s is taken for %s", what, before)
		}
		seen[k] = what
	}
}

func TestResultsOfViewsComeBack(t *testing.T) {
	tests := map[string]ViewResult{
		"an object":     {Result: json.RawMessage(`{"kind":"Pod"}`)},
		"an empty one":  {Result: json.RawMessage(`{}`)},
		"a list cut":    {Result: json.RawMessage(`{"items":[]}`), Cut: 3},
		"nodes":         {Result: json.RawMessage(`{"items":[]}`), ClusterScoped: true},
		"a refusal":     {Refusal: Refuse(CauseRequest, metav1.StatusReasonForbidden, "no")},
		"no such kind":  {Refusal: Refuse(CauseTarget, "", "no")},
		"the very most": {Result: json.RawMessage(`{"a":"` + strings.Repeat("b", MaxViewBytes-8) + `"}`)},
	}
	for name, want := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := DecodeViewResult(bodyOf(t, want))
			if diff := cmp.Diff(want, got, bytesAtOnce); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestResultsOfViewsThatNoStatusTakesAreRefused(t *testing.T) {
	long := strings.Repeat("m", maxReason+1)
	tests := map[string]struct{ reason, body string }{
		"nothing":            {reason: "it says nothing", body: `{}`},
		"null":               {reason: "it says nothing", body: `null`},
		"no JSON":            {reason: "nobody can read it", body: `{"result":{}`},
		"no object":          {reason: "nobody can read it", body: `true`},
		"two documents":      {reason: "nobody can read it", body: `{"result":{}}{}`},
		"both":               {reason: "one of them is wrong", body: `{"result":{},"refusal":{"cause":"Request","message":"m"}}`},
		"a list of its own":  {reason: "a status takes objects", body: `{"result":[]}`},
		"a text":             {reason: "a status takes objects", body: `{"result":"{}"}`},
		"a null":             {reason: "a status takes objects", body: `{"result":null}`},
		"a number":           {reason: "a status takes objects", body: `{"result":1}`},
		"too large":          {reason: "etcd would not take it", body: `{"result":{"a":"` + strings.Repeat("b", MaxViewBytes) + `"}}`},
		"less than nothing":  {reason: "items are counted", body: `{"result":{},"cut":-1}`},
		"an odd cause":       {reason: "reasons depend on it", body: `{"refusal":{"cause":"Mood","message":"m"}}`},
		"no cause":           {reason: "reasons depend on it", body: `{"refusal":{"message":"m"}}`},
		"no message":         {reason: "somebody has to read it", body: `{"refusal":{"cause":"Request"}}`},
		"a long message":     {reason: "messages are bounded", body: `{"refusal":{"cause":"Request","message":"` + long + `"}}`},
		"a long status":      {reason: "names are bounded", body: `{"refusal":{"cause":"Request","message":"m","status":"` + long + `"}}`},
		"a number for a cut": {reason: "items are whole", body: `{"result":{},"cut":1.5}`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := DecodeViewResult([]byte(tc.body)); !errors.Is(err, ErrInvalidView) {
				t.Errorf("%s: %v", tc.reason, err)
			}
		})
	}
}

func TestARefusalFitsAndCanBeRead(t *testing.T) {
	tests := map[string]struct{ reason, message, want string }{
		"a short one":          {reason: "it is said as it is", message: "no", want: "no"},
		"the longest":          {reason: "it fits", message: strings.Repeat("m", maxReason), want: strings.Repeat("m", maxReason)},
		"one that is too long": {reason: "its beginning says most", message: strings.Repeat("m", 2*maxReason), want: strings.Repeat("m", maxReason-3) + "..."},
		"a rune that is cut":   {reason: "half of it is no text", message: "ab" + strings.Repeat("日", maxReason), want: "ab" + strings.Repeat("日", (maxReason-5)/3) + "..."},
		"a rune of two bytes":  {reason: "half of it is no text", message: strings.Repeat("ä", maxReason), want: strings.Repeat("ä", (maxReason-3)/2) + "..."},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := Refuse(CauseRequest, metav1.StatusReasonForbidden, tc.message)
			if diff := cmp.Diff(tc.want, r.Message); diff != "" || !utf8.ValidString(r.Message) {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if _, err := DecodeViewResult(bodyOf(t, ViewResult{Refusal: r})); err != nil {
				t.Errorf("%s: %v", tc.reason, err)
			}
		})
	}
}

func TestWhateverAnAPIServerSaysBecomesARefusalThatIsTaken(t *testing.T) {
	long := metav1.StatusReason(strings.Repeat("r", maxName+1))
	tests := map[string]struct {
		reason  string
		status  metav1.StatusReason
		message string
		want    Refusal
	}{
		"a reason and no message": {
			reason: "the reason says most", status: metav1.StatusReasonForbidden,
			want: Refusal{Cause: CauseRequest, Status: metav1.StatusReasonForbidden, Message: "Forbidden"},
		},
		"a message that is no text": {
			reason: "as if there were none", status: metav1.StatusReasonForbidden, message: "\xff",
			want: Refusal{Cause: CauseRequest, Status: metav1.StatusReasonForbidden, Message: "Forbidden"},
		},
		"neither":       {reason: "somebody has to read it", want: Refusal{Cause: CauseRequest, Message: "refused without a reason"}},
		"a long reason": {reason: "reasons are words", status: long, message: "no", want: Refusal{Cause: CauseRequest, Message: "no"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := DecodeViewResult(bodyOf(t, ViewResult{Refusal: Refuse(CauseRequest, tc.status, tc.message)}))
			if diff := cmp.Diff(&tc.want, got.Refusal); diff != "" || err != nil {
				t.Errorf("%s: %v (-want +got):\n%s", tc.reason, err, diff)
			}
		})
	}
}

func FuzzView(f *testing.F) {
	f.Add(bodyOf(f, goodView()))
	f.Add([]byte(`{"requester":{"user":"u"},"target":{"kind":"Pod"},"maxBytes":1,"labelSelector":"a in (b,c)"}`))
	f.Add([]byte(`{"requester":{"user":"u"},"target":{"name":"web"},"releases":true,"labelSelector":"status=deployed","maxBytes":1}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		v, err := DecodeView(body)
		if err != nil {
			if !errors.Is(err, ErrInvalidView) {
				t.Errorf("error is of no kind: %v", err)
			}
			return
		}
		if v.Requester.User == "" || v.Target.Resource == "" && v.Target.Kind == "" && !v.Releases || v.MaxBytes < 1 || v.MaxBytes > MaxViewBytes {
			t.Errorf("accepted %+v", v)
		}
		again, err := DecodeView(bodyOf(t, v))
		if diff := cmp.Diff(v.normal(), again.normal()); diff != "" || err != nil {
			t.Errorf("what was accepted does not come back: %v\n%s", err, diff)
		}
	})
}

// normal has no slices that are empty and not nil, which JSON does not tell apart.
func (v View) normal() View {
	if len(v.Requester.Groups) == 0 {
		v.Requester.Groups = nil
	}
	return v
}

func FuzzViewResult(f *testing.F) {
	f.Add([]byte(`{"result":{"kind":"List","items":[{}]},"cut":1,"clusterScoped":true}`))
	f.Add([]byte(`{"refusal":{"cause":"Request","status":"Forbidden","message":"pods is forbidden"}}`))
	f.Add([]byte(`{"result":{"a":[1e400]},"cut":1}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := DecodeViewResult(body)
		if err != nil {
			if !errors.Is(err, ErrInvalidView) {
				t.Errorf("error is of no kind: %v", err)
			}
			return
		}
		checkResult(t, r.Result, r.Refusal, true)
		if r.Cut < 0 {
			t.Errorf("accepted a cut of %d", r.Cut)
		}
		if len(r.Result) > survives {
			return
		}
		if _, err := DecodeViewResult(bodyOf(t, r)); err != nil {
			t.Errorf("what was accepted does not come back: %v", err)
		}
	})
}

// survives is the size of results that fit on another trip, on which < becomes \u003c.
const survives = MaxViewBytes / 6

// checkResult fails unless a result is what a status takes, or is missing; required says
// that it has to be there unless it is refused.
func checkResult(t *testing.T, result json.RawMessage, refusal *Refusal, required bool) {
	t.Helper()
	if len(result) > 0 {
		var object map[string]any
		if err := json.Unmarshal(result, &object); err != nil && !isRange(err) || refusal != nil || len(result) > MaxViewBytes {
			t.Errorf("accepted a result of %d bytes: %v, refusal %+v", len(result), err, refusal)
		}
	}
	if required && len(result) == 0 && refusal == nil {
		t.Error("accepted neither result nor refusal")
	}
	if refusal != nil && (refusal.Message == "" || len(refusal.Message) > maxReason) {
		t.Errorf("accepted a message of %d bytes", len(refusal.Message))
	}
}

// isRange tells numbers that are JSON and no floating-point numbers.
func isRange(err error) bool {
	var typeError *json.UnmarshalTypeError
	return errors.As(err, &typeError)
}
