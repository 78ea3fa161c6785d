// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package config is the file that the operator and its builds are configured by. The chart
// writes it; credentials are not in it but in files beside it.
package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/spokelet/spokelet/workers/placement"
	"github.com/spokelet/spokelet/workers/tail"
)

// Config is the file.
type Config struct {
	// Store is where scripts are stored.
	Store Store `json:"store"`
	// Registry is where images are stored.
	Registry Registry `json:"registry"`
	// Build is how images are built.
	Build Build `json:"build"`
	// Placement is how bundles run in the clusters.
	Placement placement.Options `json:"place"`
	// Tails bounds what the API for wrangler follows.
	Tails tail.Limits `json:"tails,omitempty"`
}

// Store is a bucket of S3.
type Store struct {
	// Endpoint is the URL of the store, as in https://s3.example.com.
	Endpoint string `json:"endpoint"`
	// Region of the bucket. Default us-east-1.
	Region string `json:"region,omitempty"`
	// Bucket with the scripts, those of an account below its id.
	Bucket string `json:"bucket"`
	// Secret of the operator's namespace with accessKey and secretKey.
	Secret string `json:"secret,omitempty"`
	// CASecret of the operator's namespace, with ca.crt, if the store's certificate is of an
	// authority of one's own.
	CASecret string `json:"caSecret,omitempty"`
	// MaxModules and MaxScriptBytes bound a script. Default 200 and 16 MiB.
	MaxModules     int   `json:"maxModules,omitempty"`
	MaxScriptBytes int64 `json:"maxScriptBytes,omitempty"`
}

// Registry is a folder of repositories.
type Registry struct {
	// Push is what the operator calls it, as in registry.example.com/workers.
	Push string `json:"push"`
	// Pull is what the clusters call it. Default: as Push.
	Pull string `json:"pull,omitempty"`
	// Runtime is the image of workerd that scripts are added to, as the operator calls it.
	Runtime string `json:"runtime"`
	// Insecure speaks HTTP without TLS.
	Insecure bool `json:"insecure,omitempty"`
	// Secret of the operator's namespace, of type kubernetes.io/dockerconfigjson, that the
	// operator writes with.
	Secret string `json:"secret,omitempty"`
	// PullSecret is such a Secret that clusters read with if an account names none.
	PullSecret string `json:"pullSecret,omitempty"`
	// CASecret of the operator's namespace, with ca.crt.
	CASecret string `json:"caSecret,omitempty"`
}

// Build is what Jobs are made of.
type Build struct {
	// Image is the operator's own.
	Image string `json:"image"`
	// ImagePullSecrets of that image.
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`
	// ServiceAccount of the Jobs, without rights.
	ServiceAccount string `json:"serviceAccount"`
	// ConfigMap that this file is in.
	ConfigMap string `json:"configMap"`
	// Deadline of a Job. Default 3m.
	Deadline metav1.Duration `json:"deadline,omitempty"`
	// Resources of each step.
	Resources corev1.ResourceRequirements `json:"resources,omitempty"`
	// NodeSelector and Tolerations of the pods.
	NodeSelector map[string]string   `json:"nodeSelector,omitempty"`
	Tolerations  []corev1.Toleration `json:"tolerations,omitempty"`
}

const (
	defaultRegion     = "us-east-1"
	defaultModules    = 200
	defaultScript     = 16 << 20
	defaultDeadline   = 3 * time.Minute
	maxConfigModules  = 200 // the releases' type has no more
	maxConfigDeadline = time.Hour
)

// Load reads the file.
func Load(path string) (Config, error) {
	raw, err := os.ReadFile(filepath.Clean(path))
	if err != nil {
		return Config{}, fmt.Errorf("configuration: %w", err)
	}
	return Parse(raw)
}

// Parse reads the content of a file, fills what was left empty and says what is wrong. A
// field that nobody knows is an error.
func Parse(raw []byte) (Config, error) {
	var c Config
	if err := yaml.UnmarshalStrict(raw, &c); err != nil {
		return Config{}, fmt.Errorf("configuration: %w", err)
	}
	c.Default()
	if err := c.Validate(); err != nil {
		return Config{}, fmt.Errorf("configuration: %w", err)
	}
	return c, nil
}

// Default fills what was left empty.
func (c *Config) Default() {
	if c.Store.Region == "" {
		c.Store.Region = defaultRegion
	}
	if c.Store.MaxModules == 0 {
		c.Store.MaxModules = defaultModules
	}
	if c.Store.MaxScriptBytes == 0 {
		c.Store.MaxScriptBytes = defaultScript
	}
	if c.Registry.Pull == "" {
		c.Registry.Pull = c.Registry.Push
	}
	if c.Build.Deadline.Duration == 0 {
		c.Build.Deadline.Duration = defaultDeadline
	}
	c.Placement.Default()
	c.Tails.Default()
}

// Validate says what is wrong.
func (c *Config) Validate() error {
	var errs []error
	for _, required := range []struct{ field, value string }{
		{"store.endpoint", c.Store.Endpoint},
		{"store.bucket", c.Store.Bucket},
		{"registry.push", c.Registry.Push},
		{"registry.runtime", c.Registry.Runtime},
		{"build.image", c.Build.Image},
		{"build.serviceAccount", c.Build.ServiceAccount},
		{"build.configMap", c.Build.ConfigMap},
	} {
		if required.value == "" {
			errs = append(errs, fmt.Errorf("%s: is required", required.field))
		}
	}
	if n := c.Store.MaxModules; n < 1 || n > maxConfigModules {
		errs = append(errs, fmt.Errorf("store.maxModules: %d is not between 1 and %d", n, maxConfigModules))
	}
	if c.Store.MaxScriptBytes < 1 {
		errs = append(errs, fmt.Errorf("store.maxScriptBytes: %d is less than 1", c.Store.MaxScriptBytes))
	}
	if d := c.Build.Deadline.Duration; d < time.Second || d > maxConfigDeadline {
		errs = append(errs, fmt.Errorf("build.deadline: %s is not between 1s and %s", d, maxConfigDeadline))
	}
	if err := c.Placement.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("place: %w", err))
	}
	if err := c.Tails.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("tails: %w", err))
	}
	return errors.Join(errs...)
}
