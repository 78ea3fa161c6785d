// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package program

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	v1 "github.com/spokelet/spokelet/examples/request-state/api/v1"
	"github.com/spokelet/spokelet/examples/request-state/flow"
	typedv1 "github.com/spokelet/spokelet/examples/request-state/generated/clientset/versioned/typed/api/v1"
)

// all are the steps of a flow.
var all = []string{"JOB1 REQUESTED", "JOB1 STARTED", "JOB1 COMPLETED", "JOB2 REQUESTED", "JOB2 STARTED", "JOB2 COMPLETED"}

// A pair is some directors and workers in a namespace of a cluster.
type pair struct {
	*cluster
	namespace string
	states    typedv1.RequestStateInterface
}

// run runs the program with arguments, until it ends or the context does.
func (p *pair) run(ctx context.Context, args string, log klog.Logger) error {
	o, err := parse(append([]string{"-namespace", p.namespace}, strings.Fields(args)...)...)
	if err != nil {
		return err
	}
	return Run(ctx, p.config, o, log)
}

func newLog(t *testing.T) (klog.Logger, fmt.Stringer) {
	log := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(0)))
	return log, log.GetSink().(ktesting.Underlier).GetBuffer()
}

// direct runs a director to its end, which must be a good one, and returns what it said.
func (p *pair) direct(t *testing.T, args string) string {
	log, said := newLog(t)
	if err := p.run(t.Context(), "-mode director "+args, log); err != nil {
		t.Errorf("%s: %v", args, err)
	}
	return said.String()
}

// start runs the program beside the test, and returns what it says and what ends it.
func (p *pair) start(t *testing.T, args string) (said fmt.Stringer, stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	log, said := newLog(t)
	var running sync.WaitGroup
	running.Go(func() {
		if err := p.run(ctx, args, log); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", args, err)
		}
	})
	stop = func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(stop)
	return said, stop
}

func (p *pair) create(t *testing.T, name, job, state string) *v1.RequestState {
	t.Helper()
	made, err := p.states.Create(t.Context(), &v1.RequestState{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1.RequestStateSpec{RequestUID: name, Job: job, State: state},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func (p *pair) get(t *testing.T, name string) *v1.RequestState {
	t.Helper()
	r, err := p.states.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (p *pair) list(t *testing.T) []v1.RequestState {
	t.Helper()
	list, err := p.states.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// finished fails unless a request has been through all its steps, each once and in order.
func finished(t *testing.T, r *v1.RequestState) {
	t.Helper()
	if want := (v1.RequestStateSpec{RequestUID: r.Name, Job: flow.Job2, State: flow.Completed}); r.Spec != want {
		t.Errorf("got %v, want %v", r.Spec, want)
	}
	var steps []string
	var last time.Time
	for _, e := range r.Status.History {
		steps = append(steps, e.Job+" "+e.State)
		at, err := time.Parse(time.RFC3339, e.Timestamp)
		if err != nil || at.Before(last) || at.Location() != time.UTC {
			t.Errorf("%s %s: time %s after %s: %v", e.Job, e.State, e.Timestamp, last, err)
		}
		last = at
	}
	if diff := cmp.Diff(all, steps); diff != "" {
		t.Errorf("history (-want +got):\n%s", diff)
	}
}

func TestLiveAPairTakesTurnsUnderEitherDefinition(t *testing.T) {
	cases := map[string]struct {
		file     string
		warnings []string
		strict   bool // the definition passes the validation that is kubectl's default
	}{
		"published": {file: "crd-published.yaml", warnings: []string{`unknown field "spec.subresources"`}},
		"corrected": {file: "crd.yaml", strict: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			k := newCluster(t)
			_, err := k.dynamic.Resource(definitions).Create(t.Context(), read(t, c.file), metav1.CreateOptions{
				FieldValidation: metav1.FieldValidationStrict, DryRun: []string{metav1.DryRunAll},
			})
			if (err == nil) != c.strict || err != nil && !apierrors.IsBadRequest(err) {
				t.Errorf("strict validation says %v", err)
			}
			k.install(t, c.file)
			if diff := cmp.Diff(c.warnings, k.warnings.take()); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
			parts := map[string]func(*testing.T, *pair){
				"one of each":                       oneOfEach,
				"two of each, and cleaned up":       twoOfEach,
				"each of them restarts in a step":   restarts,
				"the definition's fields are ours":  fields,
				"somebody else's requests are left": foreign,
			}
			for name, part := range parts {
				t.Run(name, func(t *testing.T) {
					namespace := k.namespace(t)
					part(t, &pair{cluster: k, namespace: namespace, states: k.requests.ComV1().RequestStates(namespace)})
				})
			}
		})
	}
}

func oneOfEach(t *testing.T, p *pair) {
	p.start(t, "-mode worker -delay 50ms")
	p.direct(t, "-delay 50ms")
	made := p.list(t)
	if len(made) != 1 {
		t.Fatalf("got %v", made)
	}
	finished(t, &made[0])
}

func twoOfEach(t *testing.T, p *pair) {
	const pairs, flows = 2, 5
	seen := p.history(t)
	for range pairs {
		p.start(t, "-mode worker -delay 0")
	}
	var directors sync.WaitGroup
	for range pairs {
		directors.Go(func() {
			for range flows {
				p.direct(t, "-delay 0 -cleanup")
			}
		})
	}
	directors.Wait()
	if left := p.list(t); len(left) > 0 {
		t.Errorf("not cleaned up: %v", left)
	}
	for _, r := range seen(pairs * flows) {
		finished(t, r)
	}
}

// history watches requests, and returns what waits for the deletion of some and returns
// their last versions. It fails the test when an entry is lost or changed on the way,
// or a state has none.
func (p *pair) history(t *testing.T) func(deleted int) map[string]*v1.RequestState {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	w, err := p.states.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return func(deleted int) map[string]*v1.RequestState {
		defer cancel()
		defer w.Stop()
		last := map[string]*v1.RequestState{}
		for event := range w.ResultChan() {
			r, ok := event.Object.(*v1.RequestState)
			if !ok {
				t.Fatalf("got %v", event.Object)
			}
			if before := last[r.Name]; before != nil {
				entries := len(before.Status.History)
				if entries > len(r.Status.History) || !slices.Equal(before.Status.History, r.Status.History[:entries]) {
					t.Errorf("%s has lost history: %v, then %v", r.Name, before.Status.History, r.Status.History)
				}
				if err := recorded(r); err != nil {
					t.Error(err)
				}
			}
			last[r.Name] = r
			if event.Type == "DELETED" {
				deleted--
			}
			if deleted == 0 {
				break
			}
		}
		if deleted != 0 {
			t.Errorf("%d are not deleted", deleted)
		}
		return last
	}
}

// recorded fails where the state of a request has no entry.
func recorded(r *v1.RequestState) error {
	for _, e := range r.Status.History {
		if e.Job == r.Spec.Job && e.State == r.Spec.State {
			return nil
		}
	}
	return fmt.Errorf("%s: %s has no entry in %v", r.Name, flow.At(r), r.Status.History)
}

func restarts(t *testing.T, p *pair) {
	_, end := p.start(t, "-mode director -delay 0")
	eventually(t.Context(), t, "a request is made", func() bool { return len(p.list(t)) == 1 })
	end()
	name := p.list(t)[0].Name
	in := func(job, state string) {
		t.Helper()
		eventually(t.Context(), t, job+" is "+state, func() bool { return flow.At(p.get(t, name)) == flow.Step{Job: job, State: state} })
	}
	// A worker that ended between two steps.
	p.writeStep(t, name, flow.Step{Job: flow.Job1, State: flow.Started})
	_, end = p.start(t, "-mode worker -delay 0")
	in(flow.Job1, flow.Completed)
	end()
	// A director that ended within a step: between its two writes, if there are two.
	p.writeHistory(t, name, flow.Step{Job: flow.Job2, State: flow.Requested})
	_, end = p.start(t, "-mode director -delay 0 -request "+name)
	in(flow.Job2, flow.Requested)
	end()
	p.start(t, "-mode worker -delay 0")
	if said := p.direct(t, "-delay 0 -request "+name); !strings.Contains(said, "Continuing") {
		t.Errorf("it says:\n%s", said)
	}
	finished(t, p.get(t, name))
}

// writeHistory does the first half of a step, as a program does that ends between its writes.
func (p *pair) writeHistory(t *testing.T, name string, step flow.Step) {
	t.Helper()
	r := p.get(t, name)
	r.Status.History = flow.History(r, step, time.Now())
	_, err := p.states.UpdateStatus(t.Context(), r, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		// Without the subresource there is one write, and nothing in between.
		return
	}
	if err != nil {
		t.Fatal(err)
	}
}

// writeStep does a whole step.
func (p *pair) writeStep(t *testing.T, name string, step flow.Step) {
	t.Helper()
	p.writeHistory(t, name, step)
	r := p.get(t, name)
	r.Status.History = flow.History(r, step, time.Now())
	r.Spec.Job, r.Spec.State = step.Job, step.State
	if _, err := p.states.Update(t.Context(), r, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func foreign(t *testing.T, p *pair) {
	left := []*v1.RequestState{
		p.create(t, "job3", "JOB3", flow.Requested),
		p.create(t, "paused", flow.Job1, "PAUSED"),
		p.create(t, "half", flow.Job1, flow.Completed),
		p.create(t, "done", flow.Job2, flow.Completed),
	}
	said, _ := p.start(t, "-mode worker -delay 0")
	p.direct(t, "-delay 0 -cleanup")
	for _, reason := range []string{"JOB3", "PAUSED"} {
		eventually(t.Context(), t, "the worker speaks of "+reason, func() bool { return strings.Contains(said.String(), reason) })
	}
	for _, want := range left {
		if diff := cmp.Diff(want, p.get(t, want.Name)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", want.Name, diff)
		}
	}
}

func fields(t *testing.T, p *pair) {
	r := p.create(t, "r", flow.Job1, flow.Requested)
	raw, err := p.dynamic.Resource(v1.SchemeGroupVersion.WithResource("requeststates")).Namespace(p.namespace).Get(t.Context(), "r", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"request-uid": "r", "job": r.Spec.Job, "state": r.Spec.State}
	if diff := cmp.Diff(want, raw.Object["spec"]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
