#!/usr/bin/env bash
# Copyright The Spokelet Authors.
# SPDX-License-Identifier: Apache-2.0

# Tidies every module.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

for dir in $(./modules.sh --all); do
  (cd "../$dir" && go mod tidy)
done
