// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/spokelet/spokelet/agent/sharing/merge"
	syncv1alpha1 "github.com/spokelet/spokelet/api/sync/v1alpha1"
	"github.com/spokelet/spokelet/api/wire"
)

// evaluateAbsent decides about objects that are absent on one side without proof of their
// deletion, each time that a side was listed: few count as deleted, many are held.
func (s *share) evaluateAbsent() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isReady() {
		return
	}
	for _, side := range []merge.Side{merge.Hub, merge.Spoke} {
		s.evaluateSide(side)
	}
	if len(s.holds) == 0 && s.replaced && s.hubListed {
		s.storeIdentity(shareIdentity{Hub: s.spec.HubUID, Spoke: s.engine.cfg.KubeSystemUID})
	}
	s.requestReport()
	for name := range s.objects {
		s.engine.queue.Add(s.objectKey(name))
	}
}

// evaluateOnce evaluates an absence that came up since the sides were listed.
func (s *share) evaluateOnce(name string, side merge.Side) {
	s.mu.Lock()
	o, ok := s.objects[name]
	judged := !ok || o.side(side).evaluated || o.side(side).awaitsList
	s.mu.Unlock()
	if !judged {
		s.evaluateAbsent()
	}
}

// evaluateSide accepts or holds the deletions that one side shows; s.mu is held.
func (s *share) evaluateSide(side merge.Side) {
	absent, total := s.listUnproven(side)
	for _, name := range absent {
		s.objects[name].side(side).evaluated = true
	}
	hold := s.newHold(side, absent, total)
	if hold != nil {
		s.holds[side] = hold
		return
	}
	delete(s.holds, side)
	if s.restored[side] && (side == merge.Spoke || s.hubListed) {
		s.restored[side], s.syncedHubVersion = false, 0
	}
	for _, name := range absent {
		s.objects[name].side(side).evidence = accepted
	}
}

// listUnproven returns the objects that were in sync and are absent on one side alone, without
// proof, and how many the other side has: objects that both sides lack would make the absent
// ones look few. s.mu is held.
func (s *share) listUnproven(side merge.Side) (names []string, total int) {
	if (side == merge.Hub && !s.spec.ToSpoke) || (side == merge.Spoke && !s.spec.ToHub) {
		return nil, 0 // it is created again
	}
	for name, o := range s.objects {
		if !o.hasRecord || !o.side(otherSide(side)).present {
			continue
		}
		total++
		if here := o.side(side); !here.present && here.evidence != observed && !here.awaitsList {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, total
}

func (o *object) side(side merge.Side) *sideState {
	if side == merge.Hub {
		return &o.hub
	}
	return &o.spoke
}

// newHold returns why deletions are held; nil when they are not. The names are sorted.
func (s *share) newHold(side merge.Side, absent []string, total int) *wire.Hold {
	if len(absent) == 0 {
		return nil
	}
	var reason, why string
	where := "hub"
	if side == merge.Spoke {
		where = "cluster"
	}
	switch {
	case s.replaced:
		reason, why = syncv1alpha1.ReasonReplaced, "the hub or the cluster is another than before"
	case s.restored[side]:
		reason, why = syncv1alpha1.ReasonRestored, "it has been restored from a backup"
	case len(absent)*holdDivisor > total:
		reason, why = syncv1alpha1.ReasonUnproven, "that is more than a tenth"
	default:
		return nil
	}
	sum := sha256.Sum256([]byte(reason + "/" + where + "/" + strings.Join(absent, ",")))
	token := hex.EncodeToString(sum[:6])
	if slices.Contains(s.spec.Confirmed, token) {
		return nil
	}
	message := fmt.Sprintf("%s: %d of %d objects are absent, and nothing shows that they were deleted: %s", where, len(absent), total, why)
	return &wire.Hold{Reason: reason, Token: token, Message: message}
}
