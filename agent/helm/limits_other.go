// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package helm

import (
	"errors"
	"fmt"
	"os"
)

var errSystem = fmt.Errorf("helm runs on Linux alone: %w", errors.ErrUnsupported)

func limit(int, int64) error { return errSystem }

func socketPair() (ends [2]*os.File, err error) { return ends, errSystem }
