#!/usr/bin/env bash
# Copyright The Spokelet Authors.
# SPDX-License-Identifier: Apache-2.0

# go.mod and go.sum say what the code imports, no more and no less. Repair with
# hack/update-modules.sh.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

status=0
for dir in $(./modules.sh --all); do
  if ! out=$(cd "../$dir" && go mod tidy -diff 2>&1); then
    echo "$dir is not tidy; run: hack/update-modules.sh"
    echo "$out"
    status=1
  fi
done
exit $status
