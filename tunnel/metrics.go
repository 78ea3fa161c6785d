// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Labels of refusals.
const (
	refusedAdmission = "admission"
	refusedProtocol  = "protocol"
)

const (
	resultOK    = "ok"
	resultError = "error"
)

func result(err error) string {
	if err == nil {
		return resultOK
	}
	return resultError
}

func metricName(n string) string { return prometheus.BuildFQName("spokelet", "tunnel", n) }

var openBuckets = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}

// hubMetrics counts what happens to sessions, and reads from the registry, when
// scraped, how they are: a cluster that goes leaves no stale series behind, and
// a request costs nothing.
type hubMetrics struct {
	registry    *Sessions
	dials       *prometheus.CounterVec
	duration    prometheus.Histogram
	disconnects *prometheus.CounterVec
	refusals    *prometheus.CounterVec
	renewals    *prometheus.CounterVec
	rivals      *prometheus.CounterVec
	connections prometheus.Counter

	sessions, streams, rtt, expiry, bytes *prometheus.Desc
}

func newHubMetrics(registry *Sessions) *hubMetrics {
	desc := func(n, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(metricName(n), help, labels, nil)
	}
	counter := func(n, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: metricName(n), Help: help}, labels)
	}
	return &hubMetrics{
		registry:    registry,
		dials:       counter("dials_total", "Sessions that were begun over a new pipe, by result.", "result"),
		disconnects: counter("disconnects_total", "Sessions that ended, by reason.", "cluster", "reason"),
		refusals:    counter("refusals_total", "Agents with a valid certificate that were refused, by reason.", "cluster", "reason"),
		renewals:    counter("renewals_total", "Certificate requests of connected agents, by result.", "cluster", "result"),
		rivals:      counter("rivals_total", "Times that two agent processes of one cluster both said that they execute its works.", "cluster"),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: metricName("dial_duration_seconds"), Help: "Time from a new pipe to a live session.", Buckets: openBuckets,
		}),
		connections: prometheus.NewCounter(prometheus.CounterOpts{
			Name: metricName("refused_connections_total"), Help: "Connections of the public port that were closed because too many were open.",
		}),
		sessions: desc("sessions", "Live sessions, those in use and warm ones.", "cluster"),
		streams:  desc("streams", "Open streams.", "cluster", "door"),
		rtt:      desc("rtt_seconds", "Smoothed round trip of the session in use.", "cluster"),
		expiry:   desc("certificate_expiry_timestamp_seconds", "When the certificate of the session in use expires.", "cluster"),
		bytes:    desc("bytes_total", "Bytes carried by sessions, above TLS; in is from the agent.", "cluster", "direction"),
	}
}

func (m *hubMetrics) register(r prometheus.Registerer) error {
	if r == nil {
		return nil
	}
	return errors.Join(
		r.Register(m.dials), r.Register(m.duration), r.Register(m.disconnects),
		r.Register(m.refusals), r.Register(m.renewals), r.Register(m.connections), r.Register(m.rivals), r.Register(m),
	)
}

func (m *hubMetrics) recordDial(d time.Duration, err error) {
	m.dials.WithLabelValues(result(err)).Inc()
	if err == nil {
		m.duration.Observe(d.Seconds())
	}
}

func (m *hubMetrics) recordEnd(cluster string, reason error) {
	m.disconnects.WithLabelValues(cluster, reasonLabel(reason)).Inc()
}

func (m *hubMetrics) countRefusal(cluster, reason string) {
	m.refusals.WithLabelValues(cluster, reason).Inc()
}

func (m *hubMetrics) countRenewal(cluster string, err error) {
	m.renewals.WithLabelValues(cluster, result(err)).Inc()
}

func (m *hubMetrics) countClosedConnection() { m.connections.Inc() }

// Describe lists the metrics that Collect reads.
func (m *hubMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.sessions, m.streams, m.rtt, m.expiry, m.bytes} {
		ch <- d
	}
}

// Collect reads the registry.
func (m *hubMetrics) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	m.registry.eachCluster(func(c clusterStats) {
		gauge(m.sessions, float64(c.sessions), c.cluster)
		for door, n := range c.streams {
			gauge(m.streams, float64(n), c.cluster, door)
		}
		if c.current != nil {
			gauge(m.rtt, time.Duration(c.current.rtt.Load()).Seconds(), c.cluster)
			gauge(m.expiry, float64(c.current.notAfter.Unix()), c.cluster)
		}
		ch <- prometheus.MustNewConstMetric(m.bytes, prometheus.CounterValue, float64(c.traffic.in), c.cluster, "in")
		ch <- prometheus.MustNewConstMetric(m.bytes, prometheus.CounterValue, float64(c.traffic.out), c.cluster, "out")
	})
}

// clusterStats is what is measured of one cluster at one moment.
type clusterStats struct {
	cluster  string
	sessions int
	current  *Session
	streams  map[string]int // by door label
	traffic  traffic        // since this hub started
}

func (c *clusterSessions) stats(cluster string) clusterStats {
	stats := clusterStats{
		cluster:  cluster,
		sessions: len(c.sessions),
		current:  c.current,
		streams:  map[string]int{},
		traffic:  c.traffic,
	}
	for _, session := range c.sessions {
		stats.traffic = stats.traffic.plus(session.traffic())
		session.streams.eachDoor(func(door string, n int) { stats.streams[door] += n })
	}
	return stats
}

// agentMetrics are the agent's; it has one hub, so nothing is labelled by it.
type agentMetrics struct {
	dials       *prometheus.CounterVec
	duration    prometheus.Histogram
	disconnects *prometheus.CounterVec
	renewals    *prometheus.CounterVec
	sessions    prometheus.Gauge
	expiry      prometheus.Gauge
	bytes       *prometheus.CounterVec
}

func newAgentMetrics() *agentMetrics {
	counter := func(n, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: metricName(n), Help: help}, labels)
	}
	gauge := func(n, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: metricName(n), Help: help})
	}
	return &agentMetrics{
		dials:       counter("dials_total", "Attempts to connect to the hub, by result.", "result"),
		disconnects: counter("disconnects_total", "Sessions that ended, by reason.", "reason"),
		renewals:    counter("renewals_total", "Attempts to renew the certificate, by result.", "result"),
		bytes:       counter("bytes_total", "Bytes carried by sessions that have ended, above TLS; in is from the hub.", "direction"),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: metricName("dial_duration_seconds"), Help: "Time from the dial to a live session.", Buckets: openBuckets,
		}),
		sessions: gauge("sessions", "Live sessions; two while one replaces the other."),
		expiry:   gauge("certificate_expiry_timestamp_seconds", "When the certificate of the newest session expires."),
	}
}

func (m *agentMetrics) register(r prometheus.Registerer) error {
	if r == nil {
		return nil
	}
	return errors.Join(
		r.Register(m.dials), r.Register(m.duration), r.Register(m.disconnects), r.Register(m.renewals),
		r.Register(m.sessions), r.Register(m.expiry), r.Register(m.bytes),
	)
}

func (m *agentMetrics) recordDial(d time.Duration, err error) {
	m.dials.WithLabelValues(result(err)).Inc()
	if err == nil {
		m.duration.Observe(d.Seconds())
	}
}

func (m *agentMetrics) recordEnd(reason error, t traffic) {
	m.disconnects.WithLabelValues(reasonLabel(reason)).Inc()
	m.bytes.WithLabelValues("in").Add(float64(t.in))
	m.bytes.WithLabelValues("out").Add(float64(t.out))
}
