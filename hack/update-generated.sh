#!/usr/bin/env bash
# Copyright The Spokelet Authors.
# SPDX-License-Identifier: Apache-2.0

# Generates everything that is generated, from the sources beside it:
#   api/rpc            Go of the RPC definitions             buf
#   api/...            deep copies of the API types          controller-gen
#   api/crds           our CRDs                              controller-gen
#   hub/live/openapi   OpenAPI of the live API               openapi-gen
#   docs/reference     the reference of the APIs             crd-ref-docs
# TOOLS names the folder of the generators; "make tools" fills bin/tools.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tools=${TOOLS:-$PWD/bin/tools}
export PATH=$tools:$PATH

buf generate

controller-gen object:headerFile=hack/boilerplate.go.txt paths=./api/live/... paths=./api/multicluster/... \
  paths=./api/mcm/... paths=./api/view/... paths=./api/action/... paths=./api/sync/...
for group in multicluster mcm view action sync; do
  controller-gen crd:headerFile=hack/boilerplate.yaml.txt "paths=./api/$group/..." "output:crd:dir=api/crds/$group"
done

(
  cd workers
  controller-gen object:headerFile=../hack/boilerplate.go.txt paths=./api/...
  controller-gen crd:headerFile=../hack/boilerplate.yaml.txt paths=./api/... output:crd:dir=api/crds
)

# The generator writes names of models beside every input, so that only our own
# package may be one of that run: the other inputs lie in the module cache.
names=$(mktemp -d)
trap 'rm -rf "$names"' EXIT
openapi-gen --go-header-file hack/boilerplate.go.txt \
  --output-pkg names --output-dir "$names" --output-file zz_generated.openapi.go \
  --output-model-name-file zz_generated.model_name.go \
  --report-filename /dev/null ./api/live/v1alpha1
openapi-gen --go-header-file hack/boilerplate.go.txt \
  --output-pkg github.com/spokelet/spokelet/hub/live/openapi --output-dir hub/live/openapi \
  --output-file zz_generated.openapi.go --report-filename /dev/null \
  ./api/live/v1alpha1 k8s.io/apimachinery/pkg/apis/meta/v1 k8s.io/apimachinery/pkg/runtime k8s.io/apimachinery/pkg/version

# describe writes the reference of the types in a folder.
describe() {
  local types=$1 page=docs/reference/$2.md text
  crd-ref-docs --log-level=ERROR --config=hack/reference.yaml --renderer=markdown \
    --source-path="$types" --output-path="$page"
  text=$(cat --squeeze-blank "$page")
  printf '%s\n' "$text" >"$page"
}
mkdir -p docs/reference
for version in multicluster/v1alpha1 mcm/v1alpha1 view/v1beta1 action/v1beta1 sync/v1alpha1 live/v1alpha1 config/v1alpha1; do
  describe "api/$version" "${version%/*}"
done
describe workers/api workers
