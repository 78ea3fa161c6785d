// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"testing"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/watch"
)

func TestMain(m *testing.M) {
	// A watch of client-go's fake panics where so many events wait for who reads them.
	watch.DefaultChanSize = 1000
	goleak.VerifyTestMain(m)
}
