// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
)

// answers is a server that answers the number of bytes that the path names.
type answers map[string]int

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(strings.Repeat("x", a[r.URL.Path])))}, nil
}

// read reads an answer to its end.
func read(ctx context.Context, t *testing.T, url string) error {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://hub"+url, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := Transport(answers{"/small": 100, "/large": 400}).RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	_, err = io.Copy(io.Discard, answer.Body)
	return err
}

func TestAccountReadsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(4000, 1500)
		first, cancel := context.WithCancel(t.Context())
		defer cancel()
		if err := read(b.WithAccount(first, "1234"), t, "/large"); err != nil {
			t.Fatal(err)
		}
		if err := read(b.WithAccount(first, "1234"), t, "/large"); !errors.Is(err, ErrExceeded) {
			t.Errorf("twice the bound: %v", err)
		}
		if err := read(b.WithAccount(first, "5678"), t, "/large"); err != nil {
			t.Errorf("another account: %v", err)
		}
		cancel()
		synctest.Wait()
		if held := b.memory.Held(); held != 0 {
			t.Errorf("%d bytes are held when all requests have ended", held)
		}
		if err := read(b.WithAccount(t.Context(), "1234"), t, "/large"); err != nil {
			t.Errorf("the next request: %v", err)
		}
	})
}

func TestTotalReadsAreLimited(t *testing.T) {
	b := New(2500, 1500)
	var errs []error
	for _, account := range []string{"1", "2", "3"} {
		errs = append(errs, read(b.WithAccount(t.Context(), account), t, "/large"))
	}
	if errs[0] != nil || errs[1] != nil || !errors.Is(errs[2], ErrExceeded) {
		t.Errorf("got %v", errs)
	}
}

func TestScopeReleasesMemoryBeforeRequestEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(4000, 1500)
		ctx := b.WithAccount(t.Context(), "1234")
		for range 10 {
			part, done := WithScope(ctx)
			if err := read(part, t, "/large"); err != nil {
				t.Fatal(err)
			}
			done()
			synctest.Wait()
		}
		// One that outlives its request counts for the same account.
		ended, cancel := context.WithCancel(t.Context())
		late, done := WithScope(context.WithoutCancel(b.WithAccount(ended, "1234")))
		defer done()
		cancel()
		if err := errors.Join(read(late, t, "/large"), read(late, t, "/large")); !errors.Is(err, ErrExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

func TestWatchesAreNotCounted(t *testing.T) {
	b := New(10, 10)
	for name, err := range map[string]error{
		"a watch":    read(b.WithAccount(t.Context(), "1234"), t, "/large?watch=true"),
		"no account": read(t.Context(), t, "/large"),
	} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	part, done := WithScope(t.Context())
	defer done()
	if err := read(part, t, "/large"); err != nil {
		t.Errorf("a part of no request: %v", err)
	}
}
