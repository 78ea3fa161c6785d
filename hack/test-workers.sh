#!/usr/bin/env bash
# Copyright The Spokelet Authors.
# SPDX-License-Identifier: Apache-2.0

# Runs the tests of worker bundles with a real object store, a real registry and, where it can
# be had, the real workerd:
#
#   hack/test-workers.sh JOBS [TIMEOUT]
#
# JOBS packages run at the same time, for TIMEOUT at most, or 20m. With SPOKELET_TESTS_LINKED=1,
# hack/link-tests.sh has just linked them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [[ -z ${SPOKELET_TESTS_LINKED:-} ]]; then hack/link-tests.sh ./workers; fi
gotestsum=$PWD/bin/tools/gotestsum
dir=$(mktemp -d)
servers=()
cleanup() {
  kill "${servers[@]}" 2>/dev/null || true
  wait
  rm -rf "$dir"
}
trap cleanup EXIT

program() (cd hack/clusters && CGO_ENABLED=0 go run ./cmd/clusters bin "$1")
versitygw=$(program versitygw)
registry=$(program registry)

# An address of this machine that nobody else has, where there are many (Linux).
host=127.0.0.1
if [[ $(uname -s) == Linux ]]; then host=127.$((RANDOM % 250 + 1)).$((RANDOM % 250 + 1)).$((RANDOM % 250 + 1)); fi
store_port=7070
registry_port=5000

# listening waits until a server listens.
listening() {
  local name=$1 port=$2
  for _ in {1..100}; do
    if (: <"/dev/tcp/$host/$port") 2>/dev/null; then return; fi
    sleep 0.1
  done
  echo "test-workers.sh: $name does not listen:" >&2
  cat "$dir/$name.log" >&2
  return 1
}

export SPOKELET_S3_ENDPOINT=http://$host:$store_port SPOKELET_S3_REGION=us-east-1 SPOKELET_S3_BUCKET=scripts
export SPOKELET_S3_ACCESS_KEY=test SPOKELET_S3_SECRET_KEY=test-secret
export SPOKELET_REGISTRY=$host:$registry_port

mkdir -p "$dir/store/scripts"
ROOT_ACCESS_KEY=$SPOKELET_S3_ACCESS_KEY ROOT_SECRET_KEY=$SPOKELET_S3_SECRET_KEY \
  "$versitygw" "$host:$store_port" "$dir/store" >"$dir/store.log" 2>&1 &
servers+=($!)
cat >"$dir/registry.yaml" <<END
version: 0.1
log: {level: error, accesslog: {disabled: true}}
storage: {filesystem: {rootdirectory: $dir/images}, delete: {enabled: true}}
http: {addr: "$SPOKELET_REGISTRY"}
END
OTEL_TRACES_EXPORTER=none "$registry" serve "$dir/registry.yaml" >"$dir/registry.log" 2>&1 &
servers+=($!)
listening store "$store_port"
listening registry "$registry_port"

# Without workerd its tests skip, and say so.
root=$(hack/workerd.sh) || [[ $? -eq 3 ]]
if [[ -n $root ]]; then export SPOKELET_WORKERD=$root/usr/bin/workerd; fi

mapfile -t packages < <(hack/tested.sh workers)
mkdir -p bin/times
cd workers
"$gotestsum" --format standard-quiet --hide-summary=skipped --jsonfile ../bin/times/unit-workers.json --raw-command -- \
  ../hack/run-tests.sh "$1" "${packages[@]}" -- -test.timeout="${2:-20m}"
