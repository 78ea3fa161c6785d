#!/usr/bin/env bash
# Copyright The Spokelet Authors.
# SPDX-License-Identifier: Apache-2.0

# Makes a set of clusters of its own, runs the tests that need real ones against
# it, and removes it, whatever comes. It fails unless every such test ran. The
# arguments go to go test.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bin=$(mktemp -d)
# Where its module is: it finds what it builds the clusters from by "go list".
clusters() (cd hack/clusters && CGO_ENABLED=0 "$bin/clusters" "$@")
# The clusters outlive no test, nor an interrupted one.
trap 'clusters down --name live || true; rm -rf "$bin"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

(cd hack/clusters && CGO_ENABLED=0 go build -o "$bin/clusters" ./cmd/clusters)
clusters up --name live --spokes 1
SPOKELET_HUB_KUBECONFIG=$(clusters kubeconfig hub --name live)
SPOKELET_SPOKE_KUBECONFIGS=$(clusters kubeconfig spoke1 --name live)
SPOKELET_TEST_KUBECONFIG=$SPOKELET_SPOKE_KUBECONFIGS
export SPOKELET_HUB_KUBECONFIG SPOKELET_SPOKE_KUBECONFIGS SPOKELET_TEST_KUBECONFIG
go run ./hack/live "$@"
# The suite of ManifestWork's contract, against the agent's process mode.
(cd e2e && ../bin/tools/gotestsum --format standard-quiet --hide-summary=skipped -- -count=1 -timeout 15m ./conformance/)
