#!/usr/bin/env bash
# Copyright The Spokelet Authors.
# SPDX-License-Identifier: Apache-2.0

# Runs the tests of every module except the end-to-end ones, whatever fails on
# the way. The arguments go to go test.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

gotestsum=$PWD/../bin/tools/gotestsum
status=0
for dir in $(./modules.sh); do
  if [[ $dir == ./e2e ]]; then continue; fi
  echo "== go test $dir"
  (cd "../$dir" && "$gotestsum" --format standard-quiet --hide-summary=skipped -- -timeout 15m "$@" ./...) || status=1
done
exit $status
