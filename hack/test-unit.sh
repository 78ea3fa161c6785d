#!/usr/bin/env bash
# Copyright The Spokelet Authors.
# SPDX-License-Identifier: Apache-2.0

# Runs the tests of every module except the suites of the end-to-end ones, which need
# clusters, whatever fails on the way. The arguments go to go test. Tests of packages with live
# tests are kept (hack/keep-test.sh).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

root=$PWD
events=$root/bin/times
mkdir -p "$events"
rm -rf bin/tests "$events"/unit*.json
modules=$(hack/modules.sh)
mapfile -t modules <<<"$modules"
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

# run DIR [ARG...] runs the tests of a module.
run() {
  local dir=$1 list packages name live
  shift
  # No command of a list whose end is looked at ends it.
  cd "$root/$dir" && list=$("$root/hack/tested.sh" "$dir") || return
  if [[ -z $list ]]; then return; fi
  mapfile -t packages <<<"$list"
  # Live tests are in the same binaries. Of a module without any, live says so.
  for live in $("$root/bin/tools/live" list 2>/dev/null | cut -d' ' -f1); do mkdir -p "$root/bin/tests/$dir/$live"; done
  echo "== go test $dir"
  name=$(tr -d . <<<"$dir" | tr / -)
  "$root/bin/tools/gotestsum" --format standard-quiet --hide-summary=skipped --jsonfile "$events/unit$name.json" -- \
    -vet=off -count=1 -timeout 20m -exec "$root/hack/keep-test.sh" "$@" "${packages[@]}"
}

# others runs the tests of all modules but the root's and that of the development clusters.
others() {
  local dir status=0
  for dir in "${modules[@]}"; do
    case $dir in
    . | ./hack/clusters) ;;
    ./workers) echo "== go test $dir" && hack/test-workers.sh "$@" || status=1 ;;
    *) (run "$dir" "$@") || status=1 ;;
    esac
  done
  return "$status"
}

# The last package of a module would have one processor wait: the modules run beside each other.
# The tests of the development clusters mostly wait.
(run ./hack/clusters "$@") >"$logs/clusters" 2>&1 &
running=($!)
others "$@" -p 1 >"$logs/others" 2>&1 &
running+=($!)
status=0
(run . "$@") || status=1
for job in "${running[@]}"; do wait "$job" || status=1; done
cat "$logs/others" "$logs/clusters"
# Whatever happens above, no package goes by untested.
for dir in "${modules[@]}"; do
  for package in $(hack/tested.sh "$dir"); do
    if ! grep -qF "\"Package\":\"$package\",\"Elapsed\"" "$events"/unit*.json; then
      echo "unit: the tests of $package did not run"
      status=1
    fi
  done
done
exit $status
