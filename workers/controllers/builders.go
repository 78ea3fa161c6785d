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

// newBuilder returns the JobBuilder of an input. Its name is a digest of the image's content, so
// that the same input is the same build, and another runtime image another one.
func (a *accountReconciler) newBuilder(account string, b *bundlev1alpha1.WorkerBundle, in bundle.Input, chosen []*releasev1alpha1.WorkerRelease) *builderv1alpha1.JobBuilder {
	sum := sha256.Sum256([]byte(in.Digest() + " " + a.Settings.Registry.Runtime))
	id := hex.EncodeToString(sum[:])[:hashDigits]
	wanted := &builderv1alpha1.JobBuilder{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: b.Namespace, Name: b.Name + "-" + id, Finalizers: []string{api.Finalizer},
			Labels:          map[string]string{api.LabelAccount: account, api.LabelBundle: b.Name},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(b, bundlev1alpha1.GroupVersion.WithKind("WorkerBundle"))},
		},
		Spec: builderv1alpha1.JobBuilderSpec{Account: account, WorkerBundleName: b.Name, TargetImage: a.Settings.Registry.Pull + "/" + account + ":" + id},
	}
	for _, r := range chosen {
		wanted.Spec.ScriptNames = append(wanted.Spec.ScriptNames, r.Spec.ScriptName)
		wanted.Spec.Releases = append(wanted.Spec.Releases, r.Name)
		wanted.Spec.ScriptURLs = append(wanted.Spec.ScriptURLs, strings.Join(script.URLs(r.Spec.Script), ","))
	}
	return wanted
}

// ensureBuilder creates a JobBuilder if no other one of the namespace runs, and returns its
// condition. A newer build replaces a waiting one.
func (a *accountReconciler) ensureBuilder(ctx context.Context, b *bundlev1alpha1.WorkerBundle, wanted *builderv1alpha1.JobBuilder) (*builderv1alpha1.JobBuilder, conditionState, error) {
	builders, err := listBuilders(ctx, a.client, b.Namespace)
	if err != nil {
		return nil, conditionState{}, err
	}
	waiting := ""
	for i := range builders {
		other := &builders[i]
		switch {
		case other.Name == wanted.Name && !isDeleting(other):
			return other, builtConditionOf(other), nil
		case isFinished(other):
		case isRunning(other) || isDeleting(other):
			waiting = other.Name
		default:
			if err := deleteObject(ctx, a.client, "JobBuilder", other); err != nil {
				return nil, conditionState{}, err
			}
			waiting = other.Name
		}
	}
	if waiting != "" {
		return nil, conditionUnknown(api.ReasonWaiting, "JobBuilder "+waiting+" is to end first"), nil
	}
	if err := a.client.Create(ctx, wanted); err != nil {
		return nil, conditionState{}, fmt.Errorf("create JobBuilder %s: %w", wanted.Name, err)
	}
	return wanted, conditionUnknown(api.ReasonBuilding, "JobBuilder "+wanted.Name), nil
}

func listBuilders(ctx context.Context, c client.Reader, namespace string) ([]builderv1alpha1.JobBuilder, error) {
	var list builderv1alpha1.JobBuilderList
	if err := listIn(ctx, c, &list, namespace); err != nil {
		return nil, err
	}
	return list.Items, nil
}

// isFinished reports whether a build has an image or was rejected.
func isFinished(b *builderv1alpha1.JobBuilder) bool {
	return b.Status.Image != "" || len(b.Status.Rejected) > 0
}

// isRunning reports whether a Job may be running.
func isRunning(b *builderv1alpha1.JobBuilder) bool {
	return !isFinished(b) && hasReason(b.Status.Conditions, api.ConditionBuilt, api.ReasonBuilding)
}

// builtConditionOf returns the condition Built of a JobBuilder.
func builtConditionOf(b *builderv1alpha1.JobBuilder) conditionState {
	c := meta.FindStatusCondition(b.Status.Conditions, api.ConditionBuilt)
	if c == nil {
		return conditionUnknown(api.ReasonBuilding, "JobBuilder "+b.Name)
	}
	return conditionState{status: c.Status, reason: c.Reason, message: c.Message}
}

// pruneBuilders deletes builds whose image is not needed any more: no cluster runs it, the bundle
// has another one, and one of its releases is gone.
func (a *accountReconciler) pruneBuilders(ctx context.Context, wanted string, b *bundlev1alpha1.WorkerBundle, all namespaceObjects) error {
	// A cluster that replaces pods, or has never reported, may run any image.
	unknown := func(c bundlev1alpha1.ClusterStatus) bool { return c.Image == "" }
	if slices.ContainsFunc(b.Status.Clusters, unknown) {
		return nil
	}
	builders, err := listBuilders(ctx, a.client, b.Namespace)
	if err != nil {
		return err
	}
	used := usedDigests(b)
	for i := range builders {
		old := &builders[i]
		gone := func(name string) bool { return all.findRelease(name) == nil }
		if old.Name == wanted || isDeleting(old) || !isFinished(old) || slices.Contains(used, imageDigest(old.Status.Image)) || !slices.ContainsFunc(old.Spec.Releases, gone) {
			continue
		}
		if err := deleteObject(ctx, a.client, "JobBuilder", old, client.Preconditions{UID: &old.UID}); err != nil {
			return err
		}
	}
	return nil
}

// usedDigests are the digests of images that a bundle has or a cluster may run.
func usedDigests(b *bundlev1alpha1.WorkerBundle) []string {
	used := []string{imageDigest(b.Spec.PodTemplate.Image)}
	for _, c := range b.Status.Clusters {
		used = append(used, imageDigest(c.Image))
	}
	if !isTrueForGeneration(b.Status.Conditions, api.ConditionReady, b.Generation) {
		used = append(used, imageDigest(b.Annotations[api.AnnotationLastImage]))
	}
	return slices.DeleteFunc(used, func(d string) bool { return d == "" })
}

// imageDigest returns the digest of an image reference, or an empty string.
func imageDigest(image string) string {
	_, digest, _ := strings.Cut(image, "@")
	return digest
}

func bundlesEqual(a, b *bundlev1alpha1.WorkerBundle) bool {
	return equality.Semantic.DeepEqual(a.Spec, b.Spec) && equality.Semantic.DeepEqual(a.Annotations, b.Annotations)
}
