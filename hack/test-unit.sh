#!/usr/bin/env bash
# Copyright The Spokelet Authors.
# SPDX-License-Identifier: Apache-2.0

# Runs the tests of every module except the suites of the end-to-end ones, which need
# clusters, whatever fails on the way. The arguments go to go test.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

root=$PWD
events=$root/bin/times
mkdir -p "$events"
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

# run DIR [ARG...] runs the tests of a module.
run() {
  local dir=$1 list packages name
  shift
  # Packages without tests are left out: one of them is all of Kubernetes, which takes ten
  # minutes to compile for the race detector. No command of a list whose end is looked at ends it.
  cd "$root/$dir" && list=$(go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./...) || return
  mapfile -t packages < <(grep -v /e2e/suites/ <<<"$list")
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
