// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package httpproxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
)

// maxRefusal bounds the body of an answer that refuses an upgrade: a Status,
// with room for an API server that answers in prose.
const maxRefusal = 1 << 20

// ErrSwitch is wrapped by the errors of Exchange that come of an answer which
// is not the one that was asked for. It is a bad gateway (502).
var ErrSwitch = errors.New("backend did not switch to the protocol asked for")

// Exchange sends the upgrade request out over rt and answers w: with the bytes
// of the switched connection, until it ends or the request's context does, or
// with the backend's refusal.
//
// The rt must use a connection per request. Whatever the backend answers, both
// connections are closed afterwards: one that a failed upgrade left open would
// carry the next request under this one's rights (CVE-2018-1002105).
//
// An error means that nothing has been written to w.
func Exchange(w http.ResponseWriter, out *http.Request, rt http.RoundTripper) error {
	ended := make(chan struct{})
	if err := Switch(out.Context(), w, out, rt, func(error) { close(ended) }); err != nil {
		return err
	}
	<-ended
	return nil
}

// Switch is an Exchange that does not wait for the end of a switched connection.
// The handler of w may return: all that net/http keeps for it, a goroutine and
// two buffers, is free while the stream lasts, until life ends. The request's
// context bounds the switch alone.
//
// A backend's body that has a method Client(net.Conn) net.Conn chooses how the
// client's connection is read and ended: it is spliced with what that returns.
//
// ended is called once, when both connections have ended, or before Switch
// returns when there was no switch. Its argument is what cut the stream, nil when
// it ended in order.
func Switch(life context.Context, w http.ResponseWriter, out *http.Request, rt http.RoundTripper, ended func(cause error)) error {
	var client net.Conn
	defer func() {
		if client == nil {
			ended(nil)
		}
	}()
	res, err := rt.RoundTrip(out) //nolint:bodyclose // closed below, under a name that outlives its replacement
	if err != nil {
		return err
	}
	body := res.Body
	defer func() {
		if client == nil {
			_ = body.Close()
		}
	}()
	if res.StatusCode != http.StatusSwitchingProtocols {
		refusal(w, res)
		return nil
	}
	backend, ok := body.(io.ReadWriteCloser)
	if !ok || !strings.EqualFold(res.Header.Get("Upgrade"), out.Header.Get("Upgrade")) {
		return fmt.Errorf("%w: asked for %q, got %q", ErrSwitch, out.Header.Get("Upgrade"), res.Header.Get("Upgrade"))
	}
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUpgrade, err)
	}
	res.Body = nil // the backend's connection; Write would copy it
	if err := sendSwitch(res, buffered, backend); err != nil {
		abort(conn)
		abort(backend)
		return nil
	}
	client = conn
	if reader, ok := backend.(interface{ Client(net.Conn) net.Conn }); ok {
		client = reader.Client(conn)
	}
	begin(life, client, backend, func(cause error) {
		_ = body.Close()
		ended(cause)
	})
	return nil
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

// refusal passes on an answer other than 101 and has the client's connection
// closed behind it.
func refusal(w http.ResponseWriter, res *http.Response) {
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
