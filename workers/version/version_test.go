// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package version

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	release "github.com/spokelet/spokelet/workers/api/release/v1alpha1"
)

func TestIDsAreOrderedByTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := ""
		for range 50 {
			v, err := New("jane")
			if err != nil {
				t.Fatal(err)
			}
			if v.ID <= before {
				t.Errorf("%s comes after %s", v.ID, before)
			}
			if !IsID(v.ID) || v.Author != "jane" {
				t.Errorf("version is %+v", v)
			}
			before = v.ID
		}
	})
}

func TestCreatedOnIsTimeOfID(t *testing.T) {
	start := time.Now()
	v, err := New("jane")
	if err != nil {
		t.Fatal(err)
	}
	if v.CreatedOn.Before(start.Truncate(time.Millisecond)) || v.CreatedOn.After(time.Now().Add(time.Second)) {
		t.Errorf("made at %s, it says %s", start, v.CreatedOn)
	}
}

func TestIsIDAcceptsOnlyUUIDv7(t *testing.T) {
	for id, test := range map[string]struct {
		reason string
		want   bool
	}{
		"019aa000-0000-7000-8000-000000000000":          {"it is one", true},
		"019AA000-0000-7000-8000-000000000000":          {"a key of a store is not the same in upper case", false},
		"{019aa000-0000-7000-8000-000000000000}":        {"braces are another spelling", false},
		"urn:uuid:019aa000-0000-7000-8000-000000000000": {"so is a URN", false},
		"019aa000000070008000000000000000":              {"so are digits alone", false},
		"0e9f0f0a-0000-4000-8000-000000000000":          {"another version says nothing of time", false},
		"../019aa000-0000-7000-8000-000000000":          {"it leads elsewhere", false},
		"":                                              {"there is none", false},
	} {
		if got := IsID(id); got != test.want {
			t.Errorf("%q: got %t: %s", id, got, test.reason)
		}
	}
}

func TestFoldersOfScript(t *testing.T) {
	const one, two = "019aa000-0000-7000-8000-000000000001", "019aa000-0000-7000-8000-000000000002"
	got := Folders("workers", "1234", release.Script{ScriptName: "hello", ScriptURLs: []string{
		URL("workers", "1234", "hello", one),
		"s3://workers/1234/hello/1",
		URL("workers", "1234", "other", two),
		URL("elsewhere", "1234", "hello", two),
		URL("workers", "1234", "hello", two) + "/index.js",
	}})
	if diff := cmp.Diff([]string{one}, got); diff != "" {
		t.Errorf("folders (-want +got):\n%s", diff)
	}
}
