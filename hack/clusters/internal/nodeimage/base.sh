#!/usr/bin/env bash
# Copyright The Spokelet Authors.
# SPDX-License-Identifier: Apache-2.0

# Runs in the root of the node image, after debootstrap and kind's files: what the
# Dockerfile of kind's base image does besides installing packages. The arguments are the
# packages that the image of kube-proxy needs; their files go to /proxy.
set -euo pipefail

# A container has neither the devices nor the consoles that most services are for.
rm -f /lib/systemd/system/multi-user.target.wants/* /etc/systemd/system/*.wants/* \
  /lib/systemd/system/local-fs.target.wants/* /lib/systemd/system/sockets.target.wants/*udev* \
  /lib/systemd/system/sockets.target.wants/*initctl* /lib/systemd/system/basic.target.wants/* \
  /lib/systemd/system/sysinit.target.wants/systemd-tmpfiles-setup.service
echo ReadKMsg=no >>/etc/systemd/journald.conf
[[ -e /sbin/init ]] || ln -s /lib/systemd/systemd /sbin/init
systemctl --quiet enable kubelet.service containerd.service undo-mount-hacks.service
systemctl --quiet mask systemd-binfmt.service

# Debian's programs, where kind's units and containerd look for them.
ln -sf /usr/bin/{containerd,ctr,containerd-shim-runc-v2} /usr/local/bin/
mkdir -p /etc/kubernetes/manifests /opt/cni/bin
ln -sf /usr/lib/cni/{host-local,loopback,ptp,portmap} /opt/cni/bin/
ctr oci spec |
  jq '.hooks.createContainer += [{"path": "/kind/bin/mount-product-files.sh"}] | del(.process.rlimits)' \
    >/etc/containerd/cri-base.json
# Lowering a score needs CAP_SYS_RESOURCE, which root of the machine may lack.
sed -i 's/restrict_oom_score_adj = false/restrict_oom_score_adj = true/' /etc/containerd/config.toml
# Containerd 2 looks there by itself.
cat >>/etc/containerd/config.toml <<CONFIG

[plugins."io.containerd.grpc.v1.cri".registry]
  config_path = "/etc/containerd/certs.d"
CONFIG

mkdir /proxy
for package in "$@"; do
  dpkg-deb --extract /var/cache/apt/archives/"${package}"_*.deb /proxy
done
# Which of the two variants is used, dpkg would ask its alternatives.
for name in {ip,ip6}tables{,-save,-restore}; do ln -s xtables-nft-multi "/proxy/usr/sbin/$name"; done
rm -rf /proxy/usr/share /proxy/usr/lib/*/gconv

apt-get clean
rm -rf /usr/share/{doc,man,locale,info} /var/lib/apt/lists/* /var/log/*.log
