#!/usr/bin/env bash
# Copyright The Spokelet Authors.
# SPDX-License-Identifier: Apache-2.0

# Runs the tests of every module except the suites of the end-to-end ones, which need
# clusters, whatever fails on the way:
#
#   hack/test-unit.sh [--without-live] [ARG...]
#
# --without-live leaves out the packages of which hack/test-live.sh runs all tests. The other
# arguments go to go test.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

without_live=
if [[ ${1:-} == --without-live ]]; then
  without_live=1
  shift
fi
root=$PWD
events=$root/bin/times
mkdir -p "$events"
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

# left_out prints the packages of the module in this folder that are not run.
left_out() {
  echo /e2e/suites/
  if [[ -z $without_live ]]; then return; fi
  echo '/e2e/conformance$'
  local module list
  module=$(go list -m)
  list=$("$root/bin/tools/live" list 2>/dev/null) || return 0 # it has none
  cut -d' ' -f1 <<<"$list" | sed "s|^\.|^$module|; s|\$|\$|"
}

# run DIR [ARG...] runs the tests of a module.
run() {
  local dir=$1 list packages name
  shift
  # Packages without tests are left out: one of them is all of Kubernetes, which takes ten
  # minutes to compile for the race detector. No command of a list whose end is looked at ends it.
  cd "$root/$dir" && list=$(go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./...) || return
  mapfile -t packages < <(grep -v -f <(left_out) <<<"$list")
  if [[ -z ${packages[*]} ]]; then return; fi
  echo "== go test $dir"
  name=$(tr -d . <<<"$dir" | tr / -)
  "$root/bin/tools/gotestsum" --format standard-quiet --hide-summary=skipped --jsonfile "$events/unit$name.json" -- \
    -vet=off -count=1 -timeout 20m "$@" "${packages[@]}"
}

# The tests of the development clusters mostly wait, and run beside the others.
(run ./hack/clusters "$@") >"$logs/clusters" 2>&1 &
clusters=$!
status=0
for dir in $(hack/modules.sh); do
  case $dir in
  ./hack/clusters) ;;
  ./workers) echo "== go test $dir" && hack/test-workers.sh "$@" || status=1 ;;
  *) (run "$dir" "$@") || status=1 ;;
  esac
done
wait "$clusters" || status=1
cat "$logs/clusters"
exit $status
