// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package deployer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/workers/api"
	deploymentv1alpha1 "github.com/spokelet/spokelet/workers/api/deployment/v1alpha1"
	releasev1alpha1 "github.com/spokelet/spokelet/workers/api/release/v1alpha1"
	"github.com/spokelet/spokelet/workers/quota"
	"github.com/spokelet/spokelet/workers/version"
)

// Deploy deploys a version: it writes the WorkerDeployment and waits until the clusters are to run
// an image with the version. If the version cannot be served, the WorkerDeployment is restored. force
// deploys a version whose secrets are older than those of the current one.
func (d *Deployer) Deploy(ctx context.Context, a Account, name, id string, by Author, force bool) (Deployment, error) {
	v, err := d.Version(ctx, a, name, id)
	if errors.Is(err, ErrNotFound) {
		err = fmt.Errorf("script %s: version %q: %w", name, id, ErrVersionNotFound)
	}
	if err != nil {
		return Deployment{}, err
	}
	secret, err := d.getSecretMetadata(ctx, a, v)
	if err != nil {
		return Deployment{}, err
	}
	if !force {
		if err := d.checkSecretsUnchanged(ctx, a, name, v); err != nil {
			return Deployment{}, err
		}
	}
	deployment, err := newDeployment(v, by)
	if err != nil {
		return Deployment{}, err
	}
	before, after, err := d.writeTemplate(ctx, a, v, deployment)
	if err != nil {
		return Deployment{}, err
	}
	if err := d.setSecretOwner(ctx, after, secret); err != nil {
		return Deployment{}, err
	}
	if err := d.waitUntilBuilt(ctx, after, deployment); err != nil {
		return Deployment{}, d.rollBack(ctx, a, before, after, deployment, err)
	}
	d.removeUnused(ctx, a, name)
	return deployment, nil
}

// checkSecretsUnchanged returns an error if a version would restore older secrets.
func (d *Deployer) checkSecretsUnchanged(ctx context.Context, a Account, name string, v version.Version) error {
	current, err := d.Current(ctx, a, name)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if !v.CreatedOn.Before(current.CreatedOn) || v.Script.SecretRef == current.Script.SecretRef {
		return nil
	}
	now, err := d.getVersionSecret(ctx, a, current)
	if err != nil {
		return err
	}
	then, err := d.getVersionSecret(ctx, a, v)
	if err != nil {
		return err
	}
	var changed []string
	for key, value := range now.Data {
		if old, ok := then.Data[key]; !ok || !bytes.Equal(old, value) {
			changed = append(changed, key)
		}
	}
	for key := range then.Data {
		if _, ok := now.Data[key]; !ok {
			changed = append(changed, key)
		}
	}
	if len(changed) == 0 {
		return nil
	}
	slices.Sort(changed)
	return &SecretsChangedError{Names: changed}
}

// writeTemplate writes a version to the WorkerDeployment. before is nil if it is new.
func (d *Deployer) writeTemplate(ctx context.Context, a Account, v version.Version, deployment Deployment) (before, after *deploymentv1alpha1.WorkerDeployment, err error) {
	raw, err := json.Marshal(deployment)
	if err != nil {
		return nil, nil, fmt.Errorf("deployment %s: %w", deployment.ID, err)
	}
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		before, after = nil, nil
		found, err := d.getWorkerDeployment(ctx, a, v.Script.ScriptName)
		if errors.Is(err, ErrNotFound) {
			after, err = d.createWorkerDeployment(ctx, a, v, string(raw))
			return err
		}
		if err != nil {
			return err
		}
		before, after = found.DeepCopy(), found
		metav1.SetMetaDataAnnotation(&after.ObjectMeta, api.AnnotationDeployment, string(raw))
		after.Spec.Template = v.Script
		return d.config.Client.Update(ctx, after)
	})
	if err != nil {
		return nil, nil, classifyHubError(fmt.Errorf("script %s: write WorkerDeployment: %w", v.Script.ScriptName, err))
	}
	return before, after, nil
}

func (d *Deployer) createWorkerDeployment(ctx context.Context, a Account, v version.Version, annotation string) (*deploymentv1alpha1.WorkerDeployment, error) {
	wd := &deploymentv1alpha1.WorkerDeployment{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: a.Namespace, Name: objectName(v.Script.ScriptName),
			Annotations: map[string]string{api.AnnotationDeployment: annotation},
		},
		Spec: deploymentv1alpha1.WorkerDeploymentSpec{Template: v.Script},
	}
	err := d.config.Client.Create(ctx, wd)
	if apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("%w: WorkerDeployment %s has another script", ErrConflict, wd.Name)
	}
	return wd, err
}

// waitUntilBuilt waits until the operator has an image with a deployment, or returns why it has none.
func (d *Deployer) waitUntilBuilt(ctx context.Context, wd *deploymentv1alpha1.WorkerDeployment, deployment Deployment) error {
	within, cancel := context.WithTimeout(ctx, d.config.Timeout)
	defer cancel()
	last := "the operator has not looked at it"
	for {
		// API servers end watches periodically.
		done, err := d.watchUntilBuilt(within, wd, deployment, &last)
		switch {
		case within.Err() != nil && err != nil && !isFinal(err):
			return fmt.Errorf("%w: version %s of script %s: %s", ErrPending, deployment.Version, wd.Spec.Template.ScriptName, last)
		case err != nil || done:
			return err
		}
	}
}

// isFinal reports whether an error is the outcome of a deployment. Other errors may come from a
// context that has ended.
func isFinal(err error) bool {
	return slices.ContainsFunc([]error{ErrConflict, ErrInvalid, ErrRejected, ErrPending, ErrNotOpened}, func(target error) bool { return errors.Is(err, target) })
}

// watchUntilBuilt checks each state of a WorkerDeployment until the watch ends. last is set to what
// the latest state waits for.
func (d *Deployer) watchUntilBuilt(ctx context.Context, wd *deploymentv1alpha1.WorkerDeployment, deployment Deployment, last *string) (done bool, err error) {
	events, err := d.watch(ctx, wd)
	if err != nil {
		return false, err
	}
	defer events.Stop()
	for {
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case event, open := <-events.ResultChan():
			if !open {
				return false, nil
			}
			state, ok := event.Object.(*deploymentv1alpha1.WorkerDeployment)
			if !ok {
				return false, fmt.Errorf("watch WorkerDeployment %s: %w", wd.Name, apierrors.FromObject(event.Object))
			}
			done, why, err := d.checkProgress(ctx, event.Type, state, wd, deployment)
			if err != nil || done {
				return done, err
			}
			*last = why
		}
	}
}

func (d *Deployer) watch(ctx context.Context, wd *deploymentv1alpha1.WorkerDeployment) (watch.Interface, error) {
	events, err := d.config.Client.Watch(ctx, &deploymentv1alpha1.WorkerDeploymentList{}, client.InNamespace(wd.Namespace), client.MatchingFields{"metadata.name": wd.Name})
	if err != nil {
		return nil, classifyHubError(fmt.Errorf("watch WorkerDeployment %s: %w", wd.Name, err))
	}
	return events, nil
}

// checkProgress returns whether a deployment is done, or what it waits for. asked is the
// WorkerDeployment as it was written. The error is why it cannot be served.
func (d *Deployer) checkProgress(ctx context.Context, kind watch.EventType, wd, asked *deploymentv1alpha1.WorkerDeployment, deployment Deployment) (done bool, why string, err error) {
	name := asked.Spec.Template.ScriptName
	now, ok := parseDeployment(wd)
	switch {
	case kind == watch.Deleted || wd.UID != asked.UID:
		return false, "", fmt.Errorf("%w: script %s was deleted meanwhile", ErrConflict, name)
	case ok && now.ID != deployment.ID:
		return false, "", fmt.Errorf("%w: script %s was deployed again meanwhile, by %s as version %s", ErrConflict, name, now.Author, now.Version)
	case !hasDeployment(wd, asked, deployment):
		return false, "", fmt.Errorf("%w: script %s was changed meanwhile", ErrConflict, name)
	}
	accepted := meta.FindStatusCondition(wd.Status.Conditions, api.ConditionAccepted)
	if accepted == nil || accepted.ObservedGeneration != wd.Generation {
		return false, "the operator has not looked at it", nil
	}
	if accepted.Status != metav1.ConditionTrue {
		if accepted.Reason == api.ReasonStoreUnavailable {
			return false, accepted.Message, nil
		}
		return false, "", fmt.Errorf("%w: script %s: %s", ErrInvalid, name, accepted.Message)
	}
	if err := d.checkRejected(ctx, wd); err != nil {
		return false, "", err
	}
	return isBuilt(wd)
}

// hasDeployment reports whether a WorkerDeployment still has the template of a deployment. A change
// with kubectl does not remove the annotation.
func hasDeployment(wd, asked *deploymentv1alpha1.WorkerDeployment, deployment Deployment) bool {
	now, _ := parseDeployment(wd)
	return now.ID == deployment.ID && version.Template(wd.Spec.Template) == version.Template(asked.Spec.Template)
}

// checkRejected returns an error if workerd rejected the current release.
func (d *Deployer) checkRejected(ctx context.Context, wd *deploymentv1alpha1.WorkerDeployment) error {
	var r releasev1alpha1.WorkerRelease
	err := d.config.Client.Get(ctx, client.ObjectKey{Namespace: wd.Namespace, Name: wd.Status.Release}, &r)
	if apierrors.IsNotFound(err) {
		return nil // there is another one by now, and an event of it comes
	}
	if err != nil {
		return classifyHubError(fmt.Errorf("read WorkerRelease %s: %w", wd.Status.Release, err))
	}
	c := meta.FindStatusCondition(r.Status.Conditions, api.ConditionAccepted)
	switch {
	case c == nil || c.Status != metav1.ConditionFalse:
		return nil
	case c.Reason == api.ReasonRejected:
		return fmt.Errorf("%w: %s", ErrRejected, c.Message)
	default:
		return fmt.Errorf("%w: script %s: %s", ErrInvalid, wd.Spec.Template.ScriptName, c.Message)
	}
}

// isBuilt reports whether the clusters are to run the current release.
func isBuilt(wd *deploymentv1alpha1.WorkerDeployment) (done bool, why string, err error) {
	name := wd.Spec.Template.ScriptName
	if wd.Status.Served == wd.Status.Release {
		c := meta.FindStatusCondition(wd.Status.Conditions, api.ConditionReady)
		if c != nil && c.Reason == api.ReasonNoClusters {
			return false, "", fmt.Errorf("%w: script %s is deployed, but the account has no cluster: %s", ErrPending, name, c.Message)
		}
		return true, "", nil
	}
	c := meta.FindStatusCondition(wd.Status.Conditions, api.ConditionBuilt)
	switch {
	case c == nil || c.ObservedGeneration != wd.Generation:
		return false, "it is not built yet", nil
	case c.Reason == api.ReasonNoAccount:
		return false, "", fmt.Errorf("%w: script %s: %s", ErrInvalid, name, c.Message)
	default:
		return false, c.Message, nil
	}
}

// rollBack restores the WorkerDeployment if a deployment cannot be served. A pending one stays.
func (d *Deployer) rollBack(ctx context.Context, a Account, before, after *deploymentv1alpha1.WorkerDeployment, deployment Deployment, why error) error {
	if !errors.Is(why, ErrInvalid) && !errors.Is(why, ErrRejected) {
		return why
	}
	ctx, done := quota.WithScope(context.WithoutCancel(ctx)) // the developer may be gone
	defer done()
	name := after.Spec.Template.ScriptName
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		wd, err := d.getWorkerDeployment(ctx, a, name)
		if errors.Is(err, ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		if !hasDeployment(wd, after, deployment) {
			return nil // somebody else has written it meanwhile
		}
		if before == nil {
			return d.config.Client.Delete(ctx, wd, client.Preconditions{UID: &wd.UID, ResourceVersion: &wd.ResourceVersion})
		}
		wd.Spec.Template = before.Spec.Template
		delete(wd.Annotations, api.AnnotationDeployment)
		if annotation, ok := before.Annotations[api.AnnotationDeployment]; ok {
			metav1.SetMetaDataAnnotation(&wd.ObjectMeta, api.AnnotationDeployment, annotation)
		}
		return d.config.Client.Update(ctx, wd)
	})
	if err == nil {
		err = d.removeUpload(ctx, a, before, name, deployment.Version)
	}
	if err != nil {
		return fmt.Errorf("%w (and what was deployed before was not written again: %w)", why, err)
	}
	return why
}

// removeUpload removes a version that cannot be served, if it is the latest upload. An older version
// was served before, so something else is wrong.
func (d *Deployer) removeUpload(ctx context.Context, a Account, before *deploymentv1alpha1.WorkerDeployment, name, id string) error {
	latest, err := d.config.Versions.Latest(ctx, a.ID, name)
	if errors.Is(err, version.ErrNotFound) || err == nil && latest.ID != id {
		return nil
	}
	if err != nil {
		return err
	}
	if before != nil && latest.Template == version.Template(before.Spec.Template) {
		return nil
	}
	return d.config.History.Remove(ctx, a.ID, name, id)
}
