// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudflare

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"mime"
	"mime/multipart"
	"net/http"
	"slices"

	release "github.com/spokelet/spokelet/workers/api/release/v1alpha1"
)

// secretJSON is one secret, as it is set.
type secretJSON struct {
	Name string `json:"name"`
	Type string `json:"type"`
	Text string `json:"text"`
}

func (s secretJSON) validate() error {
	if s.Type != release.BindingSecretText {
		return newAPIError(http.StatusBadRequest, codeNotSupported, fmt.Sprintf("secret %q: type %q is not supported", s.Name, s.Type))
	}
	if s.Name == "" {
		return newAPIError(http.StatusBadRequest, codeInvalid, "a secret has no name")
	}
	return nil
}

// listSecrets lists names; nothing here returns a value.
func (a *API) listSecrets(ctx context.Context, c *call) (any, error) {
	names, err := a.config.Deployer.SecretNames(ctx, c.account, c.script)
	return newSecretBindings(names), err
}

func (a *API) putSecret(ctx context.Context, c *call) (any, error) {
	raw, err := c.readBody()
	if err != nil {
		return nil, err
	}
	var secret secretJSON
	if err := json.Unmarshal(raw, &secret); err != nil {
		return nil, newAPIError(http.StatusBadRequest, codeInvalid, "the body is not the JSON of a secret") // its text may be the value
	}
	if err := secret.validate(); err != nil {
		return nil, err
	}
	err = a.config.Deployer.SetSecrets(ctx, c.account, c.script, map[string]*string{secret.Name: &secret.Text}, c.author("secret "+secret.Name+" was set"))
	return bindingJSON{Name: secret.Name, Type: secret.Type}, err
}

func (a *API) deleteSecret(ctx context.Context, c *call) (any, error) {
	name := c.PathValue("name")
	names, err := a.config.Deployer.SecretNames(ctx, c.account, c.script)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(names, name) {
		return nil, newAPIError(http.StatusNotFound, codeNoSecret, fmt.Sprintf("script %s has no secret %q", c.script, name))
	}
	return nil, a.config.Deployer.SetSecrets(ctx, c.account, c.script, map[string]*string{name: nil}, c.author("secret "+name+" was deleted"))
}

// patchSecrets sets and, where there is a null, deletes secrets (RFC 7396).
func (a *API) patchSecrets(ctx context.Context, c *call) (any, error) {
	change, err := c.parseSecretPatch("secrets")
	if err != nil {
		return nil, err
	}
	return map[string]any{}, a.config.Deployer.SetSecrets(ctx, c.account, c.script, change, c.author("secrets were changed"))
}

// patchLatest makes a version with other secrets of the latest one.
func (a *API) patchLatest(ctx context.Context, c *call) (any, error) {
	change, err := c.parseSecretPatch("env")
	if err != nil {
		return nil, err
	}
	v, err := a.config.Deployer.AddVersion(ctx, c.account, c.script, change, c.author(""))
	if err != nil {
		return nil, err
	}
	return newVersionJSON(v), nil
}

// parseSecretPatch reads the field of a merge patch that has secrets by their names.
func (c *call) parseSecretPatch(field string) (map[string]*string, error) {
	raw, err := c.readBody()
	if err != nil {
		return nil, err
	}
	unreadable := newAPIError(http.StatusBadRequest, codeInvalid, "the body is not the JSON of a change of secrets")
	var patch map[string]json.RawMessage
	if err := json.Unmarshal(raw, &patch); err != nil {
		return nil, unreadable
	}
	var secrets map[string]*secretJSON
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
		if err := secret.validate(); err != nil {
			return nil, err
		}
		change[name] = &secret.Text
	}
	return change, nil
}

// patchSettings sets and deletes secrets for wrangler secret bulk of wrangler 3, which sends all
// bindings: those that have a text, and the names of those that stay. It changes nothing else.
func (a *API) patchSettings(ctx context.Context, c *call) (any, error) {
	bindings, err := c.parseSettingsForm()
	if err != nil {
		return nil, err
	}
	v, err := a.config.Deployer.Current(ctx, c.account, c.script)
	if err != nil {
		return nil, err
	}
	change := map[string]*string{}
	for _, name := range v.SecretNames {
		change[name] = nil
	}
	kept := map[string]bool{}
	for _, b := range bindings {
		switch {
		case b.Text == nil && b.Type == release.BindingSecretText:
			delete(change, b.Name)
		case b.Text == nil:
			kept[b.Name] = true
		case b.Type != release.BindingSecretText:
			return nil, newAPIError(http.StatusBadRequest, codeNotSupported, fmt.Sprintf("not supported by Spokelet: settings that change binding %q, which is no secret", b.Name))
		default:
			change[b.Name] = b.Text
		}
	}
	for _, b := range v.Script.Bindings {
		if !kept[b.Name] {
			return nil, newAPIError(http.StatusBadRequest, codeNotSupported, fmt.Sprintf("not supported by Spokelet: settings without binding %q of the script", b.Name))
		}
	}
	return map[string]any{}, a.config.Deployer.SetSecrets(ctx, c.account, c.script, change, c.author("secrets were changed"))
}

// settingBinding has a text if it is to be set.
type settingBinding struct {
	Name string  `json:"name"`
	Type string  `json:"type"`
	Text *string `json:"text"`
}

// parseSettingsForm reads the bindings of the form that the settings of a script are sent as.
func (c *call) parseSettingsForm() ([]settingBinding, error) {
	unreadable := newAPIError(http.StatusBadRequest, codeInvalid, "the body is no form with the JSON of settings as its part settings")
	raw, err := c.readBody()
	if err != nil {
		return nil, err
	}
	_, parameters, err := mime.ParseMediaType(c.Header.Get("Content-Type"))
	if err != nil {
		return nil, unreadable
	}
	part, err := multipart.NewReader(bytes.NewReader(raw), parameters["boundary"]).NextRawPart()
	if err != nil || part.FormName() != "settings" {
		return nil, unreadable
	}
	var settings map[string]json.RawMessage
	var bindings []settingBinding
	if json.NewDecoder(part).Decode(&settings) != nil || json.Unmarshal(settings["bindings"], &bindings) != nil {
		return nil, unreadable
	}
	for name := range settings {
		if name != "bindings" {
			return nil, newAPIError(http.StatusBadRequest, codeNotSupported, fmt.Sprintf("not supported by Spokelet: a change of setting %q", name))
		}
	}
	return bindings, nil
}
