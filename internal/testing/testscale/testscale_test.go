// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package testscale

import "testing"

func TestOfIsTheFullCountWhereItIsAskedFor(t *testing.T) {
	cases := map[string]struct {
		full string
		want int
	}{
		"a usual run": {full: "", want: 1},
		"a full run":  {full: "1", want: 2},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Setenv(Full, tc.full)
			if got := Of(1, 2); got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
		})
	}
}
