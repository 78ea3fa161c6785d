// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRealStorePutAndRead(t *testing.T) {
	config, account := realStore(t)
	s := newStore(t, config)
	put(t, s, account, nil)
	folder := account + "/s"
	for key, content := range map[string]string{
		"1.json": "{}", "1/index.js": "one", "1/lib/é +%.wasm": "\x00asm", "2.json": "[]", "10/other.js": "",
	} {
		if err := s.Put(t.Context(), account, folder+"/"+key, "application/octet-stream", []byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	names, err := s.Names(t.Context(), account, folder, 10)
	if diff := cmp.Diff([]string{"1.json", "1/", "10/", "2.json"}, names); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if got, err := s.Read(t.Context(), account, folder+"/1/lib/é +%.wasm", 4); err != nil || string(got) != "\x00asm" {
		t.Errorf("read: %q, %v", got, err)
	}
	if got, err := s.Read(t.Context(), account, folder+"/1/index.js", 2); err != nil || string(got) != "on" {
		t.Errorf("read of the beginning: %q, %v", got, err)
	}
	last, err := s.Names(t.Context(), account, folder, 2)
	if diff := cmp.Diff([]string{"10/", "2.json"}, last); err != nil || diff != "" {
		t.Errorf("the last two: %v (-want +got):\n%s", err, diff)
	}
	if _, err := s.Read(t.Context(), account, folder+"/3.json", 2); !errors.Is(err, ErrMissing) {
		t.Errorf("read of nothing: %v", err)
	}
	if err := s.DeleteFolder(t.Context(), account, folder+"/1"); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(t.Context(), account, folder+"/2.json", folder+"/3.json"); err != nil {
		t.Errorf("delete: %v", err)
	}
	names, err = s.Names(t.Context(), account, folder, 10)
	if diff := cmp.Diff([]string{"1.json", "10/"}, names); err != nil || diff != "" {
		t.Errorf("after deletes: %v (-want +got):\n%s", err, diff)
	}
	if names, err := s.Names(t.Context(), account, account+"/none", 10); err != nil || len(names) > 0 {
		t.Errorf("nothing is there: %q, %v", names, err)
	}
}

func TestRealStoreAcceptsEmptyObject(t *testing.T) {
	config, account := realStore(t)
	s := newStore(t, config)
	put(t, s, account, nil)
	for range 50 { // one of six failed
		if err := s.Put(t.Context(), account, account+"/s/empty.js", "text/plain", nil); err != nil {
			t.Fatal(err)
		}
		if content, err := s.Read(t.Context(), account, account+"/s/empty.js", 1); err != nil || len(content) > 0 {
			t.Fatalf("read: %q, %v", content, err)
		}
	}
}

// everything is all that writes and reads a key.
func everything(t *testing.T, s *Store, account, key string) map[string]error {
	t.Helper()
	_, readErr := s.Read(t.Context(), account, key, 10)
	_, namesErr := s.Names(t.Context(), account, key, 10)
	return map[string]error{
		"put":           s.Put(t.Context(), account, key, "text/plain", []byte("x")),
		"read":          readErr,
		"names":         namesErr,
		"delete":        s.Delete(t.Context(), account, key),
		"delete folder": s.DeleteFolder(t.Context(), account, key),
	}
}

func TestWritesStayBelowPrefix(t *testing.T) {
	fake := &fakeS3{objects: map[string]string{"a2/s/1/index.js": "theirs"}}
	s := fake.start(t)
	for _, key := range []string{"a2/s/1", "a1/../a2/s", "a1", "a1/", "/a1/s", "a1/s//1", "a1/./s", ""} {
		for what, err := range everything(t, s, "a1", key) {
			if !errors.Is(err, ErrForeign) {
				t.Errorf("%s of %q: %v", what, key, err)
			}
		}
	}
	if asked := fake.requests(); len(asked) > 0 {
		t.Errorf("the store is asked for %q", asked)
	}
}

func TestWriteErrorsAreClassified(t *testing.T) {
	for code, test := range map[string]struct {
		reason string
		status int
		want   error
	}{
		"AccessDenied": {"its rights are the operator's matter", http.StatusForbidden, ErrDenied},
		"NoSuchBucket": {"so is its bucket", http.StatusNotFound, ErrDenied},
		"SlowDown":     {"it says that it cannot now", http.StatusServiceUnavailable, ErrUnavailable},
	} {
		fake := &fakeS3{fault: func(w http.ResponseWriter, _ *http.Request) bool {
			refuse(w, test.status, code)
			return true
		}}
		for what, err := range everything(t, fake.start(t), "a1", "a1/s/1") {
			if !errors.Is(err, test.want) {
				t.Errorf("%s: %s: %v: %s", code, what, err, test.reason)
			}
		}
	}
}
