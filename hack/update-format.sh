#!/usr/bin/env bash
# Copyright The Spokelet Authors.
# SPDX-License-Identifier: Apache-2.0

# Formats all Go code and the RPC definitions.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

git ls-files -z --cached --others --exclude-standard '*.go' | xargs -0 --no-run-if-empty gofmt -l -w
bin/tools/buf format --write api/rpc
