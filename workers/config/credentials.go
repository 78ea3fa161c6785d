// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
)

// Where the credentials are mounted, in the operator as in the steps of a build.
const (
	StoreDir      = "/secrets/store"
	StoreCADir    = "/secrets/store-ca"
	RegistryDir   = "/secrets/registry"
	RegistryCADir = "/secrets/registry-ca"
)

// The keys of the Secrets.
const (
	accessKey    = "accessKey"
	secretKey    = "secretKey"
	dockerConfig = ".dockerconfigjson"
	authorities  = "ca.crt"
)

// LoadCredentials reads the credentials that are mounted below a folder, which is "/" in a pod.
// What is not mounted stays empty.
func (c *Config) LoadCredentials(root string) error {
	var errs []error
	files := os.DirFS(root)
	read := func(dir, key string) []byte {
		raw, err := fs.ReadFile(files, path.Join(strings.TrimPrefix(dir, "/"), key))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("credentials: %w", err))
		}
		return raw
	}
	c.Store.AccessKey = strings.TrimSpace(string(read(StoreDir, accessKey)))
	c.Store.SecretKey = strings.TrimSpace(string(read(StoreDir, secretKey)))
	c.Store.CA = read(StoreCADir, authorities)
	c.Registry.DockerConfig = read(RegistryDir, dockerConfig)
	c.Registry.CA = read(RegistryCADir, authorities)
	return errors.Join(errs...)
}
