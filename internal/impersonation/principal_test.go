// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package impersonation

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFrom(t *testing.T) {
	cases := map[string]struct {
		reason string
		header http.Header
		want   Principal
		err    error
	}{
		"user with groups": {
			reason: "the usual case",
			header: http.Header{HeaderKind: {"user"}, HeaderUser: {"alice"}, HeaderGroup: {"dev", "ops"}},
			want:   Principal{Kind: User, User: "alice", Groups: []string{"dev", "ops"}},
		},
		"user without groups": {
			reason: "groups are optional",
			header: http.Header{HeaderKind: {"user"}, HeaderUser: {"zoë"}},
			want:   Principal{Kind: User, User: "zoë"},
		},
		"node":               {reason: "a node has no name", header: http.Header{HeaderKind: {"node"}}, want: Principal{Kind: Node}},
		"node of a pod":      {reason: "it asks for one", header: http.Header{HeaderKind: {"node"}, HeaderPodUID: {"u"}}, want: Principal{Kind: Node, PodUID: "u"}},
		"two pods":           {reason: "one of them is forged", header: http.Header{HeaderKind: {"node"}, HeaderPodUID: {"u", "v"}}, err: ErrAmbiguous},
		"same pod twice":     {reason: "one of them is forged", header: http.Header{HeaderKind: {"node"}, HeaderPodUID: {"u", "u"}}, err: ErrAmbiguous},
		"empty pod":          {reason: "an empty UID is none", header: http.Header{HeaderKind: {"node"}, HeaderPodUID: {""}}, err: ErrInvalid},
		"user of a pod":      {reason: "a user does not ask as a node", header: http.Header{HeaderKind: {"user"}, HeaderUser: {"alice"}, HeaderPodUID: {"u"}}, err: ErrAmbiguous},
		"user of no pod":     {reason: "a user does not ask as a node", header: http.Header{HeaderKind: {"user"}, HeaderUser: {"alice"}, HeaderPodUID: {""}}, err: ErrAmbiguous},
		"pod of nobody":      {reason: "half a statement is none", header: http.Header{HeaderPodUID: {"u"}}, err: ErrMissing},
		"other about a pod":  {reason: "it may narrow what the known ones say", header: http.Header{HeaderKind: {"node"}, "Spokelet-Pod-Name": {"x"}}, err: ErrAmbiguous},
		"twin of a pod":      {reason: "a careless reader takes it for the real one", header: http.Header{HeaderKind: {"node"}, HeaderPodUID: {"u"}, "spokelet_pod_uid": {"v"}}, err: ErrAmbiguous},
		"nothing stated":     {reason: "nobody is not somebody", header: http.Header{}, err: ErrMissing},
		"user without kind":  {reason: "half a statement is none", header: http.Header{HeaderUser: {"alice"}}, err: ErrMissing},
		"kind without user":  {reason: "an empty name is nobody", header: http.Header{HeaderKind: {"user"}}, err: ErrInvalid},
		"empty user":         {reason: "an empty name is nobody", header: http.Header{HeaderKind: {"user"}, HeaderUser: {""}}, err: ErrInvalid},
		"two kinds":          {reason: "one of them is forged", header: http.Header{HeaderKind: {"user", "node"}, HeaderUser: {"alice"}}, err: ErrAmbiguous},
		"same kind twice":    {reason: "one of them is forged", header: http.Header{HeaderKind: {"user", "user"}, HeaderUser: {"alice"}}, err: ErrAmbiguous},
		"two users":          {reason: "one of them is forged", header: http.Header{HeaderKind: {"user"}, HeaderUser: {"alice", "bob"}}, err: ErrAmbiguous},
		"node with user":     {reason: "one of them is forged", header: http.Header{HeaderKind: {"node"}, HeaderUser: {"alice"}}, err: ErrAmbiguous},
		"node with group":    {reason: "a node has no groups", header: http.Header{HeaderKind: {"node"}, HeaderGroup: {"dev"}}, err: ErrAmbiguous},
		"unknown kind":       {reason: "it may mean more than is known here", header: http.Header{HeaderKind: {"admin"}, HeaderUser: {"alice"}}, err: ErrInvalid},
		"kind in capitals":   {reason: "there is one spelling", header: http.Header{HeaderKind: {"User"}, HeaderUser: {"alice"}}, err: ErrInvalid},
		"empty group":        {reason: "an empty group is malformed", header: http.Header{HeaderKind: {"user"}, HeaderUser: {"alice"}, HeaderGroup: {""}}, err: ErrInvalid},
		"newline in user":    {reason: "it would split a header", header: http.Header{HeaderKind: {"user"}, HeaderUser: {"a\nb"}}, err: ErrInvalid},
		"NUL in group":       {reason: "readers differ on it", header: http.Header{HeaderKind: {"user"}, HeaderUser: {"a"}, HeaderGroup: {"x\x00"}}, err: ErrInvalid},
		"C1 control in user": {reason: "it is a control character too", header: http.Header{HeaderKind: {"user"}, HeaderUser: {"a\u0085b"}}, err: ErrInvalid},
		"space behind user":  {reason: "HTTP/1.1 would trim it, and name someone else", header: http.Header{HeaderKind: {"user"}, HeaderUser: {"alice "}}, err: ErrInvalid},
		"broken UTF-8":       {reason: "readers differ on it", header: http.Header{HeaderKind: {"user"}, HeaderUser: {"a\xff"}}, err: ErrInvalid},
		"unknown assertion":  {reason: "it may narrow what the known ones say", header: http.Header{HeaderKind: {"node"}, "Spokelet-Principal-Extra": {"x"}}, err: ErrAmbiguous},
		"underscored twin":   {reason: "a careless reader takes it for the real one", header: http.Header{HeaderKind: {"node"}, "Spokelet_principal_user": {"x"}}, err: ErrAmbiguous},
		"non-canonical twin": {reason: "it would add a second user", header: http.Header{HeaderKind: {"user"}, HeaderUser: {"a"}, "spokelet-principal-user": {"b"}}, err: ErrAmbiguous},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := From(tc.header)
			if !errors.Is(err, tc.err) {
				t.Fatalf("%s: error = %v, want %v", tc.reason, err, tc.err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestSet(t *testing.T) {
	cases := map[string]struct {
		reason string
		p      Principal
		stated bool
	}{
		"user":           {reason: "what is set is read", p: Principal{Kind: User, User: "alice", Groups: []string{"a", "b"}}, stated: true},
		"node":           {reason: "what is set is read", p: Principal{Kind: Node}, stated: true},
		"node of a pod":  {reason: "what is set is read", p: Principal{Kind: Node, PodUID: "u"}, stated: true},
		"user of a pod":  {reason: "it is two principals", p: Principal{Kind: User, User: "alice", PodUID: "u"}},
		"split pod":      {reason: "a newline must not become a space on the way", p: Principal{Kind: Node, PodUID: "a\nb"}},
		"no kind":        {reason: "the zero value is nobody", p: Principal{User: "alice"}},
		"split user":     {reason: "a newline must not become a space on the way", p: Principal{Kind: User, User: "a\r\nb"}},
		"split group":    {reason: "a newline must not become a space on the way", p: Principal{Kind: User, User: "a", Groups: []string{"b\nc"}}},
		"named node":     {reason: "it is two principals", p: Principal{Kind: Node, User: "alice"}},
		"trimmable user": {reason: "it would arrive as someone else", p: Principal{Kind: User, User: "\u00a0alice"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			h := http.Header{}
			Set(h, tc.p)
			got, err := From(h)
			if !tc.stated {
				if !errors.Is(err, ErrMissing) {
					t.Fatalf("%s: From = %v, %v; want ErrMissing", tc.reason, got, err)
				}
				return
			}
			if err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			if diff := cmp.Diff(tc.p, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestSetCopiesGroups(t *testing.T) {
	groups := []string{"dev"}
	h := http.Header{}
	Set(h, Principal{Kind: User, User: "alice", Groups: groups})
	groups[0] = "system:masters"
	if got := h[HeaderGroup][0]; got != "dev" {
		t.Errorf("group = %q after the caller changed its slice", got)
	}
}

func TestScrubKeepsOtherHeaders(t *testing.T) {
	h := http.Header{
		"Accept":            {"application/json"},
		"Audit-Id":          {"1"},
		"Impersonation":     {"no prefix with a dash"},
		"X-Impersonate-Foo": {"another prefix"},
		"Connection":        {"Upgrade, Impersonate-User", "impersonate_group"},
		"Upgrade":           {"websocket"},
		"Impersonate-User":  {"root"},
		HeaderKind:          {"user"},
	}
	Scrub(h)
	want := http.Header{
		"Accept":            {"application/json"},
		"Audit-Id":          {"1"},
		"Impersonation":     {"no prefix with a dash"},
		"X-Impersonate-Foo": {"another prefix"},
		"Connection":        {"Upgrade"},
		"Upgrade":           {"websocket"},
	}
	if diff := cmp.Diff(want, h); diff != "" {
		t.Errorf("scrubbed header (-want +got):\n%s", diff)
	}
}

// claims yields many spellings of the names that must not survive.
func claims() []string {
	var names []string
	for _, name := range []string{
		"Impersonate-User", "Impersonate-Group", "Impersonate-Uid", "Impersonate-Extra-Scopes", "Impersonate-Future",
		HeaderKind, HeaderUser, HeaderGroup, HeaderUser + "-Extra", HeaderPodUID,
	} {
		names = append(names,
			name, strings.ToLower(name), strings.ToUpper(name),
			strings.ReplaceAll(name, "-", "_"), strings.ReplaceAll(name, "-", "."), strings.ReplaceAll(name, "-", " "),
			strings.ReplaceAll(name, "-", "--"), "-"+name, " "+name, name+" ", "\t"+name, "_"+name,
			strings.ReplaceAll(name, "-", "-_"), strings.ReplaceAll(name, "-", "\u2010"), "\u200b"+name,
		)
	}
	// The Kelvin sign folds to k, the long s to s, the dotless i to I.
	return append(names, "Spo\u212aelet-Principal", "\u017fpokelet-principal", "\u0131mpersonate-user")
}

func TestScrubRemovesEverySpelling(t *testing.T) {
	for _, name := range claims() {
		h := http.Header{
			name:         {"root", "system:masters"},
			"Connection": {name, "close, " + name},
			"Trailer":    {name},
		}
		Scrub(h)
		if diff := cmp.Diff(http.Header{"Connection": {"close"}}, h); diff != "" {
			t.Errorf("header %q (-want +got):\n%s", name, diff)
		}
	}
}

func FuzzScrub(f *testing.F) {
	for _, name := range claims() {
		f.Add(name, "Connection", "close, "+name)
	}
	f.Fuzz(func(t *testing.T, name, other, value string) {
		h := http.Header{}
		h.Add(name, value)
		h[name] = append(h[name], value)
		h.Add(other, value)
		Scrub(h)
		for k, values := range h {
			checkSurvivor(t, k)
			if c := http.CanonicalHeaderKey(k); c == "Connection" || c == "Trailer" {
				for _, v := range values {
					for token := range strings.SplitSeq(v, ",") {
						checkSurvivor(t, token)
					}
				}
			}
		}
		if p, err := From(h); err == nil {
			t.Errorf("a scrubbed header states %+v", p)
		}
	})
}

// checkSurvivor knows the names in its own, simpler way: what the API server,
// or a gateway that reads underscores as dashes, would take it for.
func checkSurvivor(t *testing.T, name string) {
	t.Helper()
	canonical := strings.ToLower(strings.ReplaceAll(strings.TrimSpace(name), "_", "-"))
	if strings.HasPrefix(canonical, "impersonate-") || strings.HasPrefix(canonical, "spokelet-principal") ||
		strings.HasPrefix(canonical, "spokelet-pod") {
		t.Errorf("%q survived", name)
	}
}

func BenchmarkScrub(b *testing.B) {
	h := http.Header{
		"Accept": {"application/json"}, "User-Agent": {"kubectl"}, "Audit-Id": {"1"},
		"Traceparent": {"00"}, "Kubectl-Command": {"get"}, "Kubectl-Session": {"1"}, "Accept-Encoding": {"gzip"},
	}
	for b.Loop() {
		Scrub(h)
	}
}
