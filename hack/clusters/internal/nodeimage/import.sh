#!/usr/bin/env bash
# Copyright The Spokelet Authors.
# SPDX-License-Identifier: Apache-2.0

# Runs in the root of the node image: gives its containerd the images in /images. The
# arguments are the image of a pod's sandbox, the one of Kubernetes, and the other names
# of the latter.
set -euo pipefail
pause=$1 kubernetes=$2
shift 2

sed -i "s#sandbox_image = .*#sandbox_image = \"$pause\"#" /etc/containerd/config.toml
containerd >/run/containerd.log 2>&1 &
for _ in {1..100}; do
  if ctr version >/dev/null 2>&1; then break; fi
  sleep 0.1
done
for archive in /images/*.tar; do
  ctr --namespace k8s.io images import --no-unpack "$archive"
done
for name in "$@"; do ctr --namespace k8s.io images tag "$kubernetes" "$name"; done
kill %1
wait %1 || true
rm -rf /images /proxy /run/containerd*
