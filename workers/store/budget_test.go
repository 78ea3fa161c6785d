// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"strings"
	"testing"

	"github.com/spokelet/spokelet/workers/quota"
)

func TestReadsCountForAccount(t *testing.T) {
	fake := &fakeS3{objects: map[string]string{"a1/s/1.json": strings.Repeat("x", 1000)}}
	s := fake.start(t, func(c *Config) { c.Wrap = quota.Transport })
	ctx := quota.New(10000, 5000).WithAccount(t.Context(), "a1")
	if raw, err := s.Read(ctx, "a1", "a1/s/1.json", 2000); err != nil || len(raw) != 1000 {
		t.Errorf("%d bytes, %v", len(raw), err)
	}
	if _, err := s.Read(ctx, "a1", "a1/s/1.json", 2000); !errors.Is(err, quota.ErrExceeded) || !errors.Is(err, ErrUnavailable) {
		t.Errorf("more than its part: %v", err)
	}
}

func TestNamesReturnsLastNames(t *testing.T) {
	fake := &fakeS3{objects: map[string]string{}, page: 7}
	for i := range 26 {
		fake.objects["a1/s/"+string(rune('a'+i))+".json"] = "{}"
	}
	names, err := fake.start(t).Names(t.Context(), "a1", "a1/s", 3)
	if got := strings.Join(names, " "); err != nil || got != "x.json y.json z.json" {
		t.Errorf("names are %s, %v", got, err)
	}
}
