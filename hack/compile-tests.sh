#!/usr/bin/env bash
# Copyright The Spokelet Authors.
# SPDX-License-Identifier: Apache-2.0

# Compiles what the tests of all modules import, with the race detector, into the build cache:
# test runs beside each other would each compile it. Linking is left to them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

hack=$PWD
export CGO_ENABLED=1
for dir in $(./modules.sh); do
  (
    cd "../$dir"
    # A package with no tests of its own is compiled where another imports it. The suites of the
    # end-to-end tests run without the race detector.
    mapfile -t tested < <("$hack/tested.sh" "$dir")
    if ((${#tested[@]} == 0)); then exit; fi
    mapfile -t all < <(go list -race -deps -test -f '{{if and .GoFiles (not .ForTest) (ne .Name "main") (ne .ImportPath "unsafe")}}{{.ImportPath}}{{end}}' "${tested[@]}" | sed '/^$/d')
    go build -race -p 2 "${all[@]}"
  )
done
