#!/usr/bin/env bash
# Copyright The Spokelet Authors.
# SPDX-License-Identifier: Apache-2.0

# Links tests, with the race detector, for hack/run-tests.sh: into bin/tests, in the folders of
# their packages.
#
#   hack/link-tests.sh [DIR [PACKAGE...]]
#   hack/link-tests.sh --suites
#
# Without packages, which are folders below that of their module, all of it are linked, and
# without a module those of all modules. The suites of the end-to-end tests are apart, and have
# no race detector: they are clients. Go keeps what it has compiled, but links each time, which
# takes a fifth of the time of all unit tests: binaries are kept in the cache of built programs,
# and Go leaves alone those that are up to date, whichever checkout they were linked in.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

cache=${SPOKELET_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/spokelet}/tests
mkdir -p "$cache"
# Another checkout would replace what is about to be taken.
if command -v flock >/dev/null; then
  exec {lock}>"$cache.lock"
  flock "$lock"
fi

link=(go test -c -vet=off -ldflags='-s -w')

# take FILE FOLDER has what was linked in bin/tests, for which nobody changes it any more.
take() {
  mkdir -p "bin/tests/$2"
  ln -f "$1" "bin/tests/$2/test" 2>/dev/null || cp "$1" "bin/tests/$2/test"
}

# module DIR [PACKAGE...] links those of one module. A file is named by the last part of its
# package's path: packages that share one go into different folders, by turns.
module() {
  local dir=$1 kept package turn file packages
  local -A wanted=() seen=() turns=() files=()
  shift
  for package in "$@"; do wanted[$package]=1; done
  packages=$(hack/tested.sh "$dir")
  kept=$cache/$(tr -d . <<<"module/${dir#./}" | tr / -)
  for package in $packages; do
    file=$(basename "$dir/${package#.}").test
    turn=${seen[$file]:-0}
    seen[$file]=$((turn + 1))
    files[$package]=$kept/$turn/$file
    if (($# == 0)) || [[ -n ${wanted[$package]:-} ]]; then turns[$turn]+=" $package"; fi
  done
  # Of packages that are no more.
  for file in "$kept"/*/*.test; do
    if [[ " ${files[*]} " != *" $file "* ]]; then rm -f "$file"; fi
  done
  for turn in "${!turns[@]}"; do
    mkdir -p "$kept/$turn"
    # shellcheck disable=SC2086 # a word each
    (cd "$dir" && CGO_ENABLED=1 "${link[@]}" -race -o "$kept/$turn/" ${turns[$turn]})
    for package in ${turns[$turn]}; do take "${files[$package]}" "$dir/$package"; done
  done
}

# suites links the suites. No two have the same name.
suites() {
  local folder name
  mkdir -p "$cache/suites"
  (cd e2e && CGO_ENABLED=0 "${link[@]}" -o "$cache/suites/" ./suites/...)
  for folder in e2e/suites/*/; do
    name=$(basename "$folder")
    take "$cache/suites/$name.test" "$folder"
  done
}

case ${1:-} in
--suites) suites ;;
?*) module "$@" ;;
*)
  rm -rf bin/tests
  for dir in $(hack/modules.sh); do module "$dir"; done
  suites
  ;;
esac
