#!/usr/bin/env bash
# Copyright The Spokelet Authors.
# SPDX-License-Identifier: Apache-2.0

# Runs suites of the end-to-end tests on a set of clusters that hack/on-clusters.sh has made,
# whatever fails on the way. Each argument is a group of suites that disturb nothing of each
# other, separated by commas, and run beside each other; a group may say how many tests of a
# suite run at a time:
#
#   hack/on-clusters.sh e2e hack/test-suites.sh join node:6 live,work
#
# The first suite is join: it installs what the others use. With SPOKELET_TESTS_LINKED=1,
# hack/link-tests.sh has just linked them. One suite alone needs no script:
#
#   cd e2e && go test -count=1 -v -timeout 20m ./suites/node
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export SPOKELET_E2E_SHARED=1
# The suites call kubectl and helm hundreds of times: a quarter of such a call is for garbage.
export GOGC=400
events=$PWD/bin/times
mkdir -p "$events"
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
touch "$logs/failed"

# suites runs a group.
suites() {
  local group=${1%:*} parallel=16 list=() suite start=$SECONDS
  if [[ $1 == *:* ]]; then parallel=${1#*:}; fi
  for suite in ${group//,/ }; do list+=("./suites/$suite"); done
  if ! (cd e2e && ../bin/tools/gotestsum --format standard-verbose --jsonfile "$events/$SPOKELET_E2E_SET-$group.json" --raw-command -- \
    ../hack/run-tests.sh "${#list[@]}" "${list[@]}" -- -test.parallel="$parallel" -test.timeout=30m) 2>&1 | tee "$logs/log"; then
    sed -n '/^=== \(Failed\|Errors\)/,$p' "$logs/log" >>"$logs/failed"
    echo "suites $group: failed" >>"$logs/failed"
  fi
  echo "== suites $group on $SPOKELET_E2E_SET: $((SECONDS - start)) s"
}

if [[ -z ${SPOKELET_TESTS_LINKED:-} ]]; then hack/link-tests.sh --suites; fi
for group in "$@"; do suites "$group"; done
# The last lines are all that some records keep.
cat "$logs/failed"
[[ ! -s $logs/failed ]]
