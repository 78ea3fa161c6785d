#!/usr/bin/env bash
# Copyright The Spokelet Authors.
# SPDX-License-Identifier: Apache-2.0

# The RPC definitions follow buf's rules, less those that buf.yaml explains, and
# are formatted. Repair the format with hack/update-format.sh.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bin/tools/buf lint
bin/tools/buf format --diff --exit-code api/rpc
