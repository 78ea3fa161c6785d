#!/usr/bin/env bash
# Copyright The Spokelet Authors.
# SPDX-License-Identifier: Apache-2.0

# Keeps the binary of a test that go test has linked, for hack/run-kept-tests.sh, and runs it:
#
#   go test -exec hack/keep-test.sh
#
# With SPOKELET_KEEP_ONLY=1 it is not run. Binaries are in bin/tests, in the folders of their
# packages; where there is no such folder, none is kept.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)

here=$(pwd -P)
kept=$root/bin/tests/${here#"$root"/}
if [[ -d $kept ]]; then ln -f "$1" "$kept/test" 2>/dev/null || cp "$1" "$kept/test"; fi
if [[ -z ${SPOKELET_KEEP_ONLY:-} ]]; then exec "$@"; fi
