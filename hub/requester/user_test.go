// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package requester

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAnnotationsRoundTrip(t *testing.T) {
	cases := map[string]struct {
		reason    string
		author    User
		recorded  map[string]string
		readAgain User
	}{
		"a user with groups": {
			reason:    "in the original's encoding",
			author:    User{User: "alice", Groups: []string{"a", "b"}},
			recorded:  map[string]string{MCM.User: "YWxpY2U=", MCM.Groups: "YSxi", AnnotationRegistration: "uid"},
			readAgain: User{User: "alice", Groups: []string{"a", "b"}},
		},
		"a group with a comma": {
			reason:    "it is left out, or it would be read as two, of which one may be mighty",
			author:    User{User: "alice", Groups: []string{"a,system:masters", "b"}},
			recorded:  map[string]string{MCM.User: "YWxpY2U=", MCM.Groups: "Yg==", AnnotationRegistration: "uid"},
			readAgain: User{User: "alice", Groups: []string{"b"}},
		},
		"a user whose token narrows what he may do": {
			reason:    "the hub's authorizer is to be asked about the token, too",
			author:    User{User: "alice", Extra: map[string][]string{"scopes.authorization.openshift.io": {"user:info", "role:view:shop"}, "b": {"1"}}},
			recorded:  map[string]string{MCM.User: "YWxpY2U=", MCM.Groups: "", AnnotationExtra: `{"b":["1"],"scopes.authorization.openshift.io":["user:info","role:view:shop"]}`, AnnotationRegistration: "uid"},
			readAgain: User{User: "alice", Extra: map[string][]string{"scopes.authorization.openshift.io": {"user:info", "role:view:shop"}, "b": {"1"}}},
		},
		"no groups": {
			reason:    "nothing is read as nothing",
			author:    User{User: "alice"},
			recorded:  map[string]string{MCM.User: "YWxpY2U=", MCM.Groups: "", AnnotationRegistration: "uid"},
			readAgain: User{User: "alice"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			recorded := tc.author.Annotations(MCM, "uid")
			if diff := cmp.Diff(tc.recorded, recorded); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			got, err := FromObject(&metav1.ObjectMeta{Annotations: recorded}, MCM, "uid")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.readAgain, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestInvalidAnnotationsNameNoUser(t *testing.T) {
	const (
		missing = "who asked for it is not recorded: change its spec"
		stale   = "who asked for it is not recorded: it was written while the hub's webhook was not registered as it is now; " +
			"change its spec, or remove the annotation mcm.ibm.com/user-identity"
		none  = "who asked for it is not recorded: the hub's webhook is not registered, or may fail without stopping a write"
		extra = "annotation spokelet.io/author-extra is not readable: who asked for it is not recorded"
		other = "annotation is no base64: who asked for it is not recorded"
	)
	cases := map[string]struct {
		annotations map[string]string
		under       string
		want        string
	}{
		"nothing":              {want: missing, under: "uid"},
		"no user":              {annotations: map[string]string{MCM.Groups: "YQ==", AnnotationRegistration: "uid"}, under: "uid", want: missing},
		"an empty user":        {annotations: map[string]string{MCM.User: "", MCM.Groups: "YQ==", AnnotationRegistration: "uid"}, under: "uid", want: missing},
		"no base64":            {annotations: map[string]string{MCM.User: "alice", AnnotationRegistration: "uid"}, under: "uid", want: other},
		"groups are none":      {annotations: map[string]string{MCM.User: "YWxpY2U=", MCM.Groups: "a,b", AnnotationRegistration: "uid"}, under: "uid", want: other},
		"other keys":           {annotations: map[string]string{ACM.User: "YWxpY2U=", AnnotationRegistration: "uid"}, under: "uid", want: missing},
		"no registration":      {annotations: map[string]string{MCM.User: "YWxpY2U="}, under: "uid", want: stale},
		"an empty one":         {annotations: map[string]string{MCM.User: "YWxpY2U=", AnnotationRegistration: ""}, under: "uid", want: stale},
		"another registration": {annotations: map[string]string{MCM.User: "YWxpY2U=", AnnotationRegistration: "before"}, under: "uid", want: stale},
		"none in force":        {annotations: map[string]string{MCM.User: "YWxpY2U=", AnnotationRegistration: "uid"}, want: none},
		"none in force or recorded": {
			annotations: map[string]string{MCM.User: "YWxpY2U=", AnnotationRegistration: ""}, want: none,
		},
		"extra that is no JSON": {
			annotations: map[string]string{MCM.User: "YWxpY2U=", AnnotationExtra: "scopes", AnnotationRegistration: "uid"}, under: "uid", want: extra,
		},
		"extra that is too large": {
			annotations: map[string]string{MCM.User: "YWxpY2U=", AnnotationExtra: `{"a":["` + strings.Repeat("b", MaxExtra) + `"]}`, AnnotationRegistration: "uid"}, under: "uid", want: extra,
		},
		"too large": {
			annotations: map[string]string{MCM.User: strings.Repeat("YWxp", maxAnnotation/4+1), AnnotationRegistration: "uid"}, under: "uid",
			want: "annotation of 131076 bytes: who asked for it is not recorded",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a, err := FromObject(&metav1.ObjectMeta{Annotations: tc.annotations}, MCM, tc.under)
			if !errors.Is(err, ErrUnknown) || err.Error() != tc.want {
				t.Errorf("read %v, %v; want %q", a, err, tc.want)
			}
		})
	}
}

// Whatever is recorded: what is read again is the same but for groups that have no place.
func FuzzFromObject(f *testing.F) {
	f.Add("YWxpY2U=", "YSxi")
	f.Add("", "LA==")
	f.Add("YWxpY2U", "====")
	f.Fuzz(func(t *testing.T, user, groups string) {
		a, err := FromObject(&metav1.ObjectMeta{Annotations: map[string]string{ACM.User: user, ACM.Groups: groups, AnnotationRegistration: "uid"}}, ACM, "uid")
		if err != nil {
			return
		}
		again, err := FromObject(&metav1.ObjectMeta{Annotations: a.Annotations(ACM, "uid")}, ACM, "uid")
		if diff := cmp.Diff(a, again); err != nil || diff != "" {
			t.Errorf("%v (-read +read again):\n%s", err, diff)
		}
	})
}

func TestUserIsEqualAcrossServiceAccountTokens(t *testing.T) {
	token := func(id string) map[string][]string {
		return map[string][]string{
			"authentication.kubernetes.io/credential-id": {"JTI=" + id}, "authentication.kubernetes.io/pod-name": {"ci-" + id},
			"authentication.kubernetes.io/pod-uid": {id}, "authentication.kubernetes.io/node-name": {"node-" + id}, "team": {"shop"},
		}
	}
	before, err := NewUser("system:serviceaccount:shop:ci", nil, token("1"))
	if err != nil {
		t.Fatal(err)
	}
	after, err := NewUser("system:serviceaccount:shop:ci", nil, token("2"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before.Annotations(MCM, "uid"), after.Annotations(MCM, "uid")); diff != "" {
		t.Errorf("another token is another author (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(map[string][]string{"team": {"shop"}}, before.Extra); diff != "" {
		t.Errorf("extra (-want +got):\n%s", diff)
	}
}

// What is left out might be what narrows the user's rights.
func TestOversizedExtraIsRefused(t *testing.T) {
	extra := map[string][]string{"scopes.authorization.openshift.io": {strings.Repeat("a", MaxExtra)}}
	if by, err := NewUser("alice", nil, extra); !errors.Is(err, ErrExtraTooLarge) || by.User != "" {
		t.Errorf("got %v, %v, want ErrExtra", by, err)
	}
}
