// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/workers/api"
	accountv1alpha1 "github.com/spokelet/spokelet/workers/api/account/v1alpha1"
	bundlev1alpha1 "github.com/spokelet/spokelet/workers/api/bundle/v1alpha1"
	deploymentv1alpha1 "github.com/spokelet/spokelet/workers/api/deployment/v1alpha1"
	releasev1alpha1 "github.com/spokelet/spokelet/workers/api/release/v1alpha1"
	"github.com/spokelet/spokelet/workers/bundle"
	"github.com/spokelet/spokelet/workers/script"
)

// namespaceObjects are the WorkerDeployments and WorkerReleases of a namespace.
type namespaceObjects struct {
	deployments []deploymentv1alpha1.WorkerDeployment
	releases    []releasev1alpha1.WorkerRelease
}

func listNamespaceObjects(ctx context.Context, c client.Reader, namespace string) (namespaceObjects, error) {
	var (
		wds      deploymentv1alpha1.WorkerDeploymentList
		releases releasev1alpha1.WorkerReleaseList
	)
	if err := errors.Join(listIn(ctx, c, &wds, namespace), listIn(ctx, c, &releases, namespace)); err != nil {
		return namespaceObjects{}, err
	}
	return namespaceObjects{
		deployments: slices.DeleteFunc(wds.Items, func(d deploymentv1alpha1.WorkerDeployment) bool { return isDeleting(&d) }),
		releases:    slices.DeleteFunc(releases.Items, func(r releasev1alpha1.WorkerRelease) bool { return isDeleting(&r) }),
	}, nil
}

// findRelease finds a release by its name.
func (c namespaceObjects) findRelease(name string) *releasev1alpha1.WorkerRelease {
	i := slices.IndexFunc(c.releases, func(r releasev1alpha1.WorkerRelease) bool { return r.Name == name })
	if i < 0 {
		return nil
	}
	return &c.releases[i]
}

// ofAccount drops the releases that were created when the namespace had another account.
func (c namespaceObjects) ofAccount(account string) namespaceObjects {
	c.releases = slices.DeleteFunc(slices.Clone(c.releases), func(r releasev1alpha1.WorkerRelease) bool {
		made, known := r.Labels[api.LabelAccount]
		return known && made != account
	})
	return c
}

// isUsable reports whether a release is accepted, so that it can be built.
func isUsable(r *releasev1alpha1.WorkerRelease) bool {
	return r != nil && meta.IsStatusConditionTrue(r.Status.Conditions, api.ConditionAccepted)
}

// selectReleases returns the releases that an account is to serve, one for each script, in the order
// of their names. Where workerd rejects the current release, the served one stays, or else the
// newest accepted one is used.
func selectReleases(account *accountv1alpha1.WorkerAccount, served *bundlev1alpha1.WorkerBundle, all namespaceObjects) ([]*releasev1alpha1.WorkerRelease, error) {
	selector, err := metav1.LabelSelectorAsSelector(&account.Spec.WorkerReleaseSelector)
	if err != nil {
		return nil, newStatusError(api.ReasonInvalid, "workerReleaseSelector: %w", err)
	}
	all = all.ofAccount(account.Status.Account)
	current := all.currentReleases(selector)
	var chosen []*releasev1alpha1.WorkerRelease
	for _, name := range slices.Sorted(maps.Keys(current)) {
		r := current[name]
		if !isUsable(r) {
			r = all.fallbackRelease(name, servedRelease(served, name), selector)
		}
		if r != nil {
			chosen = append(chosen, r)
		}
	}
	return chosen, nil
}

// currentReleases returns the current release of each script: that of its WorkerDeployment, or the
// newest that was made by hand. One that is not known yet is nil.
func (c namespaceObjects) currentReleases(selector labels.Selector) map[string]*releasev1alpha1.WorkerRelease {
	current := map[string]*releasev1alpha1.WorkerRelease{}
	for i := range c.releases {
		r := &c.releases[i]
		if metav1.GetControllerOf(r) != nil || !selector.Matches(labels.Set(r.Labels)) {
			continue
		}
		if known := current[r.Spec.ScriptName]; known == nil || compareAge(known, r) < 0 {
			current[r.Spec.ScriptName] = r
		}
	}
	for i := range c.deployments {
		wd := &c.deployments[i]
		r := c.findRelease(wd.Status.Release)
		switch {
		case r == nil && wd.Status.Release != "":
			// The release was just created, and its cache has not received it yet: the served release
			// stays until then.
			current[wd.Spec.Template.ScriptName] = nil
		case r != nil && metav1.IsControlledBy(r, wd) && selector.Matches(labels.Set(r.Labels)):
			current[r.Spec.ScriptName] = r
		}
	}
	return current
}

// fallbackRelease returns the release to serve instead of one that is not accepted.
func (c namespaceObjects) fallbackRelease(scriptName, served string, selector labels.Selector) *releasev1alpha1.WorkerRelease {
	if r := c.findRelease(served); isUsable(r) && r.Spec.ScriptName == scriptName {
		return r
	}
	var others []*releasev1alpha1.WorkerRelease
	for i := range c.releases {
		if r := &c.releases[i]; r.Spec.ScriptName == scriptName && isUsable(r) && selector.Matches(labels.Set(r.Labels)) {
			others = append(others, r)
		}
	}
	if len(others) == 0 {
		return nil
	}
	return slices.MaxFunc(others, func(a, b *releasev1alpha1.WorkerRelease) int {
		return cmp.Or(cmp.Compare(a.Status.Revision, b.Status.Revision), compareAge(a, b))
	})
}

// servedRelease returns the name of the release of a script that a bundle has.
func servedRelease(b *bundlev1alpha1.WorkerBundle, scriptName string) string {
	for _, w := range b.Spec.Workers {
		if w.WorkerName == scriptName {
			return w.Release
		}
	}
	return ""
}

// releaseModules returns the modules of a release, from its spec or its status.
func releaseModules(r *releasev1alpha1.WorkerRelease) []releasev1alpha1.Module {
	if len(r.Spec.Modules) > 0 {
		return r.Spec.Modules
	}
	return r.Status.Modules
}

// newInput returns the input of the image of releases.
func newInput(account string, releases []*releasev1alpha1.WorkerRelease) (bundle.Input, error) {
	in := bundle.Input{Account: account}
	for _, r := range releases {
		s := r.Spec.Script
		date, err := script.Date(s.CompatibilityDate)
		if err != nil {
			return in, newStatusError(api.ReasonInvalid, "release %s: compatibilityDate: %w", r.Name, err)
		}
		s.CompatibilityDate = date
		w, err := script.New(s, releaseModules(r), r.Status.SecretKeys)
		if err != nil {
			return in, newStatusError(api.ReasonInvalid, "release %s: %w", r.Name, err)
		}
		in.Workers = append(in.Workers, w)
	}
	return in, nil
}

// newWorkers returns the workers of a bundle for an input and its releases, in the same order.
func newWorkers(in bundle.Input, releases []*releasev1alpha1.WorkerRelease) []bundlev1alpha1.Worker {
	workers := make([]bundlev1alpha1.Worker, 0, len(releases))
	for i, r := range releases {
		w := bundlev1alpha1.Worker{
			WorkerName: in.Workers[i].Name, WorkerNumber: int32(bundle.FirstPort + i),
			EnvPrefix: in.Workers[i].EnvPrefix, Release: r.Name,
		}
		if r.Spec.SecretRef != "" {
			w.SecretRef = r.Name // its copy
		}
		workers = append(workers, w)
	}
	return workers
}
