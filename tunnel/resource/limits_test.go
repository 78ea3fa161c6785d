// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"bytes"
	"context"
	"errors"
	"io"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	rpcv1 "github.com/spokelet/spokelet/api/rpc/v1"
	"github.com/spokelet/spokelet/api/rpc/v1/rpcv1connect"
	"github.com/spokelet/spokelet/internal/quota"
)

// elements is JSON of so many bytes, which is hundreds of times as much once decoded.
func elements(bytes int) []byte { return []byte("[{}" + strings.Repeat(",{}", bytes/3-1) + "]") }

// counted is a logger that counts its lines.
func counted(lines *atomic.Int64) logr.Logger {
	return funcr.New(func(string, string) { lines.Add(1) }, funcr.Options{})
}

func TestResourceThatNeverFitsIsDropped(t *testing.T) {
	p := newPair(t)
	var lines atomic.Int64
	p.hub.Limit(quota.NewMemory(32<<20, 128<<20), counted(&lines))
	p.hub.Forget("c") // made before there were limits
	defer p.run(t)()
	for i := range 100 {
		if err := p.up.Put(Resource{Key: "bomb", Generation: int64(i), Body: elements(200 << 10)}); err != nil {
			t.Fatal(err)
		}
		if err := p.up.Put(Resource{Key: "after", Body: []byte(strconv.Itoa(i))}); err != nil {
			t.Fatal(err)
		}
		if i%10 == 0 {
			p.atHub.wait(func() bool { return p.atHub.have["after"] == strconv.Itoa(i) })
		}
	}
	p.atHub.wait(func() bool { return p.atHub.have["after"] == "99" })
	p.atHub.do(func() {
		if _, ok := p.atHub.have["bomb"]; ok {
			t.Error("200 KiB of JSON that becomes 33 MiB was handed over")
		}
	})
	if n := lines.Load(); n == 0 || n > 20 {
		t.Errorf("%d lines were logged of one key that is refused again and again", n)
	}
}

// counts is a stream's end that hands puts of a kind to a receiver, and what that takes.
func counts(memory *quota.Memory, owner string, r Receiver) *stream {
	s := newStream(nil, &limits{memory: memory, owner: owner, maxBody: MaxReport, onRefused: func(string, string, error) {}})
	s.mirrors["k"] = NewMirror("k", r).open()
	return s
}

func putOf(key string, body []byte) *rpcv1.SyncMessage {
	return put("k", RefOf(Resource{Key: key, Body: body}), body, 0)
}

func TestResourceWaitsForMemoryWithoutBlockingOtherClusters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := quota.NewMemory(32<<20, 64<<20)
		body := elements(150 << 10) // 25 MiB
		kept := make(chan *quota.Account, 10)
		hold := Receiver{keepsAccount: true, Put: func(r Resource) { kept <- r.Account }}
		hostile, other := counts(memory, "hostile", hold), counts(memory, "other", hold)
		if err := hostile.handleMessage(t.Context(), putOf("a", body)); err != nil {
			t.Fatal(err)
		}
		waits := make(chan error, 1)
		go func() { waits <- hostile.handleMessage(t.Context(), putOf("b", body)) }()
		synctest.Wait()
		if len(kept) != 1 {
			t.Fatalf("%d are held, want one", len(kept))
		}
		for _, small := range []string{"a", "b", "c"} {
			if err := other.handleMessage(t.Context(), putOf(small, []byte(`{}`))); err != nil || len(kept) == 0 {
				t.Fatalf("another cluster waits: %v", err)
			}
		}
		if err := other.handleMessage(t.Context(), putOf("large", body)); err != nil {
			t.Fatalf("another cluster waits: %v", err)
		}
		(<-kept).Close()
		if err := <-waits; err != nil {
			t.Errorf("there is room again: %v", err)
		}
		for len(kept) > 0 {
			(<-kept).Close()
		}
		if memory.Held() != 0 {
			t.Errorf("%d bytes are held of what is of no more use", memory.Held())
		}
	})
}

func TestWaitForMemoryEndsWithStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := quota.NewMemory(32<<20, 64<<20)
		if err := memory.Account("c").Grow(32 << 20); err != nil {
			t.Fatal(err)
		}
		s := counts(memory, "c", Receiver{})
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Hour, func() { cancel(ErrSuperseded) })
		if err := s.handleMessage(ctx, putOf("a", elements(100<<10))); !errors.Is(err, ErrSuperseded) {
			t.Errorf("accept = %v, want %v", err, ErrSuperseded)
		}
		s.mirrors["k"].close() // nothing that waits holds it up
	})
}

func TestMemoryIsReleasedAfterPut(t *testing.T) {
	memory := quota.NewMemory(32<<20, 64<<20)
	var during int64
	s := counts(memory, "c", Receiver{Put: func(Resource) { during = memory.Held() }})
	body := elements(100 << 10)
	for range 2 { // the second time it is known
		if err := s.handleMessage(t.Context(), putOf("a", body)); err != nil {
			t.Fatal(err)
		}
	}
	s.mirrors["k"].close()
	if err := s.handleMessage(t.Context(), putOf("b", body)); !errors.Is(err, ErrSuperseded) {
		t.Errorf("accept = %v, want %v", err, ErrSuperseded)
	}
	if during < int64(len(body)) || memory.Held() != 0 {
		t.Errorf("%d bytes were held while it was taken, and %d are now", during, memory.Held())
	}
}

// endless is a peer that says what next returns, for ever.
type endless struct {
	next func() *rpcv1.SyncMessage
	done <-chan struct{}
}

func (e endless) Send(*rpcv1.SyncMessage) error { <-e.done; return io.EOF }

func (e endless) Receive() (*rpcv1.SyncMessage, error) {
	select {
	case <-e.done:
		return nil, io.EOF
	default:
		return e.next(), nil
	}
}

func TestEndlessInventoryIsBounded(t *testing.T) {
	for name, pause := range map[string]time.Duration{"as fast as it can be": 0, "slowly": time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory := quota.NewMemory(1<<20, 64<<20)
				source := newSource("k", nil, MaxBody)
				e := exchange{
					ends:   func() ([]*Source, []*Mirror) { return []*Source{source}, nil },
					limits: &limits{memory: memory, owner: "c", maxBody: MaxReport},
				}
				n, most := 0, int64(0)
				ctx, abort := context.WithCancel(t.Context())
				began := time.Now()
				err := e.serve(ctx, endless{done: ctx.Done(), next: func() *rpcv1.SyncMessage {
					time.Sleep(pause)
					n++
					most = max(most, memory.Held())
					ref := encodeRef("", Ref{Key: strings.Repeat("k", MaxKey-20) + strconv.Itoa(n), UID: strings.Repeat("u", MaxKey)})
					return &rpcv1.SyncMessage{Message: &rpcv1.SyncMessage_Inventory{
						Inventory: &rpcv1.Inventory{Kind: "k", More: true, Refs: []*rpcv1.ResourceRef{ref}},
					}}
				}}, noop, abort)
				if !errors.Is(err, ErrProtocol) || time.Since(began) > inventoryTime+3*time.Second {
					t.Errorf("it ended with %v after %s", err, time.Since(began))
				}
				if most > 1<<20 || n > 2000 || memory.Held() != 0 {
					t.Errorf("%d references took %d bytes, %d after the end", n, most, memory.Held())
				}
			})
		})
	}
}

// ask has a mirror say what it holds.
func ask(t *testing.T, f *sourceStream, more bool, rs ...Resource) {
	t.Helper()
	in := &rpcv1.Inventory{Kind: "k", More: more}
	for _, r := range rs {
		in.Refs = append(in.Refs, encodeRef("", RefOf(r)))
	}
	if err := errors.Join(f.account.Grow(inventoryCost(in)), f.handleInventory(in)); err != nil {
		t.Fatal(err)
	}
}

func TestInventoryIsAccountedUntilAnswered(t *testing.T) {
	memory := quota.NewMemory(1<<20, 1<<20)
	source := newSource("k", nil, MaxBody)
	same, newer, gone := Resource{Key: "same"}, Resource{Key: "newer", Generation: 1}, Resource{Key: "gone"}
	if err := source.Put(same); err != nil {
		t.Fatal(err)
	}
	f := source.open(memory.Account("c"), func() {})
	held := func(when string, refs int64) {
		t.Helper()
		if got := memory.Held(); got/refCost != refs {
			t.Errorf("%s: %d bytes are held, want %d references", when, got, refs)
		}
	}
	ask(t, f, true, same, newer, gone)
	held("what is published takes nothing", 2)
	ask(t, f, true, gone)
	held("what is said twice counts once", 2)
	ask(t, f, false)
	held("the source has not all yet", 2)
	if err := source.Put(Resource{Key: "newer", Generation: 2}); err != nil {
		t.Fatal(err)
	}
	held("one is matched", 1)
	source.Complete()
	held("what is gone is still to be said", 1)
	for f.next(time.Time{}) != nil {
	}
	held("all is said", 0)
	ask(t, source.open(memory.Account("c"), func() {}), true, gone)
	g := source.open(memory.Account("c"), func() {})
	ask(t, g, true, gone)
	g.close()
	held("one of two streams has ended", 1)
}

func TestReferencesAreCountedBeforeDecoding(t *testing.T) {
	// The two bytes of an empty reference, as often as fit into a message.
	refs := bytes.Repeat([]byte("\x12\x00"), (MaxReport+messageOverhead)/2-10)
	inventory := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), refs)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := countingCodec{}.Unmarshal(inventory, &rpcv1.SyncMessage{})
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; !errors.Is(err, ErrProtocol) || grown > 1<<20 {
		t.Errorf("Unmarshal = %v after %d bytes, want %v", err, grown, ErrProtocol)
	}
	whole := &rpcv1.Inventory{Kind: "k", More: true}
	for range inventoryChunk {
		whole.Refs = append(whole.Refs, encodeRef("", Ref{Key: strings.Repeat("k", MaxKey), UID: strings.Repeat("u", MaxKey)}))
	}
	raw, err := countingCodec{}.Marshal(&rpcv1.SyncMessage{Message: &rpcv1.SyncMessage_Inventory{Inventory: whole}})
	if err != nil || len(raw) > MaxReport+messageOverhead {
		t.Errorf("the longest message of an inventory has %d bytes: %v", len(raw), err)
	}
	if err := (countingCodec{}).Unmarshal(raw, &rpcv1.SyncMessage{}); err != nil {
		t.Errorf("the longest message of an inventory: %v", err)
	}
}

func FuzzReferencesAreCounted(f *testing.F) {
	f.Add([]byte("\x0a\x04\x12\x00\x12\x00"))
	f.Add([]byte("\x0a\x02\x12\x00\x12\x00\x0a\x02\x12\x00"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var m rpcv1.SyncMessage
		if proto.Unmarshal(raw, &m) != nil {
			return
		}
		if made, counted := len(m.GetInventory().GetRefs()), countRefs(raw); made > counted {
			t.Errorf("%d references were made and %d counted", made, counted)
		}
	})
}

// hostileAgent answers Sync with whatever it likes.
type hostileAgent struct {
	sync func(*connect.BidiStream[rpcv1.SyncMessage, rpcv1.SyncMessage]) error
}

func (a hostileAgent) Sync(_ context.Context, c *connect.BidiStream[rpcv1.SyncMessage, rpcv1.SyncMessage]) error {
	return a.sync(c)
}

func TestMessageOfAgentIsBounded(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		want   connect.Code
		sync   func(*connect.BidiStream[rpcv1.SyncMessage, rpcv1.SyncMessage]) error
	}{
		"a body": {reason: "compressed it is small", want: connect.CodeResourceExhausted, sync: func(c *connect.BidiStream[rpcv1.SyncMessage, rpcv1.SyncMessage]) error {
			return c.Send(putOf("a", elements(MaxBody)))
		}},
		"a reason to end": {reason: "it is logged", want: connect.CodeInternal, sync: func(*connect.BidiStream[rpcv1.SyncMessage, rpcv1.SyncMessage]) error {
			return connect.NewError(connect.CodeInternal, errors.New(strings.Repeat("x", 1<<20)))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			_, handler := rpcv1connect.NewSyncServiceHandler(hostileAgent{tc.sync})
			h := NewHub()
			h.Mirror("k", HubReceiver{Put: func(string, Resource) { t.Errorf("%s: it was taken", tc.reason) }})
			err := h.Run(t.Context(), "c", sessionTo(t, handler))
			if got := connect.CodeOf(err); got != tc.want || len(err.Error()) > 2*maxReason {
				t.Errorf("%s: the stream ended with %s and %d bytes of text, want %s", tc.reason, got, len(err.Error()), tc.want)
			}
		})
	}
}

func TestAgentSourceRefusesWhatHubWouldRefuse(t *testing.T) {
	if err := NewSource("k").Put(Resource{Key: "a", Body: make([]byte, MaxReport+1)}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("Put = %v, want %v", err, ErrTooLarge)
	}
	p := newPair(t)
	defer p.run(t)()
	if err := p.up.Put(Resource{Key: "a", Body: make([]byte, MaxReport)}); err != nil {
		t.Fatal(err)
	}
	p.atHub.wait(func() bool { return len(p.atHub.have["a"]) == MaxReport })
}
