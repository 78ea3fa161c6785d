// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"strings"
	"testing"
	"time"
)

func TestValidateRejectsInvalidConfig(t *testing.T) {
	cases := map[string]struct {
		reason string
		change func(c *Config)
		want   string
	}{
		"a right one":               {"there is nothing to say", func(*Config) {}, ""},
		"no credentials":            {"a store may not ask for any", func(c *Config) { c.AccessKey, c.SecretKey = "", "" }, ""},
		"no endpoint":               {"there is no default", func(c *Config) { c.Endpoint = "" }, "endpoint: is not http:// or https:// and a host"},
		"a host alone":              {"it does not say whether TLS is spoken", func(c *Config) { c.Endpoint = "s3.example.com" }, "endpoint: is not http:// or https:// and a host"},
		"an endpoint with a path":   {"the bucket has a field of its own", func(c *Config) { c.Endpoint = "https://s3.example.com/scripts" }, "endpoint: has more than a scheme and a host"},
		"an endpoint with a secret": {"it would be written to logs", func(c *Config) { c.Endpoint = "https://u:hidden@s3.example.com" }, "endpoint: has more than a scheme and a host"},
		"an endpoint that is none":  {"its text is not repeated", func(c *Config) { c.Endpoint = "https://u:hidden@s3\x00" }, "endpoint: is no URL"},
		"no bucket":                 {"there is no default", func(c *Config) { c.Bucket = "" }, `bucket "": Bucket name cannot be empty`},
		"one of two keys":           {"requests are signed with both", func(c *Config) { c.AccessKey = "" }, "access key and secret key: only one of them is there"},
		"a key with a newline":      {"files end with one", func(c *Config) { c.SecretKey = "hidden\n" }, "access key and secret key: there is white space in them"},
		"no modules":                {"nothing could be served", func(c *Config) { c.MaxModules = -1 }, "maxModules: -1 is not between 1 and 200"},
		"too many modules":          {"a release lists no more", func(c *Config) { c.MaxModules = 201 }, "maxModules: 201 is not between 1 and 200"},
		"no bytes":                  {"as no modules", func(c *Config) { c.MaxBytes = -1 }, "maxScriptBytes: -1 is less than 1"},
		"no time":                   {"nothing could be read", func(c *Config) { c.Timeout = -1 }, "the timeouts 20s and -1ns are not both above 0"},
		"an authority that is none": {"it would be trusted in vain", func(c *Config) { c.CA = []byte("x") }, "the bundle of authorities holds no certificate"},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			config := Config{Endpoint: "https://s3.example.com", Bucket: bucket, AccessKey: "access", SecretKey: "hidden"}
			test.change(&config)
			s, err := New(config)
			if test.want == "" {
				if err != nil {
					t.Errorf("%s\n%v", test.reason, err)
				}
				return
			}
			if err == nil || s != nil || err.Error() != "object store: "+test.want {
				t.Errorf("%s\n%v, not %s", test.reason, err, test.want)
			}
			if err != nil && strings.Contains(err.Error(), "hidden") {
				t.Errorf("it tells a secret: %v", err)
			}
		})
	}
}

func TestDefaultFillsEmptyFields(t *testing.T) {
	config := Config{MaxModules: 3}
	config.Default()
	if config.Region != "us-east-1" || config.MaxModules != 3 || config.MaxBytes != 16<<20 || config.AnswerTimeout != 20*time.Second {
		t.Errorf("%+v", config)
	}
}
