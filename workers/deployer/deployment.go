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
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/workers/api"
	deploymentv1alpha1 "github.com/spokelet/spokelet/workers/api/deployment/v1alpha1"
	releasev1alpha1 "github.com/spokelet/spokelet/workers/api/release/v1alpha1"
	"github.com/spokelet/spokelet/workers/script"
	"github.com/spokelet/spokelet/workers/version"
)

// Author is who does something, and why.
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

// annotated returns what the annotation of a WorkerDeployment says.
func annotated(wd *deploymentv1alpha1.WorkerDeployment) (Deployment, bool) {
	var a Deployment
	err := json.Unmarshal([]byte(wd.Annotations[api.AnnotationDeployment]), &a)
	return a, err == nil && a.ID != ""
}

// releases returns those of a WorkerDeployment that were current once and that workerd did
// not reject, the latest first.
func (d *Deployer) releases(ctx context.Context, wd *deploymentv1alpha1.WorkerDeployment) ([]releasev1alpha1.WorkerRelease, error) {
	var list releasev1alpha1.WorkerReleaseList
	if err := d.config.Client.List(ctx, &list, client.InNamespace(wd.Namespace), client.MatchingLabels{api.LabelScript: wd.Spec.Template.ScriptName}); err != nil {
		return nil, hub(fmt.Errorf("list WorkerReleases: %w", err))
	}
	own := slices.DeleteFunc(list.Items, func(r releasev1alpha1.WorkerRelease) bool {
		rejected := meta.IsStatusConditionFalse(r.Status.Conditions, api.ConditionAccepted)
		return !metav1.IsControlledBy(&r, wd) || r.Status.Revision == 0 || rejected && r.Name != wd.Status.Release
	})
	slices.SortFunc(own, func(a, b releasev1alpha1.WorkerRelease) int { return cmp.Compare(b.Status.Revision, a.Status.Revision) })
	return own, nil
}

// versionOf returns the version whose template it is, or nil.
func versionOf(all []version.Version, template releasev1alpha1.Script) *version.Version {
	template = normal(template)
	for i := range all {
		if equality.Semantic.DeepEqual(normal(all[i].Script), template) {
			return &all[i]
		}
	}
	return nil
}

// normal is a template as the operator writes it into releases.
func normal(s releasev1alpha1.Script) releasev1alpha1.Script {
	s.ScriptURLs, s.ScriptsURLs = script.URLs(s), nil
	if date, err := script.Date(s.CompatibilityDate); err == nil {
		s.CompatibilityDate = date
	}
	return s
}

// released is the version that a release is, if no upload made it: it has the release's UID.
func released(r *releasev1alpha1.WorkerRelease) version.Version {
	return version.Version{ID: string(r.UID), CreatedOn: r.CreationTimestamp.UTC(), Script: r.Spec.Script, SecretNames: r.Status.SecretKeys}
}

// written is the version that a WorkerDeployment asks for, if neither an upload nor a release
// has its template.
func written(wd *deploymentv1alpha1.WorkerDeployment) version.Version {
	return version.Version{ID: string(wd.UID), CreatedOn: wd.CreationTimestamp.UTC(), Script: wd.Spec.Template}
}

// history is all that is known of a script.
type history struct {
	wd       *deploymentv1alpha1.WorkerDeployment
	releases []releasev1alpha1.WorkerRelease
	versions []version.Version
}

func (d *Deployer) history(ctx context.Context, a Account, name string) (history, error) {
	wd, err := d.find(ctx, a, name)
	if err != nil {
		return history{}, err
	}
	releases, err := d.releases(ctx, wd)
	if err != nil {
		return history{}, err
	}
	versions, err := d.config.History.List(ctx, a.ID, name)
	return history{wd: wd, releases: releases, versions: versions}, err
}

// current is the version that the WorkerDeployment asks for. Of two with its template it is
// the one that was deployed: secrets that are set and deleted make such versions.
func (h history) current() version.Version {
	if now, ok := annotated(h.wd); ok {
		same := func(v version.Version) bool { return v.ID == now.Version }
		if i := slices.IndexFunc(h.versions, same); i >= 0 && versionOf(h.versions[i:i+1], h.wd.Spec.Template) != nil {
			return h.versions[i]
		}
	}
	if v := versionOf(h.versions, h.wd.Spec.Template); v != nil {
		return *v
	}
	template := normal(h.wd.Spec.Template)
	for i := range h.releases {
		if equality.Semantic.DeepEqual(normal(h.releases[i].Spec.Script), template) {
			return released(&h.releases[i])
		}
	}
	return written(h.wd)
}

// of is the version that a release is.
func (h history) of(r *releasev1alpha1.WorkerRelease) version.Version {
	if v := versionOf(h.versions, r.Spec.Script); v != nil {
		return *v
	}
	return released(r)
}

// latestDeployed returns the version that is deployed, or [ErrNotLatest] if there is a newer
// one.
func (d *Deployer) latestDeployed(ctx context.Context, a Account, name string) (version.Version, error) {
	h, err := d.history(ctx, a, name)
	if err != nil {
		return version.Version{}, err
	}
	current := h.current()
	if len(h.versions) > 0 && version.IsID(current.ID) && h.versions[0].ID > current.ID {
		return version.Version{}, fmt.Errorf("script %s: %w: it is %s, and %s is deployed", name, ErrNotLatest, h.versions[0].ID, current.ID)
	}
	return current, nil
}

// Deployments returns what was deployed, the current one first.
func (d *Deployer) Deployments(ctx context.Context, a Account, name string) ([]Deployment, error) {
	h, err := d.history(ctx, a, name)
	if err != nil {
		return nil, err
	}
	current := h.current()
	all := []Deployment{h.deployment(current)}
	for i := range h.releases {
		r := &h.releases[i]
		v := h.of(r)
		if i == 0 && r.Name == h.wd.Status.Release && (v.ID == current.ID || observed(h.wd)) {
			continue // it is the current one, wherever its code is stored
		}
		all = append(all, Deployment{ID: string(r.UID), Version: v.ID, CreatedOn: r.CreationTimestamp.UTC(), Author: v.Author, Message: v.Message})
	}
	return all, nil
}

// observed reports whether the release that the status names is what the spec asks for.
func observed(wd *deploymentv1alpha1.WorkerDeployment) bool {
	c := meta.FindStatusCondition(wd.Status.Conditions, api.ConditionAccepted)
	return c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == wd.Generation
}

// deployment is the current one, of a version.
func (h history) deployment(current version.Version) Deployment {
	if a, ok := annotated(h.wd); ok && a.Version == current.ID {
		return a
	}
	return Deployment{ID: string(h.wd.UID), Version: current.ID, CreatedOn: current.CreatedOn}
}

// Versions returns all versions that can be deployed, the newest first.
func (d *Deployer) Versions(ctx context.Context, a Account, name string) ([]version.Version, error) {
	h, err := d.history(ctx, a, name)
	if err != nil {
		return nil, err
	}
	all := slices.Clone(h.versions)
	for i := range h.releases {
		if versionOf(h.versions, h.releases[i].Spec.Script) == nil {
			all = append(all, released(&h.releases[i]))
		}
	}
	slices.SortStableFunc(all, func(a, b version.Version) int { return b.CreatedOn.Compare(a.CreatedOn) })
	return all, nil
}

// Version returns one version.
func (d *Deployer) Version(ctx context.Context, a Account, name, id string) (version.Version, error) {
	v, err := d.config.Versions.Load(ctx, a.ID, name, id)
	if err == nil || !errors.Is(err, version.ErrNotFound) {
		return v, err
	}
	h, err := d.history(ctx, a, name)
	if err != nil {
		return version.Version{}, err
	}
	if current := h.current(); current.ID == id {
		return current, nil
	}
	for i := range h.releases {
		if string(h.releases[i].UID) == id {
			return released(&h.releases[i]), nil
		}
	}
	return version.Version{}, fmt.Errorf("script %s: version %q: %w", name, id, ErrVersionNotFound)
}

// Current returns the version that is deployed.
func (d *Deployer) Current(ctx context.Context, a Account, name string) (version.Version, error) {
	h, err := d.history(ctx, a, name)
	if err != nil {
		return version.Version{}, err
	}
	return h.current(), nil
}

// newDeployment is one of a version, now.
func newDeployment(v version.Version, by Author) (Deployment, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return Deployment{}, fmt.Errorf("deployment id: %w", err)
	}
	return Deployment{ID: id.String(), Version: v.ID, CreatedOn: time.Now().UTC(), Author: by.Name, Message: by.Message}, nil
}
