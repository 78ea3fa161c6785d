// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spokelet/spokelet/e2e/bench/figure"
)

const (
	// rounds of each figure.
	rounds = 10
	// patience bounds one round.
	patience = 3 * time.Minute
	// askEvery is how often a script is asked which code it is, which is how exact the
	// figures are.
	askEvery = 20 * time.Millisecond
)

func (s *suite) measure(ctx context.Context) ([]figure.Figure, error) {
	first, err := s.create(ctx)
	if err != nil {
		return nil, err
	}
	deploys, err := s.deploys(ctx)
	if err != nil {
		return nil, err
	}
	figures := []figure.Figure{seconds("workers.deploy.s", deploys,
		fmt.Sprintf("; the very first, of which nodes had no image, took %s", first.Round(10*time.Millisecond)))}
	rollbacks, err := s.rollbacks(ctx)
	if err != nil {
		return figures, err
	}
	figures = append(figures, seconds("workers.rollback.s", rollbacks, ""))
	again, err := s.again(ctx)
	if err != nil {
		return figures, err
	}
	figures = append(figures, seconds("workers.noop.s", again, "; no build, no change of a work"))
	memory, err := s.memory(ctx)
	figures = append(figures, memory...)
	if err != nil {
		return figures, err
	}
	developers, err := s.wrangler(ctx)
	return append(figures, developers...), err
}

// seconds is the figure of what took some seconds.
func seconds(name string, d figure.Durations, more string) figure.Figure {
	return figure.Figure{
		Name: name, Value: d.Percentile(50).Seconds(), Unit: "s",
		Detail: fmt.Sprintf("n=%d, p90 %s, max %s%s", len(d), d.Percentile(90).Round(time.Millisecond), d.Percentile(100).Round(time.Millisecond), more),
	}
}

// create deploys the first version.
func (s *suite) create(ctx context.Context) (time.Duration, error) {
	url, err := s.put(ctx, 0)
	if err != nil {
		return 0, err
	}
	return s.until(ctx, 0, func() error {
		_, err := s.deployments().Create(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "api.worker-deployment/v1alpha1", "kind": "WorkerDeployment", "metadata": map[string]any{"name": scripts},
			"spec": map[string]any{"releaseHistoryLimit": int64(2 * rounds), "template": map[string]any{
				"scriptName": scripts, "compatibilityDate": "2026-01-15", "scriptUrls": []any{url},
			}},
		}}, metav1.CreateOptions{})
		return err
	})
}

// deploys writes new code.
func (s *suite) deploys(ctx context.Context) (taken figure.Durations, err error) {
	for version := 1; version <= rounds; version++ {
		one, err := s.deploy(ctx, version)
		if err != nil {
			return nil, err
		}
		taken = append(taken, one)
	}
	return taken, nil
}

// rollbacks goes back, each time by one version more.
func (s *suite) rollbacks(ctx context.Context) (taken figure.Durations, err error) {
	before, err := s.builds(ctx)
	if err != nil {
		return nil, err
	}
	for version := rounds - 1; version >= 0; version-- {
		one, err := s.deploy(ctx, version)
		if err != nil {
			return nil, err
		}
		taken = append(taken, one)
	}
	after, err := s.builds(ctx)
	if err == nil && after != before {
		err = fmt.Errorf("%d images were built to go back", after-before)
	}
	return taken, err
}

// deploy stores a version, and returns how long it took from its WorkerDeployment until all
// clusters serve it.
func (s *suite) deploy(ctx context.Context, version int) (time.Duration, error) {
	url, err := s.put(ctx, version)
	if err != nil {
		return 0, err
	}
	return s.until(ctx, version, func() error {
		_, err := s.use(ctx, url)
		return err
	})
}

// again stores the code that is served elsewhere and names that, until it is said that
// nothing is to do.
func (s *suite) again(ctx context.Context) (taken figure.Durations, err error) {
	before, err := s.works(ctx)
	if err != nil {
		return nil, err
	}
	for range rounds {
		url, err := s.put(ctx, 0)
		if err != nil {
			return nil, err
		}
		start := time.Now()
		asked, err := s.use(ctx, url)
		if err != nil {
			return nil, err
		}
		if err := s.ready(ctx, asked); err != nil {
			return nil, err
		}
		taken = append(taken, time.Since(start))
	}
	after, err := s.works(ctx)
	if err == nil && after != before {
		err = fmt.Errorf("the works were %s and are %s", before, after)
	}
	return taken, err
}

// put stores the code of a version under a prefix of its own, and returns its URL.
func (s *suite) put(ctx context.Context, version int) (string, error) {
	prefix := fmt.Sprintf("%s/%s/%d", account, scripts, s.versions)
	s.versions++
	code := fmt.Sprintf("export default { fetch() { return new Response(%q); } };\n", answer(version))
	return "s3://" + s.store.Bucket + "/" + prefix, s.store.Put(ctx, prefix+"/index.js", code)
}

// answer is that of a version.
func answer(version int) string { return fmt.Sprintf("version %d", version) }

func (s *suite) use(ctx context.Context, url string) (*unstructured.Unstructured, error) {
	patch := fmt.Appendf(nil, `{"spec":{"template":{"scriptUrls":[%q]}}}`, url)
	return s.deployments().Patch(ctx, scripts, types.MergePatchType, patch, metav1.PatchOptions{})
}

// until does something and returns how long it took from before until all clusters answer as
// a version does.
func (s *suite) until(ctx context.Context, version int, do func() error) (time.Duration, error) {
	return s.untilOf(ctx, scripts, version, do)
}

func (s *suite) untilOf(ctx context.Context, script string, version int, do func() error) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	start := time.Now()
	if err := do(); err != nil {
		return 0, err
	}
	spokes := s.env.Set.Spokes()
	served := make(chan error, len(spokes))
	for _, spoke := range spokes {
		go func() { served <- s.serves(ctx, s.pathOf(spoke.Name, script), answer(version)) }()
	}
	var failed error
	for range spokes {
		failed = errors.Join(failed, <-served)
	}
	return time.Since(start), failed
}

// serves asks a script through the hub until it answers so. How soon it does is what is
// measured: nobody tells when a pod is reached.
func (s *suite) serves(ctx context.Context, url, want string) error {
	ticker := time.NewTicker(askEvery)
	defer ticker.Stop()
	for {
		got, err := s.get(ctx, url)
		if err == nil && got == want {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("%s: %w: it answers %q, want %q (%w)", url, ctx.Err(), got, want, err)
		}
	}
}

// pathOf is the URL of a script in a spoke, through the hub.
func (s *suite) pathOf(spoke, script string) string {
	return s.hub + "/apis/live.spokelet.io/v1alpha1/clusters/" + spoke + "/proxy/api/v1/namespaces/workers-" + account + "/services/worker-" + script + ":http/proxy/"
}

func (s *suite) get(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", fmt.Errorf("get: %w", err)
	}
	resp, err := s.asUser.Do(req)
	if err != nil {
		return "", fmt.Errorf("get: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	return string(body), err
}
