// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudflare

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	release "github.com/spokelet/spokelet/workers/api/release/v1alpha1"
)

// secretShape is one secret, as it is set.
type secretShape struct {
	Name string `json:"name"`
	Type string `json:"type"`
	Text string `json:"text"`
}

func (s secretShape) check() error {
	if s.Type != release.BindingSecretText {
		return fail(http.StatusBadRequest, codeNotSupported, fmt.Sprintf("secret %q: type %q is not supported", s.Name, s.Type))
	}
	if s.Name == "" {
		return fail(http.StatusBadRequest, codeInvalid, "a secret has no name")
	}
	return nil
}

// secrets lists names; nothing here returns a value.
func (a *API) secrets(ctx context.Context, c *call) (any, error) {
	names, err := a.config.Deployer.SecretNames(ctx, c.account, c.script)
	return secretsOf(names), err
}

func (a *API) putSecret(ctx context.Context, c *call) (any, error) {
	raw, err := c.body()
	if err != nil {
		return nil, err
	}
	var secret secretShape
	if err := json.Unmarshal(raw, &secret); err != nil {
		return nil, fail(http.StatusBadRequest, codeInvalid, "the body is not the JSON of a secret") // its text may be the value
	}
	if err := secret.check(); err != nil {
		return nil, err
	}
	err = a.config.Deployer.SetSecrets(ctx, c.account, c.script, map[string]*string{secret.Name: &secret.Text}, c.by("secret "+secret.Name+" was set"))
	return bindingShape{Name: secret.Name, Type: secret.Type}, err
}

func (a *API) deleteSecret(ctx context.Context, c *call) (any, error) {
	name := c.PathValue("name")
	names, err := a.config.Deployer.SecretNames(ctx, c.account, c.script)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(names, name) {
		return nil, fail(http.StatusNotFound, codeNoSecret, fmt.Sprintf("script %s has no secret %q", c.script, name))
	}
	return nil, a.config.Deployer.SetSecrets(ctx, c.account, c.script, map[string]*string{name: nil}, c.by("secret "+name+" was deleted"))
}

// patchSecrets sets and, where there is a null, deletes secrets (RFC 7396).
func (a *API) patchSecrets(ctx context.Context, c *call) (any, error) {
	change, err := c.changes("secrets")
	if err != nil {
		return nil, err
	}
	return map[string]any{}, a.config.Deployer.SetSecrets(ctx, c.account, c.script, change, c.by("secrets were changed"))
}

// patchLatest makes a version with other secrets of the latest one.
func (a *API) patchLatest(ctx context.Context, c *call) (any, error) {
	change, err := c.changes("env")
	if err != nil {
		return nil, err
	}
	v, err := a.config.Deployer.AddVersion(ctx, c.account, c.script, change, c.by(""))
	if err != nil {
		return nil, err
	}
	return shapeOf(v), nil
}

// changes reads the field of a merge patch that has secrets by their names.
func (c *call) changes(field string) (map[string]*string, error) {
	raw, err := c.body()
	if err != nil {
		return nil, err
	}
	unreadable := fail(http.StatusBadRequest, codeInvalid, "the body is not the JSON of a change of secrets")
	var patch map[string]json.RawMessage
	if err := json.Unmarshal(raw, &patch); err != nil {
		return nil, unreadable
	}
	var secrets map[string]*secretShape
	if err := json.Unmarshal(patch[field], &secrets); err != nil {
		return nil, unreadable
	}
	change := make(map[string]*string, len(secrets))
	for name, secret := range secrets {
		if secret == nil {
			change[name] = nil
			continue
		}
		secret.Name = name
		if err := secret.check(); err != nil {
			return nil, err
		}
		change[name] = &secret.Text
	}
	return change, nil
}
