// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package transition

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/spokelet/spokelet/examples/request-state/api/v1"
	"github.com/spokelet/spokelet/examples/request-state/flow"
)

var (
	started   = flow.Step{Job: flow.Job1, State: flow.Started}
	completed = flow.Step{Job: flow.Job1, State: flow.Completed}
	errBoom   = errors.New("boom")
)

// An api holds one request, as an API server does: with the status subresource, or
// without it.
type api struct {
	subresource bool
	stored      *v1.RequestState
	// before is called ahead of each write; its error is that of the write.
	before func(verb string) error
	writes []string
}

func newAPI(subresource bool) *api {
	return &api{subresource: subresource, stored: &v1.RequestState{
		ObjectMeta: metav1.ObjectMeta{Name: "r", Namespace: "n", UID: "1", ResourceVersion: "1"},
		Spec:       v1.RequestStateSpec{RequestUID: "r", Job: flow.First.Job, State: flow.First.State},
		Status:     v1.RequestStateStatus{History: []v1.HistoryEntry{flow.NewEntry(flow.First, time.Unix(0, 0))}},
	}}
}

func (a *api) notFound() error { return apierrors.NewNotFound(v1.Resource("requeststates"), "r") }

func (a *api) Get(context.Context, string, metav1.GetOptions) (*v1.RequestState, error) {
	if a.stored == nil {
		return nil, a.notFound()
	}
	return a.stored.DeepCopy(), nil
}

func (a *api) Update(_ context.Context, r *v1.RequestState, _ metav1.UpdateOptions) (*v1.RequestState, error) {
	return a.write("update", r, func(stored *v1.RequestState) {
		stored.Spec = r.Spec
		if !a.subresource {
			stored.Status = r.Status
		}
	})
}

func (a *api) UpdateStatus(_ context.Context, r *v1.RequestState, _ metav1.UpdateOptions) (*v1.RequestState, error) {
	if !a.subresource {
		return nil, a.notFound()
	}
	return a.write("update status", r, func(stored *v1.RequestState) { stored.Status = r.Status })
}

func (a *api) write(verb string, r *v1.RequestState, change func(*v1.RequestState)) (*v1.RequestState, error) {
	if a.before != nil {
		if err := a.before(verb); err != nil {
			return nil, err
		}
	}
	if a.stored == nil {
		return nil, a.notFound()
	}
	if r.ResourceVersion != a.stored.ResourceVersion {
		return nil, apierrors.NewConflict(v1.Resource("requeststates"), r.Name, errBoom)
	}
	a.writes = append(a.writes, verb)
	a.change(change)
	return a.stored.DeepCopy(), nil
}

func (a *api) change(change func(*v1.RequestState)) {
	stored := a.stored.DeepCopy()
	change(stored)
	version, _ := strconv.Atoi(stored.ResourceVersion)
	stored.ResourceVersion = strconv.Itoa(version + 1)
	a.stored = stored
}

func (a *api) steps() []string {
	var steps []string
	for _, e := range a.stored.Status.History {
		steps = append(steps, flow.Step{Job: e.Job, State: e.State}.String())
	}
	return steps
}

// check fails unless the request is in a step, with the steps up to it in its history.
func (a *api) check(t *testing.T, at flow.Step, steps ...string) {
	t.Helper()
	if got := flow.At(a.stored); got != at {
		t.Errorf("it is in %s, want %s", got, at)
	}
	if diff := cmp.Diff(steps, a.steps()); diff != "" {
		t.Errorf("history (-want +got):\n%s", diff)
	}
}

func TestAStepIsWrittenAsTheDefinitionAsks(t *testing.T) {
	cases := map[string]struct {
		reason      string
		subresource bool
		want        []string
	}{
		"without the subresource": {reason: "one update has both", want: []string{"update"}},
		"with the subresource":    {reason: "the history is there when the turn is handed over", subresource: true, want: []string{"update status", "update"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			a := newAPI(c.subresource)
			entered, err := Writer{Requests: a}.Enter(t.Context(), a.stored, started)
			if !entered || err != nil {
				t.Fatalf("got %t, %v", entered, err)
			}
			if diff := cmp.Diff(c.want, a.writes); diff != "" {
				t.Errorf("as %s (-want +got):\n%s", c.reason, diff)
			}
			a.check(t, started, "JOB1 REQUESTED", "JOB1 STARTED")
		})
	}
}

func TestACrashBetweenTheWritesLeavesOneEntry(t *testing.T) {
	a := newAPI(true)
	a.before = func(verb string) error {
		if verb == "update" {
			return errBoom
		}
		return nil
	}
	seen := a.stored
	if _, err := (Writer{Requests: a}).Enter(t.Context(), seen, started); !errors.Is(err, errBoom) {
		t.Fatalf("got %v", err)
	}
	a.check(t, flow.First, "JOB1 REQUESTED", "JOB1 STARTED")
	first := a.stored.Status.History[1]

	a.before, a.writes = nil, nil
	if entered, err := (Writer{Requests: a}).Enter(t.Context(), seen, started); !entered || err != nil {
		t.Fatalf("got %t, %v", entered, err)
	}
	a.check(t, started, "JOB1 REQUESTED", "JOB1 STARTED")
	if diff := cmp.Diff([]string{"update"}, a.writes); diff != "" {
		t.Errorf("the history is written again (-want +got):\n%s", diff)
	}
	if a.stored.Status.History[1] != first {
		t.Errorf("the entry has become %v", a.stored.Status.History[1])
	}
}

func TestAConflictIsDecidedAnew(t *testing.T) {
	entry := func(step flow.Step) v1.HistoryEntry { return flow.NewEntry(step, time.Unix(1, 0)) }
	cases := map[string]struct {
		reason string
		other  func(*v1.RequestState)
		want   bool
		at     flow.Step
		steps  []string
	}{
		"a change beside the step": {
			reason: "an annotation does not change whose turn it is",
			other:  func(r *v1.RequestState) { r.Annotations = map[string]string{"a": "b"} },
			want:   true, at: started, steps: []string{"JOB1 REQUESTED", "JOB1 STARTED"},
		},
		"the history by another worker": {
			reason: "the other one is between its writes, and its entry is kept",
			other:  func(r *v1.RequestState) { r.Status.History = append(r.Status.History, entry(started)) },
			want:   true, at: started, steps: []string{"JOB1 REQUESTED", "JOB1 STARTED"},
		},
		"the step by another worker": {
			reason: "it is done",
			other: func(r *v1.RequestState) {
				r.Status.History = append(r.Status.History, entry(started))
				r.Spec.State = flow.Started
			},
			at: started, steps: []string{"JOB1 REQUESTED", "JOB1 STARTED"},
		},
		"more than the step by another worker": {
			reason: "a request never goes back",
			other: func(r *v1.RequestState) {
				r.Status.History = append(r.Status.History, entry(started), entry(completed))
				r.Spec.State = flow.Completed
			},
			at: completed, steps: []string{"JOB1 REQUESTED", "JOB1 STARTED", "JOB1 COMPLETED"},
		},
		"another object of the name": {
			reason: "the work was done for the one that was deleted",
			other:  func(r *v1.RequestState) { r.UID = "2" },
			at:     flow.First, steps: []string{"JOB1 REQUESTED"},
		},
		"its deletion": {
			reason: "what waits for its finalizers is nobody's work any more",
			other:  func(r *v1.RequestState) { r.DeletionTimestamp = &metav1.Time{} },
			at:     flow.First, steps: []string{"JOB1 REQUESTED"},
		},
	}
	for name, c := range cases {
		for _, subresource := range []bool{false, true} {
			t.Run(name+", subresource "+strconv.FormatBool(subresource), func(t *testing.T) {
				a := newAPI(subresource)
				a.before = func(string) error {
					a.before = nil
					a.change(c.other)
					return nil
				}
				entered, err := Writer{Requests: a}.Enter(t.Context(), a.stored, started)
				if entered != c.want || err != nil {
					t.Errorf("got %t, %v; want %t, as %s", entered, err, c.want, c.reason)
				}
				a.check(t, c.at, c.steps...)
			})
		}
	}
}

func TestConflictsWithoutEndAreAnError(t *testing.T) {
	a := newAPI(true)
	a.before = func(string) error {
		a.change(func(*v1.RequestState) {})
		return nil
	}
	if _, err := (Writer{Requests: a}).Enter(t.Context(), a.stored, started); !apierrors.IsConflict(err) {
		t.Errorf("got %v", err)
	}
}

func TestADeletedRequestIsNotFound(t *testing.T) {
	for _, subresource := range []bool{false, true} {
		for _, verb := range []string{"get", "update status", "update"} {
			a := newAPI(subresource)
			seen := a.stored
			a.before = func(v string) error {
				if v == verb {
					a.stored = nil
				}
				return nil
			}
			if verb == "get" {
				a.stored = nil
			}
			if verb == "update status" && !subresource {
				continue
			}
			if _, err := (Writer{Requests: a}).Enter(t.Context(), seen, started); !apierrors.IsNotFound(err) {
				t.Errorf("subresource %t, deleted before %s: got %v", subresource, verb, err)
			}
		}
	}
}

func TestTheWorkOfAStepTakesItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(true)
		begin := time.Now()
		if entered, err := (Writer{Requests: a, Delay: time.Hour}).Enter(t.Context(), a.stored, started); !entered || err != nil {
			t.Errorf("got %t, %v", entered, err)
		}
		if took := time.Since(begin); took != time.Hour {
			t.Errorf("took %s", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		seen := a.stored
		if _, err := (Writer{Requests: a, Delay: time.Hour}).Enter(ctx, seen, completed); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if took := time.Since(begin); took != time.Hour+time.Minute {
			t.Errorf("the context did not end it: took %s", took)
		}
		if !slices.Equal(a.writes, []string{"update status", "update"}) {
			t.Errorf("what was interrupted wrote: %v", a.writes)
		}
	})
}
