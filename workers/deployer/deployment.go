// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package deployer

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/workers/api"
	deploymentv1alpha1 "github.com/spokelet/spokelet/workers/api/deployment/v1alpha1"
	releasev1alpha1 "github.com/spokelet/spokelet/workers/api/release/v1alpha1"
	"github.com/spokelet/spokelet/workers/quota"
	"github.com/spokelet/spokelet/workers/version"
)

// Author is the user who makes a change, and the reason.
type Author struct {
	// Name is his user name on the hub.
	Name string
	// Message is his own, and may be empty.
	Message string
}

// Deployment says which version of a script was asked for, and by whom. JSON round trips.
type Deployment struct {
	ID        string    `json:"id"`
	Version   string    `json:"version"`
	CreatedOn time.Time `json:"createdOn"`
	// Author is empty where it was written with kubectl.
	Author  string `json:"author,omitempty"`
	Message string `json:"message,omitempty"`
}

// parseDeployment parses the annotation of a WorkerDeployment.
func parseDeployment(wd *deploymentv1alpha1.WorkerDeployment) (Deployment, bool) {
	var a Deployment
	err := json.Unmarshal([]byte(wd.Annotations[api.AnnotationDeployment]), &a)
	return a, err == nil && a.ID != ""
}

// deployedRelease is a release that was current at some time, without its template. Its ID is its UID.
type deployedRelease struct {
	version.Summary

	name     string
	revision int64
}

// pageSize limits how many releases are in memory at a time: each may have more than a MiB.
const pageSize = 5

// listReleases returns those of a WorkerDeployment that were current once and that workerd did
// not reject, the latest first.
func (d *Deployer) listReleases(ctx context.Context, a Account, wd *deploymentv1alpha1.WorkerDeployment) ([]deployedRelease, error) {
	var own []deployedRelease
	for next := ""; ; {
		page, done := quota.WithScope(ctx)
		var list releasev1alpha1.WorkerReleaseList
		err := d.config.Client.List(page, &list, client.InNamespace(wd.Namespace), client.MatchingLabels{api.LabelScript: wd.Spec.Template.ScriptName},
			client.Limit(pageSize), client.Continue(next))
		for i := range list.Items {
			r := &list.Items[i]
			rejected := meta.IsStatusConditionFalse(r.Status.Conditions, api.ConditionAccepted)
			if metav1.IsControlledBy(r, wd) && r.Status.Revision != 0 && (!rejected || r.Name == wd.Status.Release) {
				own = append(own, deployedRelease{Summary: d.releaseVersion(a, r).Summary, name: r.Name, revision: r.Status.Revision})
			}
		}
		done()
		if err != nil {
			return nil, classifyHubError(fmt.Errorf("list WorkerReleases: %w", err))
		}
		if next = list.Continue; next == "" {
			break
		}
	}
	slices.SortFunc(own, func(a, b deployedRelease) int { return cmp.Compare(b.revision, a.revision) })
	return own, nil
}

// findByTemplate returns the version that has a template, or nil.
func findByTemplate(all []version.Summary, template string) *version.Summary {
	i := slices.IndexFunc(all, func(s version.Summary) bool { return s.Template == template })
	if i < 0 {
		return nil
	}
	return &all[i]
}

// releaseVersion returns the version of a release that no upload created: its ID is the release's UID.
func (d *Deployer) releaseVersion(a Account, r *releasev1alpha1.WorkerRelease) version.Version {
	v := d.newObjectVersion(a, r, r.Spec.Script)
	v.SecretNames = r.Status.SecretKeys
	return v
}

// templateVersion returns the version of a WorkerDeployment whose template neither an upload nor a
// release has.
func (d *Deployer) templateVersion(a Account, wd *deploymentv1alpha1.WorkerDeployment) version.Version {
	return d.newObjectVersion(a, wd, wd.Spec.Template)
}

// newObjectVersion returns a version whose ID is the UID of an object.
func (d *Deployer) newObjectVersion(a Account, obj client.Object, script releasev1alpha1.Script) version.Version {
	v := version.Version{Script: script}
	v.ID, v.CreatedOn = string(obj.GetUID()), obj.GetCreationTimestamp().UTC()
	v.Summarize(d.config.Bucket, a.ID, script)
	return v
}

// history holds the versions and releases of a script.
type history struct {
	wd *deploymentv1alpha1.WorkerDeployment
	// template is what the WorkerDeployment asks for, as if nobody had uploaded it.
	template version.Version
	releases []deployedRelease
	versions []version.Summary
}

func (d *Deployer) getHistory(ctx context.Context, a Account, name string) (history, error) {
	wd, err := d.getWorkerDeployment(ctx, a, name)
	if err != nil {
		return history{}, err
	}
	releases, err := d.listReleases(ctx, a, wd)
	if err != nil {
		return history{}, err
	}
	versions, err := d.config.History.List(ctx, a.ID, name)
	return history{wd: wd, template: d.templateVersion(a, wd), releases: releases, versions: versions}, err
}

// currentVersion returns the version of the WorkerDeployment. Of two versions with its template,
// which setting and deleting a secret creates, it is the deployed one.
func (h history) currentVersion() version.Summary {
	template := h.template.Template
	if now, ok := parseDeployment(h.wd); ok {
		same := func(s version.Summary) bool { return s.ID == now.Version && s.Template == template }
		if i := slices.IndexFunc(h.versions, same); i >= 0 {
			return h.versions[i]
		}
	}
	if s := findByTemplate(h.versions, template); s != nil {
		return *s
	}
	for _, r := range h.releases {
		if r.Template == template {
			return r.Summary
		}
	}
	return h.template.Summary
}

// versionOf is the version that a release is.
func (h history) versionOf(r deployedRelease) version.Summary {
	if s := findByTemplate(h.versions, r.Template); s != nil {
		return *s
	}
	return r.Summary
}

// loadVersion loads a version of a history.
func (d *Deployer) loadVersion(ctx context.Context, a Account, h history, id string) (version.Version, error) {
	name := h.wd.Spec.Template.ScriptName
	if i := slices.IndexFunc(h.releases, func(r deployedRelease) bool { return r.ID == id }); i >= 0 {
		var r releasev1alpha1.WorkerRelease
		if err := d.config.Client.Get(ctx, client.ObjectKey{Namespace: h.wd.Namespace, Name: h.releases[i].name}, &r); err != nil {
			return version.Version{}, classifyHubError(fmt.Errorf("read WorkerRelease %s: %w", h.releases[i].name, err))
		}
		return d.releaseVersion(a, &r), nil
	}
	if id == h.template.ID && h.currentVersion().ID == id {
		return h.template, nil
	}
	v, err := d.config.Versions.Load(ctx, a.ID, name, id)
	if errors.Is(err, version.ErrNotFound) {
		err = fmt.Errorf("script %s: version %q: %w", name, id, ErrVersionNotFound)
	}
	return v, err
}

// getLatestDeployed returns the version that is deployed, or [ErrNotLatest] if there is a newer
// one.
func (d *Deployer) getLatestDeployed(ctx context.Context, a Account, name string) (version.Version, error) {
	h, err := d.getHistory(ctx, a, name)
	if err != nil {
		return version.Version{}, err
	}
	current := h.currentVersion()
	if len(h.versions) > 0 && version.IsID(current.ID) && h.versions[0].ID > current.ID {
		return version.Version{}, fmt.Errorf("script %s: %w: it is %s, and %s is deployed", name, ErrNotLatest, h.versions[0].ID, current.ID)
	}
	return d.loadVersion(ctx, a, h, current.ID)
}

// Deployments returns what was deployed, the current one first.
func (d *Deployer) Deployments(ctx context.Context, a Account, name string) ([]Deployment, error) {
	h, err := d.getHistory(ctx, a, name)
	if err != nil {
		return nil, err
	}
	current := h.currentVersion()
	all := []Deployment{h.currentDeployment(current)}
	for i, r := range h.releases {
		v := h.versionOf(r)
		if i == 0 && r.name == h.wd.Status.Release && (v.ID == current.ID || isObserved(h.wd)) {
			continue // it is the current one, wherever its code is stored
		}
		all = append(all, Deployment{ID: r.ID, Version: v.ID, CreatedOn: r.CreatedOn, Author: v.Author, Message: v.Message})
	}
	return all, nil
}

// isObserved reports whether the release that the status names is what the spec asks for.
func isObserved(wd *deploymentv1alpha1.WorkerDeployment) bool {
	c := meta.FindStatusCondition(wd.Status.Conditions, api.ConditionAccepted)
	return c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == wd.Generation
}

// currentDeployment is the current one, of a version.
func (h history) currentDeployment(current version.Summary) Deployment {
	if a, ok := parseDeployment(h.wd); ok && a.Version == current.ID {
		return a
	}
	return Deployment{ID: string(h.wd.UID), Version: current.ID, CreatedOn: current.CreatedOn}
}

// Versions returns what all versions are that can be deployed, the newest first.
func (d *Deployer) Versions(ctx context.Context, a Account, name string) ([]version.Summary, error) {
	h, err := d.getHistory(ctx, a, name)
	if err != nil {
		return nil, err
	}
	all := slices.Clone(h.versions)
	for _, r := range h.releases {
		if findByTemplate(h.versions, r.Template) == nil {
			all = append(all, r.Summary)
		}
	}
	slices.SortStableFunc(all, func(a, b version.Summary) int { return b.CreatedOn.Compare(a.CreatedOn) })
	return all, nil
}

// Version returns one version.
func (d *Deployer) Version(ctx context.Context, a Account, name, id string) (version.Version, error) {
	v, err := d.config.Versions.Load(ctx, a.ID, name, id)
	if err == nil || !errors.Is(err, version.ErrNotFound) {
		return v, err
	}
	h, err := d.getHistory(ctx, a, name)
	if err != nil {
		return version.Version{}, err
	}
	return d.loadVersion(ctx, a, h, id)
}

// Current returns the version that is deployed.
func (d *Deployer) Current(ctx context.Context, a Account, name string) (version.Version, error) {
	h, err := d.getHistory(ctx, a, name)
	if err != nil {
		return version.Version{}, err
	}
	return d.loadVersion(ctx, a, h, h.currentVersion().ID)
}

// newDeployment is one of a version, now.
func newDeployment(v version.Version, by Author) (Deployment, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return Deployment{}, fmt.Errorf("deployment id: %w", err)
	}
	return Deployment{ID: id.String(), Version: v.ID, CreatedOn: time.Now().UTC(), Author: by.Name, Message: by.Message}, nil
}
