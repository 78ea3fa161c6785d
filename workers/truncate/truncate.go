// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package truncate shortens texts that end in conditions, events and answers.
package truncate

import "strings"

const ellipsis = "..."

// Text returns a text of at most limit bytes, cut between characters and marked if it is longer.
func Text(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit-len(ellipsis)], "") + ellipsis
}
