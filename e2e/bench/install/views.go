// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/spokelet/spokelet/e2e/bench/figure"
)

const (
	smallPath = "/api/v1/namespaces/bench/configmaps/small"
	proxyPath = "/apis/live.spokelet.io/v1alpha1/clusters/" + spokeName + "/proxy" + smallPath
	viewPath  = "/apis/live.spokelet.io/v1alpha1/namespaces/" + spokeName + "/viewworks"
	viewBody  = `{"apiVersion":"live.spokelet.io/v1alpha1","kind":"ViewWork","metadata":{"generateName":"b-"},` +
		`"spec":{"scope":{"resource":"configmaps","namespace":"bench","name":"small"}}}`

	rounds     = 7
	perRound   = 150
	atOnce     = 64
	loadPeriod = 2 * time.Second
)

// call is one request of a kind.
type call func(context.Context) error

// views measures a small GET: straight at the spoke's API server, through the
// proxy, and as a view.
func (s *suite) views(ctx context.Context) ([]figure.Figure, error) {
	direct, proxy, view, err := s.calls()
	if err != nil {
		return nil, err
	}
	var base, through, viewed figure.Durations
	var proxyRatio, viewRatio []float64
	for range rounds {
		d, err := sequential(ctx, direct)
		if err != nil {
			return nil, err
		}
		p, err := sequential(ctx, proxy)
		if err != nil {
			return nil, err
		}
		v, err := sequential(ctx, view)
		if err != nil {
			return nil, err
		}
		base, through, viewed = append(base, d...), append(through, p...), append(viewed, v...)
		proxyRatio = append(proxyRatio, float64(p.Percentile(50))/float64(d.Percentile(50)))
		viewRatio = append(viewRatio, float64(v.Percentile(50))/float64(d.Percentile(50)))
	}
	rate, detail, err := rates(ctx, direct, proxy)
	if err != nil {
		return nil, err
	}
	return []figure.Figure{
		{Name: "proxy.get.p50.ratio", Value: figure.Median(proxyRatio), Unit: "x", Detail: fmt.Sprintf("p50 %s through the hub, %s direct", through.Percentile(50), base.Percentile(50))},
		{Name: "view.get.p50.ratio", Value: figure.Median(viewRatio), Unit: "x", Detail: fmt.Sprintf("p50 %s as a view, %s direct", viewed.Percentile(50), base.Percentile(50))},
		{Name: "proxy.get.rps64.ratio", Value: rate, Unit: "x", Detail: detail},
	}, nil
}

func (s *suite) calls() (direct, proxy, view call, err error) {
	spoke, err := asUser(s.spoke.rest, "hub:"+user, "hub:"+group)
	if err != nil {
		return nil, nil, nil, err
	}
	hub, err := asUser(s.hub.rest, user, group)
	if err != nil {
		return nil, nil, nil, err
	}
	get := func(c rest.Interface, path string) call {
		return func(ctx context.Context) error { return c.Get().AbsPath(path).Do(ctx).Error() }
	}
	view = func(ctx context.Context) error {
		return hub.Post().AbsPath(viewPath).SetHeader("Content-Type", "application/json").Body([]byte(viewBody)).Do(ctx).Error()
	}
	return get(spoke, smallPath), get(hub, proxyPath), view, nil
}

// asUser impersonates, so that both sides pay for it alike.
func asUser(cfg *rest.Config, name, group string) (rest.Interface, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.Impersonate = rest.ImpersonationConfig{UserName: name, Groups: []string{group}}
	cfg.ContentType, cfg.AcceptContentTypes = "application/json", "application/json"
	c, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("client of %s: %w", name, err)
	}
	return c.CoreV1().RESTClient(), nil
}

func sequential(ctx context.Context, do call) (figure.Durations, error) {
	var samples figure.Durations
	for range perRound {
		start := time.Now()
		if err := do(ctx); err != nil {
			return nil, err
		}
		samples = append(samples, time.Since(start))
	}
	return samples, nil
}

// rates compares how many requests a second go through, many at a time.
func rates(ctx context.Context, direct, proxy call) (ratio float64, detail string, err error) {
	var ratios []float64
	for range 3 {
		d, err := rate(ctx, direct)
		if err != nil {
			return 0, "", err
		}
		p, err := rate(ctx, proxy)
		if err != nil {
			return 0, "", err
		}
		ratios = append(ratios, p/d)
		detail = fmt.Sprintf("last round %.0f/s through the hub, %.0f/s direct, %d at once", p, d, atOnce)
	}
	return figure.Median(ratios), detail, nil
}

func rate(ctx context.Context, do call) (float64, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, loadPeriod, errPeriodOver)
	defer cancel()
	var count atomic.Int64
	var failed atomic.Pointer[error]
	var workers sync.WaitGroup
	start := time.Now()
	for range atOnce {
		workers.Go(func() {
			for ctx.Err() == nil {
				err := do(ctx)
				if err != nil && ctx.Err() == nil {
					failed.Store(&err)
					return
				}
				if err == nil {
					count.Add(1)
				}
			}
		})
	}
	workers.Wait()
	if err := failed.Load(); err != nil {
		return 0, *err
	}
	return float64(count.Load()) / time.Since(start).Seconds(), nil
}
