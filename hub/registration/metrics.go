// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spokelet/spokelet/hub/registration/token"
)

// counters count refusals. The reason is one of a fixed few; clusters are not a
// label, since strangers choose the names they try.
type counters struct {
	join      *prometheus.CounterVec
	admission *prometheus.CounterVec
	issued    *prometheus.CounterVec
}

func newCounters(registerer prometheus.Registerer) (*counters, error) {
	c := &counters{
		join: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spokelet_join_refused_total", Help: "Enrolments that were refused, by reason.",
		}, []string{"reason"}),
		admission: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spokelet_admission_refused_total", Help: "Sessions that were refused to holders of a valid certificate, by reason.",
		}, []string{"reason"}),
		issued: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spokelet_certificates_issued_total", Help: "Certificates issued to clusters, by occasion.",
		}, []string{"occasion"}),
	}
	for _, collector := range []prometheus.Collector{c.join, c.admission, c.issued} {
		if err := registerer.Register(collector); err != nil {
			return nil, fmt.Errorf("registration metrics: %w", err)
		}
	}
	return c, nil
}

// refusalReason classifies a refusal.
func refusalReason(err error) string {
	for _, known := range []struct {
		err    error
		reason string
	}{
		{ErrUnknown, "unknown_cluster"},
		{ErrNotAccepted, "not_accepted"},
		{ErrStranger, "wrong_cluster_id"},
		{ErrOtherSpoke, "kube_system_uid"},
		{ErrNotReady, "hub_not_ready"},
		{errNoToken, "no_token"},
		{token.ErrMalformed, "malformed_token"},
		{token.ErrForged, "forged_token"},
		{token.ErrExpired, "expired_token"},
		{token.ErrUsed, "used_token"},
		{token.ErrRecord, "bad_token_record"},
		{errRequest, "bad_request"},
		{errRateLimit, "rate_limit"},
		{errBusy, "busy"},
		{errReplaced, "replaced"},
	} {
		if errors.Is(err, known.err) {
			return known.reason
		}
	}
	return "internal"
}
