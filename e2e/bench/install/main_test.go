// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr/funcr"
	"go.uber.org/goleak"
	"k8s.io/klog/v2"
)

// logged counts what clients write to the log that all of a program share. What they
// leave for a moment may still do so when a test ends, so that it is set once.
var logged atomic.Int32

func TestMain(m *testing.M) {
	klog.SetLogger(funcr.New(func(prefix, args string) {
		logged.Add(1)
		fmt.Fprintln(os.Stderr, prefix, args)
	}, funcr.Options{}))
	goleak.VerifyTestMain(m, pings())
}

// pings lets those of a client go on that has ended: client-go ends them with the next one,
// after up to five seconds.
func pings() goleak.Option {
	return goleak.IgnoreTopFunction("k8s.io/client-go/tools/remotecommand.(*heartbeat).start")
}
