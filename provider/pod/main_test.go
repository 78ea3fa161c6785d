// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"testing"

	"go.uber.org/goleak"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

func TestMain(m *testing.M) {
	// Of apimachinery's handlers the second sleeps until a millisecond after the last
	// error of the process. In a synctest bubble that is a quarter of a century: its time
	// begins in 2000, and the last error of the process is no older than the process.
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1] //nolint:reassign // there is no other way
	// A watch of client-go's fake panics where so many events wait for who reads them.
	watch.DefaultChanSize = 1000
	goleak.VerifyTestMain(m)
}
