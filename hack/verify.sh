#!/usr/bin/env bash
# Copyright The Spokelet Authors.
# SPDX-License-Identifier: Apache-2.0

# Runs every hack/verify-*.sh and says how long each took. All of them run,
# whatever fails, so that one run shows everything there is to repair.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

failed=()
for script in hack/verify-*.sh; do
  name=${script#hack/verify-}
  name=${name%.sh}
  start=$SECONDS
  if out=$("$script" 2>&1); then
    printf 'ok    %-12s %4ds\n' "$name" $((SECONDS - start))
  else
    printf 'FAIL  %-12s %4ds\n%s\n' "$name" $((SECONDS - start)) "$out"
    failed+=("$name")
  fi
done
if ((${#failed[@]})); then
  echo "verify failed: ${failed[*]}" >&2
  exit 1
fi
