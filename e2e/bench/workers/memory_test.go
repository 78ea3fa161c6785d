// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package workers

import "testing"

func TestHighWaterIsInBytes(t *testing.T) {
	for reason, tc := range map[string]struct {
		status string
		want   int64
	}{
		"a process":          {"Name:\tworkerd\nVmPeak:\t  900 kB\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n", 2 << 20},
		"a thread of kernel": {"Name:\tkthreadd\n", 0},
		"none":               {"", 0},
	} {
		if got := highWater([]byte(tc.status)); got != tc.want {
			t.Errorf("%s: got %d, want %d", reason, got, tc.want)
		}
	}
}

func TestAPodsCgroupHasItsUIDInEitherSpelling(t *testing.T) {
	const pod = "0a1b2c3d-0000-4000-8000-000000000001"
	for group, want := range map[string]bool{
		"4:memory:/kubepods/burstable/pod0a1b2c3d-0000-4000-8000-000000000001/cri":                             true,
		"0::/kubepods.slice/kubepods-burstable.slice/kubepods-pod0a1b2c3d_0000_4000_8000_000000000001.slice/c": true,
		"0::/kubepods/pod0a1b2c3d-0000-4000-8000-000000000002/cri":                                             false,
		"0::/": false,
	} {
		if got := ofPod([]byte(group), pod); got != want {
			t.Errorf("%s: got %t, want %t", group, got, want)
		}
	}
}

func TestTheFigureIsThatOfTheLargestContainer(t *testing.T) {
	p := peaks{
		"fetch": {"1": 20 << 20},
		"check": {"1": 30 << 20, "7": 100 << 20},
	}
	got := p.figures()
	if len(got) != 1 || got[0].Value != 130 {
		t.Errorf("got %+v, want one of 130 MiB", got)
	}
	if got := (peaks{}).figures(); got != nil {
		t.Errorf("of nothing: %+v", got)
	}
}
