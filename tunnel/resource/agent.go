// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"connectrpc.com/connect"

	rpcv1 "github.com/spokelet/spokelet/api/rpc/v1"
	"github.com/spokelet/spokelet/api/rpc/v1/rpcv1connect"
)

// compressAbove is the size in bytes above which a message is worth gzip.
const compressAbove = 8 << 10

// closeTimeout is how long a stream that ends may take to send its reason.
const closeTimeout = time.Second

// Agent is the agent's end: the handler of the door "sync".
type Agent struct {
	exchange exchange
	handler  http.Handler
}

// NewAgent joins the sources and mirrors, one per kind at most.
func NewAgent(sources []*Source, mirrors []*Mirror) (*Agent, error) {
	if err := checkDistinctKinds(sources, mirrors); err != nil {
		return nil, err
	}
	a := &Agent{exchange: exchange{ends: func() ([]*Source, []*Mirror) { return sources, mirrors }}}
	_, a.handler = rpcv1connect.NewSyncServiceHandler(service{a},
		connect.WithReadMaxBytes(MaxBody+messageOverhead), connect.WithCompressMinBytes(compressAbove))
	return a, nil
}

func checkDistinctKinds(sources []*Source, mirrors []*Mirror) error {
	seen := map[string]struct{}{}
	add := func(kind string) error {
		if _, ok := seen[kind]; ok {
			return fmt.Errorf("kind %q is used twice", kind)
		}
		seen[kind] = struct{}{}
		return nil
	}
	for _, s := range sources {
		if err := add(s.kind); err != nil {
			return err
		}
	}
	for _, m := range mirrors {
		if err := add(m.kind); err != nil {
			return err
		}
	}
	return nil
}

// abortKey carries the function that unblocks the stream of a request.
type abortKey struct{}

// ServeHTTP serves one stream; a newer one ends it with ErrSuperseded.
func (a *Agent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	abort := func() {
		// Deadlines are the one way to unblock a handler's reads and writes from
		// outside; a stream whose writer has none ends with its session. Why the
		// stream ends is still to be written: a write deadline that is over would
		// reset the stream, without a reason, even where nothing is blocked.
		rc := http.NewResponseController(w)
		_ = errors.Join(rc.SetReadDeadline(time.Unix(1, 0)), rc.SetWriteDeadline(time.Now().Add(closeTimeout)))
	}
	a.handler.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), abortKey{}, abort)))
}

// service keeps the RPC method off the Agent.
type service struct{ agent *Agent }

func (s service) Sync(ctx context.Context, c *connect.BidiStream[rpcv1.SyncMessage, rpcv1.SyncMessage]) error {
	abort, ok := ctx.Value(abortKey{}).(func())
	if !ok {
		return connect.NewError(connect.CodeInternal, errors.New("sync request did not come through its door"))
	}
	return withConnectCode(s.agent.exchange.serve(ctx, c, noop, abort))
}

// noop is the begin of the agent's end, which the hub calls.
func noop() error { return nil }

// withConnectCode returns the reason a stream ended with a code for the hub.
func withConnectCode(err error) error {
	switch {
	case errors.Is(err, ErrSuperseded):
		return connect.NewError(connect.CodeAborted, err)
	case errors.Is(err, ErrProtocol):
		return connect.NewError(connect.CodeInvalidArgument, err)
	case errors.Is(err, ErrTooMany):
		return connect.NewError(connect.CodeResourceExhausted, err)
	default:
		return err
	}
}
