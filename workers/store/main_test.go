// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// What a store refuses is asked for three times, with pauses of up to 400 ms.
	minio.DefaultRetryUnit = 10 * time.Millisecond
	goleak.VerifyTestMain(m)
}
