#!/usr/bin/env bash
# Copyright The Spokelet Authors.
# SPDX-License-Identifier: Apache-2.0

# Generates, from the types in api/v1:
#   api/v1/zz_generated.deepcopy.go   deep copies           deepcopy-gen
#   generated/clientset               the typed client      client-gen
# The generators are fetched by version, and are no dependency of the module.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

version=v0.37.2
module=$(go list -m)
header=$(mktemp)
trap 'rm -f "$header"' EXIT
head -n 2 api/v1/doc.go >"$header"

go run "k8s.io/code-generator/cmd/deepcopy-gen@$version" \
  --go-header-file "$header" --output-file zz_generated.deepcopy.go ./api/v1

rm -rf generated/clientset
go run "k8s.io/code-generator/cmd/client-gen@$version" \
  --go-header-file "$header" --input-base "$PWD" --input api/v1 \
  --output-dir generated/clientset --output-pkg "$module/generated/clientset" --clientset-name versioned
