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
	goleak.VerifyTestMain(m)
}
