// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/spokelet/spokelet/e2e/bench/figure"
	"github.com/spokelet/spokelet/e2e/env"
	"github.com/spokelet/spokelet/e2e/hostile/spoke"
)

// sampleEvery is the time between two readings of the hub's memory.
const sampleEvery = 100 * time.Millisecond

// Seen is what others saw while an attack ran.
type Seen struct {
	// Outcome is how the attack went, the last time.
	Outcome
	// Reads are the answers to an honest user's views and requests to clusters/proxy.
	Reads figure.Durations
	// Works are the times until honest clusters had reported on a new work.
	Works figure.Durations
	// Failures are the requests of honest users that were not answered.
	Failures []string
	// Cut are the honest sessions that are not the ones from before.
	Cut []string
	// Peak is the most resident memory of the hub that was read, in MiB.
	Peak float64
	// Restarts of the hub's container.
	Restarts int
	// Took is the time of the attack.
	Took time.Duration
}

// String is one line for a log.
func (s Seen) String() string {
	ms := figure.Milliseconds
	return fmt.Sprintf("%s: hub %.0f MiB at most, %d restarts; %d sessions cut; %d reads, p50 %.1f ms, p99 %.1f ms; %d works, the slowest %.0f ms; %d failures (%s)",
		s.Text, s.Peak, s.Restarts, len(s.Cut), len(s.Reads), ms(s.Reads.Percentile(50)), ms(s.Reads.Percentile(99)),
		len(s.Works), ms(s.Works.Percentile(100)), len(s.Failures), s.Took.Round(time.Millisecond))
}

// Problems are what must not be, whatever the attack; the limit is in MiB.
func (s Seen) Problems(limit float64) []string {
	problems := s.Failures
	if len(problems) > 5 {
		problems = append(problems[:5:5], fmt.Sprintf("%d more failures", len(s.Failures)-5))
	}
	if len(s.Cut) > 0 {
		problems = append(problems, fmt.Sprintf("sessions of honest clusters were cut: %v", s.Cut))
	}
	if s.Restarts > 0 {
		problems = append(problems, "the hub's container was restarted")
	}
	if s.Peak > limit {
		problems = append(problems, fmt.Sprintf("the hub had %.0f MiB, its limit is %.0f", s.Peak, limit))
	}
	if len(s.Reads) == 0 || s.Peak == 0 {
		problems = append(problems, "nothing was measured")
	}
	return problems
}

// Quiet watches while nobody attacks, until there are so many reads. What users do in an
// attack, they do here, too: the ratio is about what the attack adds to that.
func (s *Site) Quiet(ctx context.Context, a Attack, reads int) (Seen, error) {
	users := a.calm
	if users == nil {
		users = func(ctx context.Context) (string, error) {
			spoke.Pause(ctx, 100*time.Millisecond)
			return "quiet", nil
		}
	}
	return s.watch(ctx, outcome(users), reads)
}

// Watch runs an attack and watches. It goes on until there are so many reads of honest
// users, attacking all the time.
func (s *Site) Watch(ctx context.Context, a Attack, reads int) (Seen, error) {
	seen, err := s.watch(ctx, a.run, reads)
	if err != nil {
		return seen, fmt.Errorf("%s: %w", a.Name, err)
	}
	return seen, nil
}

func (s *Site) watch(ctx context.Context, run func(context.Context) (Outcome, error), reads int) (Seen, error) {
	// After an attack that had its way not all clusters may be connected yet.
	before, err := s.awaitState(ctx, "clusters before an attack", s.checkConnected)
	if err != nil {
		return Seen{}, err
	}
	p, seen, begun := &probes{}, Seen{}, time.Now()
	watching, stop := context.WithCancel(ctx)
	defer stop()
	var watchers sync.WaitGroup
	watchers.Go(func() { s.probe(watching, p) })
	watchers.Go(func() { seen.Peak = s.peak(watching) })
	for again := true; again && err == nil; again = p.reads() < reads && time.Since(begun) < maxWindow {
		attacking, cancel := context.WithTimeout(ctx, maxAttack)
		seen.Outcome, err = run(attacking)
		cancel()
	}
	seen.Took = time.Since(begun)
	stop()
	watchers.Wait()
	seen.Reads, seen.Works, seen.Failures = p.took, p.works, p.failures
	// A hub that was killed comes back: its state is taken as soon as it can be asked.
	after, stateErr := s.awaitState(ctx, "hub after an attack", func(state) error { return nil })
	if err := errors.Join(err, stateErr); err != nil {
		return seen, err
	}
	seen.Restarts = after.restarts - before.restarts
	for _, name := range s.names {
		if after.since[name] == "" || after.since[name] != before.since[name] || after.ready[name] != before.ready[name] {
			seen.Cut = append(seen.Cut, name)
		}
	}
	return seen, nil
}

// state is what an attack must not change.
type state struct {
	restarts int
	since    map[string]string // by cluster: the beginning of its session
	ready    map[string]string // by node: when it became Ready, or ceased to be
}

// awaitState reads the state until it can be read and check finds no fault with it. An
// error begins with when that was.
func (s *Site) awaitState(ctx context.Context, when string, check func(state) error) (state, error) {
	var got state
	var last error
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, 90*time.Second, true, func(ctx context.Context) (bool, error) {
		if got, last = s.state(ctx); last == nil {
			last = check(got)
		}
		return last == nil, nil
	})
	if err != nil {
		return got, fmt.Errorf("%s: %w: %w", when, err, last)
	}
	return got, nil
}

var errNotConnected = errors.New("the cluster is not connected")

// checkConnected tells which cluster is not connected, if one is not.
func (s *Site) checkConnected(got state) error {
	for _, name := range append(s.names, cluster) {
		if got.since[name] == "" || !strings.HasPrefix(got.ready[name], string(corev1.ConditionTrue)) {
			return fmt.Errorf("%s: %w", name, errNotConnected)
		}
	}
	return nil
}

func (s *Site) state(ctx context.Context) (state, error) {
	got := state{ready: map[string]string{}}
	pod, err := s.hubPod(ctx)
	if err != nil {
		return got, err
	}
	for _, c := range pod.Status.ContainerStatuses {
		got.restarts += int(c.RestartCount)
	}
	if got.since, err = s.sessions(ctx); err != nil {
		return got, err
	}
	nodes, err := s.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: "spokelet.io/cluster"})
	if err != nil {
		return got, fmt.Errorf("nodes: %w", err)
	}
	for _, node := range nodes.Items {
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady {
				got.ready[node.Name] = string(c.Status) + c.LastTransitionTime.String()
			}
		}
	}
	return got, nil
}

// sessions returns since when each cluster is connected, by its name.
func (s *Site) sessions(ctx context.Context) (map[string]string, error) {
	body, err := s.admin.do(ctx, http.MethodGet, livePath+"/clusters", "application/json", nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }()
	var list struct {
		Items []struct {
			Metadata metav1.ObjectMeta `json:"metadata"`
			Status   struct {
				ConnectedSince string `json:"connectedSince"`
			} `json:"status"`
		} `json:"items"`
	}
	if err := json.NewDecoder(body).Decode(&list); err != nil {
		return nil, fmt.Errorf("clusters: %w", err)
	}
	since := make(map[string]string, len(list.Items))
	for _, c := range list.Items {
		since[c.Metadata.Name] = c.Status.ConnectedSince
	}
	return since, nil
}

var errPods = errors.New("the hub has not one pod")

func (s *Site) hubPod(ctx context.Context) (*corev1.Pod, error) {
	list, err := s.kube.CoreV1().Pods(env.HubNamespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=spokelet-hub"})
	if err != nil {
		return nil, fmt.Errorf("pods of the hub: %w", err)
	}
	for i := range list.Items {
		if pod := &list.Items[i]; pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning {
			return pod, nil
		}
	}
	return nil, fmt.Errorf("%d pods: %w", len(list.Items), errPods)
}

// peak reads the hub's resident memory until the context ends, in MiB. A hub that
// cannot answer in time is read again: what it held does not vanish at once.
func (s *Site) peak(ctx context.Context) float64 {
	most := 0.0
	for ctx.Err() == nil {
		if now, err := s.resident(ctx); err == nil {
			most = max(most, now)
		}
		spoke.Pause(ctx, sampleEvery)
	}
	return most
}

func (s *Site) resident(ctx context.Context) (float64, error) {
	path := "/api/v1/namespaces/" + env.HubNamespace + "/pods/" + s.hub + ":8080/proxy/metrics"
	body, err := s.admin.do(ctx, http.MethodGet, path, "*/*", nil)
	if err != nil {
		return 0, err
	}
	defer func() { _ = body.Close() }()
	text, err := io.ReadAll(body)
	if err != nil {
		return 0, fmt.Errorf("metrics: %w", err)
	}
	bytes, err := env.Metric(string(text), "process_resident_memory_bytes")
	return bytes / (1 << 20), err
}
