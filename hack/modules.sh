#!/usr/bin/env bash
# Copyright The Spokelet Authors.
# SPDX-License-Identifier: Apache-2.0

# Prints the folders of the modules that hold Go code, one a line. Modules that
# only pin tools have no packages to vet, lint or test; with --all they are
# printed too.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

find . -name go.mod -not -path './bin/*' -not -path '*/testdata/*' | LC_ALL=C sort -t/ -k1,1 | while read -r mod; do
  dir=${mod%/go.mod}
  if [[ ${1:-} == --all ]] || [[ -n $(find "$dir" -name '*.go' -not -path '*/testdata/*' -print -quit) ]]; then
    echo "$dir"
  fi
done
