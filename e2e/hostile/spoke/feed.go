// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package spoke

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"
	"k8s.io/apimachinery/pkg/util/wait"

	rpcv1 "github.com/spokelet/spokelet/api/rpc/v1"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/tunnel/resource"
)

const (
	// maxReceived is what the hub sends at most in one message, generously.
	maxReceived = 16 << 20
	// refsPerChunk is how many references of an inventory are sent in one message.
	refsPerChunk = 1000
	// Groups is how many nodes the hostile cluster has beside its own.
	Groups = wire.NodeGroupsMax
	// SplitLabel is the label that the hostile cluster splits its nodes by.
	SplitLabel = "rack.example.com/name"
)

// GroupName is the value of the label on the machines of one such node.
func GroupName(i int) string { return fmt.Sprintf("r%02d", i) }

// split makes as many nodes of the hostile cluster as there may be.
func split() *wire.NodeSplit {
	s := &wire.NodeSplit{Label: SplitLabel}
	for i := range Groups {
		s.Groups = append(s.Groups, GroupName(i))
	}
	return s
}

type syncStream = connect.BidiStream[rpcv1.SyncMessage, rpcv1.SyncMessage]

// feed serves the door "sync" by hand: it says what an attack has it say.
type feed struct {
	summary []byte

	// sending is held by whoever sends.
	sending sync.Mutex

	mu sync.Mutex
	// stream is the newest, nil when there is none; kinds are those that the hub has
	// asked for over it. Both are guarded by mu.
	stream *syncStream
	kinds  []string
	cut    context.CancelFunc
	// streams counts those that began.
	streams int
}

// abortKey carries the function that unblocks the stream of a request.
type abortKey struct{}

// serve has a handler's streams end when their contexts do.
func serve(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var mu sync.Mutex
		over := false // guarded by mu: nothing may be done with w any more
		abort := func() {
			mu.Lock()
			defer mu.Unlock()
			if rc := http.NewResponseController(w); !over {
				_ = errors.Join(rc.SetReadDeadline(time.Unix(1, 0)), rc.SetWriteDeadline(time.Unix(1, 0)))
			}
		}
		defer func() {
			mu.Lock()
			defer mu.Unlock()
			over = true
		}()
		handler.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), abortKey{}, abort)))
	})
}

// Sync implements rpcv1connect.SyncServiceHandler.
func (f *feed) Sync(ctx context.Context, stream *syncStream) error {
	abort, ok := ctx.Value(abortKey{}).(func())
	if !ok {
		return connect.NewError(connect.CodeInternal, errCut)
	}
	ctx, cut := context.WithCancel(ctx)
	defer cut()
	unguard := context.AfterFunc(ctx, abort)
	defer unguard()
	f.begin(stream, cut)
	err := f.receive(stream)
	// Who is sending must have ended before the handler does.
	abort()
	f.end(stream)
	return err
}

var errCut = errors.New("the stream of Sync has ended")

func (f *feed) receive(stream *syncStream) error {
	for {
		message, err := stream.Receive()
		if err != nil {
			return err
		}
		asked := message.GetInventory()
		if asked == nil || asked.GetMore() {
			continue
		}
		if err := f.asked(stream, asked.GetKind()); err != nil {
			return err
		}
	}
}

func (f *feed) begin(stream *syncStream, cut context.CancelFunc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stream, f.kinds, f.cut = stream, nil, cut
	f.streams++
}

func (f *feed) end(stream *syncStream) {
	f.sending.Lock()
	defer f.sending.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stream == stream {
		f.stream = nil
	}
}

// isCurrent says whether a stream is the newest one and has not ended.
func (f *feed) isCurrent(stream *syncStream) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stream == stream
}

// asked notes that the hub asked for a kind; of its nodes the cluster tells at once.
func (f *feed) asked(stream *syncStream, kind string) error {
	f.mu.Lock()
	if f.stream == stream {
		f.kinds = append(f.kinds, kind)
	}
	f.mu.Unlock()
	f.sending.Lock()
	defer f.sending.Unlock()
	switch kind {
	case wire.NodeSummaryKind:
		return stream.Send(put(kind, wire.NodeSummaryKey, "", f.summary))
	case wire.NodeGroupKind:
		const summary = `{"nodes":{"total":1,"ready":1},"capacity":{"cpu":"1","memory":"1Gi","pods":"10"},"allocatable":{"cpu":"1","memory":"1Gi","pods":"10"},"nodeInfo":{}}`
		for i := range Groups {
			if err := stream.Send(put(kind, GroupName(i), "", []byte(summary))); err != nil {
				return err
			}
		}
	}
	return nil
}

// streamCount is how many streams have begun.
func (f *feed) streamCount() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.streams
}

// cutStream ends the current stream; the hub opens another.
func (f *feed) cutStream() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stream != nil {
		f.stream = nil
		f.cut()
	}
}

// open waits for a stream that has not been cut. A hub gives up the session with its
// stream, a moment after: until it has opened another one, it may not know yet that the
// cluster is gone, and will not ask it for anything.
func (f *feed) open(ctx context.Context) error {
	return f.await(ctx, time.Minute, func() bool { return f.stream != nil })
}

// await waits until something holds that is guarded by mu.
func (f *feed) await(ctx context.Context, most time.Duration, holds func() bool) error {
	return wait.PollUntilContextTimeout(ctx, 5*time.Millisecond, most, true, func(context.Context) (bool, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		return holds(), nil
	})
}

// send says something once there is a stream over which the hub has asked for a kind,
// or any stream if the kind is empty. One attack sends at a time.
func (f *feed) send(ctx context.Context, kind string, message *rpcv1.SyncMessage) error {
	var stream *syncStream
	err := f.await(ctx, 10*time.Second, func() bool {
		stream = f.stream
		return stream != nil && (kind == "" || slices.Contains(f.kinds, kind))
	})
	if err != nil {
		return fmt.Errorf("sync of kind %q: %w", kind, err)
	}
	// A hub that has stopped reading ends no attack.
	unguard := context.AfterFunc(ctx, f.cutStream)
	defer unguard()
	f.sending.Lock()
	defer f.sending.Unlock()
	if !f.isCurrent(stream) {
		return errCut
	}
	if err := stream.Send(message); err != nil {
		f.cutStream()
		return err
	}
	return nil
}

// sendNext is send for an attack that has said something so many times before. Its stream
// may end before the first, for a hub may notice only then that the attack before has cut
// one, and gives up the session: what begins an attack is said over the next stream.
func (f *feed) sendNext(ctx context.Context, before int, kind string, message *rpcv1.SyncMessage) error {
	for {
		err := f.send(ctx, kind, message)
		if err == nil || before > 0 || wait.Interrupted(err) || ctx.Err() != nil {
			return err
		}
	}
}

func put(kind, key, uid string, body []byte) *rpcv1.SyncMessage {
	hash := sha256.Sum256(body)
	ref := &rpcv1.ResourceRef{Kind: kind, Key: key, Uid: uid, Generation: 1, Hash: hash[:]}
	return &rpcv1.SyncMessage{Message: &rpcv1.SyncMessage_Put{Put: &rpcv1.Resource{Ref: ref, Body: body}}}
}

// held is a chunk of an inventory, whose references have names as long as may be.
func held(kind string, chunk int) *rpcv1.SyncMessage {
	inventory := &rpcv1.Inventory{Kind: kind, More: true}
	hash := make([]byte, sha256.Size)
	for i := range refsPerChunk {
		name := fmt.Sprintf("%0*d", resource.MaxKey, chunk*refsPerChunk+i)
		inventory.Refs = append(inventory.Refs, &rpcv1.ResourceRef{Key: name, Uid: name, Hash: hash})
	}
	return &rpcv1.SyncMessage{Message: &rpcv1.SyncMessage_Inventory{Inventory: inventory}}
}
