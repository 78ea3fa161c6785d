#!/usr/bin/env bash
# Copyright The Spokelet Authors.
# SPDX-License-Identifier: Apache-2.0

# All Go code is formatted. Repair with hack/update-format.sh.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

out=$(git ls-files -z --cached --others --exclude-standard '*.go' | xargs -0 --no-run-if-empty ls -d 2>/dev/null | xargs --no-run-if-empty gofmt -l)
if [[ -n $out ]]; then
  echo "not formatted; run: make fmt"
  echo "$out"
  exit 1
fi
