// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spokelet/spokelet/e2e/bench/figure"
	"github.com/spokelet/spokelet/internal/testing/testca"
)

// concurrency is that of the figures named 64.
const concurrency = 64

// path is one way to the handler and what was measured on it, by round.
type path struct {
	transport http.RoundTripper

	p50  []float64 // microseconds
	rps  []float64 // requests per second, 64 at once
	cpu  []float64 // microseconds of all processors for one of these requests
	bulk []float64 // MB/s
}

// measureRound measures every path once, one after the other.
func measureRound(ctx context.Context, plan Plan, paths ...*path) error {
	for _, p := range paths {
		took, err := sequential(ctx, p.transport, plan.Gets)
		if err != nil {
			return err
		}
		p.p50 = append(p.p50, float64(quantile(took, 0.5).Nanoseconds())/1e3)
	}
	for _, p := range paths {
		rps, cpu, err := concurrent(ctx, p.transport, plan.Busy)
		if err != nil {
			return err
		}
		p.rps, p.cpu = append(p.rps, rps), append(p.cpu, cpu)
	}
	for _, p := range paths {
		rate, err := download(ctx, p.transport, plan.Bulk)
		if err != nil {
			return err
		}
		p.bulk = append(p.bulk, rate)
	}
	return nil
}

func (p *path) figures(base *path) []figure.Figure {
	rps64 := ratio("tunnel.get.rps64.ratio", p.rps, base.rps, "req/s")
	// What a busy machine leaves comparable: client, hub, agent and handler.
	rps64.Detail += fmt.Sprintf("; CPU %.3g against %.3g us", median(p.cpu), median(base.cpu))
	return []figure.Figure{
		ratio("tunnel.get.p50.ratio", p.p50, base.p50, "us"),
		rps64,
		ratio("tunnel.bulk.ratio", p.bulk, base.bulk, "MB/s"),
	}
}

// ratio is the median over the rounds of value to base.
func ratio(name string, values, bases []float64, unit string) figure.Figure {
	ratios := make([]float64, len(values))
	for i := range values {
		ratios[i] = values[i] / bases[i]
	}
	return figure.Figure{
		Name: name, Value: median(ratios), Unit: "ratio",
		Detail: fmt.Sprintf("%.4g against %.4g %s; rounds from %.3g to %.3g",
			median(values), median(bases), unit, slices.Min(ratios), slices.Max(ratios)),
	}
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	if n := len(sorted); n%2 == 0 {
		return (sorted[n/2-1] + sorted[n/2]) / 2
	}
	return sorted[len(sorted)/2]
}

func quantile(took []time.Duration, q float64) time.Duration {
	sorted := slices.Sorted(slices.Values(took))
	return sorted[int(q*float64(len(sorted)-1))]
}

// sequential makes small requests one after the other.
func sequential(ctx context.Context, rt http.RoundTripper, n int) ([]time.Duration, error) {
	took := make([]time.Duration, n)
	for i := range took {
		start := time.Now()
		if _, err := get(ctx, rt, smallPath); err != nil {
			return nil, err
		}
		took[i] = time.Since(start)
	}
	return took, nil
}

// concurrent returns how many small requests a second 64 clients make, and the
// processor time of one in microseconds.
func concurrent(ctx context.Context, rt http.RoundTripper, d time.Duration) (rps, cpu float64, err error) {
	var done atomic.Int64
	var failure atomic.Pointer[error]
	var clients sync.WaitGroup
	start, before := time.Now(), cpuTime()
	for range concurrency {
		clients.Go(func() {
			for first := true; first || time.Since(start) < d; first = false {
				if _, err := get(ctx, rt, smallPath); err != nil {
					failure.Store(&err)
					return
				}
				done.Add(1)
			}
		})
	}
	clients.Wait()
	if err := failure.Load(); err != nil {
		return 0, 0, *err
	}
	n := float64(done.Load())
	return n / time.Since(start).Seconds(), float64((cpuTime() - before).Nanoseconds()) / 1e3 / n, nil
}

// cpuTime returns the processor time that this process has used.
func cpuTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// download returns the rate of one large response, in MB/s.
func download(ctx context.Context, rt http.RoundTripper, size int64) (float64, error) {
	start := time.Now()
	n, err := get(ctx, rt, fmt.Sprintf("%s?size=%d", bulkPath, size))
	if err != nil {
		return 0, err
	}
	if n != size {
		return 0, fmt.Errorf("bulk: got %d bytes of %d", n, size)
	}
	return float64(size) / time.Since(start).Seconds() / 1e6, nil
}

// get makes one request and reads its answer.
func get(ctx context.Context, rt http.RoundTripper, target string) (int64, error) {
	resp, err := send(ctx, rt, http.MethodGet, target, nil)
	if err != nil {
		return 0, err
	}
	n, err := io.Copy(io.Discard, resp.Body)
	return n, errors.Join(err, resp.Body.Close())
}

func send(ctx context.Context, rt http.RoundTripper, method, target string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, "https://kube"+target, body)
	if err != nil {
		return nil, err
	}
	resp, err := rt.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, errors.Join(fmt.Errorf("%s: status %d", target, resp.StatusCode), resp.Body.Close())
	}
	return resp, nil
}

// measureStalled compares the p99 of small requests beside a download and an upload
// whose readers have stopped with that of the same requests alone. The two take turns,
// and turns in going first, so that what else the machine does falls on both alike.
func measureStalled(ctx context.Context, rt http.RoundTripper, plan Plan) (figure.Figure, error) {
	var alone, beside []float64
	for round := range plan.StalledRounds {
		for turn := range 2 {
			measure, results := sequential, &alone
			if (round+turn)%2 == 1 {
				measure, results = besideStalled, &beside
			}
			took, err := measure(ctx, rt, plan.StalledGets)
			if err != nil {
				return figure.Figure{}, err
			}
			*results = append(*results, float64(quantile(took, 0.99).Nanoseconds())/1e3)
		}
	}
	return ratio("tunnel.stalled.p99.ratio", beside, alone, "us"), nil
}

func besideStalled(ctx context.Context, rt http.RoundTripper, n int) ([]time.Duration, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// The download is not read, the upload's handler does not read: both have
	// filled what they may fill when the first request is answered.
	resp, err := send(ctx, rt, http.MethodGet, endlessPath, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	uploaded := make(chan struct{})
	go func() {
		defer close(uploaded)
		if resp, err := send(ctx, rt, http.MethodPost, stuckPath, endlessBody{}); err == nil {
			_ = resp.Body.Close()
		}
	}()
	took, err := sequential(ctx, rt, n)
	cancel()
	<-uploaded
	return took, err
}

// endlessBody is a request body without an end.
type endlessBody struct{}

// Read returns zeros.
func (endlessBody) Read(p []byte) (int, error) { return len(p), nil }

// measureSlow measures small requests beside a download on the slow link.
func measureSlow(ctx context.Context, a *testca.Authority, plan Plan) (figure.Figure, error) {
	line := NewLine(rtt/2, linkRate)
	s, err := startSession(ctx, a, line)
	if err != nil {
		return figure.Figure{}, err
	}
	defer s.stop()
	var alone, rtts, rates []float64
	for range plan.SlowRounds {
		took, err := sequential(ctx, s.session, 5)
		if err != nil {
			return figure.Figure{}, err
		}
		alone = append(alone, inRTT(took))
		took, rate, err := besideDownload(ctx, s.session, plan.SlowGets)
		if err != nil {
			return figure.Figure{}, err
		}
		rtts, rates = append(rtts, inRTT(took)), append(rates, rate)
	}
	return figure.Figure{
		Name: "tunnel.slowlink.get.rtt", Value: median(rtts), Unit: "rtt",
		Detail: fmt.Sprintf("%v round trip, 100 Mbit/s; %.3g alone; rounds from %.3g to %.3g; download at %.3g MB/s",
			rtt, median(alone), slices.Min(rtts), slices.Max(rtts), median(rates)),
	}, nil
}

func inRTT(took []time.Duration) float64 { return float64(quantile(took, 0.5)) / float64(rtt) }

// besideDownload returns the latencies and the rate of the download, in MB/s.
func besideDownload(ctx context.Context, rt http.RoundTripper, n int) ([]time.Duration, float64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	resp, err := send(ctx, rt, http.MethodGet, endlessPath, nil)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	// The rate is that after the windows have opened.
	if _, err := io.CopyN(io.Discard, resp.Body, 8<<20); err != nil {
		return nil, 0, err
	}
	start, moved := time.Now(), int64(0)
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		moved, _ = io.Copy(io.Discard, resp.Body) // Ends when cancelled.
	}()
	took, err := sequential(ctx, rt, n)
	elapsed := time.Since(start)
	cancel()
	<-copied
	return took, float64(moved) / elapsed.Seconds() / 1e6, err
}
