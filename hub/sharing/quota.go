// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/spokelet/spokelet/api/sync/v1alpha1"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/quota"
	"github.com/spokelet/spokelet/internal/sharedobject"
)

// objectCost is the memory of an object beside its content, in bytes.
const objectCost = 1 << 10

// quotaOf returns the quota of a SharedResource, with its defaults.
func quotaOf(spec *v1alpha1.SharedResourceSpec) wire.SharedSize {
	bytes := resource.MustParse(v1alpha1.DefaultQuotaBytes)
	out := wire.SharedSize{Objects: v1alpha1.DefaultQuotaObjects, Bytes: bytes.Value()}
	if q := spec.Quota; q != nil && q.Objects > 0 {
		out.Objects = int(q.Objects)
	}
	if q := spec.Quota; q != nil && q.Bytes != nil && q.Bytes.Sign() > 0 {
		out.Bytes = q.Bytes.Value()
	}
	return out
}

// memoryUse counts the memory of the objects of a share. It is charged to the cluster's
// account if the cluster may create objects. Its fields are guarded by registry.mu.
type memoryUse struct {
	account *quota.Account
	// objects is the use of each object, and sum that of all.
	objects map[string]objectUse
	sum     objectUse
	// reserved is the growth by requests that are in flight, or may be.
	reserved wire.SharedSize
	// paid is how many bytes the account holds.
	paid int64
}

// objectUse is the use of objects, and the bytes of published results of their last writes.
type objectUse struct {
	wire.SharedSize
	result int64
}

// set sets the use of an object.
func (h *memoryUse) set(name string, now objectUse) {
	was := h.objects[name]
	if now == was {
		return
	}
	h.sum = objectUse{SharedSize: h.sum.Minus(was.SharedSize).Plus(now.SharedSize), result: h.sum.result - was.result + now.result}
	if h.objects[name] = now; now == (objectUse{}) {
		delete(h.objects, name)
	}
}

// updateAccount charges the use and some more to the account. Objects that users of the hub
// have created may not fit and stay unpaid until there is room; then no more fits either.
func (h *memoryUse) updateAccount(more wire.SharedSize) error {
	all := h.sum.Plus(h.reserved).Plus(more)
	due := all.Bytes + h.sum.result + int64(all.Objects)*objectCost - h.paid
	if due > 0 {
		if err := h.account.Grow(due); err != nil {
			return err
		}
	} else {
		h.account.Shrink(-due)
	}
	h.paid += due
	return nil
}

// updateUse updates the use of an object that is published, or too large to be.
func (s *share) updateUse(name string) {
	var now objectUse
	e := s.entries[name]
	if size, large := s.large[name]; e.hasObject() || large {
		now.SharedSize = wire.SharedSize{Objects: 1, Bytes: int64(max(len(e.raw), size))}
	}
	if e.result != nil {
		now.result = int64(e.result.size)
	}
	s.use.set(name, now)
	s.updateAccount()
	if len(s.beyondQuota) > 0 {
		s.registry.statusQueue.Add(s.name)
	}
}

// updateAllUse updates the use of all objects, for another target or other entries.
func (s *share) updateAllUse() {
	for name := range s.use.objects {
		s.updateUse(name)
	}
	s.updateAccount()
}

// updateAccount has the cluster pay for what is kept. Where it makes no objects it does
// not: they are kept once for all clusters.
func (s *share) updateAccount() {
	if !s.target.body.ToHub {
		s.use.account.Shrink(s.use.paid)
		s.use.paid = 0
		return
	}
	_ = s.use.updateAccount(wire.SharedSize{})
}

// reserve reserves what a write needs until releaseReservation, or returns why it exceeds the
// quota or the cluster's memory.
func (s *share) reserve(name string, rec *writeRequest, o *object, w *write, to sharedobject.Content) (problem string) {
	s.releaseReservation(rec)
	has, wants, err := s.sizesOfWrite(o, w, to)
	if err != nil {
		return err.Error()
	}
	if reason := s.checkQuota(has, wants); reason != "" {
		s.beyondQuota[name] = wants
		s.registry.statusQueue.Add(s.name)
		return fmt.Sprintf("the quota of %s is reached (SharedResource %q)", s.target.body.Quota.Limit(reason), s.name)
	}
	growth := wants.Minus(has)
	growth.Bytes = max(growth.Bytes, 0)
	if growth != (wire.SharedSize{}) && s.use.updateAccount(growth) != nil {
		return "there is no more memory for shared objects of the cluster (budget of the hub's configuration)"
	}
	rec.reserved = growth
	s.use.reserved = s.use.reserved.Plus(growth)
	return ""
}

func (s *share) releaseReservation(rec *writeRequest) {
	s.use.reserved = s.use.reserved.Minus(rec.reserved)
	rec.reserved = wire.SharedSize{}
	s.updateAccount()
}

// sizesOfWrite returns the size of an object before and after a write.
func (s *share) sizesOfWrite(o *object, w *write, to sharedobject.Content) (has, wants wire.SharedSize, err error) {
	if o != nil {
		has = wire.SharedSize{Objects: 1, Bytes: int64(o.size)}
	}
	if w.Part == wire.PartDeletion {
		return has, has, nil // it is there until its finalizers are gone
	}
	if s.target.body.StatusSubresource {
		from := sharedobject.Content{}
		if o != nil {
			if from, err = sharedobject.Decode(o.raw); err != nil {
				return has, has, err
			}
		}
		if w.Part == wire.PartStatus {
			to = from.WithStatus(to)
		} else {
			to = to.WithStatus(from)
		}
	}
	raw, err := sharedobject.Encode(to)
	return has, wire.SharedSize{Objects: 1, Bytes: int64(len(raw))}, err
}

// checkQuota returns why an object must not grow from one size to another; empty if it may.
func (s *share) checkQuota(has, wants wire.SharedSize) (reason string) {
	return s.target.body.Quota.Exceeded(s.use.sum.Plus(s.use.reserved).Minus(has), has, wants)
}

// quotaReached returns which writes of the cluster exceed the quota; nil for none.
func (s *share) quotaReached() *wire.ShareProblem {
	var names []string
	for name, wants := range s.beyondQuota {
		if s.checkQuota(s.use.objects[name].SharedSize, wants) != "" {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	reason := s.checkQuota(s.use.objects[names[0]].SharedSize, s.beyondQuota[names[0]])
	return wire.QuotaReached(reason, "hub", s.target.body.Quota.Limit(reason), names)
}
