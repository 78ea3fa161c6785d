// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import "errors"

// errPeriodOver ends a load after its time.
var errPeriodOver = errors.New("period is over")
