#!/usr/bin/env bash
# Copyright The Spokelet Authors.
# SPDX-License-Identifier: Apache-2.0

# Runs every fuzz target, one after the other, each for the given time. Go spends up to a
# minute on making each new input smaller, unless it is told a number of tries: then the
# time goes into new inputs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

time=${1:-30s}
grep --recursive --include='*_test.go' --exclude-dir=bin --only-matching '^func Fuzz[A-Za-z0-9_]*' . |
  LC_ALL=C sort | while IFS=: read -r file func; do
  name=${func#func }
  dir=$(dirname "$file")
  echo "== $name ($dir)"
  (cd "$dir" && go test -run '^$' -fuzz "^$name\$" -fuzztime "$time" -fuzzminimizetime 20x . </dev/null)
done
