#!/usr/bin/env bash
# Copyright The Spokelet Authors.
# SPDX-License-Identifier: Apache-2.0

# Prints the folders, below that of their module, of its packages with tests, one a line, without
# the suites of the end-to-end tests, which need clusters:
#
#   hack/tested.sh DIR
#
# The others are left out of test runs: one of them is all of Kubernetes, which takes ten minutes
# to compile for the race detector.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../$1"

go list -f '{{if or .TestGoFiles .XTestGoFiles}}.{{slice .ImportPath (len .Module.Path)}}{{end}}' ./... |
  sed '/^$/d; /^\.\/suites\//d'
