// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseMountsFindsEveryHierarchy(t *testing.T) {
	const mounts = `proc /proc proc rw 0 0
tmpfs /sys/fs/cgroup tmpfs rw,mode=755 0 0
cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0
cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0
cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0
`
	want := []string{"/sys/fs/cgroup/cpu", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/unified"}
	if diff := cmp.Diff(want, parseMounts(mounts)); diff != "" {
		t.Errorf("hierarchies (-want +got):\n%s", diff)
	}
}

func TestCreateV1HandsDownTheCPUsAtEveryLevel(t *testing.T) {
	root := t.TempDir()
	for file, value := range map[string]string{"cpuset.cpus": "0-1\n", "cpuset.mems": "0\n"} {
		if err := os.WriteFile(filepath.Join(root, file), []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := createV1(root, "/spokelet/dev/hub"); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(root, "spokelet", "dev", "hub", "cpuset.cpus"))
	if err != nil || string(got) != "0-1\n" {
		t.Errorf("cpuset.cpus is %q, %v", got, err)
	}
	if err := createV1(root, "/spokelet/dev/hub"); err != nil {
		t.Errorf("what is there already is not an error: %v", err)
	}
}

func TestTreeListsChildrenBeforeTheirParents(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "a", "b"), 0o750); err != nil {
		t.Fatal(err)
	}
	want := []string{filepath.Join(root, "a", "b"), filepath.Join(root, "a"), root}
	if diff := cmp.Diff(want, tree(root)); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	if got := tree(filepath.Join(root, "absent")); got != nil {
		t.Errorf("a group that does not exist has %v", got)
	}
}
