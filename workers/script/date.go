// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package script

import (
	"fmt"
	"time"
)

// Date reads a compatibility date in either spelling, 2026-01-15 or 01/15/2026, and returns
// the first. workerd reads no other, and knows which dates it supports.
func Date(s string) (string, error) {
	for _, layout := range []string{time.DateOnly, "01/02/2006"} {
		if t, err := time.Parse(layout, s); err == nil {
			return t.Format(time.DateOnly), nil
		}
	}
	return "", fmt.Errorf("%s is no date as in 2026-01-15 or 01/15/2026", quoted(s))
}
