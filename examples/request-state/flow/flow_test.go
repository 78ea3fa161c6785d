// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package flow

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/spokelet/spokelet/examples/request-state/api/v1"
)

func TestEachStepIsOneParty(t *testing.T) {
	refuse := func(reason string) Decision { return Decision{Action: Refuse, Reason: reason} }
	enter := func(job, state string) Decision { return Decision{Action: Enter, Next: Step{job, state}} }
	wait := Decision{Action: Wait}
	cases := map[string]struct {
		reason           string
		at               Step
		worker, director Decision
	}{
		"job 1 requested":    {reason: "a request is executed", at: First, worker: enter(Job1, Started), director: wait},
		"job 1 started":      {reason: "a worker that starts goes on where one ended", at: Step{Job1, Started}, worker: enter(Job1, Completed), director: wait},
		"job 1 completed":    {reason: "the second job follows the first", at: Step{Job1, Completed}, worker: wait, director: enter(Job2, Requested)},
		"job 2 requested":    {reason: "as with job 1", at: Step{Job2, Requested}, worker: enter(Job2, Started), director: wait},
		"job 2 started":      {reason: "as with job 1", at: Step{Job2, Started}, worker: enter(Job2, Completed), director: wait},
		"job 2 completed":    {reason: "there is no third job", at: Step{Job2, Completed}, worker: wait, director: Decision{Action: Finish}},
		"unknown job":        {reason: "nobody knows how to execute it", at: Step{"JOB3", Requested}, worker: refuse(`unknown job "JOB3"`), director: refuse(`unknown job "JOB3"`)},
		"unknown completed":  {reason: "a job that nobody knows does not end a flow", at: Step{"JOB3", Completed}, worker: refuse(`unknown job "JOB3"`), director: refuse(`unknown job "JOB3"`)},
		"unknown state":      {reason: "another program may have states of its own", at: Step{Job1, "PAUSED"}, worker: refuse(`unknown state "PAUSED"`), director: refuse(`unknown state "PAUSED"`)},
		"state in lowercase": {reason: "states are compared as they are written", at: Step{Job1, "requested"}, worker: refuse(`unknown state "requested"`), director: refuse(`unknown state "requested"`)},
		"nothing":            {reason: "the published definition allows empty strings", at: Step{}, worker: refuse(`unknown job ""`), director: refuse(`unknown job ""`)},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.worker, Worker(c.at)); diff != "" {
				t.Errorf("worker, as %s (-want +got):\n%s", c.reason, diff)
			}
			if diff := cmp.Diff(c.director, Director(c.at)); diff != "" {
				t.Errorf("director, as %s (-want +got):\n%s", c.reason, diff)
			}
			if Worker(c.at).Action == Enter && Director(c.at).Action == Enter {
				t.Error("both would write")
			}
		})
	}
}

func TestTheHistoryHasEachStepOnce(t *testing.T) {
	created := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	now := created.Add(1500 * time.Millisecond).In(time.FixedZone("", 3600))
	at := func(step Step, timestamp string) v1.HistoryEntry {
		return v1.HistoryEntry{Job: step.Job, State: step.State, Timestamp: timestamp}
	}
	const creation, before, entered = "2026-01-02T03:04:05Z", "2026-01-02T03:04:05.5Z", "2026-01-02T03:04:06.5Z"
	started, completed := Step{Job1, Started}, Step{Job1, Completed}
	cases := map[string]struct {
		reason  string
		history []v1.HistoryEntry
		spec    Step
		next    Step
		want    []v1.HistoryEntry
	}{
		"the history of before is kept": {
			reason:  "entries are never rewritten",
			history: []v1.HistoryEntry{at(First, creation), at(started, before)}, spec: started, next: completed,
			want: []v1.HistoryEntry{at(First, creation), at(started, before), at(completed, entered)},
		},
		"the entry of the creation is made up for": {
			reason: "a definition with the status subresource drops the status of a new object",
			spec:   First, next: started,
			want: []v1.HistoryEntry{at(First, creation), at(started, entered)},
		},
		"the entry of a change by hand is made up for": {
			reason:  "somebody set the state and wrote no entry",
			history: []v1.HistoryEntry{at(First, creation)}, spec: started, next: completed,
			want: []v1.HistoryEntry{at(First, creation), at(started, entered), at(completed, entered)},
		},
		"a step that is done twice has one entry": {
			reason:  "its first attempt ended after the history and before the spec",
			history: []v1.HistoryEntry{at(First, creation), at(started, before)}, spec: First, next: started,
			want: []v1.HistoryEntry{at(First, creation), at(started, before)},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r := &v1.RequestState{
				ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(created)},
				Spec:       v1.RequestStateSpec{Job: c.spec.Job, State: c.spec.State},
				Status:     v1.RequestStateStatus{History: c.history},
			}
			if diff := cmp.Diff(c.want, History(r, c.next, now)); diff != "" {
				t.Errorf("as %s (-want +got):\n%s", c.reason, diff)
			}
			if diff := cmp.Diff(c.history, r.Status.History); diff != "" {
				t.Errorf("what was given is changed (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAFlowPassesSixSteps(t *testing.T) {
	r := &v1.RequestState{Spec: v1.RequestStateSpec{Job: First.Job, State: First.State}}
	for {
		d := Worker(At(r))
		if d.Action == Wait {
			d = Director(At(r))
		}
		if d.Action == Finish {
			break
		}
		if d.Action != Enter {
			t.Fatalf("%s: got %+v", At(r), d)
		}
		r.Status.History = History(r, d.Next, time.Unix(0, 0))
		r.Spec.Job, r.Spec.State = d.Next.Job, d.Next.State
	}
	var steps []string
	for _, e := range r.Status.History {
		steps = append(steps, Step{e.Job, e.State}.String())
	}
	want := []string{"JOB1 REQUESTED", "JOB1 STARTED", "JOB1 COMPLETED", "JOB2 REQUESTED", "JOB2 STARTED", "JOB2 COMPLETED"}
	if diff := cmp.Diff(want, steps); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
