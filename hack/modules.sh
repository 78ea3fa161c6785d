#!/usr/bin/env bash
# Copyright The Spokelet Authors.
# SPDX-License-Identifier: Apache-2.0

# Prints the folders of the modules that hold Go code, one a line. Modules that
# only pin tools have no packages to lint or test, and those below hack/clusters/tools
# have a main that calls the mains of others: to load one is to load the whole of
# Kubernetes. With --all they are printed too.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

find . -name go.mod -not -path './bin/*' -not -path '*/testdata/*' | LC_ALL=C sort -t/ -k1,1 | while read -r mod; do
  dir=${mod%/go.mod}
  if [[ ${1:-} != --all ]]; then
    if [[ $dir == ./hack/clusters/tools/* ]]; then continue; fi
    if [[ -z $(find "$dir" -name '*.go' -not -path '*/testdata/*' -print -quit) ]]; then continue; fi
  fi
  echo "$dir"
done
