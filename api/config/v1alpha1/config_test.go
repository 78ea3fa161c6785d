// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	minimalHub = `
apiVersion: config.spokelet.io/v1alpha1
kind: HubConfiguration
publicAddress: hub.example.com:443
nodes: {address: 192.0.2.10}
`
	minimalAgent = `
apiVersion: config.spokelet.io/v1alpha1
kind: AgentConfiguration
cluster: store-17
hub:
  address: hub.example.com:443
  caFingerprint: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
`
)

func TestParseHub(t *testing.T) {
	cases := map[string]struct {
		reason string
		file   string
		err    string
	}{
		"minimal":        {reason: "two fields are enough", file: minimalHub},
		"unknown field":  {reason: "a typo must not be ignored", file: minimalHub + "\ndrainGrac: 3s\n", err: "drainGrac"},
		"duplicate key":  {reason: "the second value would win silently", file: minimalHub + "\nkind: HubConfiguration\n", err: "kind"},
		"other kind":     {reason: "an agent's file is not a hub's", file: strings.Replace(minimalHub, "HubConfiguration", "AgentConfiguration", 1), err: `want "config.spokelet.io/v1alpha1"`},
		"no address":     {reason: "agents need something to dial", file: strings.Replace(minimalHub, "hub.example.com:443", `""`, 1), err: "publicAddress"},
		"loopback node":  {reason: "the API server refuses to proxy to loopback", file: strings.Replace(minimalHub, "192.0.2.10", "127.0.0.1", 1), err: "nodes.address"},
		"ports swapped":  {reason: "an empty range holds no node", file: strings.Replace(minimalHub, "192.0.2.10}", "192.0.2.10, portMin: 30000, portMax: 20000}", 1), err: "port range"},
		"short life":     {reason: "a certificate must outlive its renewal", file: minimalHub + "\ncertificates: {clusterLife: 5s}\n", err: "certificates.clusterLife"},
		"no URL":         {reason: "its hash would name nobody", file: minimalHub + "\napiServerURL: hub.example.com:6443\n", err: "apiServerURL"},
		"URL with user":  {reason: "a password has no place in it", file: minimalHub + "\napiServerURL: https://a:b@hub.example.com\n", err: "apiServerURL"},
		"large works":    {reason: "the hub's etcd would refuse them", file: minimalHub + "\nadmission: {manifestLimit: 2097152}\n", err: "admission.manifestLimit"},
		"negative size":  {reason: "no work has it", file: minimalHub + "\nadmission: {manifestLimit: -1}\n", err: "admission.manifestLimit"},
		"tiny results":   {reason: "nothing but the cut would be seen", file: minimalHub + "\nmcm: {maxResultBytes: 1023}\n", err: "mcm.maxResultBytes"},
		"large results":  {reason: "the hub's etcd would refuse them", file: minimalHub + "\nmcm: {maxResultBytes: 1048577}\n", err: "mcm.maxResultBytes"},
		"tiny specs":     {reason: "hardly anything could be asked", file: minimalHub + "\nmcm: {specLimit: 1023}\n", err: "mcm.specLimit"},
		"large specs":    {reason: "the hub's etcd would refuse them", file: minimalHub + "\nmcm: {specLimit: 1048577}\n", err: "mcm.specLimit"},
		"no objects":     {reason: "it is no way to serve none", file: minimalHub + "\nmcm: {namespaceObjects: -1}\n", err: "mcm.namespaceObjects"},
		"tiny templates": {reason: "one would not fit", file: minimalHub + "\nmcm: {namespaceBytes: 1Ki}\n", err: "mcm.namespaceBytes"},
		"most results":   {reason: "the hub's etcd takes them", file: minimalHub + "\nmcm: {maxResultBytes: 1048576, showSecrets: true}\n"},
		"bad tokens":     {reason: "a consent with a typo is none", file: minimalHub + "\npods: {tokens: spoke}\n", err: "pods.tokens"},
		"any account":    {reason: "whoever may make tokens everywhere is everybody", file: minimalHub + "\npods: {tokens: hub}\n", err: "pods.tokenNamespaces"},
		"some accounts":  {reason: "the list is demanded", file: minimalHub + "\npods: {tokens: hub, tokenNamespaces: [shop]}\n"},
		"all objects":    {reason: "its owner said so", file: minimalHub + "\npods: {namespaces: ['*']}\n"},
		"some objects":   {reason: "each is a name", file: minimalHub + "\npods: {namespaces: [shop, till]}\n"},
		"bad objects":    {reason: "a limit with a typo is none that is meant", file: minimalHub + "\npods: {namespaces: [shop, '*']}\n", err: "pods.namespaces"},
		"bad accounts":   {reason: "a limit with a typo would be none", file: minimalHub + "\npods: {tokens: hub, tokenNamespaces: ['*']}\n", err: "pods.tokenNamespaces"},
		"little memory":  {reason: "one message must fit", file: minimalHub + "\nbudget: {clusterMemory: 1Mi}\n", err: "budget.clusterMemory"},
		"one for all":    {reason: "a cluster's share is part of the whole", file: minimalHub + "\nbudget: {clusterMemory: 64Mi, memory: 32Mi}\n", err: "budget.clusterMemory"},
		"little shared":  {reason: "an object must fit", file: minimalHub + "\nbudget: {clusterSharedMemory: 1Ki}\n", err: "budget.clusterSharedMemory"},
		"few writes":     {reason: "a status would take minutes", file: minimalHub + "\nbudget: {clusterWrites: 1Ki}\n", err: "budget.clusterWrites"},
		"bad quantity":   {reason: "bad input gets an error", file: minimalHub + "\nbudget: {writes: much}\n", err: "quantit"},
		"bad listen":     {reason: "a port alone is no address", file: minimalHub + "\nlisten: {webhooks: '9443'}\n", err: "listen.webhooks"},
		"not an object":  {reason: "bad input gets an error, not a panic", file: "[]", err: "HubConfiguration"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := ParseHub([]byte(tc.file))
			checkError(t, tc.reason, err, tc.err)
			if tc.err == "" && (got.Nodes.PortMin != 20000 || got.Budget.Memory.Value() != 128<<20) {
				t.Errorf("%s: defaults were not applied: %+v", tc.reason, got)
			}
		})
	}
}

func TestParseAgent(t *testing.T) {
	cases := map[string]struct {
		reason string
		file   string
		err    string
	}{
		"minimal":         {reason: "what join prints is enough", file: minimalAgent},
		"bad name":        {reason: "a cluster's name is a DNS label", file: strings.Replace(minimalAgent, "store-17", "Store_17", 1), err: "cluster"},
		"bad fingerprint": {reason: "a short fingerprint would trust too much", file: strings.Replace(minimalAgent, "9f86d0", "", 1), err: "hub.caFingerprint"},
		"bad namespace":   {reason: "a ceiling with a typo would open nothing, silently", file: minimalAgent + "\nwork: {namespaces: ['*']}\n", err: "work.namespaces"},
		"any group":       {reason: "the owner may leave groups to the hub", file: minimalAgent + "\nkube: {groups: ['*']}\n"},
		"any and one":     {reason: "whoever narrows the list to a name must not be left with all", file: minimalAgent + "\nkube: {groups: ['*', dev]}\n", err: "kube.groups"},
		"system group":    {reason: "it would open nothing, silently", file: minimalAgent + "\nkube: {groups: ['system:masters']}\n", err: "kube.groups"},
		"bad agent id":    {reason: "anchors would not be found by it", file: minimalAgent + "\nwork: {agentID: 'a b'}\n", err: "work.agentID"},
		"bad raw length":  {reason: "no value has it", file: minimalAgent + "\nwork: {maxJSONRawLength: -5}\n", err: "work.maxJSONRawLength"},
		"bad prefix":      {reason: "no namespace could have it", file: minimalAgent + "\npods: {namespacePrefix: 'Hub_'}\n", err: "pods.namespacePrefix"},
		"bad tokens":      {reason: "a ceiling with a typo must not be the default", file: minimalAgent + "\npods: {tokens: hubs}\n", err: "pods.tokens"},
		"hub's tokens":    {reason: "the hub has to say so too, but that is not known here", file: minimalAgent + "\npods: {tokens: hub, hubAPIServer: 'https://[fd00::1]:6443'}\n"},
		"bad API server":  {reason: "a host and a port are all that fits into the environment", file: minimalAgent + "\npods: {tokens: hub, hubAPIServer: 'https://hub.example.com'}\n", err: "pods.hubAPIServer"},
		"a path":          {reason: "it would be lost", file: minimalAgent + "\npods: {tokens: hub, hubAPIServer: 'https://hub.example.com:6443/k8s'}\n", err: "pods.hubAPIServer"},
		"useless server":  {reason: "pods would send tokens of this cluster to the hub", file: minimalAgent + "\npods: {hubAPIServer: 'https://hub.example.com:6443'}\n", err: "pods.hubAPIServer"},
		"bad pod space":   {reason: "no pod could come", file: minimalAgent + "\npods: {namespaces: ['*']}\n", err: "pods.namespaces"},
		"annotations":     {reason: "a domain with its slash, a key, and a key with dots", file: minimalAgent + "\npods: {annotations: [example.com/, example.com/team, io.kubernetes.cri-o.Devices]}\n"},
		"bad annotation":  {reason: "a pattern would match nothing, silently", file: minimalAgent + "\npods: {annotations: ['example.com/*']}\n", err: "pods.annotations"},
		"no annotation":   {reason: "a slash alone is every domain to nobody", file: minimalAgent + "\npods: {annotations: ['/']}\n", err: "pods.annotations"},
		"bad pod account": {reason: "nobody could be impersonated", file: minimalAgent + "\npods: {serviceAccount: 'a:b'}\n", err: "pods.serviceAccount"},
		"bad split":       {reason: "the hub would refuse the label", file: minimalAgent + "\nnode: {splitLabel: kubernetes.io/hostname}\n", err: "node.splitLabel"},
		"charts":          {reason: "servers, registries, and what is below a path", file: minimalAgent + "\nhelm: {charts: ['https://charts.example.com:8443/stable/', 'http://charts.example.com', 'oci://registry.example.com/charts']}\n"},
		"a chart's user":  {reason: "a password has no place in it", file: minimalAgent + "\nhelm: {charts: ['https://a:b@charts.example.com']}\n", err: "helm.charts"},
		"a query":         {reason: "nothing is below it", file: minimalAgent + "\nhelm: {charts: ['https://charts.example.com/a?b=c']}\n", err: "helm.charts"},
		"a fragment":      {reason: "no server sees it", file: minimalAgent + "\nhelm: {charts: ['https://charts.example.com/a#b']}\n", err: "helm.charts"},
		"a file":          {reason: "there is none here", file: minimalAgent + "\nhelm: {charts: ['file:///charts']}\n", err: "helm.charts"},
		"no scheme":       {reason: "it may be a server or a registry", file: minimalAgent + "\nhelm: {charts: [charts.example.com]}\n", err: "helm.charts"},
		"no host":         {reason: "it is nobody's", file: minimalAgent + "\nhelm: {charts: ['oci:///charts']}\n", err: "helm.charts"},
		"no URL":          {reason: "a list with a typo allows nothing, silently", file: minimalAgent + "\nhelm: {charts: ['https://charts.example.com:a']}\n", err: "helm.charts"},
		"a dotted path":   {reason: "a server may read another path into it", file: minimalAgent + "\nhelm: {charts: ['https://charts.example.com/a/../b']}\n", err: "helm.charts"},
		"empty segments":  {reason: "as above", file: minimalAgent + "\nhelm: {charts: ['https://charts.example.com//a']}\n", err: "helm.charts"},
		"escaped slashes": {reason: "as above", file: minimalAgent + "\nhelm: {charts: ['https://charts.example.com/a%2fb']}\n", err: "helm.charts"},
		"one bad of two":  {reason: "each is looked at", file: minimalAgent + "\nhelm: {charts: ['https://charts.example.com', '*']}\n", err: "helm.charts"},
		"helm's memory":   {reason: "what a process starts with", file: minimalAgent + "\nhelm: {memory: 128Mi}\n"},
		"little memory":   {reason: "no process starts with it", file: minimalAgent + "\nhelm: {memory: 127Mi}\n", err: "helm.memory"},
		"negative memory": {reason: "there is no such thing", file: minimalAgent + "\nhelm: {memory: -1Gi}\n", err: "helm.memory"},
		"bad memory":      {reason: "bad input gets an error", file: minimalAgent + "\nhelm: {memory: much}\n", err: "quantit"},
		"unknown field":   {reason: "a ceiling that is not understood must stop the agent", file: minimalAgent + "\nkubeDoor: {enabled: false}\n", err: "kubeDoor"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := ParseAgent([]byte(tc.file))
			checkError(t, tc.reason, err, tc.err)
		})
	}
}

func TestAgentDefaults(t *testing.T) {
	got, err := ParseAgent([]byte(minimalAgent))
	if err != nil {
		t.Fatal(err)
	}
	want := ServiceAccountReference{Namespace: "open-cluster-management-agent", Name: "klusterlet-work-sa"}
	if diff := cmp.Diff(want, got.Work.ServiceAccount); diff != "" {
		t.Errorf("the documented permission examples bind this account (-want +got):\n%s", diff)
	}
	if !*got.Kube.Enabled || !*got.Work.Enabled || got.Kube.UserPrefix != "hub:" || got.Work.EvictionGrace.Duration != time.Hour || got.Work.MaxJSONRawLength != 1024 || got.Work.AgentID != "" {
		t.Errorf("defaults: got %+v", got)
	}
	pods := PodConfiguration{Enabled: new(true), ServiceAccount: "spokelet-node", Tokens: PodTokensSpoke}
	if diff := cmp.Diff(pods, got.Pods); diff != "" {
		t.Errorf("pods run, and reach for no node (-want +got):\n%s", diff)
	}
	if len(got.Helm.Charts) != 0 || got.Helm.Memory.Value() != 192<<20 || got.Helm.Binary != "/spokelet-helm" {
		t.Errorf("no chart is read unless the owner says so: %+v", got.Helm)
	}
	if account := got.PodAccount(); account != "system:serviceaccount:spokelet-agent:spokelet-node" {
		t.Errorf("pods are written as %q", account)
	}
}

func TestHubDefaults(t *testing.T) {
	got, err := ParseHub([]byte(minimalHub))
	if err != nil {
		t.Fatal(err)
	}
	want := AdmissionConfiguration{Enabled: new(true), ServiceName: "spokelet-hub", ManifestLimit: 500 << 10}
	if diff := cmp.Diff(want, got.Admission); diff != "" {
		t.Errorf("works are judged as Open Cluster Management does (-want +got):\n%s", diff)
	}
	views := MCMConfiguration{
		MaxResultBytes: 512 << 10, SpecLimit: 512 << 10, NamespaceObjects: 1000, NamespaceBytes: resource.MustParse("32Mi"),
	}
	if diff := cmp.Diff(views, got.MCM); diff != "" {
		t.Errorf("views and actions have their sizes, and no secrets (-want +got):\n%s", diff)
	}
	if got.Pods.Tokens != HubTokensNone {
		t.Errorf("the hub issues tokens unasked: %q", got.Pods.Tokens)
	}
	if got.Work.Healthy || got.Listen.Webhooks != ":9443" || got.APIServerURL != "" {
		t.Errorf("defaults: got %+v", got)
	}
}

func TestFlagsWinOverTheFile(t *testing.T) {
	got, err := ParseHub([]byte(minimalHub+"\nadmission: {enabled: false, manifestLimit: 5}\n"), func(c *HubConfiguration) { c.Admission.ManifestLimit = 7 })
	if err != nil {
		t.Fatal(err)
	}
	if got.Admission.ManifestLimit != 7 || *got.Admission.Enabled {
		t.Errorf("got %+v, want the limit of the flag and what else the file says", got.Admission)
	}
}

func TestExplicitFalseStaysFalse(t *testing.T) {
	got, err := ParseAgent([]byte(minimalAgent + "\nkube: {enabled: false}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if *got.Kube.Enabled {
		t.Error("a closed door was opened by defaulting")
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(minimalHub))
	f.Add([]byte(minimalAgent))
	f.Add([]byte("a: &a [*a, *a]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if c, err := ParseHub(data); err == nil && c.Validate() != nil {
			t.Error("a hub file that was accepted does not validate")
		}
		if c, err := ParseAgent(data); err == nil && c.Validate() != nil {
			t.Error("an agent file that was accepted does not validate")
		}
	})
}

func checkError(t *testing.T, reason string, err error, want string) {
	t.Helper()
	if want == "" && err != nil {
		t.Errorf("%s: %v", reason, err)
	}
	if want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
		t.Errorf("%s: error %v does not name %q", reason, err, want)
	}
}
