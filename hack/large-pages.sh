#!/usr/bin/env bash
# Copyright The Spokelet Authors.
# SPDX-License-Identifier: Apache-2.0

# Has Linux give large pages to all programs, or to those alone that ask, as Go's do not; on a
# machine of continuous integration, whose setting it is to change, and nowhere else:
#
#   hack/large-pages.sh always|madvise
#
# They save compilers, linkers and tests that compute a twelfth of their time. Pods must not get
# them: their limits of memory are meant for small ones.
set -euo pipefail

setting=/sys/kernel/mm/transparent_hugepage/enabled
if [[ -n ${CI:-} && -w $setting ]]; then echo "$1" >"$setting" || true; fi
