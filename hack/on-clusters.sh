#!/usr/bin/env bash
# Copyright The Spokelet Authors.
# SPDX-License-Identifier: Apache-2.0

# Makes a set of real clusters, a hub and two spokes, runs a command, and removes the set,
# whatever comes:
#
#   hack/on-clusters.sh NAME COMMAND [ARG...]
#
# The command finds the kubeconfigs in HUB, SPOKE1 and SPOKE2, and the name of the set in
# SPOKELET_E2E_SET. With SPOKELET_E2E_KEEP=1 the clusters stay up if it fails.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export SPOKELET_E2E_SET=$1
shift
bin=$(mktemp -d)
status=0
command=
# Where its module is: it finds what it builds the clusters from by "go list".
clusters() (cd hack/clusters && CGO_ENABLED=0 "$bin/clusters" "$@" --name "$SPOKELET_E2E_SET")
end_command() {
  if [[ -z $command ]]; then return; fi
  kill -- "-$command" 2>/dev/null || true
  wait "$command" || true
}
cleanup() {
  end_command
  if [[ $status != 0 && -n ${SPOKELET_E2E_KEEP:-} ]]; then
    echo "the clusters of set $SPOKELET_E2E_SET stay up" >&2
  else
    clusters down || status=1
  fi
  rm -rf "$bin"
  if [[ $status != 0 ]]; then exit "$status"; fi
}
trap cleanup EXIT
trap 'status=130; exit' INT
trap 'status=143; exit' TERM

(cd hack/clusters && CGO_ENABLED=0 go build -o "$bin/clusters" ./cmd/clusters)
# An earlier run that was killed may have left its clusters.
clusters down
clusters up --spokes 2 || { status=1 && exit; }
HUB=$(clusters kubeconfig hub) SPOKE1=$(clusters kubeconfig spoke1) SPOKE2=$(clusters kubeconfig spoke2)
export HUB SPOKE1 SPOKE2

# A process group of its own, that ends as a whole.
setsid --wait "$@" &
command=$!
wait "$command" || status=$?
command=
