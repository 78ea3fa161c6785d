// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRegistryHostsNamesTheRegistryTwice(t *testing.T) {
	got, err := registryHosts("10.192.0.1:5000")
	if err != nil {
		t.Fatal(err)
	}
	const want = `server = "http://10.192.0.1:5000"

[host."http://10.192.0.1:5000"]
  capabilities = ["pull", "resolve"]
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what containerd is told (-want +got):\n%s", diff)
	}
}

func TestRegistryHostsRefusesWhatIsNoRegistry(t *testing.T) {
	cases := map[string]struct{ reason, registry string }{
		"nothing":         {reason: "there is nothing to speak to", registry: ""},
		"no port":         {reason: "containerd takes such a name for one with TLS", registry: "registry.example.com"},
		"no host":         {reason: "it is nobody's", registry: ":5000"},
		"a URL":           {reason: "it is a name, as in images", registry: "http://registry.example.com:5000"},
		"a folder":        {reason: "all of a registry is spoken to in one way", registry: "registry.example.com:5000/team"},
		"another folder":  {reason: "it would lie elsewhere", registry: "../../x:5000"},
		"a quote":         {reason: "it would end the text", registry: `a"b:5000`},
		"a port's name":   {reason: "images have numbers", registry: "registry.example.com:http"},
		"a large port":    {reason: "there is none", registry: "registry.example.com:65536"},
		"port 0":          {reason: "nobody listens there", registry: "registry.example.com:0"},
		"an IPv6 address": {reason: "names of images have none", registry: "[::1]:5000"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got, err := registryHosts(tc.registry); !errors.Is(err, ErrConfig) {
				t.Errorf("%s: got %q, %v", tc.reason, got, err)
			}
		})
	}
}

func TestANodeFindsARegistryInItsFolder(t *testing.T) {
	set, err := attach(Config{Name: "x", StateDir: t.TempDir()}, state{Name: "x", Provider: Netns, Clusters: clusterNames(1)})
	if err != nil {
		t.Fatal(err)
	}
	hub := set.Hub()
	if err := hub.UsePlainRegistry(t.Context(), "10.192.0.1:5000"); !errors.Is(err, ErrUnsupported) {
		t.Errorf("a set without the folder: %v, want %v", err, ErrUnsupported)
	}
	folder := filepath.Join(hub.dir, "registries")
	if err := os.MkdirAll(folder, 0o750); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second finds what the first has made
		if err := hub.UsePlainRegistry(t.Context(), "10.192.0.1:5000"); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(filepath.Join(folder, "10.192.0.1:5000", "hosts.toml"))
	want, _ := registryHosts("10.192.0.1:5000")
	if err != nil || string(got) != want {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestWithoutNodesNoRegistryIsUsed(t *testing.T) {
	set, err := attach(Config{Name: "x", StateDir: t.TempDir()}, state{Name: "x", Provider: ControlPlane, Clusters: clusterNames(1)})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []*Cluster{set.Hub(), existing(Config{HubKubeconfig: "a"}).Hub()} {
		if err := c.UsePlainRegistry(t.Context(), "10.192.0.1:5000"); !errors.Is(err, ErrUnsupported) {
			t.Errorf("%v, want %v", err, ErrUnsupported)
		}
	}
}
