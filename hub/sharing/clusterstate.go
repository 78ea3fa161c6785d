// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// eventCost is what an event costs of Config.Writes, in bytes.
const eventCost = 1 << 10

// handleState handles a cluster's report of a share. It runs on the stream's goroutine.
func (c *statusWriter) handleState(cluster string, r resource.Resource) {
	state, err := wire.DecodeShareState(r.Body)
	if err != nil {
		if c.logLimiter.Allow(cluster) {
			c.cfg.Logger.Error(err, "Invalid state of a share", "cluster", cluster, "share", r.Key)
		}
		return
	}
	c.mu.Lock()
	s := c.shares[shareKey{cluster: cluster, name: r.Key}]
	if s == nil {
		c.mu.Unlock()
		return
	}
	news := s.setState(&state)
	c.mu.Unlock()
	c.statusQueue.Add(r.Key)
	for _, d := range news {
		c.recordDecision(cluster, d)
	}
}

// decision is a decided conflict, and the object of its Event.
type decision struct {
	wire.Decided
	object *metav1.PartialObjectMetadata
}

// setState stores a report, and returns its new decisions about existing objects. The first
// report only says where they begin; c.mu is held.
func (s *share) setState(state *wire.ShareState) (news []decision) {
	first := s.state == nil
	s.state = state
	latest := s.lastDecision
	for _, d := range state.Decided {
		latest = max(latest, d.Number)
		if first || d.Number <= s.lastDecision || s.scope == nil {
			continue
		}
		o := s.scope.objects[d.Name]
		if o == nil || !s.target.selector.Matches(o.labels) {
			continue
		}
		about := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Namespace: s.scope.namespace, Name: d.Name, UID: o.uid, ResourceVersion: o.version,
		}}
		about.SetGroupVersionKind(s.target.place.resource.GroupVersion().WithKind(s.target.body.Kind))
		news = append(news, decision{Decided: d, object: about})
	}
	s.state.Decided = nil // which is of no more use
	s.lastDecision = latest
	return news
}

// recordDecision records an Event of a decision, unless the cluster has too many.
func (c *statusWriter) recordDecision(cluster string, d decision) {
	if c.cfg.Writes.Wait(cluster) > 0 {
		return
	}
	c.cfg.Writes.Spend(cluster, eventCost)
	winner := "the hub"
	if d.Winner == wire.SharedSpoke {
		winner = "cluster " + cluster
	}
	fields := strings.ToValidUTF8(strings.Join(d.Fields, ", "), "")
	c.cfg.Events.Eventf(d.object, nil, corev1.EventTypeWarning, "ConflictDecided", "Share",
		"hub and cluster %s changed the same fields, and what %s has stays: %s", cluster, winner, clip(fields, maxMessage))
}
