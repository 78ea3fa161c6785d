#!/usr/bin/env bash
# Copyright The Spokelet Authors.
# SPDX-License-Identifier: Apache-2.0

# Makes sets of clusters of its own, runs the tests that need real ones against them,
# and removes them, whatever comes. It fails unless every such test ran. The
# arguments go to go test.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bin=$(mktemp -d)
# Where its module is: it finds what it builds the clusters from by "go list".
clusters() (cd hack/clusters && CGO_ENABLED=0 "$bin/clusters" "$@")
# remove_clusters removes all sets at once, as a run that was interrupted has a minute for it.
remove_clusters() {
  local set pid pids=() failed=0
  for set in work other contract; do
    clusters down --name "live-$set" &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do wait "$pid" || failed=1; done
  return "$failed"
}
declare -A background=()
cleanup() {
  local set
  for set in "${!background[@]}"; do
    kill -- "-${background[$set]}" 2>/dev/null || kill "${background[$set]}" 2>/dev/null || true
    cat "$bin/$set.log" || true
  done
  # The clusters outlive no test, nor an interrupted one.
  remove_clusters || true
  rm -rf "$bin"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# run_on_clusters makes a set of clusters, names them to a command, and becomes the
# command. It ends by itself where that fails: bash does not end a command for a failure
# within it where the end of the whole is looked at.
run_on_clusters() {
  local set=live-$1 provider=$2
  shift 2
  clusters up --name "$set" --spokes 1 ${provider:+--provider "$provider"} || exit
  SPOKELET_HUB_KUBECONFIG=$(clusters kubeconfig hub --name "$set") || exit
  SPOKELET_SPOKE_KUBECONFIGS=$(clusters kubeconfig spoke1 --name "$set") || exit
  SPOKELET_TEST_KUBECONFIG=$SPOKELET_SPOKE_KUBECONFIGS
  export SPOKELET_HUB_KUBECONFIG SPOKELET_SPOKE_KUBECONFIGS SPOKELET_TEST_KUBECONFIG
  exec "$@"
}

(cd hack/clusters && CGO_ENABLED=0 go build -o "$bin/clusters" ./cmd/clusters)
go build -o "$bin/live" ./hack/live
# An earlier run that was killed may have left its clusters.
remove_clusters
# They mostly wait. Tests of packages beside each other need clusters of their own: what
# one installs is about the others', too. The suite of ManifestWork's contract is run
# against the agent's process mode, after the tests of the modules of Helm and of the
# example.
contract() {
  local status=0
  (cd helm && "$bin/live" "$@") || status=$?
  (cd examples/request-state && "$bin/live" "$@") || status=$?
  (cd e2e && ../bin/tools/gotestsum --format standard-quiet --hide-summary=skipped -- -count=1 -timeout 15m ./conformance/) || status=$?
  return "$status"
}
export bin
export -f contract
# setsid: a process group each, that ends as a whole.
# shellcheck disable=SC2016 # that shell is to expand it
run_on_clusters contract controlplane setsid bash -uc 'contract "$@"' contract "$@" >"$bin/contract.log" 2>&1 &
background[contract]=$!
run_on_clusters other "" setsid "$bin/live" --not-in=agent/work "$@" >"$bin/other.log" 2>&1 &
background[other]=$!

status=0
(run_on_clusters work "" "$bin/live" --in=agent/work "$@") || status=$?
for set in "${!background[@]}"; do
  wait "${background[$set]}" || status=$?
  unset "background[$set]"
  cat "$bin/$set.log"
done
exit "$status"
