// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/spokelet/spokelet/workers/api"
	"github.com/spokelet/spokelet/workers/registry"
)

var errBoom = errors.New("boom")

// failing returns a reconciler whose reconciliation fails with an error.
func failing(err error) reconcile.Func {
	return withRetry(func(context.Context, types.NamespacedName) (reconcile.Result, error) { return reconcile.Result{}, err })
}

func TestExpectedErrorsRetryWithoutLog(t *testing.T) {
	kind := schema.GroupResource{Resource: "things"}
	cases := map[string]struct {
		reason string
		err    error
		quiet  bool
	}{
		"a conflict":                 {"others changed the object", apierrors.NewConflict(kind, "a", errBoom), true},
		"gone":                       {"it was deleted while we looked", apierrors.NewNotFound(kind, "a"), true},
		"there already":              {"no cache has it yet", apierrors.NewAlreadyExists(kind, "a"), true},
		"a registry that is away":    {"the builds say so", registry.ErrUnavailable, true},
		"a problem":                  {"a status says so", newStatusError(api.ReasonStoreUnavailable, "away"), true},
		"anything else":              {"somebody is to read it", errBoom, false},
		"that we may not do a thing": {"the operator's rights are wrong", apierrors.NewForbidden(kind, "a", errBoom), false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			result, err := failing(fmt.Errorf("write: %w", tc.err)).Reconcile(t.Context(), reconcile.Request{})
			if quiet := err == nil && result.RequeueAfter == minRetryDelay; quiet != tc.quiet || !tc.quiet && !errors.Is(err, tc.err) {
				t.Errorf("%+v, %v: %s", result, err, tc.reason)
			}
		})
	}
}

func TestTerminatingNamespaceErrorIsIgnored(t *testing.T) {
	refused := apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, "a", errBoom)
	refused.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	result, err := failing(fmt.Errorf("create: %w", refused)).Reconcile(t.Context(), reconcile.Request{})
	if err != nil || result != (reconcile.Result{}) {
		t.Errorf("got %+v, %v", result, err)
	}
}

func TestRetryDelayGrowsUntilSuccess(t *testing.T) {
	var err error
	r := withRetry(func(context.Context, types.NamespacedName) (reconcile.Result, error) { return reconcile.Result{}, err })
	away := newStatusError(api.ReasonStoreUnavailable, "away")
	request := func(name string) reconcile.Request {
		return reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
	}
	pause := func(name string) time.Duration {
		err = away
		result, err := r.Reconcile(t.Context(), request(name))
		if err != nil {
			t.Fatal(err)
		}
		return result.RequeueAfter
	}
	got := []time.Duration{pause("a"), pause("a"), pause("a"), pause("b")}
	err = nil
	if _, err := r.Reconcile(t.Context(), request("a")); err != nil {
		t.Fatal(err)
	}
	got = append(got, pause("a"))
	want := []time.Duration{minRetryDelay, 2 * minRetryDelay, 4 * minRetryDelay, minRetryDelay, minRetryDelay}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pauses (-want +got):\n%s", diff)
	}
	for range 20 {
		pause("a")
	}
	if got := pause("a"); got != maxRetryDelay {
		t.Errorf("the longest pause is %s", got)
	}
}

func TestBuildRetryDelayDoubles(t *testing.T) {
	for attempts, want := range map[int32]time.Duration{0: 2 * time.Second, 1: 2 * time.Second, 2: 4 * time.Second, 5: 32 * time.Second, 30: 5 * time.Minute} {
		if got := retryDelay(attempts); got != want {
			t.Errorf("after %d attempts it waits %s, not %s", attempts, got, want)
		}
	}
}
