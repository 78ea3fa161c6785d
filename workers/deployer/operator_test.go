// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package deployer

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/workers/api"
	deploymentv1alpha1 "github.com/spokelet/spokelet/workers/api/deployment/v1alpha1"
	releasev1alpha1 "github.com/spokelet/spokelet/workers/api/release/v1alpha1"
	"github.com/spokelet/spokelet/workers/script"
	"github.com/spokelet/spokelet/workers/version"
)

// fakeOperator writes the status of WorkerDeployments and makes WorkerReleases as the
// operator does, at once when a WorkerDeployment is written.
type fakeOperator struct {
	notify func(watch.EventType, *deploymentv1alpha1.WorkerDeployment)

	// silent: it is not running.
	silent bool
	// refused is a reason and a message of Accepted, which is False then.
	refused *answer
	// rejects are words of workerd about releases that are new.
	rejects string
	// built is a reason and a message of Built, and nothing new is served then.
	built *answer
	// noClusters is the message of Ready if there are none.
	noClusters string
}

// answer is what a condition says.
type answer struct{ reason, message string }

// reconcile does what the controllers of deployments and of accounts do.
func (o *fakeOperator) reconcile(ctx context.Context, c client.WithWatch, key client.ObjectKey) error {
	if o.silent {
		return nil
	}
	var wd deploymentv1alpha1.WorkerDeployment
	if err := c.Get(ctx, key, &wd); err != nil {
		return err
	}
	status := &wd.Status
	status.ObservedGeneration = wd.Generation
	current, err := o.accept(ctx, c, &wd)
	if err != nil {
		return err
	}
	if current != nil {
		o.report(&wd, current)
	}
	if err := c.Status().Update(ctx, &wd); err != nil {
		return err
	}
	o.notify(watch.Modified, &wd)
	return nil
}

func set(wd *deploymentv1alpha1.WorkerDeployment, kind string, status metav1.ConditionStatus, a answer) {
	meta.SetStatusCondition(&wd.Status.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: a.reason, Message: a.message, ObservedGeneration: wd.Generation,
	})
}

// accept has a release be the current one. It is nil if the spec cannot be served.
func (o *fakeOperator) accept(ctx context.Context, c client.WithWatch, wd *deploymentv1alpha1.WorkerDeployment) (*releasev1alpha1.WorkerRelease, error) {
	var secret corev1.Secret
	if name := wd.Spec.Template.SecretRef; name != "" && o.refused == nil {
		if err := c.Get(ctx, client.ObjectKey{Namespace: wd.Namespace, Name: name}, &secret); err != nil {
			set(wd, api.ConditionAccepted, metav1.ConditionFalse, answer{api.ReasonSecretMissing, "secretRef: there is no Secret " + name})
			return nil, client.IgnoreNotFound(err)
		}
	}
	if o.refused != nil {
		set(wd, api.ConditionAccepted, metav1.ConditionFalse, *o.refused)
		return nil, nil
	}
	current, err := o.release(ctx, c, wd, secret.Data)
	if err != nil {
		return nil, err
	}
	set(wd, api.ConditionAccepted, metav1.ConditionTrue, answer{api.ReasonAccepted, "release " + current.Name})
	wd.Status.Release, wd.Status.Revision = current.Name, current.Status.Revision
	return current, nil
}

// release returns the one with a template and secrets, and makes it if there is none.
func (o *fakeOperator) release(ctx context.Context, c client.WithWatch, wd *deploymentv1alpha1.WorkerDeployment, secrets map[string][]byte) (*releasev1alpha1.WorkerRelease, error) {
	var list releasev1alpha1.WorkerReleaseList
	if err := c.List(ctx, &list, client.InNamespace(wd.Namespace)); err != nil {
		return nil, err
	}
	template := wd.Spec.Template
	template.ScriptURLs, template.ScriptsURLs = script.URLs(template), nil
	template.CompatibilityDate, _ = script.Date(template.CompatibilityDate)
	var current *releasev1alpha1.WorkerRelease
	last := wd.Status.Revision
	for i := range list.Items {
		r := &list.Items[i]
		last = max(last, r.Status.Revision)
		if !metav1.IsControlledBy(r, wd) || version.Template(r.Spec.Script) != version.Template(template) {
			continue
		}
		var kept corev1.Secret
		if err := client.IgnoreNotFound(c.Get(ctx, client.ObjectKeyFromObject(r), &kept)); err != nil {
			return nil, err
		}
		if maps.EqualFunc(kept.Data, secrets, bytes.Equal) {
			current = r
		}
	}
	if current == nil {
		var err error
		if current, err = o.make(ctx, c, wd, template, secrets, last+1); err != nil {
			return nil, err
		}
	}
	if wd.Status.Release != current.Name {
		current.Status.Revision, current.Status.SecretKeys = last+1, slices.Sorted(maps.Keys(secrets))
		return current, c.Status().Update(ctx, current)
	}
	return current, nil
}

// make makes a release, with a copy of its secrets.
func (o *fakeOperator) make(ctx context.Context, c client.WithWatch, wd *deploymentv1alpha1.WorkerDeployment, template releasev1alpha1.Script, secrets map[string][]byte, revision int64) (*releasev1alpha1.WorkerRelease, error) {
	r := &releasev1alpha1.WorkerRelease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: wd.Namespace, Name: fmt.Sprintf("%s-%d", wd.Name, revision),
			UID: newUID(), CreationTimestamp: metav1.Now(), Generation: 1,
			Labels: map[string]string{api.LabelScript: template.ScriptName},
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(wd, deploymentv1alpha1.GroupVersion.WithKind("WorkerDeployment")),
			},
		},
		Spec: releasev1alpha1.WorkerReleaseSpec{Script: template},
	}
	if err := c.Create(ctx, r); err != nil {
		return nil, err
	}
	accepted := metav1.Condition{Type: api.ConditionAccepted, Status: metav1.ConditionTrue, Reason: api.ReasonAccepted, ObservedGeneration: 1}
	if o.rejects != "" {
		accepted.Status, accepted.Reason, accepted.Message = metav1.ConditionFalse, api.ReasonRejected, o.rejects
	}
	meta.SetStatusCondition(&r.Status.Conditions, accepted)
	if template.SecretRef == "" {
		return r, nil
	}
	return r, c.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: r.Namespace, Name: r.Name, UID: newUID(), CreationTimestamp: metav1.Now(),
			Labels:          map[string]string{api.LabelScript: template.ScriptName},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(r, releasev1alpha1.GroupVersion.WithKind("WorkerRelease"))},
		},
		Immutable: new(true), Data: secrets,
	})
}

// report says whether a release is served.
func (o *fakeOperator) report(wd *deploymentv1alpha1.WorkerDeployment, current *releasev1alpha1.WorkerRelease) {
	accepted := meta.FindStatusCondition(current.Status.Conditions, api.ConditionAccepted)
	switch {
	case accepted.Status == metav1.ConditionFalse:
		set(wd, api.ConditionBuilt, metav1.ConditionFalse, answer{accepted.Reason, accepted.Message})
	case o.built != nil && wd.Status.Served != current.Name:
		set(wd, api.ConditionBuilt, metav1.ConditionUnknown, *o.built)
	default:
		wd.Status.Served = current.Name
		set(wd, api.ConditionBuilt, metav1.ConditionTrue, answer{api.ReasonBuilt, "release " + current.Name})
	}
	switch {
	case wd.Status.Served != current.Name:
		set(wd, api.ConditionReady, metav1.ConditionFalse, answer{api.ReasonPreviousServed, "something else is served"})
	case o.noClusters != "":
		set(wd, api.ConditionReady, metav1.ConditionFalse, answer{api.ReasonNoClusters, o.noClusters})
	default:
		set(wd, api.ConditionReady, metav1.ConditionTrue, answer{api.ReasonServed, ""})
	}
}
