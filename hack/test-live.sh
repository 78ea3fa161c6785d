#!/usr/bin/env bash
# Copyright The Spokelet Authors.
# SPDX-License-Identifier: Apache-2.0

# Runs the live tests, those that need real API servers, on a set of clusters that
# hack/on-clusters.sh has made, and fails unless each of them ran:
#
#   hack/on-clusters.sh live hack/test-live.sh [--of=root|modules]
#
# --of leaves the tests of the root module alone, or all others. With SPOKELET_TESTS_LINKED=1,
# hack/link-tests.sh has just linked them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

part=all
if [[ ${1:-} == --of=* ]]; then part=${1#--of=}; fi
root=$PWD
events=$root/bin/times
mkdir -p "$events"

# run NAME DIR JOBS PARALLEL PACKAGE... runs the live tests of packages of a module, which read
# their clusters from the environment: JOBS packages at the same time, PARALLEL tests in each.
run() {
  local name=$1 dir=$2 jobs=$3 parallel=$4 only
  shift 4
  if [[ -z ${SPOKELET_TESTS_LINKED:-} ]]; then hack/link-tests.sh "$dir" "$@" || return; fi
  only="^($(cd "$dir" && "$root/bin/tools/live" list | cut -d' ' -f2- | tr ' ' '|' | paste -sd'|'))\$"
  (cd "$dir" && "$root/bin/tools/gotestsum" --format standard-quiet --hide-summary=skipped --jsonfile "$events/live-$name.json" --raw-command -- \
    "$root/hack/run-tests.sh" "$jobs" "$@" -- -test.timeout=25m -test.parallel="$parallel" -test.run="$only")
}

# packages lists those with live tests whose folder matches, or does not match, a pattern.
packages() { bin/tools/live list | cut -d' ' -f1 | grep "$@" || true; }

# of_root runs the tests of the root module. Those of the work engine are the longest, and see
# each role that anybody changes: they have a cluster to themselves. It is the second, as they
# leave records there, of which an agent that is uninstalled from the first would have to let go.
of_root() {
  local status=0 work rest
  mapfile -t work < <(packages '^\./agent/work\>')
  mapfile -t rest < <(packages -v '^\./agent/work\>')
  (
    export SPOKELET_HUB_KUBECONFIG=$HUB SPOKELET_SPOKE_KUBECONFIGS=$SPOKE2 SPOKELET_TEST_KUBECONFIG=$SPOKE2
    run work . 1 8 "${work[@]}"
  ) >"$logs/work" 2>&1 &
  (
    export SPOKELET_HUB_KUBECONFIG=$HUB SPOKELET_SPOKE_KUBECONFIGS=$SPOKE1 SPOKELET_TEST_KUBECONFIG=$SPOKE1
    run rest . 2 8 "${rest[@]}"
  ) || status=1
  wait $! || status=1
  cat "$logs/work"
  bin/tools/live check "$events"/live-{work,rest}.json || status=1
  return "$status"
}

# of_modules runs those of the other modules: the suite of ManifestWork's contract, which is run
# against the agent's process mode, needs a cluster in which nobody else changes a role.
of_modules() {
  local status=0 dir name
  export SPOKELET_HUB_KUBECONFIG=$HUB SPOKELET_SPOKE_KUBECONFIGS=$SPOKE1 SPOKELET_TEST_KUBECONFIG=$SPOKE1
  for dir in helm examples/request-state; do
    name=$(basename "$dir")
    # shellcheck disable=SC2046 # a word each
    run "$name" "$dir" 2 2 $(cd "$dir" && "$root/bin/tools/live" list | cut -d' ' -f1) || status=1
    (cd "$dir" && "$root/bin/tools/live" check "$events/live-$name.json") || status=1
  done
  # Its tests are clients of a process.
  (cd e2e && CGO_ENABLED=0 ../bin/tools/gotestsum --format standard-quiet --hide-summary=skipped --jsonfile "$events/live-contract.json" -- \
    -vet=off -count=1 -timeout 15m ./conformance/) || status=1
  return "$status"
}

logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
status=0
if [[ $part != modules ]]; then of_root || status=1; fi
if [[ $part != root ]]; then of_modules || status=1; fi
exit "$status"
