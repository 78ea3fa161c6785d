// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spokelet/spokelet/workers/script"
)

const content = "export default {};"

// stored is the module that the tests fetch.
func stored() script.Module {
	return script.Module{Name: "index.js", Key: "a1/s/1/index.js", ETag: etag(content), Size: int64(len(content))}
}

func TestFetchWritesAModule(t *testing.T) {
	fake := &fakeS3{objects: map[string]string{stored().Key: content}}
	var got bytes.Buffer
	if err := fake.start(t).Fetch(t.Context(), "a1", stored(), &got); err != nil || got.String() != content {
		t.Errorf("%q, %v", got.String(), err)
	}
}

// answer sends a body that is not the object's.
func answer(body string, length int) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("ETag", `"`+etag(content)+`"`)
		w.Header().Set("Last-Modified", time.Unix(0, 0).UTC().Format(http.TimeFormat))
		w.Header().Set("Content-Length", strconv.Itoa(length))
		_, _ = io.WriteString(w, body)
		return true
	}
}

func TestFetchRejectsChangedModules(t *testing.T) {
	cases := map[string]struct {
		reason  string
		account string
		module  func(m *script.Module)
		fault   func(http.ResponseWriter, *http.Request) bool
		is      error
		want    string
	}{
		"an object that is gone": {
			reason: "somebody deleted it", module: func(m *script.Module) { m.Key = "a1/s/1/gone.js" },
			is: ErrMissing, want: `module "index.js" (a1/s/1/gone.js): nothing is stored there`,
		},
		"an object that was written again": {
			reason: "the release is of what was there", module: func(m *script.Module) { m.ETag = etag("old") },
			is: ErrChanged, want: `module "index.js" (a1/s/1/index.js): the object was changed after it was listed`,
		},
		"an object without a version": {
			reason: "anything might be there", module: func(m *script.Module) { m.ETag = "" },
			is: ErrChanged, want: `module "index.js" (a1/s/1/index.js): the object was changed after it was listed: it has no ETag`,
		},
		"a store that does not know If-Match": {
			reason: "it answers with what it has", module: func(m *script.Module) { m.ETag = etag("old") },
			fault: answer(content, len(content)), is: ErrChanged,
		},
		"more than was listed": {
			reason: "no more than a byte of it is read", fault: answer(content+strings.Repeat("x", 1<<20), len(content)+1<<20),
			is: ErrChanged, want: `module "index.js" (a1/s/1/index.js): the object was changed after it was listed: it has more than 18 bytes`,
		},
		"less than was listed": {
			reason: "it is another object", fault: answer("x", 1),
			is: ErrChanged, want: `module "index.js" (a1/s/1/index.js): the object was changed after it was listed: it has 1 bytes, not 18`,
		},
		"an answer that breaks off": {
			reason: "the rest may come another time", fault: answer("x", 18), is: ErrUnavailable,
			want: `module "index.js" (a1/s/1/index.js): the object store is not available: unexpected EOF`,
		},
		"a module of another account": {
			reason: "a release that somebody made by hand may name any key", module: func(m *script.Module) { m.Key = "a2/s/1/index.js" },
			is: ErrForeign, want: `module "index.js" (a2/s/1/index.js): the key is not below the account's id`,
		},
		"a module of an account whose id begins alike": {
			reason: "a1 is no part of a10", module: func(m *script.Module) { m.Key = "a10/s/1/index.js" }, is: ErrForeign,
		},
		"a detour": {
			reason: "some stores keep objects as files", module: func(m *script.Module) { m.Key = "a1/../a2/index.js" },
			is: ErrForeign, want: `module "index.js" (a1/../a2/index.js): the key is not below the account's id: it has the part ".."`,
		},
		"an empty part":    {reason: "as a detour", module: func(m *script.Module) { m.Key = "a1//etc" }, is: ErrForeign},
		"no account":       {reason: "all would be below it", account: "-", module: func(m *script.Module) { m.Key = "/x" }, is: ErrForeign},
		"a module of 1 EB": {reason: "its size is only said", module: func(m *script.Module) { m.Size = 1 << 60 }, is: ErrTooLarge},
		"a negative size":  {reason: "as 1 EB", module: func(m *script.Module) { m.Size = -1 }, is: ErrTooLarge},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			fake := &fakeS3{objects: map[string]string{stored().Key: content, "a2/s/1/index.js": content, "a10/s/1/index.js": content}, fault: test.fault}
			m, account := stored(), "a1"
			if test.module != nil {
				test.module(&m)
			}
			if test.account == "-" {
				account = ""
			}
			var got bytes.Buffer
			err := fake.start(t).Fetch(t.Context(), account, m, &got)
			if !errors.Is(err, test.is) || test.want != "" && err.Error() != test.want {
				t.Errorf("%s\n%v, not %s", test.reason, err, test.want)
			}
			if int64(got.Len()) > stored().Size+1 {
				t.Errorf("%s\nit wrote %d bytes", test.reason, got.Len())
			}
			if asked := fake.requests(); errors.Is(test.is, ErrForeign) && len(asked) > 0 {
				t.Errorf("%s\nit asked for %s", test.reason, asked)
			}
		})
	}
}

// full is a disk without space.
type full struct{}

var errFull = errors.New("no space left")

func (full) Write([]byte) (int, error) { return 0, errFull }

func TestFetchReportsWriteError(t *testing.T) {
	fake := &fakeS3{objects: map[string]string{stored().Key: content}}
	err := fake.start(t).Fetch(t.Context(), "a1", stored(), full{})
	if !errors.Is(err, errFull) || errors.Is(err, ErrUnavailable) {
		t.Errorf("it returns %v", err)
	}
}
