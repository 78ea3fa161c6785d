#!/usr/bin/env bash
# Copyright The Spokelet Authors.
# SPDX-License-Identifier: Apache-2.0

# Makes two sets of clusters of its own, runs the tests that need real ones against
# them, and removes them, whatever comes. It fails unless every such test ran. The
# arguments go to go test.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bin=$(mktemp -d)
# Where its module is: it finds what it builds the clusters from by "go list".
clusters() (cd hack/clusters && CGO_ENABLED=0 "$bin/clusters" "$@")
cleanup() {
  if [[ -n ${contract:-} ]]; then
    kill -- "-$contract" 2>/dev/null || kill "$contract" 2>/dev/null || true
    cat "$bin/contract.log" || true
  fi
  # The clusters outlive no test, nor an interrupted one.
  clusters down --name live || true
  clusters down --name contract || true
  rm -rf "$bin"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# use names a set's clusters to the tests.
use() {
  SPOKELET_HUB_KUBECONFIG=$(clusters kubeconfig hub --name "$1")
  SPOKELET_SPOKE_KUBECONFIGS=$(clusters kubeconfig spoke1 --name "$1")
  SPOKELET_TEST_KUBECONFIG=$SPOKELET_SPOKE_KUBECONFIGS
  export SPOKELET_HUB_KUBECONFIG SPOKELET_SPOKE_KUBECONFIGS SPOKELET_TEST_KUBECONFIG
}

(cd hack/clusters && CGO_ENABLED=0 go build -o "$bin/clusters" ./cmd/clusters)
# The suite of ManifestWork's contract, against the agent's process mode. It mostly
# waits, as the others do, and so runs beside them, on API servers of its own.
contract() {
  clusters up --name contract --provider controlplane --spokes 1
  use contract
  cd e2e
  # A process group, so that it ends as a whole.
  exec setsid ../bin/tools/gotestsum --format standard-quiet --hide-summary=skipped -- -count=1 -timeout 15m ./conformance/
}
contract >"$bin/contract.log" 2>&1 &
contract=$!

clusters up --name live --spokes 1
status=0
use live
go run ./hack/live "$@" || status=$?
wait "$contract" || status=$?
contract=
cat "$bin/contract.log"
exit "$status"
