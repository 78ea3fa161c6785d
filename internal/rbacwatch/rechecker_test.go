// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package rbacwatch

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/watch"
)

func TestRecheckerRunsAllChecksAfterChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &server{watches: map[string]*watch.FakeWatcher{}}
		reviews, made := NewRechecker(api, logr.Discard()), ""
		for _, part := range []string{"a", "b"} {
			reviews.Add(func(context.Context) error { made += part; return nil })
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- reviews.Start(ctx) }()
		<-time.After(time.Minute)
		synctest.Wait()
		if made == "" {
			t.Error("what was asked before anybody watched is not reviewed")
		}
		made = ""
		api.watch("rolebindings").Add(object("team"))
		synctest.Wait()
		if made != "ab" {
			t.Errorf("at a change %q are made", made)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Start: %v", err)
		}
	})
}

func TestRecheckerRetriesFailedChecks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, failures, made := &server{watches: map[string]*watch.FakeWatcher{}}, 10, 0
		reviews := NewRechecker(api, logr.Discard())
		reviews.Add(func(context.Context) error {
			made++
			if failures--; failures >= 0 {
				return errors.New("boom")
			}
			return nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		if err := reviews.Start(ctx); err != nil {
			t.Errorf("Start: %v", err)
		}
		if failures > 0 || made > 20 {
			t.Errorf("%d reviews in three minutes, of which %d more would have failed", made, failures)
		}
	})
}
