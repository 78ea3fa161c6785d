// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package config is the file that configures the operator and its builds. The chart writes it;
// credentials are not in it but in files beside it.
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
	"github.com/spokelet/spokelet/workers/registry"
	"github.com/spokelet/spokelet/workers/store"
	"github.com/spokelet/spokelet/workers/tail"
)

// Config is the file.
type Config struct {
	// Store is where scripts are stored.
	Store Store `json:"store"`
	// Registry is where images are stored.
	Registry Registry `json:"registry"`
	// Build configures the Jobs that build images.
	Build Build `json:"build"`
	// Placement is how bundles run in the clusters.
	Placement placement.Options `json:"place"`
	// Tails limits the tails of the API for wrangler.
	Tails tail.Limits `json:"tails,omitempty"`
}

// Store is a bucket of S3.
type Store struct {
	store.Config `json:",inline"`

	// Secret of the operator's namespace with accessKey and secretKey.
	Secret string `json:"secret,omitempty"`
	// CASecret of the operator's namespace, with ca.crt, if the store's certificate is of a
	// private authority.
	CASecret string `json:"caSecret,omitempty"`
}

// Registry is a folder of repositories.
type Registry struct {
	registry.Config `json:",inline"`

	// Pull is the name of the folder in the clusters. Default: as Push.
	Pull string `json:"pull,omitempty"`
	// Secret of the operator's namespace, of type kubernetes.io/dockerconfigjson, that the
	// operator writes with.
	Secret string `json:"secret,omitempty"`
	// PullSecret is such a Secret that clusters read with if an account names none. Empty: the
	// registry lets everybody read.
	PullSecret string `json:"pullSecret,omitempty"`
	// CASecret of the operator's namespace, with ca.crt.
	CASecret string `json:"caSecret,omitempty"`
}

// Build configures the Jobs that build images.
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
	defaultDeadline = 3 * time.Minute
	maxDeadline     = time.Hour
)

// Load reads the file.
func Load(path string) (Config, error) {
	raw, err := os.ReadFile(filepath.Clean(path))
	if err != nil {
		return Config{}, fmt.Errorf("configuration: %w", err)
	}
	return Parse(raw)
}

// Parse reads the content of a file, sets defaults and validates it. An unknown field is an
// error.
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

// Default fills empty fields.
func (c *Config) Default() {
	c.Store.Default()
	c.Registry.Default()
	if c.Registry.Pull == "" {
		c.Registry.Pull = c.Registry.Push
	}
	if c.Build.Deadline.Duration == 0 {
		c.Build.Deadline.Duration = defaultDeadline
	}
	c.Placement.Default()
	c.Tails.Default()
}

// Validate reports invalid fields.
func (c *Config) Validate() error {
	var errs []error
	for _, part := range []struct {
		field string
		err   error
	}{
		{"store", c.Store.Validate()},
		{"registry", c.Registry.Validate()},
		{"build", c.Build.validate()},
		{"place", c.Placement.Validate()},
		{"tails", c.Tails.Validate()},
	} {
		if part.err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", part.field, part.err))
		}
	}
	return errors.Join(errs...)
}

func (b *Build) validate() error {
	var errs []error
	for _, required := range []struct{ field, value string }{
		{"image", b.Image}, {"serviceAccount", b.ServiceAccount}, {"configMap", b.ConfigMap},
	} {
		if required.value == "" {
			errs = append(errs, fmt.Errorf("%s: is required", required.field))
		}
	}
	if d := b.Deadline.Duration; d < time.Second || d > maxDeadline {
		errs = append(errs, fmt.Errorf("deadline: %s is not between 1s and %s", d, maxDeadline))
	}
	return errors.Join(errs...)
}
