// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/spokelet/spokelet/tunnel/identity"
)

// renewalSpacing is the least time between two certificates of a cluster. Its
// agents, who hold the same certificate, ask at about the same time; those that
// are refused ask again.
const renewalSpacing = time.Minute

var (
	// errRenewalTooEarly refuses renewals that no agent needs; see control.RenewAt.
	errRenewalTooEarly = errors.New("more than half of the certificate's life is left")
	// errRenewalTooOften refuses a cluster that asks again within renewalSpacing.
	errRenewalTooOften = errors.New("the cluster has asked for a certificate within the last minute")
)

// renewalLimiter bounds how often a cluster has the hub sign a certificate: that costs
// the use of its key and a request to its API server.
type renewalLimiter struct {
	mu   sync.Mutex
	last map[identity.Cluster]time.Time // of requests within renewalSpacing
}

// allow returns an error unless a session may have a certificate now, and counts it.
func (r *renewalLimiter) allow(session *Session) error {
	now := time.Now()
	if session.notAfter.Sub(now) > session.notAfter.Sub(session.notBefore)/2 {
		return errRenewalTooEarly
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.last, func(_ identity.Cluster, at time.Time) bool { return now.Sub(at) >= renewalSpacing })
	if _, ok := r.last[session.cluster]; ok {
		return errRenewalTooOften
	}
	if r.last == nil {
		r.last = map[identity.Cluster]time.Time{}
	}
	r.last[session.cluster] = now
	return nil
}

// renew answers a certificate request.
func (s *Server) renew(session *Session, csr []byte) {
	chain, bundle, err := s.issue(session, csr)
	s.metrics.countRenewal(session.cluster.Name, err)
	if err := session.control.sendCertificate(chain, bundle, err); err != nil {
		session.closeWith(fmt.Errorf("%w: certificate: %w", ErrLost, err))
	}
}

func (s *Server) issue(session *Session, csr []byte) (chain, bundle []byte, err error) {
	log := s.config.Logger.WithValues("cluster", session.cluster.Name)
	if err := s.renewals.allow(session); err != nil {
		// Not an error of the hub's, and as frequent as the agent likes.
		log.V(1).Info("certificate refused", "reason", err.Error())
		return nil, nil, err
	}
	chain, bundle, err = s.config.Issuer.Issue(session.ctx, session.cluster, csr)
	if err != nil {
		log.Error(err, "certificate not renewed")
	}
	return chain, bundle, err
}
