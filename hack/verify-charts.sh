#!/usr/bin/env bash
# Copyright The Spokelet Authors.
# SPDX-License-Identifier: Apache-2.0

# The charts lint and render with the values that have no default.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

helm=$(cd hack/clusters && go run ./cmd/clusters bin helm)
for chart in charts/*/; do
  values=hack/chart-values/$(basename "$chart").yaml
  "$helm" lint --strict --quiet "$chart" --values "$values"
  "$helm" template test "$chart" --namespace test --values "$values" >/dev/null
done
