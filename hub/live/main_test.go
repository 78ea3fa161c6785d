// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"testing"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	"k8s.io/klog/v2"
)

func TestMain(m *testing.M) {
	// The API machinery logs every start and stop of a server.
	klog.SetLogger(logr.Discard())
	goleak.VerifyTestMain(m,
		// client-go's WebSocket client pings on for some seconds when a stream has
		// not ended in order.
		goleak.IgnoreTopFunction("k8s.io/client-go/tools/remotecommand.(*heartbeat).start"),
		// A SPDY connection that its peer has closed first offers that error for a second. One
		// that has streams left waits in a goroutine of its own, which is not ignored.
		goleak.IgnoreTopFunction("github.com/moby/spdystream.(*Connection).shutdown"))
}
