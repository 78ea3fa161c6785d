// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/klog/v2"

	"github.com/spokelet/spokelet/e2e/bench/figure"
)

const (
	execsPerRound = 10

	// idleStreams are held open at once.
	idleStreams = 1000
)

var errNoOutput = errors.New("no output")

// exec measures the time to the first byte of a command's output: through the
// virtual node, and at the spoke's API server. Both ask as kubectl does.
func (s *suite) exec(ctx context.Context) ([]figure.Figure, error) {
	const pod = "exec"
	if err := s.started(ctx, pod, "exec sleep 100000"); err != nil {
		return nil, err
	}
	var through, direct figure.Durations
	var ratios []float64
	for range rounds {
		d, err := firstBytes(ctx, s.spoke, pod)
		if err != nil {
			return nil, err
		}
		p, err := firstBytes(ctx, s.hub, pod)
		if err != nil {
			return nil, err
		}
		direct, through = append(direct, d...), append(through, p...)
		ratios = append(ratios, float64(p.Percentile(50))/float64(d.Percentile(50)))
	}
	return []figure.Figure{{
		Name: "node.exec.p50.ratio", Value: figure.Median(ratios), Unit: "x",
		Detail: fmt.Sprintf("p50 %s through the node, %s direct", through.Percentile(50), direct.Percentile(50)),
	}}, s.removePods(ctx)
}

func firstBytes(ctx context.Context, on *site, pod string) (figure.Durations, error) {
	var taken figure.Durations
	for range execsPerRound {
		executor, err := on.executor(pod, "echo", "x")
		if err != nil {
			return nil, err
		}
		out := newWitness()
		start := time.Now()
		if err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: out}); err != nil {
			return nil, fmt.Errorf("exec in %s: %w", pod, err)
		}
		at, ok := out.first()
		if !ok {
			return nil, fmt.Errorf("exec in %s: %w", pod, errNoOutput)
		}
		taken = append(taken, at.Sub(start))
	}
	return taken, nil
}

// executor is of one command that reads nothing.
func (s *site) executor(pod string, command ...string) (remotecommand.Executor, error) {
	return s.executorWith(corev1.PodExecOptions{Command: command, Stdout: true}, pod)
}

func (s *site) executorWith(o corev1.PodExecOptions, pod string) (remotecommand.Executor, error) {
	url := s.kube.CoreV1().RESTClient().Get().Namespace(podsNamespace).Resource("pods").Name(pod).SubResource("exec").
		VersionedParams(&o, scheme.ParameterCodec).URL()
	return remotecommand.NewWebSocketExecutor(s.rest, http.MethodGet, url.String())
}

// witness notes when something was first written to it.
type witness struct {
	once sync.Once
	seen chan struct{}
	at   time.Time // once seen is closed
}

func newWitness() *witness { return &witness{seen: make(chan struct{})} }

// Write never fails.
func (w *witness) Write(p []byte) (int, error) {
	w.once.Do(func() {
		w.at = time.Now()
		close(w.seen)
	})
	return len(p), nil
}

func (w *witness) first() (time.Time, bool) {
	select {
	case <-w.seen:
		return w.at, true
	default:
		return time.Time{}, false
	}
}

// streams measures what an idle exec costs the hub and the agent.
func (s *suite) streams(ctx context.Context) ([]figure.Figure, error) {
	const pod = "streams"
	if err := s.restart(ctx); err != nil {
		return nil, err
	}
	if err := s.started(ctx, pod, "exec sleep 100000"); err != nil {
		return nil, err
	}
	before, err := s.bothSettled(ctx)
	if err != nil {
		return nil, err
	}
	after, err := s.holding(ctx, pod)
	if err != nil {
		return nil, err
	}
	hub, agent := perStream(before.hub, after.hub), perStream(before.agent, after.agent)
	figures := []figure.Figure{{
		Name: "node.streams1000.rss.kib", Value: max(hub, agent), Unit: "KiB",
		Detail: fmt.Sprintf("per stream: hub %.1f, agent %.1f; hub %.1f MiB with %d of them, %.1f before; agent %.1f, %.1f",
			hub, agent, after.hub, idleStreams, before.hub, after.agent, before.agent),
	}}
	if err := s.removePods(ctx); err != nil {
		return figures, err
	}
	// What they took is given back over minutes, in which others measure.
	return figures, s.restart(ctx)
}

func perStream(before, after float64) float64 { return (after - before) * 1024 / idleStreams }

// resident is the memory of both sides, in MiB.
type resident struct{ hub, agent float64 }

func (s *suite) bothSettled(ctx context.Context) (resident, error) {
	hub, err := s.settled(ctx, s.hub, hubPods())
	if err != nil {
		return resident{}, err
	}
	agent, err := s.settled(ctx, s.spoke, agentPods())
	return resident{hub: hub, agent: agent}, err
}

// holding measures the memory while so many streams are open.
func (s *suite) holding(ctx context.Context, pod string) (resident, error) {
	held, release := context.WithCancel(ctx)
	var ended sync.WaitGroup
	defer ended.Wait()
	defer release()
	err := parallel(ctx, writers, idleStreams, func(context.Context, int) error { return s.hold(held, &ended, pod) })
	if err != nil {
		return resident{}, err
	}
	return s.bothSettled(ctx)
}

// hold opens a stream that stays open until held ends, and returns when the other
// end has answered.
func (s *suite) hold(held context.Context, ended *sync.WaitGroup, pod string) error {
	executor, err := s.hub.executorWith(corev1.PodExecOptions{Command: []string{"cat"}, Stdin: true, Stdout: true}, pod)
	if err != nil {
		return err
	}
	in, feed := io.Pipe()
	out, failed := newWitness(), make(chan error, 1)
	ended.Go(func() {
		// Whoever writes is told when nobody reads any more.
		defer func() { _ = in.Close() }()
		// The client closes its connection when held ends. One that waited for the end of
		// its command, of a thousand at once, would ping a dead connection for good.
		failed <- executor.StreamWithContext(klog.NewContext(held, logr.Discard()), remotecommand.StreamOptions{Stdin: in, Stdout: out})
	})
	if _, err := io.WriteString(feed, "x\n"); err != nil {
		return fmt.Errorf("exec in %s: %w", pod, errors.Join(err, <-failed))
	}
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case <-out.seen:
		return nil
	case err := <-failed:
		return fmt.Errorf("exec in %s: %w", pod, errors.Join(errNoOutput, err))
	case <-timeout.C:
		return fmt.Errorf("exec in %s: %w", pod, errNoOutput)
	}
}

// restart begins hub and agent anew, with no memory of what was measured before.
func (s *suite) restart(ctx context.Context) error {
	for _, component := range []struct {
		on *site
		of pods
	}{{s.hub, hubPods()}, {s.spoke, agentPods()}} {
		if _, err := component.on.ctl.Run(ctx, "delete", "pods", "-n", component.of.namespace, "-l", component.of.selector, "--timeout=120s"); err != nil {
			return err
		}
		if _, err := component.on.ctl.Run(ctx, "rollout", "status", "deployment", "-n", component.of.namespace, "-l", component.of.selector, "--timeout=120s"); err != nil {
			return err
		}
	}
	if err := pause(ctx, calm); err != nil {
		return err
	}
	_, err := s.hub.ctl.Run(ctx, "wait", "--for=condition=Ready", "node/"+spokeName, "--timeout=180s")
	return err
}
