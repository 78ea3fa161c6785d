#!/usr/bin/env bash
# Copyright The Spokelet Authors.
# SPDX-License-Identifier: Apache-2.0

# Prints the packages with tests of the module in a folder, one a line, without the suites of the
# end-to-end tests, which need clusters:
#
#   hack/tested.sh DIR
#
# The others are left out of test runs: one of them is all of Kubernetes, which takes ten minutes
# to compile for the race detector.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../$1"

go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./... | sed '/^$/d; /\/e2e\/suites\//d'
