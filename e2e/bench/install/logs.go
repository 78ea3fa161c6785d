// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/spokelet/spokelet/e2e/bench/figure"
)

const (
	// logLines of logWidth bytes stay below the size at which a kubelet begins
	// another file.
	logLines = 60_000
	logWidth = 100
	logSize  = logLines * logWidth

	logsPerRound = 3
)

var errLogSize = errors.New("log is not complete")

// logs compares how fast a log is read: through the virtual node, and at the
// spoke's API server.
func (s *suite) logs(ctx context.Context) ([]figure.Figure, error) {
	const pod = "logs"
	line := fmt.Sprintf("%0*d", logWidth-1, 0)
	if err := s.started(ctx, pod, fmt.Sprintf("yes %s | head -n %d; exec sleep 100000", line, logLines)); err != nil {
		return nil, err
	}
	if err := s.logComplete(ctx, pod); err != nil {
		return nil, err
	}
	var ratios []float64
	var through, direct float64
	for range rounds {
		var err error
		if direct, err = logRate(ctx, s.spoke, pod); err != nil {
			return nil, err
		}
		if through, err = logRate(ctx, s.hub, pod); err != nil {
			return nil, err
		}
		ratios = append(ratios, through/direct)
	}
	return []figure.Figure{{
		Name: "node.logs.mbps.ratio", Value: figure.Median(ratios), Unit: "x",
		Detail: fmt.Sprintf("last round %.0f MB/s through the node, %.0f MB/s direct", through, direct),
	}}, s.removePods(ctx)
}

// logComplete waits until all is written.
func (s *suite) logComplete(ctx context.Context, pod string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		n, err := readLog(ctx, s.spoke, pod)
		if err == nil && n == logSize {
			return nil
		}
		if wait := pause(ctx, time.Second); wait != nil {
			return fmt.Errorf("log of %s has %d bytes: %w", pod, n, errors.Join(wait, err))
		}
	}
}

// logRate is in MB per second.
func logRate(ctx context.Context, on *site, pod string) (float64, error) {
	start := time.Now()
	for range logsPerRound {
		n, err := readLog(ctx, on, pod)
		if err != nil {
			return 0, err
		}
		if n != logSize {
			return 0, fmt.Errorf("log of %s has %d bytes: %w", pod, n, errLogSize)
		}
	}
	return logsPerRound * logSize / 1e6 / time.Since(start).Seconds(), nil
}

func readLog(ctx context.Context, on *site, pod string) (int64, error) {
	stream, err := on.kube.CoreV1().Pods(podsNamespace).GetLogs(pod, &corev1.PodLogOptions{}).Stream(ctx)
	if err != nil {
		return 0, fmt.Errorf("log of %s: %w", pod, err)
	}
	defer func() { _ = stream.Close() }()
	return io.Copy(io.Discard, stream)
}
