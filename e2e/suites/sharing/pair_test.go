// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/spokelet/spokelet/e2e/testbed"
	"github.com/spokelet/spokelet/hack/clusters"
)

// states are those of a flow, in order: those that the director writes on the hub are
// REQUESTED, the others are the worker's.
func states() []string {
	return []string{"JOB1 REQUESTED", "JOB1 STARTED", "JOB1 COMPLETED", "JOB2 REQUESTED", "JOB2 STARTED", "JOB2 COMPLETED"}
}

// program starts one of the pair's with further arguments; see run.
type program func(t *testing.T, what string, ends bool, args ...string) (ended <-chan struct{})

// pair defines and shares the objects of two programs, and returns both: the director, which
// is run against the hub, and the worker, which is run against the spoke.
func (s *tests) pair(t *testing.T, crd string) (director, worker program) {
	t.Helper()
	for _, site := range []*testbed.Site{s.Hub, s.Spoke()} {
		if _, err := site.Command.RunInput(t.Context(), strings.NewReader(s.example(t, crd)), "apply", "--validate=warn", "-f", "-"); err != nil {
			t.Fatal(err)
		}
	}
	s.Hub.Kubectl(t, "label", "managedcluster", "spoke1", "shared=first", "--overwrite")
	s.Hub.Apply(t, testbed.SharedResourceManifest("request-states", requestStates, onSpoke1))
	s.ready(t, "request-states")
	path, err := s.Env.Build.Example(t.Context(), "request-state")
	if err != nil {
		t.Fatal(err)
	}
	as := func(mode, kubeconfig, namespace string) program {
		return func(t *testing.T, what string, ends bool, args ...string) <-chan struct{} {
			t.Helper()
			return run(t, what, ends, path, append([]string{"-mode", mode, "-kubeconfig", kubeconfig, "-namespace", namespace}, args...)...)
		}
	}
	return as("director", s.Hub.Kubeconfig, "spoke1"), as("worker", s.Spoke().Kubeconfig, "default")
}

// pairThroughCuts cuts the tunnel between every two states, by the definition as it was
// published: spec and status are one object.
func (s *tests) pairThroughCuts(t *testing.T) {
	director, worker := s.pair(t, "crd-published.yaml")
	// The tunnel is cut in the time that a step takes.
	worker(t, "worker", false, "-delay", "3s")
	s.cut(t)
	ended := director(t, "director", true, "-delay", "3s")
	hub, spoke := s.sides(requestStates)
	name := onlyName(t, hub)
	for i, state := range states() {
		at, other := spoke, hub
		if strings.HasSuffix(state, "REQUESTED") {
			at, other = hub, spoke
		}
		entered(t, at, name, state)
		s.heal(t)
		last := entered(t, other, name, state)
		if i < len(states())-1 {
			s.cut(t)
			continue
		}
		if diff := cmp.Diff(states(), history(last)); diff != "" {
			t.Errorf("%s: history (-want +got):\n%s", other.name, diff)
		}
	}
	untilEnded(t, ended)
	// Not before: the first would have removed it before its history could be read.
	untilEnded(t, director(t, "director that cleans up", true, "-request", name, "-cleanup"))
	hub.untilGone(t, name)
	spoke.untilGone(t, name)
}

// pairCorrected has both sides write the status by its subresource, as the corrected definition
// wants it.
func (s *tests) pairCorrected(t *testing.T) {
	director, worker := s.pair(t, "crd.yaml")
	worker(t, "worker", false, "-delay", "100ms")
	untilEnded(t, director(t, "director", true, "-delay", "100ms"))
	hub, spoke := s.sides(requestStates)
	name := onlyName(t, hub)
	for _, on := range []side{hub, spoke} {
		testbed.Until(t, on.name+": the whole history", testbed.Settle, func(ctx context.Context) error {
			obj, err := on.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if diff := cmp.Diff(states(), history(obj)); diff != "" {
				return fmt.Errorf("(-want +got):\n%s", diff)
			}
			return nil
		})
	}
	untilEnded(t, director(t, "director that cleans up", true, "-request", name, "-cleanup"))
	hub.untilGone(t, name)
	spoke.untilGone(t, name)
}

// untilEnded waits for the end of a director.
func untilEnded(t *testing.T, ended <-chan struct{}) {
	t.Helper()
	select {
	case <-ended:
	case <-time.After(testbed.Patience):
		t.Error("the director goes on after its flow")
	}
}

// entered waits until a side knows that a state was entered: it may be over by then.
func entered(t *testing.T, on side, name, state string) (last *unstructured.Unstructured) {
	t.Helper()
	testbed.Until(t, fmt.Sprintf("%s: %s: %s", on.name, name, state), testbed.Settle, func(ctx context.Context) error {
		obj, err := on.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		last = obj
		now := field(obj, "spec.job") + " " + field(obj, "spec.state")
		if slices.Index(states(), now) < slices.Index(states(), state) {
			return fmt.Errorf("it is %s, history is %v", now, history(obj))
		}
		return nil
	})
	return last
}

// history is that of a RequestState; timestamps have to be in RFC 3339.
func history(obj *unstructured.Unstructured) (entries []string) {
	list, _, _ := unstructured.NestedSlice(obj.Object, "status", "history")
	for _, item := range list {
		entry, _ := item.(map[string]any)
		text := fmt.Sprintf("%v %v", entry["job"], entry["state"])
		if _, err := time.Parse(time.RFC3339, fmt.Sprint(entry["timestamp"])); err != nil {
			text += ": " + err.Error()
		}
		entries = append(entries, text)
	}
	return entries
}

// onlyName waits for the one object of a side.
func onlyName(t *testing.T, on side) (name string) {
	t.Helper()
	testbed.Until(t, on.name+": a request", testbed.Settle, func(ctx context.Context) error {
		list, err := on.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(list.Items) != 1 {
			return fmt.Errorf("there are %d objects", len(list.Items))
		}
		name = list.Items[0].GetName()
		return nil
	})
	return name
}

// run runs a program until the test ends, or until it ends itself, in order, if it does.
func run(t *testing.T, what string, ends bool, program string, args ...string) (ended <-chan struct{}) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	done := make(chan struct{})
	var err error
	go func() {
		defer close(done)
		err = cmd.Wait()
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		if ends && err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if t.Failed() {
			t.Logf("%s:\n%s", what, out.String())
		}
	})
	return done
}

// cut cuts the tunnel of the first spoke, heal ends that.
func (s *tests) cut(t *testing.T) {
	t.Helper()
	if err := s.Env.Set.Cut(t.Context(), s.Spoke().Cluster, clusters.Reset); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Env.Set.Heal(context.WithoutCancel(t.Context()), s.Spoke().Cluster) })
}

func (s *tests) heal(t *testing.T) {
	t.Helper()
	if err := s.Env.Set.Heal(t.Context(), s.Spoke().Cluster); err != nil {
		t.Fatal(err)
	}
}
