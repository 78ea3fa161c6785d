// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func goodShare() Share {
	return Share{
		Group: "example.com", Version: "v1", Resource: "widgets", Kind: "Widget", HubNamespace: "store-1", SpokeNamespace: "default",
		ToSpoke: true, ToHub: true, Selector: "app in (a,b),tier!=db", Winner: SharedHub, AdoptAny: true, StatusSubresource: true,
		Definition: json.RawMessage(`{"kind":"CustomResourceDefinition"}`), HubUID: "u", Fence: "f1", Confirmed: []string{"0123456789ab"},
		Quota: SharedSize{Objects: 1000, Bytes: 32 << 20}, Problem: NewShareProblem("Pending", "the objects are being read"),
	}
}

func goodObject() SharedObject {
	return SharedObject{
		Version: "v", Content: json.RawMessage(`{"spec":{"a":1}}`), Deleting: true, Unselected: true,
		Applied: 1, Result: json.RawMessage(`{}`), Refused: 2, Reason: "hub: no",
	}
}

func goodWrite() SharedWrite {
	return SharedWrite{Part: PartObject, Seen: "v", Content: json.RawMessage(`{"spec":{"a":1}}`)}
}

func goodState() ShareState {
	return ShareState{
		Generation: 3, Objects: 2, Conflicts: 1, LastError: "cluster: no",
		Problem:      NewShareProblem("NamespaceMissing", "cluster: namespace \"default\" does not exist"),
		QuotaReached: QuotaReached("TooManyObjects", "hub", "7 objects", []string{"a", "b", "c", "d"}),
		Hold:         &Hold{Reason: "Unproven", Token: "0123456789ab", Message: "hub: 3 of 4 objects are absent"},
		Decided:      []Decided{NewDecided(1, "a", []string{"spec.a"}, SharedHub), NewDecided(2, "b.c", []string{"spec.a", "data"}, SharedSpoke)},
	}
}

// comesBack fails unless a decoder takes a value as it is.
func comesBack[T any](decode func([]byte) (T, error), values map[string]T) func(*testing.T) {
	return func(t *testing.T) {
		for name, want := range values {
			got, err := decode(bodyOf(t, want))
			if diff := cmp.Diff(want, got, bytesAtOnce); diff != "" || err != nil {
				t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
			}
		}
	}
}

func TestSharedMessagesRoundTrip(t *testing.T) {
	most := json.RawMessage(`{"a":"` + strings.Repeat("b", MaxSharedContent-8) + `"}`)
	t.Run("shares", comesBack(DecodeShare, map[string]Share{
		"all of it": goodShare(),
		"the least": {Group: "g", Version: "v", Resource: "r", Kind: "K", HubNamespace: "h", SpokeNamespace: "s", ToHub: true, Winner: SharedSpoke, Quota: SharedSize{Objects: 1, Bytes: 1}},
		"a problem": {ToSpoke: true, Winner: SharedHub, Quota: SharedSize{Objects: 1, Bytes: 1}, Problem: NewShareProblem("Invalid", "")},
	}))
	t.Run("objects", comesBack(DecodeSharedObject, map[string]SharedObject{
		"all of it":       goodObject(),
		"an answer alone": {Refused: 7, Reason: "hub: no"},
		"absent":          {},
		"deleted":         {Deleted: true, Applied: 3},
		"the very most":   {Version: "v", Content: most, Result: most},
	}))
	t.Run("fences", comesBack(DecodeFence, map[string]Fence{"one": {Version: 1 << 62}}))
	t.Run("writes", comesBack(DecodeSharedWrite, map[string]SharedWrite{
		"all of it":     goodWrite(),
		"a creation":    {Part: PartObject, Content: json.RawMessage(`{}`)},
		"a status":      {Part: PartStatus, Seen: "v", Content: json.RawMessage(`{"status":null}`)},
		"a deletion":    {Part: PartDeletion, Seen: "v"},
		"the very most": {Part: PartObject, Content: most},
	}))
	t.Run("states", comesBack(DecodeShareState, map[string]ShareState{
		"all of it": goodState(),
		"the least": {Generation: 1},
	}))
}

// violation spoils a value; the result is to be refused for the reason.
type violation[T any] struct {
	reason string
	spoil  func(*T)
}

// areRefused fails unless a decoder refuses each violation, and what is no value at all.
func areRefused[T any](decode func([]byte) (T, error), good func() T, violations map[string]violation[T]) func(*testing.T) {
	return func(t *testing.T) {
		var none T
		check := func(name, reason string, body []byte) {
			t.Helper()
			if got, err := decode(body); !errors.Is(err, ErrInvalidShared) || !cmp.Equal(got, none) {
				t.Errorf("%s: %s: %v, %+v", name, reason, err, got)
			} else if strings.Contains(err.Error(), "%!") || len(err.Error()) > 1024 {
				t.Errorf("%s: the error cannot be read: %.1024s", name, err)
			}
		}
		for name, v := range violations {
			value := good()
			v.spoil(&value)
			check(name, v.reason, bodyOf(t, value))
		}
		for _, body := range []string{``, `[]`, `"{}"`, `1`, `{"a":`, string(bodyOf(t, good())) + `{}`} {
			check(body, "nobody can read it", []byte(body))
		}
	}
}

func TestDecodeShareRefusesInvalid(t *testing.T) {
	long := strings.Repeat("n", maxName+1)
	violations := map[string]violation[Share]{
		"no direction":           {reason: "nothing would travel", spoil: func(s *Share) { s.ToHub, s.ToSpoke = false, false }},
		"no winner":              {reason: "conflicts would have no end", spoil: func(s *Share) { s.Winner = "" }},
		"no quota":               {reason: "nothing could be shared", spoil: func(s *Share) { s.Quota = SharedSize{} }},
		"a quota below nothing":  {reason: "nothing could be shared", spoil: func(s *Share) { s.Quota.Bytes = -1 }},
		"an odd winner":          {reason: "conflicts would have no end", spoil: func(s *Share) { s.Winner = "Newest" }},
		"no selector":            {reason: "all would be shared", spoil: func(s *Share) { s.Selector = "a in (" }},
		"a long selector":        {reason: "selectors are bounded", spoil: func(s *Share) { s.Selector = "a in (" + strings.Repeat("b,", maxSelector/2) + "c)" }},
		"a long fence":           {reason: "no key could name it", spoil: func(s *Share) { s.Fence = long }},
		"no reason":              {reason: "a problem has one", spoil: func(s *Share) { s.Problem.Reason = "" }},
		"a long message":         {reason: "messages are bounded", spoil: func(s *Share) { s.Problem.Message = strings.Repeat("m", maxReason+1) }},
		"a body of another kind": {reason: "a state is no share", spoil: func(s *Share) { *s = Share{} }},
	}
	for what, name := range map[string]func(*Share) *string{
		"group":           func(s *Share) *string { return &s.Group },
		"version":         func(s *Share) *string { return &s.Version },
		"resource":        func(s *Share) *string { return &s.Resource },
		"kind":            func(s *Share) *string { return &s.Kind },
		"hub namespace":   func(s *Share) *string { return &s.HubNamespace },
		"spoke namespace": func(s *Share) *string { return &s.SpokeNamespace },
	} {
		violations["no "+what] = violation[Share]{reason: "there would be no object", spoil: func(s *Share) { *name(s), s.Problem = "", nil }}
		violations["a long "+what] = violation[Share]{reason: "names are bounded, with a problem too", spoil: func(s *Share) { *name(s) = long }}
	}
	areRefused(DecodeShare, goodShare, violations)(t)
	if _, err := DecodeShare([]byte(`null`)); !errors.Is(err, ErrInvalidShared) {
		t.Errorf("null: %v", err)
	}
}

func TestDecodeSharedObjectRefusesInvalid(t *testing.T) {
	large := json.RawMessage(`{"a":"` + strings.Repeat("b", MaxSharedContent) + `"}`)
	areRefused(DecodeSharedObject, goodObject, map[string]violation[SharedObject]{
		"no version":     {reason: "a write could not name it", spoil: func(o *SharedObject) { o.Version = "" }},
		"no content":     {reason: "it is not absent, and is nothing", spoil: func(o *SharedObject) { o.Content = nil }},
		"deleted":        {reason: "it is there", spoil: func(o *SharedObject) { o.Deleted = true }},
		"null":           {reason: "an object is an object", spoil: func(o *SharedObject) { o.Content = json.RawMessage(`null`) }},
		"a list":         {reason: "an object is an object", spoil: func(o *SharedObject) { o.Content = json.RawMessage(`[{}]`) }},
		"a text":         {reason: "an object is an object", spoil: func(o *SharedObject) { o.Content = json.RawMessage(`"{}"`) }},
		"a null result":  {reason: "what was left is an object", spoil: func(o *SharedObject) { o.Result = json.RawMessage(`null`) }},
		"a list of them": {reason: "what was left is an object", spoil: func(o *SharedObject) { o.Result = json.RawMessage(`[]`) }},
		"too large":      {reason: "etcd would not take it", spoil: func(o *SharedObject) { o.Content = large }},
		"a large result": {reason: "etcd would not take it", spoil: func(o *SharedObject) { o.Result = large }},
	})(t)
	areRefused(DecodeFence, func() Fence { return Fence{Version: 1} }, nil)(t)
	if f, err := DecodeFence([]byte(`{"version":1,"Version":"2"}`)); !errors.Is(err, ErrInvalidShared) || f != (Fence{}) {
		t.Errorf("half a fence: %+v, %v", f, err)
	}
}

func TestDecodeSharedWriteRefusesInvalid(t *testing.T) {
	set := func(w SharedWrite) func(*SharedWrite) { return func(of *SharedWrite) { *of = w } }
	areRefused(DecodeSharedWrite, goodWrite, map[string]violation[SharedWrite]{
		"nothing":                 {reason: "it asks for nothing", spoil: set(SharedWrite{})},
		"an odd part":             {reason: "a later one may mean anything", spoil: func(w *SharedWrite) { w.Part = "Scale" }},
		"a part in lower case":    {reason: "it is none", spoil: func(w *SharedWrite) { w.Part = "object" }},
		"no content":              {reason: "the object would be emptied", spoil: func(w *SharedWrite) { w.Content = nil }},
		"no status":               {reason: "the status would be emptied", spoil: set(SharedWrite{Part: PartStatus, Seen: "v"})},
		"null":                    {reason: "the object would be emptied", spoil: func(w *SharedWrite) { w.Content = json.RawMessage(`null`) }},
		"a list":                  {reason: "an object is an object", spoil: func(w *SharedWrite) { w.Content = json.RawMessage(`[]`) }},
		"a number":                {reason: "an object is an object", spoil: func(w *SharedWrite) { w.Content = json.RawMessage(`1`) }},
		"a status of nothing":     {reason: "it needs an object", spoil: func(w *SharedWrite) { w.Part, w.Seen = PartStatus, "" }},
		"a deletion of nothing":   {reason: "there is nothing to delete", spoil: set(SharedWrite{Part: PartDeletion})},
		"a deletion with content": {reason: "one of them was not meant", spoil: func(w *SharedWrite) { w.Part = PartDeletion }},
		"a deletion with null":    {reason: "one of them was not meant", spoil: set(SharedWrite{Part: PartDeletion, Seen: "v", Content: json.RawMessage(`null`)})},
		"a long version":          {reason: "the hub names none so", spoil: func(w *SharedWrite) { w.Seen = strings.Repeat("v", maxName+1) }},
		"content that is too large": {reason: "etcd would not take it", spoil: func(w *SharedWrite) {
			w.Content = json.RawMessage(`{"a":"` + strings.Repeat("b", MaxSharedContent-7) + `"}`)
		}},
	})(t)
}

func TestDecodeShareStateRefusesInvalid(t *testing.T) {
	long, longer := strings.Repeat("n", maxName+1), strings.Repeat("m", maxReason+1)
	one := func(spoil func(*Decided)) func(*ShareState) {
		return func(s *ShareState) { spoil(&s.Decided[1]) }
	}
	hold := func(spoil func(*Hold)) func(*ShareState) { return func(s *ShareState) { spoil(s.Hold) } }
	areRefused(DecodeShareState, goodState, map[string]violation[ShareState]{
		"a negative generation":  {reason: "no condition takes it", spoil: func(s *ShareState) { s.Generation = -1 }},
		"less than no objects":   {reason: "they are counted", spoil: func(s *ShareState) { s.Objects = -1 }},
		"less than no conflicts": {reason: "they are counted", spoil: func(s *ShareState) { s.Conflicts = -1 }},
		"a long error":           {reason: "it is kept in a status", spoil: func(s *ShareState) { s.LastError = longer }},
		"a problem for nothing":  {reason: "it is a condition", spoil: func(s *ShareState) { s.Problem.Reason = "" }},
		"a long reason":          {reason: "it is kept in a status", spoil: func(s *ShareState) { s.Problem.Reason = long }},
		"a long message":         {reason: "it is kept in a status", spoil: func(s *ShareState) { s.Problem.Message = longer }},
		"a hold for nothing":     {reason: "it is a condition", spoil: hold(func(h *Hold) { h.Reason = "" })},
		"a long hold":            {reason: "it is kept in a status", spoil: hold(func(h *Hold) { h.Reason = long })},
		"a long text of a hold":  {reason: "it is kept in a status", spoil: hold(func(h *Hold) { h.Message = longer })},
		"no token":               {reason: "nobody could confirm it", spoil: hold(func(h *Hold) { h.Token = "" })},
		"a long token":           {reason: "somebody has to copy it", spoil: hold(func(h *Hold) { h.Token = strings.Repeat("a", 64) })},
		"two tokens":             {reason: "the other may be of another cluster", spoil: hold(func(h *Hold) { h.Token = "a,b" })},
		"a command":              {reason: "somebody copies it into a shell", spoil: hold(func(h *Hold) { h.Token = "a;reboot" })},
		"a token of two lines":   {reason: "somebody copies it into a shell", spoil: hold(func(h *Hold) { h.Token = "a\nb" })},
		"a quota for nothing":    {reason: "it is a condition", spoil: func(s *ShareState) { s.QuotaReached.Reason = "" }},
		"a long text of a quota": {reason: "it is kept in a status", spoil: func(s *ShareState) { s.QuotaReached.Message = longer }},
		"many decisions":         {reason: "each becomes an event", spoil: func(s *ShareState) { s.Decided = slices.Repeat(s.Decided[:1], MaxDecided+1) }},
		"a nameless decision":    {reason: "it is of no object", spoil: one(func(d *Decided) { d.Name = "" })},
		"an odd name":            {reason: "it is of no object", spoil: one(func(d *Decided) { d.Name = "#a" })},
		"a long name":            {reason: "it is of no object", spoil: one(func(d *Decided) { d.Name = strings.Repeat("a", 254) })},
		"many fields":            {reason: "an event names them", spoil: one(func(d *Decided) { d.Fields = slices.Repeat([]string{"f"}, maxFields+1) })},
		"a long field":           {reason: "an event names it", spoil: one(func(d *Decided) { d.Fields[0] = strings.Repeat("f", maxField+1) })},
		"nobody decided":         {reason: "one side did", spoil: one(func(d *Decided) { d.Winner = "" })},
		"another decided":        {reason: "one side did", spoil: one(func(d *Decided) { d.Winner = "Newest" })},
	})(t)
}

func TestParseSharedKey(t *testing.T) {
	tests := map[string]struct {
		reason, key string
		want        SharedKey
		fence       string
	}{
		"an object":             {reason: "share and name", key: "s/n", want: SharedKey{Share: "s", Name: "n"}},
		"names with dots":       {reason: "both are subdomains", key: "s.t-1/n.m", want: SharedKey{Share: "s.t-1", Name: "n.m"}},
		"a fence":               {reason: "no name begins so", key: "s/#f1", want: SharedKey{Share: "s", Name: "#f1"}, fence: "f1"},
		"a fence of any name":   {reason: "only the first slash counts", key: "s/#a/b #c", want: SharedKey{Share: "s", Name: "#a/b #c"}, fence: "a/b #c"},
		"the longest fence":     {reason: "names are bounded", key: "s/#" + strings.Repeat("f", maxName), want: FenceKey("s", strings.Repeat("f", maxName)), fence: strings.Repeat("f", maxName)},
		"a longer fence":        {reason: "names are bounded", key: "s/#" + strings.Repeat("f", maxName+1)},
		"a fence without name":  {reason: "there would be two", key: "s/#"},
		"a fence of no share":   {reason: "it says nothing", key: "/#f"},
		"nothing":               {reason: "it names nothing", key: ""},
		"a share":               {reason: "it names no object", key: "s"},
		"a share and a slash":   {reason: "it names no object", key: "s/"},
		"an object of no share": {reason: "nothing is shared so", key: "/n"},
		"three parts":           {reason: "no name has a slash", key: "s/ns/n"},
		"capitals":              {reason: "no name has them", key: "s/N"},
		"a share that is odd":   {reason: "no name is so", key: "#s/n"},
		"dots":                  {reason: "no name is so", key: "s/.."},
		"a long name":           {reason: "no name is so long", key: "s/" + strings.Repeat("n", 254)},
		"a long share":          {reason: "no name is so long", key: strings.Repeat("s", 254) + "/n"},
		"no text":               {reason: "no name is so", key: "s/\xff"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := ParseSharedKey(tc.key)
			if got != tc.want || (err == nil) != (tc.want != SharedKey{}) || err != nil && !errors.Is(err, ErrInvalidShared) {
				t.Fatalf("%s: %+v, %v", tc.reason, got, err)
			}
			if fence, ok := got.Fence(); fence != tc.fence && ok || ok != (tc.fence != "") {
				t.Errorf("%s: fence %q, %t", tc.reason, fence, ok)
			}
			if err == nil && got.String() != tc.key {
				t.Errorf("%s: the key is %q", tc.reason, got)
			}
			if tc.fence != "" && FenceKey(got.Share, tc.fence) != got {
				t.Errorf("%s: the key of the fence is %q", tc.reason, FenceKey(got.Share, tc.fence))
			}
		})
	}
}

// texts are such as somebody may say, with what is left of them within limit bytes.
func texts(limit int) map[string]struct{ reason, text, want string } {
	fill := func(with string, bytes int) string { return strings.Repeat(with, bytes/len(with)) }
	return map[string]struct{ reason, text, want string }{
		"nothing":          {reason: "it stays", text: "", want: ""},
		"a short one":      {reason: "it stays", text: "a <ä> 日\n", want: "a <ä> 日\n"},
		"the longest":      {reason: "it stays", text: fill("m", limit), want: fill("m", limit)},
		"a longer one":     {reason: "its beginning says most", text: fill("m", 2*limit), want: fill("m", limit)},
		"two bytes each":   {reason: "half a rune is no text", text: "a" + fill("ä", 2*limit), want: "a" + fill("ä", limit-1)},
		"three bytes each": {reason: "half a rune is no text", text: fill("日", 3*limit), want: fill("日", limit)},
		"four bytes each":  {reason: "half a rune is no text", text: "abc" + fill("🚢", 4*limit), want: "abc" + fill("🚢", limit-3)},
		"no UTF-8":         {reason: "JSON would replace each byte by three", text: strings.Repeat("\xff", 2*limit), want: ""},
		"half a rune":      {reason: "JSON would replace it", text: "日本"[:4] + "x", want: "日x"},
	}
}

func TestShareStateTruncatesLongTexts(t *testing.T) {
	for name, tc := range texts(maxReason) {
		t.Run(name, func(t *testing.T) {
			s := ShareState{LastError: ClipReason(tc.text), Problem: NewShareProblem("Reason", tc.text), Hold: &Hold{Reason: "r", Token: "t", Message: ClipReason(tc.text)}}
			got, err := DecodeShareState(bodyOf(t, s))
			if err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			for _, text := range []string{got.LastError, got.Problem.Message, got.Hold.Message} {
				if text != tc.want || !utf8.ValidString(text) {
					t.Errorf("%s: want %d bytes, got %d: %.20q", tc.reason, len(tc.want), len(text), text)
				}
			}
		})
	}
}

func TestDecidedTruncatesManyFields(t *testing.T) {
	field := strings.Repeat("f", maxField)
	fields := func(n int) []string { return slices.Repeat([]string{field}, n) }
	tests := map[string]struct {
		reason       string
		fields, want []string
	}{
		"none":          {reason: "it stays", fields: nil, want: nil},
		"two":           {reason: "they stay", fields: []string{"spec.a", "spec.b"}, want: []string{"spec.a", "spec.b"}},
		"the most":      {reason: "they stay", fields: fields(maxFields), want: fields(maxFields)},
		"one too many":  {reason: "the last says how many there are", fields: fields(maxFields + 1), want: append(fields(maxFields-1), "and 2 more")},
		"far too many":  {reason: "the last says how many there are", fields: fields(100), want: append(fields(maxFields-1), "and 85 more")},
		"a longer name": {reason: "it is cut", fields: []string{field + "g"}, want: []string{field}},
	}
	for name, tc := range texts(maxField) {
		tests["a field: "+name] = struct {
			reason       string
			fields, want []string
		}{tc.reason, []string{tc.text}, []string{tc.want}}
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			want := Decided{Number: 1, Name: "n", Fields: tc.want, Winner: SharedSpoke}
			got, err := DecodeShareState(bodyOf(t, ShareState{Decided: []Decided{NewDecided(1, "n", tc.fields, SharedSpoke)}}))
			if diff := cmp.Diff([]Decided{want}, got.Decided); diff != "" || err != nil {
				t.Errorf("%s: %v (-want +got):\n%s", tc.reason, err, diff)
			}
		})
	}
}

// A body of an agent that is larger than 1.5 MiB is not sent: the hub would hear nothing of
// the share until other conflicts are decided.
func TestLargestShareStateFits(t *testing.T) {
	text := strings.Repeat("<", 2*maxReason) // six bytes of JSON each
	s := ShareState{
		LastError: ClipReason(text), Problem: NewShareProblem(strings.Repeat("<", maxName), text),
		Hold: &Hold{Reason: strings.Repeat("<", maxName), Token: strings.Repeat("t", 63), Message: ClipReason(text)},
	}
	for i := range MaxDecided {
		s.Decided = append(s.Decided, NewDecided(int64(i), strings.Repeat("n", 253), slices.Repeat([]string{text}, 100), SharedSpoke))
	}
	body := bodyOf(t, s)
	if len(body) > 1<<20 {
		t.Errorf("the state has %d bytes", len(body))
	}
	got, err := DecodeShareState(body)
	if diff := cmp.Diff(s, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// sameJSON takes JSON for equal that has the same bytes once Go has written it.
var sameJSON = cmp.Options{
	cmp.FilterPath(func(p cmp.Path) bool { return p.Last().Type() != reflect.TypeFor[json.RawMessage]() }, cmpopts.EquateEmpty()),
	cmp.Comparer(func(a, b json.RawMessage) bool { return written(a) == written(b) }),
}

func written(raw json.RawMessage) string {
	if len(raw) == 0 {
		return ""
	}
	var compact, escaped bytes.Buffer
	if err := json.Compact(&compact, raw); err != nil {
		return err.Error()
	}
	json.HTMLEscape(&escaped, compact.Bytes())
	return escaped.String()
}

// fuzzShared fails unless what a decoder takes comes back from another trip. contents are
// those that may be too large for that: < becomes \u003c.
func fuzzShared[T any](f *testing.F, decode func([]byte) (T, error), contents func(T) []json.RawMessage, seeds ...T) {
	for _, seed := range seeds {
		f.Add(bodyOf(f, seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := decode(body)
		if err != nil {
			if !errors.Is(err, ErrInvalidShared) {
				t.Errorf("error is of no kind: %v", err)
			}
			return
		}
		for _, raw := range contents(got) {
			if len(raw) > 0 && raw[0] != '{' || len(raw) > MaxSharedContent {
				t.Errorf("accepted content of %d bytes: %.20q", len(raw), raw)
			}
			if len(raw) > MaxSharedContent/6 {
				return
			}
		}
		again, err := decode(bodyOf(t, got))
		if diff := cmp.Diff(got, again, sameJSON); diff != "" || err != nil {
			t.Errorf("what was accepted does not come back: %v\n%s", err, diff)
		}
	})
}

func FuzzDecodeShare(f *testing.F) {
	fuzzShared(f, DecodeShare, func(Share) []json.RawMessage { return nil }, goodShare(),
		Share{ToSpoke: true, Winner: SharedHub, Problem: NewShareProblem("Invalid", "")})
}

func FuzzDecodeSharedObject(f *testing.F) {
	fuzzShared(f, DecodeSharedObject, func(o SharedObject) []json.RawMessage { return []json.RawMessage{o.Content, o.Result} }, goodObject(),
		SharedObject{Deleted: true, Applied: 3}, SharedObject{})
}

func FuzzDecodeSharedWrite(f *testing.F) {
	fuzzShared(f, DecodeSharedWrite, func(w SharedWrite) []json.RawMessage { return []json.RawMessage{w.Content} }, goodWrite(),
		SharedWrite{Part: PartStatus, Seen: "v", Content: json.RawMessage(`{"status":null}`)}, SharedWrite{Part: PartDeletion, Seen: "v"})
}

func FuzzDecodeShareState(f *testing.F) {
	fuzzShared(f, DecodeShareState, func(ShareState) []json.RawMessage { return nil }, goodState(), ShareState{Generation: 1})
}
