// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package truncate

import "testing"

func TestTextKeepsCharactersWhole(t *testing.T) {
	for _, tc := range []struct{ text, want string }{{"short", "short"}, {"twelve bytes", "twelve ..."}, {"ééééééé", "ééé..."}} {
		if got := Text(tc.text, 10); got != tc.want {
			t.Errorf("%q is %q, want %q", tc.text, got, tc.want)
		}
	}
}
