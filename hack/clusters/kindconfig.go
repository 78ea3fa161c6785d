// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"net/netip"
	"os"
	"path/filepath"
)

// kindSettings are what the configuration below sees.
type kindSettings struct {
	Dir            string
	Pods, Services netip.Prefix
	OwnNetwork     bool // whether the node image has no network of pods
	Address        string
	Port           int
}

// kindConfig turns on the audit log, in a directory of this machine. Nobody reads what
// etcd has written after a crash. On control groups of version 1 a kubelet wants to be
// told that they are meant. Its serving certificate is of the cluster's CA, as those of
// other clusters of this package: finish approves it.
const kindConfig = `kind: Cluster
apiVersion: kind.x-k8s.io/v1alpha4
networking:
  podSubnet: {{.Pods}}
  serviceSubnet: {{.Services}}
  disableDefaultCNI: {{.OwnNetwork}}
  apiServerAddress: {{.Address}}
  apiServerPort: {{.Port}}
nodes:
- role: control-plane
  extraMounts:
  - {hostPath: "{{.Dir}}/config", containerPath: /etc/kubernetes/audit, readOnly: true}
  - {hostPath: "{{.Dir}}/audit", containerPath: /var/log/kubernetes}
{{- if .OwnNetwork}}
  - {hostPath: "{{.Dir}}/network", containerPath: /etc/cni/net.d, readOnly: true}
{{- end}}
  kubeadmConfigPatches:
  - |
    kind: ClusterConfiguration
    apiServer:
      extraArgs:
      - {name: audit-policy-file, value: /etc/kubernetes/audit/audit.yaml}
      - {name: audit-log-path, value: /var/log/kubernetes/audit.log}
      - {name: enable-aggregator-routing, value: "true"}
      extraVolumes:
      - {name: audit-policy, hostPath: /etc/kubernetes/audit, mountPath: /etc/kubernetes/audit, readOnly: true}
      - {name: audit-log, hostPath: /var/log/kubernetes, mountPath: /var/log/kubernetes}
    etcd: {local: {extraArgs: [{name: unsafe-no-fsync, value: "true"}]}}
  - |
    kind: KubeletConfiguration
    failCgroupV1: false
    serverTLSBootstrap: true
`

// auditMount is where the configuration above has a directory of the cluster's in its node.
const auditMount = "/var/log/kubernetes"

// configure writes the files that kind, the API server and the node read.
func (k *kind) configure(c *Cluster, node string) error {
	for _, dir := range []string{"config", "audit", "network"} {
		if err := os.MkdirAll(filepath.Join(c.dir, dir), 0o750); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(c.dir, "config", "audit.yaml"), []byte(auditPolicy), 0o600); err != nil {
		return err
	}
	values := k.settings(c, node)
	network := settings{Network: "node", Dir: "/run", Pods: netip.PrefixFrom(values.Pods.Addr(), 24).String()} // the first node's
	if err := writeTemplate(filepath.Join(c.dir, "network", "10-node.conflist"), networkConfig, network); err != nil {
		return err
	}
	return writeTemplate(filepath.Join(c.dir, "kind.yaml"), kindConfig, values)
}

// settings of a cluster. Those of a set have ranges that do not overlap: where they do, a
// pod of a spoke has no address on the hub.
func (k *kind) settings(c *Cluster, node string) kindSettings {
	part := byte(16 * c.index) //nolint:gosec // a set has 16 clusters at most
	s := kindSettings{
		Dir:        c.dir,
		Pods:       netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, part, 0}), 20),
		Services:   netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 96, part, 0}), 20),
		OwnNetwork: node != "",
		Address:    "127.0.0.1",
		Port:       -1, // of Docker's choice
	}
	if k.engine != nil { // the engine's loopback is not this machine's
		s.Address, s.Port = k.engine.Plan.Host().String(), 6443+c.index
	}
	return s
}
