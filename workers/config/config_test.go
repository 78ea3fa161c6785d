// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/workers/placement"
)

// required is the shortest file that is accepted.
const required = `
store: {endpoint: "https://s3.example.com", bucket: workers}
registry: {push: registry.example.com/workers, runtime: "registry.example.com/workerd:1"}
build: {image: "workers:1", serviceAccount: build, configMap: config}
`

func TestDefaultFillsEmptyFields(t *testing.T) {
	got, err := Parse([]byte(required))
	if err != nil {
		t.Fatal(err)
	}
	want := Config{
		Registry: Registry{Pull: "registry.example.com/workers"},
		Build:    Build{Image: "workers:1", ServiceAccount: "build", ConfigMap: "config", Deadline: metav1.Duration{Duration: 3 * time.Minute}},
	}
	want.Store.Endpoint, want.Store.Bucket = "https://s3.example.com", "workers"
	want.Registry.Push, want.Registry.Runtime = "registry.example.com/workers", "registry.example.com/workerd:1"
	want.Store.Default()
	want.Registry.Default()
	want.Placement.Default()
	want.Tails.Default()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestDefaultKeepsSetFields(t *testing.T) {
	got, err := Parse([]byte(`
store: {endpoint: "https://s3.example.com", bucket: workers, region: eu-1, maxModules: 3, maxScriptBytes: 4}
registry: {push: inside:5000/workers, pull: outside/workers, runtime: "inside:5000/workerd:1"}
build: {image: "workers:1", serviceAccount: build, configMap: config, deadline: 90s}
place: {route: Ingress, minReplicas: 2}
tails: {maxTails: 5, maxPods: 6}
`))
	if err != nil {
		t.Fatal(err)
	}
	kept := []any{got.Store.Region, got.Store.MaxModules, got.Store.MaxBytes, got.Registry.Pull, got.Build.Deadline.Duration, got.Placement.Route, got.Placement.MinReplicas, got.Tails.MaxTails, got.Tails.MaxPods, got.Tails.MaxPerAccount}
	want := []any{"eu-1", 3, int64(4), "outside/workers", 90 * time.Second, placement.RouteIngress, int32(2), 5, 6, 50}
	if diff := cmp.Diff(want, kept); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestValidateRejectsInvalidFields(t *testing.T) {
	valid, err := Parse([]byte(required))
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		reason string
		change func(*Config)
		want   string
	}{
		"without an endpoint":          {"the store reports it", func(c *Config) { c.Store.Endpoint = "" }, "store: endpoint: is not http:// or https:// and a host"},
		"without a runtime":            {"the registry reports it", func(c *Config) { c.Registry.Runtime = "" }, `registry: runtime image "": does not begin with a host`},
		"without the operator's image": {"steps of builds run it", func(c *Config) { c.Build.Image = "" }, "build: image: is required"},
		"without a service account":    {"the namespace's own may have rights", func(c *Config) { c.Build.ServiceAccount = "" }, "build: serviceAccount: is required"},
		"without a ConfigMap":          {"steps of builds read it", func(c *Config) { c.Build.ConfigMap = "" }, "build: configMap: is required"},
		"with less than no tails":      {"nobody could have one", func(c *Config) { c.Tails.MaxTails = -1 }, "tails: maxTails: -1 is less than 1"},
		"with too short a deadline":    {"no build would end in it", func(c *Config) { c.Build.Deadline.Duration = time.Millisecond }, "build: deadline: 1ms is not between 1s and 1h0m0s"},
		"with too long a deadline":     {"a build that hangs holds up the next", func(c *Config) { c.Build.Deadline.Duration = 2 * time.Hour }, "build: deadline: 2h0m0s is not between 1s and 1h0m0s"},
		"with a route of no kind":      {"what package place says is about a field", func(c *Config) { c.Placement.Route = "Tunnel" }, `place: route: "Tunnel" is not one of None, Ingress and Gateway`},
		"with two faults": {"both are reported", func(c *Config) { c.Store.Bucket, c.Build.Image = "", "" },
			"store: bucket \"\": Bucket name cannot be empty\nbuild: image: is required"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := valid
			tc.change(&c)
			if err := c.Validate(); err == nil || err.Error() != tc.want {
				t.Errorf("%v, not %q: %s", err, tc.want, tc.reason)
			}
		})
	}
}

func TestParseRejectsMalformedFile(t *testing.T) {
	cases := map[string]struct{ reason, text, want string }{
		"a field that nobody knows": {"it is a slip of the pen", required + "stor: {}\n", `unknown field "stor"`},
		"no YAML":                   {"there is nothing to read", "{", "yaml"},
		"an empty file":             {"everything is missing", "", "endpoint: is not http"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "config.yaml")
			if err := os.WriteFile(path, []byte(tc.text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := Load(path)
			if err == nil || !strings.HasPrefix(err.Error(), "configuration: ") || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, without %q: %s", err, tc.want, tc.reason)
			}
		})
	}
	if _, err := Load("/nowhere/config.yaml"); err == nil || !strings.Contains(err.Error(), "/nowhere/config.yaml") {
		t.Errorf("a file that is not there: %v", err)
	}
}

func TestLoadCredentialsReadsMountedFiles(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		StoreDir + "/accessKey": "key\n", StoreDir + "/secretKey": "secret\n", StoreCADir + "/ca.crt": "store authority",
		RegistryDir + "/.dockerconfigjson": "{}", RegistryCADir + "/ca.crt": "registry authority",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		// As the kubelet does: what is read is a link.
		if err := os.WriteFile(path+".data", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Base(path)+".data", path); err != nil {
			t.Fatal(err)
		}
	}
	var got, want Config
	err := got.LoadCredentials(root)
	want.Store.AccessKey, want.Store.SecretKey, want.Store.CA = "key", "secret", []byte("store authority")
	want.Registry.DockerConfig, want.Registry.CA = []byte("{}"), []byte("registry authority")
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func TestLoadCredentialsReportsUnreadableFile(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, StoreDir, "secretKey"), 0o700); err != nil { // a folder
		t.Fatal(err)
	}
	if err := new(Config).LoadCredentials(root); err == nil || !strings.Contains(err.Error(), "secretKey") {
		t.Errorf("it is %v", err)
	}
}
