#!/usr/bin/env bash
# Copyright The Spokelet Authors.
# SPDX-License-Identifier: Apache-2.0

# Runs the tests of every module except the suites of the end-to-end ones, which need
# clusters, whatever fails on the way, under the race detector:
#
#   hack/test-unit.sh JOBS [TIMEOUT]
#
# JOBS packages of the root module run at the same time, beside those of the others, for TIMEOUT at
# most, or 20m. With SPOKELET_TESTS_LINKED=1,
# hack/link-tests.sh has just linked them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

jobs=$1 timeout=${2:-20m}
root=$PWD
events=$root/bin/times
mkdir -p "$events"
rm -f "$events"/unit*.json
modules=$(hack/modules.sh)
mapfile -t modules <<<"$modules"
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

# run DIR JOBS runs the tests of a module, of JOBS packages at the same time.
run() {
  local dir=$1 list packages
  # No command of a list whose end is looked at ends it.
  list=$(hack/tested.sh "$dir") || return
  if [[ -z $list ]]; then return; fi
  mapfile -t packages <<<"$list"
  echo "== tests of $dir"
  cd "$dir" && "$root/bin/tools/gotestsum" --format standard-quiet --hide-summary=skipped \
    --jsonfile "$events/unit$(tr -d . <<<"$dir" | tr / -).json" --raw-command -- \
    "$root/hack/run-tests.sh" "$2" "${packages[@]}" -- -test.timeout="$timeout"
}

# others runs the tests of all modules but the root's and that of the development clusters.
others() {
  local dir status=0
  for dir in "${modules[@]}"; do
    case $dir in
    . | ./hack/clusters) ;;
    ./workers) echo "== tests of $dir" && hack/test-workers.sh 1 "$timeout" || status=1 ;;
    *) (run "$dir" 1) || status=1 ;;
    esac
  done
  return "$status"
}

if [[ -z ${SPOKELET_TESTS_LINKED:-} ]]; then hack/link-tests.sh; fi
export SPOKELET_TESTS_LINKED=1
# The last package of a module would have one processor wait: the modules run beside each other.
# The tests of the development clusters mostly wait.
(run ./hack/clusters 2) >"$logs/clusters" 2>&1 &
running=($!)
others >"$logs/others" 2>&1 &
running+=($!)
status=0
(run . "$jobs") || status=1
for job in "${running[@]}"; do wait "$job" || status=1; done
cat "$logs/others" "$logs/clusters"
# Whatever happens above, no package goes by untested.
for dir in "${modules[@]}"; do
  module=$(cd "$dir" && go list -m)
  for package in $(hack/tested.sh "$dir"); do
    if ! grep -qF "\"Package\":\"$module${package#.}\",\"Elapsed\"" "$events"/unit*.json; then
      echo "unit: the tests of $module${package#.} did not run"
      status=1
    fi
  done
done
exit $status
