#!/usr/bin/env bash
# Copyright The Spokelet Authors.
# SPDX-License-Identifier: Apache-2.0

# Makes three real clusters, a hub and two spokes, runs the suites of the end-to-end tests on them, whatever
# fails on the way, and removes them. One suite alone needs no script:
#
#   cd e2e && go test -count=1 -v -timeout 20m ./suites/node
#
# The arguments go to go test.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

name=${SPOKELET_E2E_SET:-e2e}
export SPOKELET_E2E_SHARED=1
bin=$(mktemp -d)
status=0
# Where its module is: it finds what it builds the clusters from by "go list".
clusters() (cd hack/clusters && CGO_ENABLED=0 "$bin/clusters" "$@")
cleanup() {
  if [[ $status != 0 && -n ${SPOKELET_E2E_KEEP:-} ]]; then
    echo "the clusters of set $name stay up" >&2
  else
    clusters down --name "$name" || status=1
  fi
  # The last lines are all that some records keep.
  cat "$bin"/failed.* 2>/dev/null || true
  rm -rf "$bin"
  if [[ $status != 0 ]]; then exit "$status"; fi
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# suites runs some, beside each other, and of each $parallel tests at a time.
parallel=16
suites() {
  local list=() start=$SECONDS log=$bin/log
  for suite in "$@"; do list+=("./suites/$suite"); done
  if ! (cd e2e && ../bin/tools/gotestsum --format standard-verbose -- -count=1 -p 3 -parallel "$parallel" -timeout 12m "${options[@]}" "${list[@]}") 2>&1 | tee "$log"; then
    status=1
    sed -n '/^=== \(Failed\|Errors\)/,$p' "$log" >"$bin/failed.$1"
  fi
  echo "== suites $*: $((SECONDS - start)) s"
}

options=("$@")
(cd hack/clusters && CGO_ENABLED=0 go build -o "$bin/clusters" ./cmd/clusters)
# An earlier run that was killed may have left its clusters.
clusters down --name "$name"
clusters up --name "$name" --spokes 2
suites join
# Its tests run clients and containers by the hundred: more at a time make each of them slower
# than clients bear, such as "kubectl cp", which gives a container 30 s to answer.
parallel=6 suites node
suites live work
suites mcm
suites sharing
suites workers
suites wrangler
suites rest
suites fault
suites leave
suites hostile
exit $status
