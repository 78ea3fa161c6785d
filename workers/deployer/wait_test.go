// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package deployer

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/workers/api"
	releasev1alpha1 "github.com/spokelet/spokelet/workers/api/release/v1alpha1"
)

func TestPendingDeploymentStays(t *testing.T) {
	cases := map[string]struct {
		reason   string
		operator func(*fakeOperator)
		says     string
		// at once: there is nothing to wait for.
		at time.Duration
	}{
		"nobody looks at it": {
			reason:   "the operator may be starting",
			operator: func(o *fakeOperator) { o.silent = true }, says: "the operator has not looked at it", at: defaultTimeout,
		},
		"the store is away": {
			reason:   "the operator asks it again",
			operator: func(o *fakeOperator) { o.refused = &answer{api.ReasonStoreUnavailable, "503 Slow Down"} }, says: "503 Slow Down", at: defaultTimeout,
		},
		"it is being built": {
			reason:   "the last words are those of the build",
			operator: func(o *fakeOperator) { o.built = &answer{api.ReasonBuilding, "Job build-1 is running"} }, says: "Job build-1 is running", at: defaultTimeout,
		},
		"there are no clusters": {
			reason:   "an image does not help, and who adds a cluster has it served",
			operator: func(o *fakeOperator) { o.noClusters = "none is offered and selected" }, says: "no cluster: none is offered and selected",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				first, second := w.served(module()), w.upload(module())
				tc.operator(w.hub.operator)
				start := time.Now()
				_, err := w.Deploy(t.Context(), team, "hello", second.ID, jane, false)
				is(t, err, ErrPending, tc.says, "hello")
				if took := time.Since(start); took != tc.at {
					t.Errorf("%s: it took %s, want %s", tc.reason, took, tc.at)
				}
				w.asks(tc.reason, second.Script, w.deployment().Annotations[api.AnnotationDeployment])
				if diff := cmp.Diff([]string{second.ID, first.ID}, w.listed()); diff != "" {
					t.Errorf("%s: listed (-want +got):\n%s", tc.reason, diff)
				}
				if diff := cmp.Diff([]string{second.ID, first.ID}, w.order()); diff != "" {
					t.Errorf("%s: deployments (-want +got):\n%s", tc.reason, diff)
				}
			})
		})
	}
}

// later has the operator work after a minute.
func (w *world) later(change func()) func(context.Context, *watch.RaceFreeFakeWatcher) {
	return func(context.Context, *watch.RaceFreeFakeWatcher) {
		time.AfterFunc(time.Minute, func() {
			change()
			if err := w.hub.operator.reconcile(w.t.Context(), w.hub.client, client.ObjectKeyFromObject(w.deployment())); err != nil {
				w.t.Error(err)
			}
		})
	}
}

func TestDeployReturnsWhenBuilt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		v := w.upload(module())
		w.hub.operator.built = &answer{api.ReasonBuilding, "it is running"}
		w.hub.opened = append(w.hub.opened, w.later(func() { w.hub.operator.built = nil }))
		start := time.Now()
		w.deploy(v.ID)
		if took := time.Since(start); took != time.Minute {
			t.Errorf("it took %s", took)
		}
	})
}

func TestDeployIgnoresConditionsOfOldGeneration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.kubectl(releasev1alpha1.Script{ScriptName: "hello", CompatibilityDate: "2026-01-15"})
		w.hub.operator.refused = &answer{api.ReasonInvalid, "old words"}
		w.kubectl(releasev1alpha1.Script{ScriptName: "hello", CompatibilityDate: "2026-01-16"})
		v := w.upload(module())
		w.hub.operator.silent = true
		w.hub.opened = append(w.hub.opened, w.later(func() { w.hub.operator.silent, w.hub.operator.refused = false, nil }))
		w.deploy(v.ID)
	})
}

func TestDeployReopensEndedWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		v := w.upload(module())
		w.hub.operator.silent = true
		for range 2 {
			w.hub.opened = append(w.hub.opened, func(_ context.Context, watcher *watch.RaceFreeFakeWatcher) {
				time.AfterFunc(10*time.Second, watcher.Stop)
			})
		}
		w.hub.opened = append(w.hub.opened, w.later(func() { w.hub.operator.silent = false }))
		start := time.Now()
		w.deploy(v.ID)
		if took := time.Since(start); took != 80*time.Second {
			t.Errorf("it took %s", took)
		}
	})
}

func TestDeployFailsWhenWatchCannotReopen(t *testing.T) {
	w := newWorld(t)
	v := w.upload(module())
	w.hub.operator.silent = true
	w.hub.opened = append(w.hub.opened, func(_ context.Context, watcher *watch.RaceFreeFakeWatcher) {
		w.hub.faults["watch WorkerDeployment"] = forbidden("watch")
		watcher.Stop()
	})
	_, err := w.Deploy(t.Context(), team, "hello", v.ID, jane, false)
	is(t, err, ErrNotOpened, "hello")
}

func TestDeployReportsWatchError(t *testing.T) {
	w := newWorld(t)
	v := w.upload(module())
	w.hub.operator.silent = true
	w.hub.opened = append(w.hub.opened, func(_ context.Context, watcher *watch.RaceFreeFakeWatcher) {
		watcher.Error(&metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonInternalError, Code: http.StatusInternalServerError, Message: "boom"})
	})
	_, err := w.Deploy(t.Context(), team, "hello", v.ID, jane, false)
	if !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), "watch WorkerDeployment hello") {
		t.Errorf("got %v", err)
	}
}

// TestDeployTimeoutIsPending is about client-go, whose watches end with an error or
// without one when their context does.
func TestDeployTimeoutIsPending(t *testing.T) {
	for name, end := range map[string]func(*watch.RaceFreeFakeWatcher){
		"with an error": func(watcher *watch.RaceFreeFakeWatcher) {
			watcher.Error(&metav1.Status{Status: metav1.StatusFailure, Message: "unable to decode an event: context deadline exceeded"})
		},
		"without one": func(watcher *watch.RaceFreeFakeWatcher) { watcher.Stop() },
	} {
		t.Run(name, func(t *testing.T) {
			for range 20 { // which of two that are ready is selected is random
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					v := w.upload(module())
					w.hub.operator.silent = true
					w.hub.opened = append(w.hub.opened, func(ctx context.Context, watcher *watch.RaceFreeFakeWatcher) {
						context.AfterFunc(ctx, func() { end(watcher) })
					})
					_, err := w.Deploy(t.Context(), team, "hello", v.ID, jane, false)
					is(t, err, ErrPending, "the operator has not looked at it")
				})
			}
		})
	}
}

func TestCanceledDeployKeepsDeployment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		v := w.upload(module())
		w.hub.operator.built = &answer{api.ReasonBuilding, "it is running"}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		_, err := w.Deploy(ctx, team, "hello", v.ID, jane, false)
		is(t, err, ErrPending, "it is running")
		if took := time.Since(start); took != time.Second {
			t.Errorf("it took %s", took)
		}
		w.asks("asked for", v.Script, w.deployment().Annotations[api.AnnotationDeployment])
	})
}
