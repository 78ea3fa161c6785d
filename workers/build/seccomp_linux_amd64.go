// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package build

import "golang.org/x/sys/unix"

const (
	architecture = unix.AUDIT_ARCH_X86_64
	foreignBit   = 0x40000000
)
