#!/usr/bin/env bash
# Copyright The Spokelet Authors.
# SPDX-License-Identifier: Apache-2.0

# Runs every fuzz target for TIME with one worker, JOBS of them at the same time, whatever fails
# on the way:
#
#   hack/fuzz.sh TIME JOBS
#
# Go spends up to a minute on making each new input smaller, unless it is told a number of
# tries: then the time goes into new inputs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export time=$1
jobs=$2
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
export logs

# fuzz FILE FUNC runs one target, and prints what it said when it has ended.
fuzz() {
  local dir name=$2 log status=0
  dir=$(dirname "$1")
  log=$(mktemp -p "$logs")
  (cd "$dir" && go test -run '^$' -fuzz "^$name\$" -fuzztime "$time" -fuzzminimizetime 20x \
    -parallel 1 .) </dev/null >"$log" 2>&1 || status=1
  # Not between the lines of another.
  exec {lock}>>"$logs/lock"
  flock "$lock"
  echo "== $name ($dir)"
  cat "$log"
  return "$status"
}
export -f fuzz
grep --recursive --include='*_test.go' --exclude-dir=bin --only-matching '^func Fuzz[A-Za-z0-9_]*' . |
  LC_ALL=C sort | sed 's/:func / /' |
  xargs -P "$jobs" -L 1 bash -euo pipefail -c 'fuzz "$@"' fuzz
