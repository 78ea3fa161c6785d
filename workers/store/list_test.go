// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	release "github.com/spokelet/spokelet/workers/api/release/v1alpha1"
)

func module(name, key, content string) release.Module {
	return release.Module{Name: name, Key: key, ETag: etag(content), Size: int64(len(content))}
}

func TestListReturnsModulesOfAccount(t *testing.T) {
	objects := map[string]string{
		"a1/hello/1/index.js": "one", "a1/hello/1/lib/x.js": "two", "a1/hello/1/": "", "a1/hello/1/lib/": "",
		"a1/hello/10/index.js": "ten", "a1/hello/2/index.js": "three", "a1/hello/2/other.js": "four",
		"a1/hello/file": "file", "a1/hello/file/below.js": "below", "a1/é ü/1/ä+%.js": "umlaut", "a2/hello/1/index.js": "foreign",
	}
	cases := map[string]struct {
		reason string
		urls   []string
		page   int
		want   []release.Module
	}{
		"below a prefix": {
			reason: "names are relative to it; folders, which some stores keep as objects, are none",
			urls:   []string{"a1/hello/1"},
			want:   []release.Module{module("index.js", "a1/hello/1/index.js", "one"), module("lib/x.js", "a1/hello/1/lib/x.js", "two")},
		},
		"below a prefix with a slash": {
			reason: "people write it either way",
			urls:   []string{"s3://scripts/a1/hello/1/"},
			want:   []release.Module{module("index.js", "a1/hello/1/index.js", "one"), module("lib/x.js", "a1/hello/1/lib/x.js", "two")},
		},
		"an object": {
			reason: "its name is the last part",
			urls:   []string{"s3://scripts/a1/hello/1/lib/x.js"},
			want:   []release.Module{module("x.js", "a1/hello/1/lib/x.js", "two")},
		},
		"several": {
			reason: "they are one script, ordered by name",
			urls:   []string{"a1/hello/2/other.js", "a1/hello/1/index.js"},
			want:   []release.Module{module("index.js", "a1/hello/1/index.js", "one"), module("other.js", "a1/hello/2/other.js", "four")},
		},
		"one object twice": {
			reason: "it is the same module",
			urls:   []string{"a1/hello/2", "a1/hello/2/index.js", "s3://scripts/a1/hello/2"},
			want:   []release.Module{module("index.js", "a1/hello/2/index.js", "three"), module("other.js", "a1/hello/2/other.js", "four")},
		},
		"what is both": {
			reason: "what is below it counts",
			urls:   []string{"a1/hello/file"},
			want:   []release.Module{module("below.js", "a1/hello/file/below.js", "below")},
		},
		"many": {
			reason: "a store lists some at a time",
			urls:   []string{"a1/hello/1", "a1/hello/2/other.js"}, page: 1,
			want: []release.Module{module("index.js", "a1/hello/1/index.js", "one"), module("lib/x.js", "a1/hello/1/lib/x.js", "two"), module("other.js", "a1/hello/2/other.js", "four")},
		},
		"keys that have to be escaped": {
			reason: "a key is text",
			urls:   []string{"a1/é ü/1"},
			want:   []release.Module{module("ä+%.js", "a1/é ü/1/ä+%.js", "umlaut")},
		},
		"nothing": {reason: "that is for the caller to judge", want: []release.Module{}},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			fake := &fakeS3{objects: objects, page: test.page}
			got, err := fake.start(t).List(t.Context(), "a1", test.urls)
			if diff := cmp.Diff(test.want, got); err != nil || diff != "" {
				t.Errorf("%s\n%v\n%s", test.reason, err, diff)
			}
			for _, asked := range fake.requests() {
				if _, key, _ := strings.Cut(asked, " "); !strings.HasPrefix(key, "a1/") {
					t.Errorf("it asked for %s", asked)
				}
			}
		})
	}
}

func TestListRejectsInvalidModules(t *testing.T) {
	objects := map[string]string{
		"a1/s/1/index.js": "one", "a1/s/2/index.js": "two", "a1/s/10/index.js": "ten", "a2/s/1/index.js": "foreign",
		"a1/large/1/a.js": strings.Repeat("a", 700<<10), "a1/large/1/b.js": strings.Repeat("b", 500<<10),
	}
	for i := range 5 {
		objects[fmt.Sprintf("a1/many/1/%d.js", i)] = "x"
	}
	cases := map[string]struct {
		reason string
		urls   []string
		want   string
		is     error
	}{
		"what is not there": {
			reason: "1 is no part of 10", urls: []string{"a1/s/1/index.js", "s3://scripts/a1/s/100"},
			want: "s3://scripts/a1/s/100: nothing is stored there", is: ErrMissing,
		},
		"one name of two objects": {
			reason: "nobody knows which of them is meant", urls: []string{"a1/s/1", "a1/s/2"},
			want: `a1/s/2: two objects have the same name: module "index.js" is a1/s/1/index.js and a1/s/2/index.js`, is: ErrDuplicate,
		},
		"too many bytes": {
			reason: "all modules count", urls: []string{"a1/large/1"},
			want: "the script is too large: it has 1.2 MiB, and the limit is 1.0 MiB", is: ErrTooLarge,
		},
		"too many modules": {
			reason: "each is an object of the release", urls: []string{"a1/s/1", "a1/many/1"},
			want: "a1/many/1: the script is too large: it has more than 4 modules", is: ErrTooLarge,
		},
		"another account": {
			reason: "an account reads its own alone", urls: []string{"a2/s/1"},
		},
		"another account, by a detour": {
			reason: "some stores keep objects as files", urls: []string{"a1/../a2/s/1"},
		},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			fake := &fakeS3{objects: objects}
			store := fake.start(t, func(c *Config) { c.MaxModules, c.MaxBytes = 4, 1<<20 })
			got, err := store.List(t.Context(), "a1", test.urls)
			if err == nil || got != nil || test.want != "" && err.Error() != test.want || test.is != nil && !errors.Is(err, test.is) {
				t.Errorf("%s\n%v, %v, not %s", test.reason, got, err, test.want)
			}
			if errors.Is(err, ErrUnavailable) {
				t.Errorf("%s\nit is tried again: %v", test.reason, err)
			}
			for _, asked := range fake.requests() {
				if strings.Contains(asked, "a2") {
					t.Errorf("%s\nit asked for %s", test.reason, asked)
				}
			}
		})
	}
}
