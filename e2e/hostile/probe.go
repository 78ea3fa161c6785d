// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/spokelet/spokelet/e2e/bench/figure"
	"github.com/spokelet/spokelet/e2e/fleet"
	"github.com/spokelet/spokelet/e2e/hostile/spoke"
)

const (
	// probeTimeout is more than any answer may take.
	probeTimeout = 15 * time.Second
	// probeEvery is the time between two requests of an honest user.
	probeEvery = 10 * time.Millisecond
)

// probes are the requests of an honest user to honest clusters, and what came back.
type probes struct {
	mu       sync.Mutex
	took     figure.Durations // of reads; guarded by mu
	works    figure.Durations // guarded by mu
	failures []string         // guarded by mu
}

func (p *probes) note(to *figure.Durations, took time.Duration, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.failures = append(p.failures, fmt.Sprintf("after %s: %v", took.Round(time.Millisecond), err))
		return
	}
	*to = append(*to, took)
}

func (p *probes) reads() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.took)
}

// probe asks until the context ends, one request after the other of each kind.
func (s *Site) probe(ctx context.Context, p *probes) {
	var users sync.WaitGroup
	for _, ask := range []struct {
		into *figure.Durations
		one  func(context.Context, string) error
	}{
		{&p.took, s.probeProxy},
		{&p.took, s.probeView},
		{&p.works, s.probeWork},
	} {
		users.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				// What has begun is answered, also when nobody asks any more.
				once, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeTimeout)
				begun := time.Now()
				err := ask.one(once, s.names[i%len(s.names)])
				p.note(ask.into, time.Since(begun), err)
				cancel()
				spoke.Pause(ctx, probeEvery)
			}
		})
	}
	users.Wait()
}

func (s *Site) probeProxy(ctx context.Context, cluster string) error {
	return s.honest.drain(ctx, livePath+"/clusters/"+cluster+"/proxy"+fleet.ObjectPath)
}

var errNoAnswer = errors.New("the view has no answer of the cluster")

func (s *Site) probeView(ctx context.Context, cluster string) error {
	return s.honest.view(ctx, cluster, `{"scope":{"resource":"configmaps","namespace":"default"}}`)
}

// view asks for a view, whose every cluster must answer.
func (c *client) view(ctx context.Context, namespace, spec string) error {
	question := `{"apiVersion":"live.spokelet.io/v1alpha1","kind":"ViewWork","metadata":{"generateName":"h-"},"spec":` + spec + `}`
	body, err := c.do(ctx, http.MethodPost, livePath+"/namespaces/"+namespace+"/viewworks", "application/json", strings.NewReader(question))
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }()
	var answer struct {
		Status struct {
			Summary struct {
				Clusters int `json:"clusters"`
				Failed   int `json:"failed"`
			} `json:"summary"`
		} `json:"status"`
	}
	if err := json.NewDecoder(body).Decode(&answer); err != nil {
		return fmt.Errorf("view of %s: %w", namespace, err)
	}
	if sum := answer.Status.Summary; sum.Clusters == 0 || sum.Failed > 0 {
		return fmt.Errorf("view of %s: %w: %d of %d failed", namespace, errNoAnswer, sum.Failed, sum.Clusters)
	}
	return nil
}

// probeWork makes a work, waits until its cluster reports on it, and deletes it.
func (s *Site) probeWork(ctx context.Context, cluster string) error {
	works := s.dyn.Resource(manifestWorks()).Namespace(cluster)
	made, err := works.Create(ctx, newWork("probe-", "v"), metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("work: %w", err)
	}
	err = wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		got, err := works.Get(ctx, made.GetName(), metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		conditions, _, _ := unstructured.NestedSlice(got.Object, "status", "conditions")
		return len(conditions) > 0, nil
	})
	if err != nil {
		err = fmt.Errorf("report on work %s/%s: %w", made.GetNamespace(), made.GetName(), err)
	}
	return errors.Join(err, works.Delete(ctx, made.GetName(), metav1.DeleteOptions{}))
}

// newWork is a ManifestWork of one ConfigMap.
func newWork(prefix, value string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": manifestWorks().GroupVersion().String(), "kind": "ManifestWork",
		"metadata": map[string]any{"generateName": prefix},
		"spec": map[string]any{"workload": map[string]any{"manifests": []any{map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "probe", "namespace": "default"}, "data": map[string]any{"k": value},
		}}}},
	}}
}
