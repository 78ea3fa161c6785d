#!/usr/bin/env bash
# Copyright The Spokelet Authors.
# SPDX-License-Identifier: Apache-2.0

# golangci-lint finds nothing, in any module. Its configuration explains each
# linter that is off.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

root=$PWD
status=0
for dir in $(hack/modules.sh); do
  # These hold a main that calls the mains of others, and to lint one is to load
  # the whole of Kubernetes.
  if [[ $dir == ./hack/clusters/tools/* ]]; then continue; fi
  (cd "$dir" && "$root/bin/tools/golangci-lint" run --config "$root/.golangci.yml" --concurrency 2 ./...) || status=1
done
exit $status
