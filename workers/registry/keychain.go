// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
)

// dockerHub is how Docker's own registry is called by the library, and by files of credentials.
const dockerHub = "index.docker.io"

// keychain holds credentials by host, or by host and path.
type keychain map[string]authn.AuthConfig

// parseKeychain reads a file of credentials. Its errors say nothing of what is in them.
func parseKeychain(raw []byte) (keychain, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	var file struct {
		Auths map[string]json.RawMessage `json:"auths"`
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		return nil, errors.New("registry credentials: are no dockerconfigjson")
	}
	keys := keychain{}
	for where, entry := range file.Auths {
		var credentials authn.AuthConfig
		if err := json.Unmarshal(entry, &credentials); err != nil {
			return nil, fmt.Errorf("registry credentials for %q: cannot be read", where)
		}
		keys[normalizeName(where)] = credentials
	}
	return keys, nil
}

// normalizeName brings what names a registry in such files into one form: https://host/v1/ is an old
// one of host.
func normalizeName(where string) string {
	for _, scheme := range []string{"https://", "http://"} {
		where = strings.TrimPrefix(where, scheme)
	}
	where = strings.TrimSuffix(where, "/")
	for _, version := range []string{"/v1", "/v2"} {
		where = strings.TrimSuffix(where, version)
	}
	host, rest, more := strings.Cut(where, "/")
	if host == "docker.io" || host == "registry-1.docker.io" {
		host = dockerHub
	}
	if !more {
		return host
	}
	return host + "/" + rest
}

// Resolve implements authn.Keychain: the entry that names the most of a repository counts.
func (k keychain) Resolve(resource authn.Resource) (authn.Authenticator, error) {
	for where := resource.String(); ; {
		if credentials, has := k[where]; has {
			return authn.FromConfig(credentials), nil
		}
		end := strings.LastIndex(where, "/")
		if end < 0 {
			return authn.Anonymous, nil
		}
		where = where[:end]
	}
}
