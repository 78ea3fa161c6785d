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

// judge decides about objects that are absent on one side without proof, each time that
// one of the sides was read anew: few count as deleted, many are held.
func (s *share) judge() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.acts() {
		return
	}
	for _, side := range []merge.Side{merge.Hub, merge.Spoke} {
		s.judgeSide(side)
	}
	if len(s.holds) == 0 && s.replaced && s.complete {
		s.identify(identity{Hub: s.spec.HubUID, Spoke: s.engine.cfg.KubeSystemUID})
	}
	s.changed()
	for name := range s.objects {
		s.engine.queue.Add(s.key(name))
	}
}

// weigh has an object judged that has become one to judge since the sides were read.
func (s *share) weigh(name string, side merge.Side) {
	s.mu.Lock()
	o, ok := s.objects[name]
	judged := !ok || o.sight(side).weighed || o.sight(side).awaits
	s.mu.Unlock()
	if !judged {
		s.judge()
	}
}

// judgeSide judges what one side lacks; s.mu is held.
func (s *share) judgeSide(side merge.Side) {
	absent, total := s.absent(side)
	for _, name := range absent {
		s.objects[name].sight(side).weighed = true
	}
	hold := s.hold(side, absent, total)
	if hold != nil {
		s.holds[side] = hold
		return
	}
	delete(s.holds, side)
	if s.restored[side] && (side == merge.Spoke || s.complete) {
		s.restored[side], s.settledHub = false, 0
	}
	for _, name := range absent {
		s.objects[name].sight(side).absence = judged
	}
}

// absent are the objects that were in step and are absent on one side alone, without
// proof, and total is how many the other side has: what it lacks, too, could not go, and
// would make the absent ones look few. s.mu is held.
func (s *share) absent(side merge.Side) (names []string, total int) {
	if (side == merge.Hub && !s.spec.ToSpoke) || (side == merge.Spoke && !s.spec.ToHub) {
		return nil, 0 // it is made again
	}
	for name, o := range s.objects {
		if !o.recorded || !o.sight(other(side)).present {
			continue
		}
		total++
		if here := o.sight(side); !here.present && here.absence != proven && !here.awaits {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, total
}

func (o *object) sight(side merge.Side) *sight {
	if side == merge.Hub {
		return &o.hub
	}
	return &o.spoke
}

// hold says why deletions wait; nil when they need not. The names are sorted.
func (s *share) hold(side merge.Side, absent []string, total int) *wire.Hold {
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
	case len(absent)*tenth > total:
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
