// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"io"
	"net/http"
	"strings"

	"github.com/spokelet/spokelet/internal/httpproxy/spdy"
)

// protocolSPDY is what exec, attach and port-forward switch to, unless they use WebSockets:
// a WebSocket that ends without a word is broken by itself.
const protocolSPDY = "SPDY/3.1"

// spdyMonitor reports a cut connection to the client of a command. Without a report the client
// would exit with code 0, as it does when the command ends.
type spdyMonitor struct{ http.RoundTripper }

func (f spdyMonitor) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := f.RoundTripper.RoundTrip(r)
	if err != nil || res.StatusCode != http.StatusSwitchingProtocols || !strings.EqualFold(res.Header.Get("Upgrade"), protocolSPDY) {
		return res, err
	}
	body, ok := res.Body.(io.ReadWriteCloser)
	server := spdy.Follow(res.Body, res.Header)
	if ok && server != nil {
		res.Body = struct {
			io.Reader
			io.WriteCloser
		}{server, body}
	}
	return res, nil
}
