// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	dto "github.com/prometheus/client_model/go"
	"golang.org/x/sync/singleflight"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spokelet/spokelet/api/wire"
)

// scrapeDeadline bounds one answer of the door: several rounds of slow kubelets
// in the largest clusters.
const scrapeDeadline = 30 * time.Second

// maxMissing bounds the names of silent nodes in one answer.
const maxMissing = 100

// errNoKubelet is returned when no kubelet answered.
var errNoKubelet = errors.New("no kubelet answered")

// Nodes lists the spoke's nodes; a Watcher does.
type Nodes interface {
	Nodes() []*corev1.Node
}

// Pods tells the pods of the hub among those of the spoke; a Watcher does.
type Pods interface {
	// HubPod returns the key and the UID that a pod of the spoke has on the hub. ok
	// is false when the pod is none of the hub's.
	HubPod(namespace, name string) (key wire.PodKey, uid types.UID, ok bool)
}

// ScraperConfig configures a Scraper. All fields but Pods, Empty and
// Logger are needed.
type ScraperConfig struct {
	// Name is the cluster's, and so its node's on the hub.
	Name string
	// Nodes are those whose kubelets are asked.
	Nodes Nodes
	// Pods are those whose figures are told apart; nil tells none.
	Pods Pods
	// AllowEmpty: having no nodes is no fault.
	AllowEmpty bool
	// Transport reaches the kubelets; a Kubelets does.
	Transport http.RoundTripper
	Logger    logr.Logger
}

// Validate reports what is missing.
func (c ScraperConfig) Validate() error {
	if c.Name == "" || c.Nodes == nil || c.Transport == nil {
		return errors.New("node scraper needs a name, nodes and a transport")
	}
	return nil
}

// Scraper is the door "node". It serves GET /metrics/resource and
// /stats/summary, as one kubelet whose node is the whole cluster. It asks the
// kubelets when it is asked, and says which did not answer. Requests at the same
// time share one answer.
type Scraper struct {
	config  ScraperConfig
	mux     *http.ServeMux
	flights singleflight.Group

	mu sync.Mutex // guards the counters
	// The two paths are read from different moments of a kubelet, so each has
	// its own.
	metricsCPU, statsCPU counter
}

// NewScraper returns a Scraper.
func NewScraper(config ScraperConfig) (*Scraper, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	s := &Scraper{config: config, mux: http.NewServeMux()}
	s.mux.Handle("GET /metrics/resource", s.serveShared("text/plain; version=0.0.4; charset=utf-8", s.resourceMetrics))
	s.mux.Handle("GET /stats/summary", s.serveShared("application/json", s.statsSummary))
	return s, nil
}

// ServeHTTP answers the hub.
func (s *Scraper) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

func (s *Scraper) serveShared(contentType string, produce func(context.Context) ([]byte, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// What is shared must not end with the request that happened to be first.
		shared := s.flights.DoChan(contentType, func() (any, error) {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), scrapeDeadline)
			defer cancel()
			return produce(ctx)
		})
		select {
		case <-r.Context().Done():
		case result := <-shared:
			body, _ := result.Val.([]byte)
			if result.Err != nil {
				http.Error(w, result.Err.Error(), http.StatusServiceUnavailable)
				return
			}
			w.Header().Set("Content-Type", contentType)
			_, _ = w.Write(body) // a hub that went away needs no answer
		}
	})
}

// unreachableNodes names the nodes that did not answer, sorted, with the reasons logged:
// they hold addresses, which are not for the hub.
func unreachableNodes[T any](logger logr.Logger, answers []kubeletResponse[T]) []string {
	names := []string{}
	for _, a := range answers {
		if a.err != nil {
			names = append(names, a.node)
			logger.V(1).Info("kubelet did not answer", "node", a.node, "error", a.err)
		}
	}
	slices.Sort(names)
	return names
}

func respondedNodes[T any](answers []kubeletResponse[T]) map[string]struct{} {
	names := make(map[string]struct{}, len(answers))
	for _, a := range answers {
		names[a.node] = struct{}{}
	}
	return names
}

// resourceMetrics is /metrics/resource: the figures of the node, and of the pods of the
// hub under the names that they have there. A figure of the node that no kubelet
// stated, or that is zero, is left out; readers take a zero for a broken node.
func (s *Scraper) resourceMetrics(ctx context.Context) ([]byte, error) {
	read := func(r io.Reader) (resourceMetrics, error) { return parseMetrics(r, s.config.Pods) }
	answers := getFromKubelets(ctx, s.config.Transport, s.config.Nodes.Nodes(), "/metrics/resource", read)
	silent := unreachableNodes(s.config.Logger, answers)
	if s.noneResponded(len(silent), len(answers)) {
		return nil, fmt.Errorf("%w: %d of them", errNoKubelet, len(answers))
	}
	cpu := samplesOf(answers, func(f resourceMetrics) *sample { return f.cpu })
	memory := samplesOf(answers, func(f resourceMetrics) *sample { return f.memory })
	swap := samplesOf(answers, func(f resourceMetrics) *sample { return f.swap })
	s.mu.Lock()
	seconds := s.metricsCPU.add(cpu, respondedNodes(answers))
	s.mu.Unlock()

	var pods []podSample
	for _, a := range answers {
		pods = append(pods, a.value.pods...)
	}
	pods, left := mergePodSamples(pods, maxPodsAnswered)

	var b bytes.Buffer
	writePodSamples(&b, pods, true)
	writeNodeMetric(&b, metricCPU, "Cumulative cpu time consumed by the node in core-seconds", dto.MetricType_COUNTER, sample{seconds, meanMillis(cpu)})
	writeNodeMetric(&b, metricMemory, "Current working set of the node in bytes", dto.MetricType_GAUGE, sumSamples(memory))
	writeNodeMetric(&b, metricSwap, "Current swap usage of the node in bytes. Reported only on non-windows systems", dto.MetricType_GAUGE, sumSamples(swap))
	writePodSamples(&b, pods, false)
	writeErrors(&b, len(silent), left)
	return b.Bytes(), nil
}

// noneResponded reports whether nobody answered who should have.
func (s *Scraper) noneResponded(silent, asked int) bool {
	return silent == asked && (asked > 0 || !s.config.AllowEmpty)
}

// samplesOf are the samples of one figure, by node.
func samplesOf(answers []kubeletResponse[resourceMetrics], of func(resourceMetrics) *sample) map[string]sample {
	samples := map[string]sample{}
	for _, a := range answers {
		if s := of(a.value); s != nil {
			samples[a.node] = *s
		}
	}
	return samples
}

// sumSamples adds up gauges.
func sumSamples(samples map[string]sample) sample {
	sum := sample{millis: meanMillis(samples)}
	for _, s := range samples {
		sum.value += s.value
	}
	return sum
}

// writeErrors writes what a response lacks: nodes that did not respond, and pods beyond
// the limit.
func writeErrors(b *bytes.Buffer, nodes, pods int) {
	gauge := func(name, help string, value int) {
		writeFamily(b, name, help, dto.MetricType_GAUGE, newMetric(dto.MetricType_GAUGE, sample{value: float64(value)}))
	}
	failed := 0
	if nodes > 0 || pods > 0 {
		failed = 1
	}
	// Kubelets before 1.29 have the first name only.
	for _, name := range []string{"scrape_error", "resource_scrape_error"} {
		gauge(name, "1 if there was an error while getting the figures, 0 otherwise", failed)
	}
	gauge(wire.MetricMissingNodes, "Nodes of the cluster whose kubelet did not answer", nodes)
	if pods > 0 {
		gauge(wire.MetricMissingPods, "Pods that are left out because there are too many", pods)
	}
}

// meanMillis is the time of a sum of samples: rates are taken over it, and the
// kubelets' samples are up to some seconds apart. It is 0 when any time is
// unknown, and stands still while all samples do.
func meanMillis(samples map[string]sample) int64 {
	var offset, first int64
	for _, s := range samples {
		if s.millis == 0 {
			return 0
		}
		if first == 0 {
			first = s.millis
		}
		offset += s.millis - first
	}
	if len(samples) == 0 {
		return 0
	}
	return first + offset/int64(len(samples))
}
