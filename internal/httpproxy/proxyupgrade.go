// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package httpproxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
)

// maxRefusal bounds the body of an answer that refuses an upgrade: a Status,
// with room for an API server that answers in prose.
const maxRefusal = 1 << 20

// ErrSwitch is wrapped by the errors of ProxyUpgrade that come of an answer which
// is not the one that was asked for. It is a bad gateway (502).
var ErrSwitch = errors.New("backend did not switch to the protocol asked for")

// Options are those of ProxyUpgrade.
type Options struct {
	// FrameFilter, if set, returns the reader of what the client is sent, from the
	// backend's answer and connection.
	FrameFilter func(answer http.Header, backend io.Reader) io.Reader
	// OnEnd, if set, is called once: when both connections have ended, or before
	// ProxyUpgrade returns when there was no switch. Its argument is what cut the
	// stream, nil when it ended in order.
	OnEnd func(cause error)
}

// ProxyUpgrade sends the upgrade request out over rt and answers w: with the bytes of
// the switched connection, until it or ctx ends, or with the backend's refusal.
//
// It does not wait for the end of a switched connection. The handler of w may return:
// all that net/http keeps for it, a goroutine and two buffers, is free while the stream
// lasts. The request's context bounds the switch alone.
//
// The rt must use a connection per request. Whatever the backend answers, both
// connections are closed afterwards: one that a failed upgrade left open would
// carry the next request under this one's rights (CVE-2018-1002105).
//
// An error means that nothing has been written to w.
func ProxyUpgrade(ctx context.Context, w http.ResponseWriter, out *http.Request, rt http.RoundTripper, options Options) error {
	if options.OnEnd == nil {
		options.OnEnd = func(error) {}
	}
	s, from, err := switchProtocols(w, out, rt, options)
	if s == nil {
		options.OnEnd(nil)
		return err
	}
	s.start(ctx, from, options.OnEnd)
	return nil
}

// switchProtocols returns a splice when both sides have switched, and closes the backend's
// connection otherwise.
func switchProtocols(w http.ResponseWriter, out *http.Request, rt http.RoundTripper, options Options) (*splice, io.Reader, error) {
	res, err := rt.RoundTrip(out)
	if err != nil {
		return nil, nil, err
	}
	if res.StatusCode != http.StatusSwitchingProtocols {
		defer func() { _ = res.Body.Close() }()
		writeRefusal(w, res)
		return nil, nil, nil
	}
	backend, ok := res.Body.(io.ReadWriteCloser)
	if !ok || !strings.EqualFold(res.Header.Get("Upgrade"), out.Header.Get("Upgrade")) {
		_ = res.Body.Close()
		return nil, nil, fmt.Errorf("%w: asked for %q, got %q", ErrSwitch, out.Header.Get("Upgrade"), res.Header.Get("Upgrade"))
	}
	client, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		_ = backend.Close()
		return nil, nil, fmt.Errorf("%w: %w", ErrUpgrade, err)
	}
	res.Body = nil // the backend's connection; Write would copy it
	if err := sendSwitch(res, buffered, backend); err != nil {
		abort(client)
		abort(backend)
		return nil, nil, nil
	}
	var from io.Reader = backend
	if options.FrameFilter != nil {
		from = options.FrameFilter(res.Header, backend)
	}
	return &splice{client: client, backend: backend}, from, nil
}

// sendSwitch passes the 101 on to the client, and to the backend what the
// client has sent behind its request.
func sendSwitch(res *http.Response, client *bufio.ReadWriter, backend io.Writer) error {
	if err := res.Write(client); err != nil {
		return err
	}
	if err := client.Flush(); err != nil {
		return err
	}
	early := int64(client.Reader.Buffered())
	if early == 0 {
		return nil
	}
	_, err := io.CopyN(backend, client, early)
	return err
}

// writeRefusal passes on an answer other than 101 and has the client's connection
// closed behind it.
func writeRefusal(w http.ResponseWriter, res *http.Response) {
	h := w.Header()
	for k, v := range res.Header {
		if !slices.Contains(hopByHop, k) {
			h[k] = v
		}
	}
	h.Set("Connection", "close")
	w.WriteHeader(res.StatusCode)
	n, err := io.Copy(w, io.LimitReader(res.Body, maxRefusal))
	if err != nil || n == maxRefusal {
		panic(http.ErrAbortHandler)
	}
}
