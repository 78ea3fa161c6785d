// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"errors"
	"net/http"
	"strings"
	"testing"
)

func TestValidateRejectsInvalidConfig(t *testing.T) {
	cases := map[string]struct {
		reason string
		change func(c *Config)
		want   string
	}{
		"a right one":               {"there is nothing to say", func(*Config) {}, ""},
		"a host with a port":        {"a registry of one's own has one", func(c *Config) { c.Push = "localhost:5000/workers" }, ""},
		"a runtime by digest":       {"it is better so", func(c *Config) { c.Runtime = "r.example.com/runtime@" + absent }, ""},
		"a folder without a host":   {"it would be in a registry that nobody named", func(c *Config) { c.Push = "workers/images" }, `registry folder "workers/images": does not begin with a host`},
		"a host without a folder":   {"the folder is the operator's alone", func(c *Config) { c.Push = "r.example.com" }, `registry folder "r.example.com": does not begin with a host`},
		"a folder with a tag":       {"it is no image", func(c *Config) { c.Push = "r.example.com/workers:1" }, "registry folder"},
		"a folder with a scheme":    {"registries are named without", func(c *Config) { c.Push = "https://r.example.com/workers" }, "registry folder"},
		"a runtime without a host":  {"as a folder", func(c *Config) { c.Runtime = "runtime:1" }, `runtime image "runtime:1": does not begin with a host`},
		"no runtime":                {"there is no default", func(c *Config) { c.Runtime = "" }, `runtime image "": does not begin with a host`},
		"credentials that are none": {"their text is not repeated", func(c *Config) { c.DockerConfig = []byte("hidden") }, "registry credentials: are no dockerconfigjson"},
		"credentials in another form": {
			"as none", func(c *Config) { c.DockerConfig = []byte(`{"auths":{"r.example.com":{"auth":"hidden!"}}}`) }, `registry credentials for "r.example.com": cannot be read`,
		},
		"an authority that is none": {"it would be trusted in vain", func(c *Config) { c.CA = []byte("x") }, "the bundle of authorities holds no certificate"},
		"no pause":                  {"a registry that is busy would be asked again at once", func(c *Config) { c.Backoff = -1 }, "the backoff -1ns is not above 0"},
		"no time":                   {"nothing could be asked", func(c *Config) { c.Timeout = -1 }, "the timeout -1ns is not above 0"},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			config := Config{Push: "r.example.com/workers", Runtime: "r.example.com/runtime:1"}
			test.change(&config)
			r, err := New(config)
			if test.want == "" {
				if err != nil {
					t.Errorf("%s\n%v", test.reason, err)
				}
				return
			}
			if err == nil || r != nil || !strings.HasPrefix(err.Error(), "registry: "+test.want) {
				t.Errorf("%s\n%v, not %s", test.reason, err, test.want)
			}
			if err != nil && strings.Contains(err.Error(), "hidden") {
				t.Errorf("it tells a secret: %v", err)
			}
		})
	}
}

func TestCredentialsMatchRegistry(t *testing.T) {
	const none = ""
	cases := map[string]struct{ reason, config, want string }{
		"by host":          {"the usual form", `{"auths":{"HOST":{"username":"u","password":"p"}}}`, "Basic dTpw"},
		"as one text":      {"clients write it so", `{"auths":{"HOST":{"auth":"dTpw"}}}`, "Basic dTpw"},
		"by URL":           {"an old form", `{"auths":{"https://HOST/v1/":{"auth":"dTpw"}}}`, "Basic dTpw"},
		"by folder":        {"a registry may have several", `{"auths":{"HOST":{"auth":"eDp5"},"HOST/workers":{"auth":"dTpw"},"HOST/workers/a2":{"auth":"eDp5"}}}`, "Basic dTpw"},
		"of another host":  {"they are not shown to this one", `{"auths":{"r.example.com":{"auth":"dTpw"}}}`, none},
		"of a longer name": {"HOST is not HOST.example.com", `{"auths":{"HOST.example.com":{"auth":"dTpw"},"HOST/workers/a":{"auth":"dTpw"}}}`, none},
		"none":             {"a registry may not ask for any", ``, none},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			f := &fakeRegistry{}
			r := f.start(t)
			f.breakWith(func(w http.ResponseWriter, r *http.Request) bool {
				if r.Header.Get("Authorization") == "" {
					w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
					w.WriteHeader(http.StatusUnauthorized)
				}
				return r.Header.Get("Authorization") == ""
			})
			r = newRegistry(t, Config{
				Push: r.config.Push, Runtime: r.config.Runtime, Insecure: true,
				DockerConfig: []byte(strings.ReplaceAll(test.config, "HOST", f.host)),
			})
			_, err := r.Digest(t.Context(), "a1", "tag")
			if got := f.authorization(); got != test.want {
				t.Errorf("%s\nit sends %q", test.reason, got)
			}
			wanted := ErrMissing
			if test.want == none {
				wanted = ErrDenied
			}
			if !errors.Is(err, wanted) {
				t.Errorf("%s\n%v, not %v", test.reason, err, wanted)
			}
		})
	}
}

func TestDockerHubNamesAreEquivalent(t *testing.T) {
	for _, where := range []string{"https://index.docker.io/v1/", "docker.io", "https://registry-1.docker.io/v2/", "index.docker.io"} {
		if got := normalizeName(where); got != dockerHub {
			t.Errorf("%s is %s", where, got)
		}
	}
}

func TestPlainHTTPNeedsInsecure(t *testing.T) {
	f := &fakeRegistry{}
	// The library takes an address of this machine for one that needs no TLS.
	r := f.start(t, func(c *Config) { c.Insecure = false })
	_, err := r.Digest(t.Context(), "a1", "tag")
	if !errors.Is(err, ErrUnavailable) {
		t.Errorf("it returns %v", err)
	}
	if asked := f.requests(); len(asked) > 0 {
		t.Errorf("it asked %s", asked)
	}
}
