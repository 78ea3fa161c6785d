#!/usr/bin/env bash
# Copyright The Spokelet Authors.
# SPDX-License-Identifier: Apache-2.0

# Packages the charts into bin/charts. The argument is the version.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

version=${1:?usage: hack/package-charts.sh VERSION}
version=${version#v}
# A chart's version is semantic; a bare commit is not.
[[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+ ]] || version=0.0.0-$version

helm=$(cd hack/clusters && go run ./cmd/clusters bin helm)
for chart in charts/*/Chart.yaml; do
  "$helm" package "${chart%/Chart.yaml}" --version "$version" --app-version "$version" --destination bin/charts
done
