// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package author

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestWhatIsRecordedIsRead(t *testing.T) {
	cases := map[string]struct {
		reason    string
		author    Author
		recorded  map[string]string
		readAgain Author
	}{
		"a user with groups": {
			reason:    "in the original's encoding",
			author:    Author{User: "alice", Groups: []string{"a", "b"}},
			recorded:  map[string]string{MCM.User: "YWxpY2U=", MCM.Groups: "YSxi"},
			readAgain: Author{User: "alice", Groups: []string{"a", "b"}},
		},
		"a group with a comma": {
			reason:    "it is left out, or it would be read as two, of which one may be mighty",
			author:    Author{User: "alice", Groups: []string{"a,system:masters", "b"}},
			recorded:  map[string]string{MCM.User: "YWxpY2U=", MCM.Groups: "Yg=="},
			readAgain: Author{User: "alice", Groups: []string{"b"}},
		},
		"no groups": {
			reason:    "nothing is read as nothing",
			author:    Author{User: "alice"},
			recorded:  map[string]string{MCM.User: "YWxpY2U=", MCM.Groups: ""},
			readAgain: Author{User: "alice"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			recorded := tc.author.Annotations(MCM)
			if diff := cmp.Diff(tc.recorded, recorded); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			got, err := Of(&metav1.ObjectMeta{Annotations: recorded}, MCM)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.readAgain, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestNobodyIsReadFromWhatIsNotRecorded(t *testing.T) {
	cases := map[string]map[string]string{
		"nothing":         nil,
		"no user":         {MCM.Groups: "YQ=="},
		"an empty user":   {MCM.User: "", MCM.Groups: "YQ=="},
		"no base64":       {MCM.User: "alice"},
		"groups are none": {MCM.User: "YWxpY2U=", MCM.Groups: "a,b"},
		"too large":       {MCM.User: strings.Repeat("YWxp", maxEncoded/4+1)},
		"other keys":      {ACM.User: "YWxpY2U="},
	}
	for name, annotations := range cases {
		t.Run(name, func(t *testing.T) {
			if a, err := Of(&metav1.ObjectMeta{Annotations: annotations}, MCM); !errors.Is(err, ErrUnknown) {
				t.Errorf("read %v, %v; want ErrUnknown", a, err)
			}
		})
	}
}

// Whatever is recorded: what is read again is the same but for groups that have no place.
func FuzzOf(f *testing.F) {
	f.Add("YWxpY2U=", "YSxi")
	f.Add("", "LA==")
	f.Add("YWxpY2U", "====")
	f.Fuzz(func(t *testing.T, user, groups string) {
		a, err := Of(&metav1.ObjectMeta{Annotations: map[string]string{ACM.User: user, ACM.Groups: groups}}, ACM)
		if err != nil {
			return
		}
		again, err := Of(&metav1.ObjectMeta{Annotations: a.Annotations(ACM)}, ACM)
		if diff := cmp.Diff(a, again); err != nil || diff != "" {
			t.Errorf("%v (-read +read again):\n%s", err, diff)
		}
	})
}
