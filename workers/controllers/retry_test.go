// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
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
			result, err := newRetries().result(reconcile.Request{}, reconcile.Result{}, fmt.Errorf("write: %w", tc.err))
			if quiet := err == nil && result.RequeueAfter == minRetryDelay; quiet != tc.quiet || !tc.quiet && !errors.Is(err, tc.err) {
				t.Errorf("%+v, %v: %s", result, err, tc.reason)
			}
		})
	}
}

func TestTerminatingNamespaceErrorIsIgnored(t *testing.T) {
	refused := apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, "a", errBoom)
	refused.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	result, err := newRetries().result(reconcile.Request{}, reconcile.Result{}, fmt.Errorf("create: %w", refused))
	if err != nil || result != (reconcile.Result{}) {
		t.Errorf("got %+v, %v", result, err)
	}
}

func TestRetryDelayGrowsUntilSuccess(t *testing.T) {
	r := newRetries()
	away := newStatusError(api.ReasonStoreUnavailable, "away")
	request := func(name string) reconcile.Request {
		return reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
	}
	pause := func(name string) time.Duration {
		result, err := r.result(request(name), reconcile.Result{}, away)
		if err != nil {
			t.Fatal(err)
		}
		return result.RequeueAfter
	}
	got := []time.Duration{pause("a"), pause("a"), pause("a"), pause("b")}
	if _, err := r.result(request("a"), reconcile.Result{}, nil); err != nil {
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

func TestValidateNamesMissingFields(t *testing.T) {
	valid := Config{
		Store: &fakeStore{}, Registry: &fakeRegistry{}, Runtime: "registry/workerd:1", Pull: "registry/workers",
		Build: BuildConfig{Namespace: operator, Image: "workers:1", ConfigMap: "config"},
	}
	valid.Default()
	if err := valid.Validate(); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		reason string
		change func(*Config)
		want   string
	}{
		"a store":         {"nothing can be listed", func(c *Config) { c.Store = nil }, "the controllers need a store and a registry"},
		"a registry":      {"no image can be found", func(c *Config) { c.Registry = nil }, "the controllers need a store and a registry"},
		"a namespace":     {"Jobs have no place", func(c *Config) { c.Build.Namespace = "" }, "builds need a namespace, an image and a configuration"},
		"a runtime image": {"its name is in that of builds", func(c *Config) { c.Runtime = "" }, "bundles need a runtime image and a registry to read from"},
		"time":            {"no build would end", func(c *Config) { c.Build.Deadline = time.Millisecond }, "deadline of builds: 1ms is less than a second"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := valid
			tc.change(&c)
			if err := c.Validate(); err == nil || err.Error() != tc.want {
				t.Errorf("%v, not %q: %s", err, tc.want, tc.reason)
			}
		})
	}
}
