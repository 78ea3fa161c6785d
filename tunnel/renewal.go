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
	// errEarly refuses renewals that no agent needs; see control.RenewAt.
	errEarly = errors.New("more than half of the certificate's life is left")
	// errOften refuses a cluster that asks again within renewalSpacing.
	errOften = errors.New("the cluster has asked for a certificate within the last minute")
)

// renewals bounds how often a cluster has the hub sign: that costs it the
// use of its key and a question to its API server.
type renewals struct {
	mu   sync.Mutex
	last map[identity.Cluster]time.Time // of requests within renewalSpacing
}

// permit says whether a session may have a certificate now, and counts it.
func (r *renewals) permit(session *Session) error {
	now := time.Now()
	if session.notAfter.Sub(now) > session.notAfter.Sub(session.notBefore)/2 {
		return errEarly
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.last, func(_ identity.Cluster, at time.Time) bool { return now.Sub(at) >= renewalSpacing })
	if _, ok := r.last[session.cluster]; ok {
		return errOften
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
	s.metrics.renewed(session.cluster.Name, err)
	if err := session.door.answer(chain, bundle, err); err != nil {
		session.end(fmt.Errorf("%w: certificate: %w", ErrLost, err))
	}
}

func (s *Server) issue(session *Session, csr []byte) (chain, bundle []byte, err error) {
	log := s.config.Logger.WithValues("cluster", session.cluster.Name)
	if err := s.renewals.permit(session); err != nil {
		// Not an error of the hub's, and as frequent as the agent likes.
		log.V(1).Info("certificate refused", "reason", err.Error())
		return nil, nil, err
	}
	chain, bundle, err = s.config.Issuer.Issue(session.life, session.cluster, csr)
	if err != nil {
		log.Error(err, "certificate not renewed")
	}
	return chain, bundle, err
}
