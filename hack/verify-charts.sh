#!/usr/bin/env bash
# Copyright The Spokelet Authors.
# SPDX-License-Identifier: Apache-2.0

# The charts lint, and their schemas accept their own defaults.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

shopt -s nullglob
charts=(charts/*/Chart.yaml)
if ((${#charts[@]} == 0)); then
  echo "there are no charts"
  exit 0
fi
helm=$(cd hack/clusters && go run ./cmd/clusters bin helm)
"$helm" lint --strict "${charts[@]%/Chart.yaml}"
