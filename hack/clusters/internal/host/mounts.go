// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Unmount detaches every mount at or below dir, the innermost first.
func Unmount(dir string) error {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return fmt.Errorf("mounts below %s: %w", dir, err)
	}
	for _, point := range mountsBelow(string(table), dir) {
		err := unix.Unmount(point, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		// Gone with its parent, where mounts propagate.
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("unmount %s: %w", point, err)
		}
	}
	return nil
}

// mountsBelow lists the mount points at or below dir in a mountinfo table (see
// proc_pid_mountinfo(5)), latest first.
func mountsBelow(table, dir string) []string {
	var points []string
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		point := unescape(fields[4])
		if point == dir || strings.HasPrefix(point, dir+"/") {
			points = append(points, point)
		}
	}
	slices.Reverse(points)
	return points
}

// unescape undoes the kernel's octal escapes of blanks and backslashes.
func unescape(text string) string {
	var out strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+3 < len(text) {
			if code, err := strconv.ParseUint(text[i+1:i+4], 8, 8); err == nil {
				out.WriteByte(byte(code))
				i += 3
				continue
			}
		}
		out.WriteByte(text[i])
	}
	return out.String()
}

// Overlay tells whether overlay mounts work in dir, which they do not on top of
// another overlay, as in a container.
func Overlay(dir string) bool {
	base, err := os.MkdirTemp(dir, "overlay-")
	if err != nil {
		return false
	}
	defer func() { _ = os.RemoveAll(base) }() // empty, at worst
	for _, name := range []string{"lower", "upper", "work", "merged"} {
		if os.Mkdir(filepath.Join(base, name), 0o755) != nil { //nolint:gosec // removed at once
			return false
		}
	}
	options := fmt.Sprintf("lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work", base)
	merged := filepath.Join(base, "merged")
	if unix.Mount("overlay", merged, "overlay", 0, options) != nil {
		return false
	}
	return unix.Unmount(merged, unix.MNT_DETACH) == nil
}
