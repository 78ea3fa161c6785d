// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	releasev1alpha1 "github.com/spokelet/spokelet/workers/api/release/v1alpha1"
	"github.com/spokelet/spokelet/workers/placement"
)

// Store is where scripts are stored.
type Store interface {
	// List returns the modules at the URLs of an account.
	List(ctx context.Context, account string, urls []string) ([]releasev1alpha1.Module, error)
}

// Registry is where images are stored, in a repository for each account.
type Registry interface {
	Exists(ctx context.Context, account, digest string) (bool, error)
	Delete(ctx context.Context, account, digest string) error
}

// BuildConfig is what Jobs are made of.
type BuildConfig struct {
	// Namespace of the Jobs: the operator's.
	Namespace string
	// ServiceAccount of the Jobs, which has no rights.
	ServiceAccount string
	// Image is the operator's own.
	Image string
	// ImagePullSecrets of that image.
	ImagePullSecrets []corev1.LocalObjectReference
	// ConfigMap holds the operator's configuration, which the steps read.
	ConfigMap string
	// StoreSecret, RegistrySecret and CASecrets are mounted into the step that needs them.
	StoreSecret, RegistrySecret, StoreCASecret, RegistryCASecret string
	// Resources of each step.
	Resources corev1.ResourceRequirements
	// Deadline of a Job.
	Deadline time.Duration
	// NodeSelector and Tolerations of its pod.
	NodeSelector map[string]string
	Tolerations  []corev1.Toleration
}

// Config is what the controllers are made of.
type Config struct {
	Store    Store
	Registry Registry
	Build    BuildConfig
	// Runtime is the reference of the runtime image: another one makes other images.
	Runtime string
	// Pull is what the clusters call the registry and the folder of the repositories.
	Pull string
	// PullSecret, of the operator's namespace, is what clusters read images with if an
	// account names none. Empty: the registry lets everybody read.
	PullSecret string
	// Placement is how bundles run.
	Placement placement.Options
}

// Default fills what was left empty.
func (c *Config) Default() {
	if c.Build.Deadline == 0 {
		c.Build.Deadline = 3 * time.Minute
	}
	c.Placement.Default()
}

// Validate says what is missing.
func (c *Config) Validate() error {
	switch {
	case c.Store == nil || c.Registry == nil:
		return errors.New("the controllers need a store and a registry")
	case c.Build.Namespace == "" || c.Build.Image == "" || c.Build.ConfigMap == "":
		return errors.New("builds need a namespace, an image and a configuration")
	case c.Runtime == "" || c.Pull == "":
		return errors.New("bundles need a runtime image and a registry to read from")
	case c.Build.Deadline < time.Second:
		return fmt.Errorf("deadline of builds: %s is less than a second", c.Build.Deadline)
	}
	return nil
}
