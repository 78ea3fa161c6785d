#!/usr/bin/env bash
# Copyright The Spokelet Authors.
# SPDX-License-Identifier: Apache-2.0

# Makes, in the cache of built programs, a root file system with workerd and the libraries that
# it runs with, for this machine's architecture, and prints its path. It is made once. The
# program in it runs on this machine too, if that has a C library of its own:
#
#   SPOKELET_WORKERD=$(hack/workerd.sh)/usr/bin/workerd
#
# workerd comes from npm and is pinned by its checksum. The libraries come from Debian and are
# pinned by name alone: a release of Debian serves one version of a package, and each security
# update takes the one before away. They are checked against the checksums of the index that
# apt verifies the signature of.
#
# Exit code 3: npm or apt is missing, or what they ask cannot be reached; the reason is on
# stderr, and tests skip.
set -euo pipefail

version=1.20261117.1
prints="workerd 2026-11-17"
libraries=(libc6 libgcc-s1)
# Any release with as new a C library will do; this is the one that the tests ran with.
tested=bookworm

case $(uname -m) in
x86_64)
  package=@cloudflare/workerd-linux-64
  sha256=b7fa7bcbde8fc42e97cab6e6e72967b518e71f787e74d1599ee36c0f1c019bb9
  loader=ld-linux-x86-64.so.2
  ;;
aarch64)
  package=@cloudflare/workerd-linux-arm64
  sha256=951f850f8889f21abb1c6f4f695e2e5e25b397996941257d00b9f02759ff54bf
  loader=ld-linux-aarch64.so.1
  ;;
*)
  echo "workerd.sh: there is no workerd for $(uname -m)" >&2
  exit 3
  ;;
esac

unreachable() {
  echo "workerd.sh: $1" >&2
  exit 3
}

script=${BASH_SOURCE[0]}
cache=${SPOKELET_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/spokelet}
mkdir -p "$cache"
cache=$(cd "$cache" && pwd)
root=$cache/workerd-$(sha256sum "$script" | cut -c1-16)

exec 9>"$cache/workerd.lock"
flock 9
if [[ -d $root ]]; then
  echo "$root"
  exit
fi
for tool in npm apt-get apt-cache dpkg-deb; do
  command -v "$tool" >/dev/null || unreachable "$tool is not installed"
done

work=$(mktemp -d "$cache/.workerd-XXXXXXXX")
trap 'rm -rf "$work"' EXIT

# fetch_workerd gets the package of npm and checks it.
fetch_workerd() {
  local log=$work/npm.log
  mkdir "$work/npm"
  # Not in the folder of whoever calls: its .npmrc is none of ours.
  if ! (cd "$work/npm" && npm pack --loglevel=error --fetch-retries=1 "$package@$version") >"$log" 2>&1; then
    cat "$log" >&2
    if grep -qE 'code (E404|ETARGET|ENOVERSIONS)' "$log"; then
      echo "workerd.sh: $package@$version is not served any more: pin another one, with its checksums" >&2
      exit 1
    fi
    unreachable "npm cannot fetch $package@$version"
  fi
  local packed=("$work"/npm/*.tgz)
  if ! sha256sum --check --status <<<"$sha256  ${packed[0]}"; then
    echo "workerd.sh: $package@$version has the sha256 $(sha256sum "${packed[0]}" | cut -d' ' -f1), not $sha256" >&2
    exit 1
  fi
  tar -xzf "${packed[0]}" -C "$work/npm"
}

# own_apt runs one of apt's programs with lists of its own: those of the machine may be old or not
# there, and are not ours to change.
own_apt() {
  local program=$1
  shift
  "$program" -q -o "Dir::State::Lists=$work/apt/lists" -o "Dir::Cache=$work/apt/cache" -o APT::Sandbox::User=root "$@"
}

# fetch_deb gets a package of Debian, checks it and unpacks it into a folder.
fetch_deb() {
  local name=$1 into=$2 candidate listed
  candidate=$(own_apt apt-cache policy "$name" | awk '$1 == "Candidate:" { print $2 }')
  listed=$(own_apt apt-cache show "$name=$candidate" 2>/dev/null | awk '$1 == "SHA256:" && !seen++ { print $2 }') || true
  if [[ -z $listed ]]; then
    cat "$work/lists.log" >&2
    [[ $lists == whole ]] || unreachable "apt cannot fetch its lists"
    echo "workerd.sh: apt offers no package $name in the release $codename" >&2
    exit 1
  fi
  mkdir "$work/apt/$name"
  (cd "$work/apt/$name" && own_apt apt-get download "$name=$candidate") >"$work/apt.log" 2>&1 || {
    cat "$work/apt.log" >&2
    unreachable "apt cannot fetch $name=$candidate"
  }
  local packed=("$work/apt/$name"/*.deb)
  if ! sha256sum --check --status <<<"$listed  ${packed[0]}"; then
    echo "workerd.sh: $name=$candidate does not have the sha256 of apt's index, $listed" >&2
    exit 1
  fi
  # Its folders /lib and /lib64 are links in a root.
  dpkg-deb --fsys-tarfile "${packed[0]}" | tar -x --keep-directory-symlink -C "$into"
}

fetch_workerd

mkdir -p "$work/apt/lists/partial" "$work/apt/cache/archives/partial"
# A source of this machine that has nothing of ours may fail. Without --error-on each may.
lists=whole
own_apt apt-get update --error-on=any >"$work/lists.log" 2>&1 || lists=partial
# shellcheck disable=SC1091 # it is the machine's
codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-unknown}")
if [[ $codename != "$tested" ]]; then
  echo "workerd.sh: the libraries are those of the release $codename; it was tested with those of $tested" >&2
fi

made=$work/root
mkdir -p "$made"/{etc/ssl/certs,tmp,usr/bin,usr/lib,usr/lib64,usr/share/doc/workerd}
ln -s usr/lib "$made/lib"
ln -s usr/lib64 "$made/lib64"
chmod 1777 "$made/tmp"
install -m 0755 "$work/npm/package/bin/workerd" "$made/usr/bin/workerd"
install -m 0644 "$work/npm/package/package.json" "$made/usr/share/doc/workerd/package.json"

for name in "${libraries[@]}"; do fetch_deb "$name" "$made"; done
# Of what the packages hold only their licences and libraries are of use.
find "$made/usr/share/doc" -type f -not -name copyright -not -path '*/workerd/*' -delete
rm -rf "$made"/usr/lib/*/gconv "$made/usr/share/lintian" "$made/etc/ld.so.conf.d"

# workerd reads this file for the connections of scripts.
mkdir "$work/authorities"
fetch_deb ca-certificates "$work/authorities"
(cd "$work/authorities/usr/share/ca-certificates/mozilla" && LC_ALL=C && cat -- *.crt) >"$made/etc/ssl/certs/ca-certificates.crt"
mkdir "$made/usr/share/doc/ca-certificates"
install -m 0644 "$work/authorities/usr/share/doc/ca-certificates/copyright" "$made/usr/share/doc/ca-certificates/copyright"

cat >"$made/etc/passwd" <<'END'
root:x:0:0:root:/:/nonexistent
nonroot:x:65532:65532:nonroot:/nonexistent:/nonexistent
END
cat >"$made/etc/group" <<'END'
root:x:0:
nonroot:x:65532:
END
echo 'hosts: files dns' >"$made/etc/nsswitch.conf"
chmod 0644 "$made"/etc/{passwd,group,nsswitch.conf} "$made/etc/ssl/certs/ca-certificates.crt"
find "$made" -depth -exec touch -h -d @0 {} +

# It runs with the libraries that came with it, whatever this machine has.
libs=("$made"/usr/lib/*/libc.so.6)
libs=("${libs[0]%/*}")
said=$("${libs[0]}/$loader" --library-path "${libs[0]}" "$made/usr/bin/workerd" --version) || {
  echo "workerd.sh: workerd does not run with the libraries of the release $codename" >&2
  exit 1
}
if [[ $said != "$prints" ]]; then
  echo "workerd.sh: workerd $version says that it is \"$said\", not \"$prints\"" >&2
  exit 1
fi

mv -T "$made" "$root"
echo "$root"
