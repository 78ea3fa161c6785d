#!/usr/bin/env bash
# Copyright The Spokelet Authors.
# SPDX-License-Identifier: Apache-2.0

# Generated files are what their generators make of the sources. The generators
# run on a copy, so that the checkout stays as it is.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT

git ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' file; do
  if [[ -e $file ]]; then printf '%s\0' "$file"; fi
done | tar --create --null --files-from=- | tar --extract --directory "$copy"
cp -r "$copy" "$copy.before"
trap 'rm -rf "$copy" "$copy.before"' EXIT

TOOLS=$PWD/bin/tools "$copy/hack/update-generated.sh"
if ! diff --recursive --new-file --unified=1 "$copy.before" "$copy"; then
  echo "generated files are out of date; run: make generate"
  exit 1
fi
