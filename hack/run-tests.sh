#!/usr/bin/env bash
# Copyright The Spokelet Authors.
# SPDX-License-Identifier: Apache-2.0

# Runs test binaries that hack/link-tests.sh has linked, as go test runs them, and prints their
# events (go doc test2json): those of a package together, when it has ended, if others run beside
# it.
#
#   hack/run-tests.sh JOBS PACKAGE... -- [ARG...]
#
# Packages are folders below that of the command, which is a module's; JOBS of them run at the
# same time. The arguments go to each binary.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)

jobs=$1
shift
packages=()
while [[ $1 != -- ]]; do packages+=("$1") && shift; done
shift
events=$(mktemp -d)
trap 'rm -rf "$events"' EXIT
module=$(go list -m)
test2json=$(go tool -n test2json)
# test2json, and a shell in the background, have what they run ignore interrupts. go test does not.
interruptible=
if env --default-signal=INT,QUIT true 2>/dev/null; then interruptible='env --default-signal=INT,QUIT'; fi
export root events jobs module test2json interruptible

# run PACKAGE [ARG...] runs one.
run() {
  local package=${1#.} here file status=0
  shift
  here=$(cd ".$package" && pwd -P)
  cd "$here"
  # shellcheck disable=SC2086 # a word each
  set -- "$test2json" -t -p "$module$package" $interruptible "$root/bin/tests/${here#"$root"/}/test" \
    -test.v=test2json -test.paniconexit0 "$@"
  if [[ $jobs == 1 ]]; then exec "$@"; fi
  file=$(mktemp -p "$events")
  "$@" >"$file" || status=1
  # Not between the lines of another.
  exec {lock}>>"$events/lock"
  flock "$lock"
  cat "$file"
  return "$status"
}
export -f run
printf '%s\n' "${packages[@]}" | xargs -P "$jobs" -I{} bash -euo pipefail -c 'run "$@"' run {} "$@"
