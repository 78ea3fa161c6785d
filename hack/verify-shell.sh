#!/usr/bin/env bash
# Copyright The Spokelet Authors.
# SPDX-License-Identifier: Apache-2.0

# Shell scripts parse, and stop at the first error.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

status=0
for script in hack/*.sh .ci/run; do
  bash -n "$script" || status=1
  if ! grep -qE '^set -e?uo pipefail$' "$script"; then
    echo "$script: does not say set -euo pipefail"
    status=1
  fi
done
exit $status
