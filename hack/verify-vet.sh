#!/usr/bin/env bash
# Copyright The Spokelet Authors.
# SPDX-License-Identifier: Apache-2.0

# go vet is silent in every module.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

status=0
for dir in $(./modules.sh); do
  (cd "../$dir" && go vet -p 2 ./...) || status=1
done
exit $status
