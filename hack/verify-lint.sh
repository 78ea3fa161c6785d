#!/usr/bin/env bash
# Copyright The Spokelet Authors.
# SPDX-License-Identifier: Apache-2.0

# golangci-lint finds nothing, in any module. Its configuration explains each
# linter that is off. The checks of go vet are among them: by themselves they take as
# long again where nothing is cached.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# It remembers what it found by the absolute names of files. Every checkout is linted under one
# name, so that a new one finds what was found in another; where there is flock to keep two apart.
link=${XDG_CACHE_HOME:-$HOME/.cache}/spokelet/checkout
if command -v flock >/dev/null; then
  mkdir -p "$(dirname "$link")"
  exec {lock}>"$link.lock"
  flock "$lock"
  ln -sfn "$(pwd -P)" "$link"
  cd "$link"
fi

root=$PWD
status=0
for dir in $(hack/modules.sh); do
  (cd "$dir" && "$root/bin/tools/golangci-lint" run --config "$root/.golangci.yml" --concurrency 2 ./...) || status=1
done
exit $status
