// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/workers/api"
	builderv1alpha1 "github.com/spokelet/spokelet/workers/api/builder/v1alpha1"
	bundlev1alpha1 "github.com/spokelet/spokelet/workers/api/bundle/v1alpha1"
	releasev1alpha1 "github.com/spokelet/spokelet/workers/api/release/v1alpha1"
	"github.com/spokelet/spokelet/workers/bundle"
	"github.com/spokelet/spokelet/workers/script"
)

// spec is the build of an input. Its name says what goes into the image, so that the same
// input is the same build, and another runtime image another one.
func (a *accounts) spec(account string, b *bundlev1alpha1.WorkerBundle, in bundle.Input, chosen []*releasev1alpha1.WorkerRelease) *builderv1alpha1.JobBuilder {
	sum := sha256.Sum256([]byte(in.Digest() + " " + a.runtime))
	id := hex.EncodeToString(sum[:])[:digits]
	wanted := &builderv1alpha1.JobBuilder{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: b.Namespace, Name: b.Name + "-" + id, Finalizers: []string{api.Finalizer},
			Labels:          map[string]string{api.LabelAccount: account, api.LabelBundle: b.Name},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(b, bundlev1alpha1.GroupVersion.WithKind("WorkerBundle"))},
		},
		Spec: builderv1alpha1.JobBuilderSpec{Account: account, WorkerBundleName: b.Name, TargetImage: a.pull + "/" + account + ":" + id},
	}
	for _, r := range chosen {
		wanted.Spec.ScriptNames = append(wanted.Spec.ScriptNames, r.Spec.ScriptName)
		wanted.Spec.Releases = append(wanted.Spec.Releases, r.Name)
		wanted.Spec.ScriptURLs = append(wanted.Spec.ScriptURLs, strings.Join(script.URLs(r.Spec.Script), ","))
	}
	return wanted
}

// build has what is wanted be built, one build of a namespace at a time, and says how far it
// is. A newer build replaces one that waits.
func (a *accounts) build(ctx context.Context, b *bundlev1alpha1.WorkerBundle, wanted *builderv1alpha1.JobBuilder) (*builderv1alpha1.JobBuilder, verdict, error) {
	builders, err := buildersOf(ctx, a.client, b.Namespace)
	if err != nil {
		return nil, verdict{}, err
	}
	waiting := ""
	for i := range builders {
		other := &builders[i]
		switch {
		case other.Name == wanted.Name && !terminating(other):
			return other, verdictOf(other), nil
		case ended(other):
		case running(other) || terminating(other):
			waiting = other.Name
		default:
			if err := deleteObject(ctx, a.client, "JobBuilder", other); err != nil {
				return nil, verdict{}, err
			}
			waiting = other.Name
		}
	}
	if waiting != "" {
		return nil, unknown(api.ReasonWaiting, "JobBuilder "+waiting+" is to end first"), nil
	}
	if err := a.client.Create(ctx, wanted); err != nil {
		return nil, verdict{}, fmt.Errorf("create JobBuilder %s: %w", wanted.Name, err)
	}
	return wanted, unknown(api.ReasonBuilding, "JobBuilder "+wanted.Name), nil
}

func buildersOf(ctx context.Context, c client.Reader, namespace string) ([]builderv1alpha1.JobBuilder, error) {
	var list builderv1alpha1.JobBuilderList
	if err := c.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("list JobBuilders: %w", err)
	}
	return list.Items, nil
}

// ended tells whether a build has an image or a verdict.
func ended(b *builderv1alpha1.JobBuilder) bool {
	return b.Status.Image != "" || len(b.Status.Rejected) > 0
}

// running tells whether there may be a Job that works.
func running(b *builderv1alpha1.JobBuilder) bool {
	return !ended(b) && hasReason(b.Status.Conditions, api.ConditionBuilt, api.ReasonBuilding)
}

// verdictOf is what a build says of itself.
func verdictOf(b *builderv1alpha1.JobBuilder) verdict {
	c := meta.FindStatusCondition(b.Status.Conditions, api.ConditionBuilt)
	if c == nil {
		return unknown(api.ReasonBuilding, "JobBuilder "+b.Name)
	}
	return verdict{status: c.Status, reason: c.Reason, message: c.Message}
}

// forget deletes builds whose image nobody will need: a cluster that runs it, what the
// bundle has or had, and releases that may come back do.
func (a *accounts) forget(ctx context.Context, wanted string, b *bundlev1alpha1.WorkerBundle, all content) error {
	// What a cluster runs that replaces its pods, or never answered, nobody knows.
	unknown := func(c bundlev1alpha1.ClusterStatus) bool { return c.Image == "" }
	if slices.ContainsFunc(b.Status.Clusters, unknown) {
		return nil
	}
	builders, err := buildersOf(ctx, a.client, b.Namespace)
	if err != nil {
		return err
	}
	used := usedDigests(b)
	for i := range builders {
		old := &builders[i]
		gone := func(name string) bool { return all.release(name) == nil }
		if old.Name == wanted || terminating(old) || !ended(old) || slices.Contains(used, digestOf(old.Status.Image)) || !slices.ContainsFunc(old.Spec.Releases, gone) {
			continue
		}
		if err := deleteObject(ctx, a.client, "JobBuilder", old, client.Preconditions{UID: &old.UID}); err != nil {
			return err
		}
	}
	return nil
}

// usedDigests are those that a bundle has or a cluster may run.
func usedDigests(b *bundlev1alpha1.WorkerBundle) []string {
	used := []string{digestOf(b.Spec.PodTemplate.Image)}
	for _, c := range b.Status.Clusters {
		used = append(used, digestOf(c.Image))
	}
	if !is(b.Status.Conditions, api.ConditionReady, b.Generation) {
		used = append(used, digestOf(b.Annotations[api.AnnotationLastImage]))
	}
	return slices.DeleteFunc(used, func(d string) bool { return d == "" })
}

// digestOf returns the digest of a reference, or nothing.
func digestOf(image string) string {
	_, digest, _ := strings.Cut(image, "@")
	return digest
}

func sameBundle(a, b *bundlev1alpha1.WorkerBundle) bool {
	return equality.Semantic.DeepEqual(a.Spec, b.Spec) && equality.Semantic.DeepEqual(a.Annotations, b.Annotations)
}
