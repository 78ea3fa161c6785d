// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"fmt"
	"maps"
	"math/bits"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	syncv1alpha1 "github.com/spokelet/spokelet/api/sync/v1alpha1"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/sharedobject"
	"github.com/spokelet/spokelet/internal/testing/testscale"
)

const (
	// historySteps is how many steps a history has; SPOKELET_HISTORIES sets how many
	// histories there are, and SPOKELET_SEED the first.
	historySteps = 40
)

func TestRandomHistoriesLoseNothing(t *testing.T) {
	first, count := setting(t, "SPOKELET_SEED", 1), setting(t, "SPOKELET_HISTORIES", testscale.Of(32, 64))
	for seed := first; seed < first+count; seed++ {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { newHistory(t, uint64(seed)).run() })
		})
	}
}

// With quotas that come, change and are lifted.
func TestRandomHistoriesWithQuotaLoseNothing(t *testing.T) {
	first, count := setting(t, "SPOKELET_SEED", 1), setting(t, "SPOKELET_HISTORIES", testscale.Of(32, 64))
	for seed := first; seed < first+count; seed++ {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHistory(t, uint64(seed))
				h.quotas = true
				h.run()
			})
		})
	}
}

func setting(t *testing.T, name string, value int) int {
	t.Helper()
	text, ok := os.LookupEnv(name)
	if !ok {
		return value
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// history is one of random steps.
type history struct {
	*rig
	*model

	// calm: nothing fails but the tunnel. lossy: something has, since both sides agreed.
	calm, lossy bool
	// quotas: they change.
	quotas bool
	// oneWay is the side that is followed; empty where both are.
	oneWay wire.SharedSide
	winner wire.SharedSide
	// decided is the number of the last decision before both sides agreed.
	decided int64
	seen    int // events
	made    int // values and names
	own     map[string]sharedobject.Content
	log     []string
}

func newHistory(t *testing.T, seed uint64) *history {
	t.Helper()
	share := defaultShare()
	h := &history{model: newModel(), own: map[string]sharedobject.Content{}, calm: seed/4%2 == 0}
	switch seed % 4 {
	case 0:
		share.Winner = wire.SharedSpoke
	case 1:
		share.ToHub, h.oneWay = false, wire.SharedHub
	case 2:
		share.ToSpoke, h.oneWay = false, wire.SharedSpoke
	}
	h.winner = share.Winner
	// Of 32 histories in a row, each two of the other settings are together with and without.
	share.AdoptAny = bits.OnesCount64(seed%64)%2 == 1
	h.rig = newRig(t, options{share: share, hubStatus: seed/8%2 == 1, spokeStatus: seed/16%2 == 1, seed: seed})
	h.lastDecision = func() int64 {
		return slices.Max(append(slices.Collect(maps.Keys(h.up.decisions())), 0))
	}
	h.verbose = os.Getenv("SPOKELET_HISTORIES") == "1"
	h.spoke.paged = h.rand.IntN(2) == 0
	h.up.confirms = true
	h.network.set(0, 5*time.Millisecond, 20*time.Millisecond)
	return h
}

func (h *history) run() {
	h.start()
	h.connect()
	for range historySteps {
		h.step()
		time.Sleep([]time.Duration{0, 0, 5 * time.Millisecond, 50 * time.Millisecond, time.Second, 20 * time.Second}[h.rand.IntN(6)])
		if h.t.Failed() {
			break
		}
	}
	if !h.t.Failed() {
		h.checkAgreement()
	}
	if !h.t.Failed() {
		h.checkNoRequests()
		h.checkOneWritePerChange()
	}
	if h.t.Failed() {
		for _, line := range h.log {
			h.t.Log(line)
		}
	}
}

func (h *history) notef(format string, args ...any) {
	h.log = append(h.log, time.Now().Format("15:04:05.000000 ")+fmt.Sprintf(format, args...))
	if h.verbose {
		h.t.Log(h.log[len(h.log)-1])
	}
}

func (h *history) step() {
	if h.quotas && h.rand.IntN(6) == 0 {
		h.setTightQuotas()
		return
	}
	n := h.rand.IntN(100)
	switch {
	case n < 55:
		h.write()
	case n < 65:
		h.create()
	case n < 72:
		h.remove()
	case n < 77:
		h.notef("the tunnel is cut")
		h.disconnect()
	case n < 83:
		h.notef("the tunnel is connected")
		h.connect()
	case n < 88:
		h.checkAgreement()
	case h.calm:
	default:
		h.setFailures(n)
	}
}

// setFailures has something fail.
func (h *history) setFailures(n int) {
	h.lossy = true
	switch {
	case n < 91:
		h.notef("the agent crashes")
		connected := h.cut != nil
		h.crash()
		time.Sleep(time.Duration(h.rand.Int64N(int64(time.Second))))
		h.start()
		if connected {
			h.connect()
		}
	case n < 94:
		h.notef("the hub restarts")
		h.restartHub()
	case n < 97:
		broken := []float64{0, 0.1, 0.5}[h.rand.IntN(3)]
		h.notef("of requests fail %v", broken)
		h.network.set(broken, 50*time.Millisecond, 100*time.Millisecond)
	default:
		forget := h.rand.IntN(2) == 0
		h.notef("watches end, and are forgotten: %v", forget)
		h.spoke.cutWatches(forget)
	}
}

// setTightQuotas sets quotas that some objects are beyond.
func (h *history) setTightQuotas() {
	some := func() wire.SharedSize {
		q := muchRoom()
		if h.rand.IntN(2) == 0 {
			q.Objects = 1 + h.rand.IntN(5)
		}
		if h.rand.IntN(3) == 0 {
			q.Bytes = int64(20 + h.rand.IntN(400))
		}
		return q
	}
	h.setQuotas(some(), some())
}

// setQuotas sets that of the share, and that of the cluster's owner.
func (h *history) setQuotas(share, owner wire.SharedSize) {
	h.notef("quotas are %+v and %+v", share, owner)
	h.up.edit(func(s *wire.Share) { s.Quota = share })
	h.setOwnersQuota(owner)
}

func (h *history) randomSide() (wire.SharedSide, *fakeStore) {
	side := []wire.SharedSide{wire.SharedHub, wire.SharedSpoke}[h.rand.IntN(2)]
	return side, h.side(side)
}

// randomName is the name of an object of a side that is shared; empty if there is none.
func (h *history) randomName(s *fakeStore) string {
	names := slices.DeleteFunc(s.names(), func(name string) bool { return h.own[name] != nil })
	if len(names) == 0 {
		return ""
	}
	return names[h.rand.IntN(len(names))]
}

func (h *history) value() string {
	h.made++
	return fmt.Sprintf("v%d", h.made)
}

func (h *history) write() {
	side, store := h.randomSide()
	name := h.randomName(store)
	if name == "" {
		return
	}
	f := modelFields[h.rand.IntN(len(modelFields))]
	value := h.value()
	if h.rand.IntN(6) == 0 {
		if value = h.randomEarlierValue(name, f, h.rand.IntN(100)); value == "" {
			return
		}
	}
	h.notef("the %s's user sets %s %s to %s: %v", side, name, f.path, value, h.userWrites(store, side, name, f, value))
}

func (h *history) create() {
	side, store := h.randomSide()
	h.made++
	name := fmt.Sprintf("o%d", h.made)
	c := sharedobject.Content{"spec": map[string]any{"b": h.value()}}
	for range h.rand.IntN(3) {
		modelFields[h.rand.IntN(len(modelFields))].set(c, h.value())
	}
	switch {
	case h.oneWay != "" && side != h.oneWay:
		name = "own-" + name
		h.notef("the %s's user creates %s of its own", side, name)
		h.createObject(store, name, c)
		h.own[name] = store.content(name)
		return
	case h.up.share.AdoptAny && h.rand.IntN(2) == 0 && len(h.objects) > 0:
		known := make([]string, 0, len(h.objects))
		for name := range h.objects {
			known = append(known, name)
		}
		slices.Sort(known)
		name = known[h.rand.IntN(len(known))]
	}
	h.notef("the %s's user creates %s: %v", side, name, h.userCreates(store, side, name, c))
}

func (h *history) remove() {
	side, store := h.randomSide()
	if name := h.randomName(store); name != "" {
		h.notef("the %s's user deletes %s: %v", side, name, h.userDeletes(store, h.side(oppositeSide(side)), side, name))
	}
}

func oppositeSide(side wire.SharedSide) wire.SharedSide {
	if side == wire.SharedHub {
		return wire.SharedSpoke
	}
	return wire.SharedHub
}

// checkAgreement lets all come to rest, and looks at what has come of it.
func (h *history) checkAgreement() {
	h.notef("all comes to rest")
	h.network.set(0, 5*time.Millisecond, 20*time.Millisecond)
	h.connect()
	settle()
	if h.quotas {
		h.checkQuotas()
		h.setQuotas(muchRoom(), muchRoom())
		settle()
	}
	named := h.listConflicts()
	for _, name := range h.listNames() {
		hub, spoke := h.hub.content(name), h.spoke.content(name)
		if h.oneWay != "" {
			h.checkFollower(name, hub, spoke)
			continue
		}
		if diff := cmp.Diff(hub, spoke); diff != "" {
			h.t.Errorf("%s is not the same (-hub +cluster):\n%s", name, diff)
			continue
		}
		namedAfter := func(number int64) []string {
			if number == 0 {
				return named[name]
			}
			return h.decidedAfter(name, number)
		}
		for _, wrong := range h.getPast(name).check(hub, h.winner, namedAfter, h.lossy) {
			h.t.Errorf("%s: %s; conflicts %v", name, wrong, named[name])
		}
		h.reset(name, hub)
	}
	for name, c := range h.own {
		if diff := cmp.Diff(c, h.side(oppositeSide(h.oneWay)).content(name)); diff != "" {
			h.t.Errorf("%s is not as its owner made it (-want +got):\n%s", name, diff)
		}
	}
	if state := h.up.lastState(); state.LastError != "" || state.Conflicts > 0 || state.Problem != nil || state.Hold != nil {
		h.t.Errorf("state is %+v", state)
	}
	h.lossy = false
}

// checkQuotas looks at what has come of the quotas that there are: nothing is gone for one, what
// waits is said, and nothing waits where there is room.
func (h *history) checkQuotas() {
	state, same := h.up.lastState(), true
	for _, name := range h.listNames() {
		hub, spoke, p := h.hub.content(name), h.spoke.content(name), h.getPast(name)
		same = same && cmp.Equal(hub == nil, spoke == nil)
		if source := h.side(h.oneWay); p.made && p.death == nil && hub == nil && (spoke == nil || source == h.hub) {
			h.t.Errorf("%s is gone, and nobody has deleted it", name)
		}
	}
	switch reached := state.QuotaReached; {
	case reached == nil && !same:
		h.t.Errorf("objects are missing on one side, and nothing waits: hub %v, cluster %v", h.hub.names(), h.spoke.names())
	case reached != nil && reached.Reason == syncv1alpha1.ReasonTooManyObjects:
		there, most := len(h.hub.names()), h.up.share.Quota.Objects
		if strings.HasPrefix(reached.Message, "cluster: ") {
			there, most = len(h.spoke.names()), min(most, h.quota.Objects)
		}
		if there < most {
			h.t.Errorf("%d of %d objects are there, and some wait: %s", there, most, reached.Message)
		}
	}
	if state.LastError != "" || state.Hold != nil {
		h.t.Errorf("state is %+v", state)
	}
}

func (h *history) listNames() []string {
	names := append(h.hub.names(), h.spoke.names()...)
	for name := range h.objects {
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(name string) bool { return h.own[name] != nil })
}

// listConflicts are the fields of conflicts since both sides agreed, by object.
func (h *history) listConflicts() map[string][]string {
	out := map[string][]string{}
	last := h.decided
	for number, d := range h.up.decisions() {
		if number > last {
			out[d.Name] = append(out[d.Name], d.Fields...)
			h.decided = max(h.decided, number)
		}
	}
	h.events.mu.Lock()
	defer h.events.mu.Unlock()
	for _, event := range h.events.all[h.seen:] {
		name, fields := parseEvent(event)
		out[name] = append(out[name], fields...)
		h.notef("event %s", event)
	}
	h.seen = len(h.events.all)
	return out
}

// decidedAfter returns the fields of an object that decisions after one have named.
func (h *history) decidedAfter(name string, number int64) (fields []string) {
	for _, d := range h.up.decisions() {
		if d.Name == name && d.Number > number {
			fields = append(fields, d.Fields...)
		}
	}
	return fields
}

// checkFollower compares the side that follows with the one that is followed.
func (h *history) checkFollower(name string, hub, spoke sharedobject.Content) {
	source, follower, sub := hub, spoke, h.spokeStatus
	if h.oneWay == wire.SharedSpoke {
		source, follower, sub = spoke, hub, h.hubStatus
	}
	p := h.getPast(name)
	if source == nil && p.young && h.lossy {
		return // a creation may be executed after the deletion that followed
	}
	if sub && source != nil && follower != nil && p.wrote[oppositeSide(h.oneWay)] {
		source, follower = source.WithStatus(nil), follower.WithStatus(nil)
	}
	if diff := cmp.Diff(source, follower); diff != "" {
		h.t.Errorf("%s is not what the %s has (-want +got):\n%s", name, h.oneWay, diff)
	}
	for _, f := range modelFields {
		if p.made && p.death == nil && !f.status() && hub == nil {
			h.t.Errorf("%s is gone, and nobody has deleted it", name)
		}
	}
}

// checkNoRequests fails if anything is written, or said, while nobody changes anything.
func (h *history) checkNoRequests() {
	written, received, asked := len(h.written()), h.countReceived(), len(h.listHubWrites())
	time.Sleep(10 * time.Minute)
	if w, r, a := len(h.written()), h.countReceived(), len(h.listHubWrites()); w != written || r != received || a != asked {
		h.t.Errorf("at rest there were %d writes in the cluster, %d of the hub, %d messages", w-written, a-asked, r-received)
	}
}

func (r *rig) countReceived() int {
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	return r.up.received
}

// checkOneWritePerChange changes one field, and fails unless that makes one write on the other side.
func (h *history) checkOneWritePerChange() {
	side, store := h.randomSide()
	if h.oneWay != "" {
		side, store = h.oneWay, h.side(h.oneWay)
	}
	name := h.randomName(store)
	if name == "" {
		return
	}
	f := modelFields[h.rand.IntN(len(modelFields))]
	before := map[wire.SharedSide]int{wire.SharedHub: len(h.listHubWrites()), wire.SharedSpoke: len(h.written())}
	h.notef("the %s's user sets %s %s, once", side, name, f.path)
	h.userWrites(store, side, name, f, h.value())
	settle()
	got := map[wire.SharedSide]int{wire.SharedHub: len(h.listHubWrites()) - before[wire.SharedHub], wire.SharedSpoke: len(h.written()) - before[wire.SharedSpoke]}
	if diff := cmp.Diff(map[wire.SharedSide]int{side: 0, oppositeSide(side): 1}, got); diff != "" {
		h.t.Errorf("writes after one change of %s on the %s (-want +got):\n%s", f.path, side, diff)
	}
}
