#!/usr/bin/env bash
# Copyright The Spokelet Authors.
# SPDX-License-Identifier: Apache-2.0

# Runs every static check and every test, whatever fails on the way: first what computes, then
# what waits for clusters, on two sets at the same time. What a phase says
# is in bin/times/NAME.log and, when all have ended, on stdout; bin/times has what "make times"
# needs, too.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export times=$PWD/bin/times
rm -rf "$times"
mkdir -p "$times"

# phase NAME COMMAND... runs one, and says how long it took.
phase() {
  local name=$1 start=$SECONDS rc=0
  shift
  bin/tools/times run "$times" "$name" "$@" >"$times/$name.log" 2>&1 || rc=$?
  echo "=== $name: $((SECONDS - start)) s, exit $rc"
  if ((rc != 0)); then touch "$times/$name.failed"; fi
}
export -f phase

# The garbage collector of the Go compiler takes a seventh of its time at its default, and there
# is memory. Two lanes that compile the same would each do so: the programs come before the checks,
# and what tests import before the images, whose programs have the race detector, too.
checks() {
  local -x GOGC=400
  phase build make build
  phase verify hack/verify.sh
}
tests() {
  GOGC=400 phase link hack/link-tests.sh
  GOGC=400 phase images bash -c 'cd e2e && CGO_ENABLED=0 go run ./cmd/images -version e2e -race'
  phase unit env SPOKELET_TESTS_LINKED=1 hack/test-unit.sh 2
}

# The suites whose tunnels nobody may cut.
steady() {
  hack/on-clusters.sh e2e-steady bash -uc '
    phase live-modules hack/test-live.sh --of=modules
    phase e2e-steady hack/test-suites.sh join node:9 live,work,wrangler workers'
}

# Those that cut them, end processes or want silence.
faults() {
  hack/on-clusters.sh e2e-faults bash -uc '
    phase live hack/test-live.sh --of=root
    phase e2e-faults hack/test-suites.sh join mcm sharing rest fault leave hostile'
}

# The first of them again, on clusters as users have them.
kind() {
  SPOKELET_CLUSTERS_PROVIDER=kind hack/on-clusters.sh e2e-kind bash -uc '
    phase e2e-kind hack/test-suites.sh join live'
}
export -f checks tests steady faults kind

lanes=()
bin/tools/times record "$times" &
recorder=$!
finish() {
  local lane
  for lane in "${lanes[@]}"; do kill -- "-$lane" 2>/dev/null || true; done
  lanes=()
  kill "$recorder" 2>/dev/null || true
  wait || true # for all of them
}
trap finish EXIT
# Whoever ends it wants to know what it was about.
trap 'finish; tail -n 40 "$times"/*.log; exit 143' INT TERM

status=0
# beside runs functions at the same time, each in a session of its own: it ends as a whole, and
# Linux shares the processors between sessions. One that is told to end waits for what it runs,
# which removes its clusters.
beside() {
  local lane
  for lane in "$@"; do
    setsid bash -uc "trap 'exit 143' TERM; $lane" >"$times/lane-$lane.log" 2>&1 &
    lanes+=($!)
  done
  for lane in "${lanes[@]}"; do wait "$lane" || status=1; done
  lanes=()
}

export VERSION=e2e # of make and of the suites alike
# These compute all the time: beside clusters, whatever is to happen in time would be late.
beside checks tests
export SPOKELET_TESTS_LINKED=1
beside steady faults
beside kind

for log in "$times"/*.log; do
  echo "=== $(basename "$log" .log) said"
  cat "$log"
done
for failed in "$times"/*.failed; do
  [[ -e $failed ]] || continue # there is none
  status=1
  echo "=== failed: $(basename "$failed" .failed), which ended with"
  tail -n 40 "${failed%.failed}.log"
done
exit "$status"
