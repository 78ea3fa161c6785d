// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudflare

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/spokelet/spokelet/workers/deployer"
	"github.com/spokelet/spokelet/workers/upload"
	"github.com/spokelet/spokelet/workers/version"
)

// getService answers wrangler's check whether a script exists.
func (a *API) getService(ctx context.Context, c *call) (any, error) {
	err := a.config.Deployer.Exists(ctx, c.account, c.script)
	if errors.Is(err, deployer.ErrNotFound) {
		return nil, newAPIError(http.StatusNotFound, codeNoService, notFound)
	}
	// With "api" wrangler would warn that a deploy overwrites changes made elsewhere, which is the
	// expected behaviour here.
	script := map[string]any{"id": c.script, "last_deployed_from": "wrangler"}
	return map[string]any{
		"id": c.script, "default_environment": map[string]any{"environment": "production", "script": script},
	}, err
}

func (a *API) deleteScript(ctx context.Context, c *call) (any, error) {
	err := a.config.Deployer.Delete(ctx, c.account, c.script)
	return nil, err
}

// getWorker says under which name a script is reached.
func (a *API) getWorker(ctx context.Context, c *call) (any, error) {
	if err := a.config.Deployer.Exists(ctx, c.account, c.script); err != nil {
		return nil, err
	}
	host, err := a.config.Deployer.Host(ctx, c.account, c.script)
	return map[string]any{
		"id": c.script, "name": c.script,
		"subdomain": map[string]any{"enabled": true, "previews_enabled": false, "url": "http://" + host},
	}, err
}

// getScriptSubdomain is worker for wrangler 3.
func (a *API) getScriptSubdomain(ctx context.Context, c *call) (any, error) {
	return map[string]bool{"enabled": true, "previews_enabled": false}, a.config.Deployer.Exists(ctx, c.account, c.script)
}

// setSubdomain changes nothing: a script always has the name that worker says, and no previews.
func (a *API) setSubdomain(ctx context.Context, c *call) (any, error) {
	want, err := decodeBody[struct {
		Enabled bool `json:"enabled"`
	}](c)
	if err != nil {
		return nil, err
	}
	return map[string]bool{"enabled": want.Enabled, "previews_enabled": false}, a.config.Deployer.Exists(ctx, c.account, c.script)
}

// decodeBody reads the JSON of a body.
func decodeBody[T any](c *call) (T, error) {
	var value T
	raw, err := c.readBody()
	if err != nil {
		return value, err
	}
	if err := json.Unmarshal(raw, &value); err != nil {
		return value, newAPIError(http.StatusBadRequest, codeInvalid, fmt.Sprintf("the body is not the JSON that is expected: %v", err))
	}
	return value, nil
}

func (a *API) getSettings(ctx context.Context, c *call) (any, error) {
	v, err := a.config.Deployer.Current(ctx, c.account, c.script)
	if err != nil {
		return nil, err
	}
	return map[string]any{
		"bindings": newBindings(v), "compatibility_date": v.Script.CompatibilityDate,
		"compatibility_flags": append([]string{}, v.Script.CompatibilityFlags...), "usage_model": "standard",
	}, nil
}

// patchScriptSettings accepts settings without effect, and refuses all others.
func (a *API) patchScriptSettings(ctx context.Context, c *call) (any, error) {
	settings, err := decodeBody[struct {
		Logpush       bool  `json:"logpush"`
		TailConsumers []any `json:"tail_consumers"`
	}](c)
	if err != nil {
		return nil, err
	}
	if settings.Logpush || len(settings.TailConsumers) > 0 {
		return nil, newAPIError(http.StatusBadRequest, codeNotSupported, "not supported by Spokelet: logpush and tail consumers")
	}
	return map[string]any{}, a.config.Deployer.Exists(ctx, c.account, c.script)
}

// getReferences are scripts that need this one: none can.
func (a *API) getReferences(ctx context.Context, c *call) (any, error) {
	return map[string]any{}, a.config.Deployer.Exists(ctx, c.account, c.script)
}

// storeUpload stores the upload of a request as a version.
func (a *API) storeUpload(ctx context.Context, c *call) (version.Version, error) {
	// Source maps may come with a script, as large as it is; they are not kept.
	const more = 2 << 20 // metadata, and what is around parts
	if c.ContentLength > 2*a.config.Limits.MaxBytes+more {
		return version.Version{}, &upload.Error{Kind: upload.TooLarge, Problem: fmt.Sprintf(
			"the upload has %.1f MiB, and the limit of a script is %.1f MiB", mebibytes(c.ContentLength), mebibytes(a.config.Limits.MaxBytes))}
	}
	c.setBodyDeadline(uploadTimeout)
	up, err := upload.Read(c.Header.Get("Content-Type"), c.Body, a.config.Limits, c.memory)
	if err != nil {
		return version.Version{}, err
	}
	c.clearBodyDeadline()
	return a.config.Deployer.Upload(ctx, c.account, c.script, c.user.Username, up)
}

func mebibytes(bytes int64) float64 { return float64(bytes) / (1 << 20) }

// deployScript stores a version and has it served.
func (a *API) deployScript(ctx context.Context, c *call) (any, error) {
	v, err := a.storeUpload(ctx, c)
	if err != nil {
		return nil, err
	}
	d, err := a.config.Deployer.Deploy(ctx, c.account, c.script, v.ID, c.author(v.Message), true)
	if err != nil {
		return nil, err
	}
	return map[string]any{"id": c.script, "deployment_id": v.ID, "etag": v.ID, "tag": c.script, "modified_on": formatTime(d.CreatedOn), "startup_time_ms": 0}, nil
}

// uploadVersion stores a version.
func (a *API) uploadVersion(ctx context.Context, c *call) (any, error) {
	if err := a.config.Deployer.Exists(ctx, c.account, c.script); err != nil {
		return nil, err
	}
	v, err := a.storeUpload(ctx, c)
	if err != nil {
		return nil, err
	}
	// wrangler prints the time that the script took to start, which is not measured here.
	return struct {
		versionJSON
		StartupTimeMS int `json:"startup_time_ms"`
	}{versionJSON: newVersionJSON(v)}, nil
}

func (a *API) listVersions(ctx context.Context, c *call) (any, error) {
	versions, err := a.config.Deployer.Versions(ctx, c.account, c.script)
	all := []versionJSON{}
	for _, v := range versions {
		all = append(all, newVersionJSON(version.Version{Summary: v})) // wrangler asks for the rest of one that it needs
	}
	return map[string]any{"items": all}, err
}

func (a *API) getVersion(ctx context.Context, c *call) (any, error) {
	v, err := a.config.Deployer.Version(ctx, c.account, c.script, c.PathValue("id"))
	return newVersionJSON(v), err
}

func (a *API) listDeployments(ctx context.Context, c *call) (any, error) {
	deployments, err := a.config.Deployer.Deployments(ctx, c.account, c.script)
	all := []deploymentJSON{}
	for _, d := range deployments {
		all = append(all, newDeploymentJSON(d))
	}
	return map[string]any{"deployments": all}, err
}

// deployVersion has a version served that was uploaded before.
func (a *API) deployVersion(ctx context.Context, c *call) (any, error) {
	want, err := decodeBody[deploymentJSON](c)
	if err != nil {
		return nil, err
	}
	if len(want.Versions) != 1 || want.Versions[0].Percentage != 100 {
		return nil, newAPIError(http.StatusBadRequest, codeNotSupported, "not supported by Spokelet: traffic that is split between versions; deploy one version at 100%")
	}
	if err := a.config.Deployer.Exists(ctx, c.account, c.script); err != nil {
		return nil, err
	}
	force := c.URL.Query().Get("force") == "true"
	d, err := a.config.Deployer.Deploy(ctx, c.account, c.script, want.Versions[0].VersionID, c.author(want.Annotations[annotationMessage]), force)
	if err != nil {
		return nil, err
	}
	return newDeploymentJSON(d), nil
}
