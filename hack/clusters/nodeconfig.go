// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

// containerdConfig keeps every path of this instance apart from the machine's
// own containerd. Version 2 of the format is read by containerd 1.6 and later.
const containerdConfig = `version = 2
root = "{{.Dir}}/containerd"
state = "{{.RunDir}}/containerd"
# The first would make a directory in /opt, the second a socket that instances share.
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.nri.v1.nri"]

[grpc]
  address = "{{.Socket}}"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{{.Pause}}"
  stream_server_address = "127.0.0.1"
  disable_apparmor = true
  # Lowering a score needs CAP_SYS_RESOURCE, which root in a container may lack.
  restrict_oom_score_adj = true
  # Else they would lie among the machine's, where they could not be told apart.
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{{.Plugins}}"
    conf_dir = "{{.Dir}}/cni/conf"
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "{{.Registries}}"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "{{.Snapshotter}}"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
        Root = "{{.RunDir}}/runc"
`

// networkConfig gives each pod a link of its own (ptp), not a port of a bridge:
// then an answer to a Service's client on the same node passes through the
// packet filter, which has to translate it, without the br_netfilter module.
const networkConfig = `{
  "cniVersion": "0.4.0",
  "name": "{{.Network}}",
  "plugins": [
    {
      "type": "ptp",
      "ipMasq": true,
      "ipam": {
        "type": "host-local",
        "dataDir": "{{.Dir}}/cni/data",
        "ranges": [[{"subnet": "{{.Pods}}"}]],
        "routes": [{"dst": "0.0.0.0/0"}]
      }
    },
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
`

// kubeletConfig never evicts and never removes images: most have no registry to be
// fetched from again. Nobody serves DNS; but of a node that knows no address for
// it, the kubelet reports an event for each pod, once a minute.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: {{.Host}}
healthzBindAddress: 127.0.0.1
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: {{.Dir}}/pki/ca.crt}
authorization: {mode: Webhook}
tlsCertFile: {{.Dir}}/pki/kubelet.crt
tlsPrivateKeyFile: {{.Dir}}/pki/kubelet.key
containerRuntimeEndpoint: unix://{{.Socket}}
cgroupDriver: cgroupfs
cgroupRoot: {{.Cgroup}}
{{if .CgroupV1}}failCgroupV1: false
{{end}}failSwapOn: false
maxPods: 500
clusterDNS: [{{.DNS}}]
clusterDomain: cluster.local
podLogsDir: {{.Dir}}/pods
volumePluginDir: {{.Dir}}/volumeplugins
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
evictionHard:
  memory.available: 50Mi
  nodefs.available: "0%"
  nodefs.inodesFree: "0%"
  imagefs.available: "0%"
  imagefs.inodesFree: "0%"
`

// proxyConfig leaves the connection table's limits alone: they belong to the
// machine and cannot be set from a namespace.
const proxyConfig = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: iptables
bindAddress: {{.Host}}
healthzBindAddress: 127.0.0.1:10256
metricsBindAddress: 127.0.0.1:10249
hostnameOverride: {{.Node}}
clusterCIDR: {{.Pods}}
clientConnection: {kubeconfig: {{.Proxy}}}
conntrack:
  maxPerCore: 0
  min: 0
  tcpEstablishedTimeout: 0s
  tcpCloseWaitTimeout: 0s
`
