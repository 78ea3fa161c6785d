// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"testing"
)

// stands makes the refusal one that has stood for long.
func (d *denied) stands() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.runs = 20
}

func TestARefusalIsAskedAboutSoonAndThenLessAndLess(t *testing.T) {
	d := &denied{}
	want := permissionLag
	for n := range 7 {
		if pause := d.wait(); pause < want/2 || pause > want {
			t.Errorf("after %d refusals: %s, want up to %s", n+1, pause, want)
		}
		d.judge(true)
		want = min(2*want, permissionRetry)
	}
	d.judge(false)
	if pause := d.wait(); pause > permissionLag {
		t.Errorf("what was allowed is refused: %s, want up to %s", pause, permissionLag)
	}
}
