#!/usr/bin/env bash
# Copyright The Spokelet Authors.
# SPDX-License-Identifier: Apache-2.0

# go.mod and go.sum say what the code imports, no more and no less. Repair with
# hack/update-modules.sh. Modules with code of ours agree on the versions of what they import: with
# another golang.org/x/sys, all of client-go is compiled once more. Repair with go get.
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
for dir in $(./modules.sh); do
  awk '$2 ~ /^v[0-9]/ {print $1, $2}' "../$dir/go.mod"
done | sort -u | awk '
  $1 in version {print $1 " has versions " version[$1] " and " $2; differ = 1}
  {version[$1] = $2}
  END {exit differ}' || status=1
exit $status
