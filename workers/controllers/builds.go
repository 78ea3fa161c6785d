// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/spokelet/spokelet/workers/api"
	builderv1alpha1 "github.com/spokelet/spokelet/workers/api/builder/v1alpha1"
	releasev1alpha1 "github.com/spokelet/spokelet/workers/api/release/v1alpha1"
	"github.com/spokelet/spokelet/workers/build"
	"github.com/spokelet/spokelet/workers/bundle"
	"github.com/spokelet/spokelet/workers/registry"
)

// buildReconciler runs a Job for each JobBuilder.
type buildReconciler struct {
	base

	now func() time.Time
}

func (b *buildReconciler) reconcile(ctx context.Context, key types.NamespacedName) (reconcile.Result, error) {
	builder := &builderv1alpha1.JobBuilder{}
	if err := b.client.Get(ctx, key, builder); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	switch {
	case isDeleting(builder):
		return reconcile.Result{}, b.finalize(ctx, builder)
	case isFinished(builder):
		return reconcile.Result{}, b.deleteJobs(ctx, builder)
	}
	job := &batchv1.Job{}
	err := b.client.Get(ctx, b.jobKey(builder), job)
	switch {
	case apierrors.IsNotFound(err):
		return b.startJob(ctx, builder)
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("read Job: %w", err)
	case isDeleting(job):
		return reconcile.Result{}, nil // the end of its deletion is an event
	}
	result, finished, err := b.jobResult(ctx, job)
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case !finished:
		return reconcile.Result{}, b.updateStatus(ctx, builder, conditionUnknown(api.ReasonBuilding, "Job "+job.Name), nil)
	}
	return reconcile.Result{}, b.recordResult(ctx, builder, result)
}

// retryDelay is how long a build waits after a number of failed attempts.
func retryDelay(attempts int32) time.Duration {
	const first, most = 2 * time.Second, 5 * time.Minute
	d := first
	for ; attempts > 1 && d < most; attempts-- {
		d *= 2
	}
	return min(d, most)
}

// startJob creates the Job of a build once the retry delay has passed.
func (b *buildReconciler) startJob(ctx context.Context, builder *builderv1alpha1.JobBuilder) (reconcile.Result, error) {
	if at := nextAttemptTime(builder); b.now().Before(at) {
		return reconcile.Result{RequeueAfter: at.Sub(b.now())}, nil
	}
	in, err := b.newInput(ctx, builder)
	if p, ok := errors.AsType[*statusError](err); ok {
		return reconcile.Result{}, b.updateStatus(ctx, builder, conditionUnknown(api.ReasonWaiting, p.Error()), nil)
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	if err := b.updateStatus(ctx, builder, conditionUnknown(api.ReasonBuilding, "Job "+b.jobKey(builder).Name), nil); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{}, b.createJob(ctx, builder, in)
}

// newInput returns the input of a build. A *statusError says why it cannot be built now.
func (b *buildReconciler) newInput(ctx context.Context, builder *builderv1alpha1.JobBuilder) (bundle.Input, error) {
	account, err := b.tenants.account(ctx, builder.Namespace)
	if err != nil {
		return bundle.Input{}, err
	}
	releases, err := b.getReleases(ctx, builder)
	if err != nil {
		return bundle.Input{}, err
	}
	return newInput(account, releases)
}

// nextAttemptTime is when a build that failed is tried again.
func nextAttemptTime(builder *builderv1alpha1.JobBuilder) time.Time {
	for _, c := range builder.Status.Conditions {
		if c.Type == api.ConditionBuilt && c.Reason == api.ReasonRetrying && builder.Status.LastAttempt != nil {
			return builder.Status.LastAttempt.Add(retryDelay(builder.Status.Attempts))
		}
	}
	return time.Time{}
}

// getReleases returns those that are built, in order.
func (b *buildReconciler) getReleases(ctx context.Context, builder *builderv1alpha1.JobBuilder) ([]*releasev1alpha1.WorkerRelease, error) {
	releases := make([]*releasev1alpha1.WorkerRelease, 0, len(builder.Spec.Releases))
	for _, name := range builder.Spec.Releases {
		r := &releasev1alpha1.WorkerRelease{}
		err := b.client.Get(ctx, types.NamespacedName{Namespace: builder.Namespace, Name: name}, r)
		if apierrors.IsNotFound(err) {
			return nil, newStatusError(api.ReasonWaiting, "there is no release %s", name)
		}
		if err != nil {
			return nil, fmt.Errorf("read WorkerRelease %s: %w", name, err)
		}
		releases = append(releases, r)
	}
	return releases, nil
}

// jobOutcome reports whether a Job has finished, and the reason if it failed.
func jobOutcome(job *batchv1.Job) (over bool, failed string) {
	for _, c := range job.Status.Conditions {
		switch {
		case c.Status != corev1.ConditionTrue:
		case c.Type == batchv1.JobComplete:
			return true, ""
		case c.Type == batchv1.JobFailed:
			return true, c.Reason + ": " + c.Message
		}
	}
	return false, ""
}

// recordResult writes the result of a Job to the status, and deletes the Job.
func (b *buildReconciler) recordResult(ctx context.Context, builder *builderv1alpha1.JobBuilder, result build.Result) error {
	var err error
	switch {
	case result.Image != "":
		b.events.normal(builder, api.ReasonBuilt, "image "+result.Image)
		err = b.updateStatus(ctx, builder, conditionTrue(api.ReasonBuilt, "image "+result.Image), func(s *builderv1alpha1.JobBuilderStatus) { s.Image = result.Image })
	case len(result.Rejected) > 0:
		message := "script " + result.Rejected[0].ScriptName + ": " + result.Rejected[0].Message
		b.events.warning(builder, api.ReasonRejected, message)
		err = b.updateStatus(ctx, builder, conditionFalse(api.ReasonRejected, message), func(s *builderv1alpha1.JobBuilderStatus) { s.Rejected = result.Rejected })
	default:
		b.events.warning(builder, api.ReasonRetrying, result.Failure.Message)
		err = b.updateStatus(ctx, builder, conditionUnknown(api.ReasonRetrying, result.Failure.Message), func(s *builderv1alpha1.JobBuilderStatus) {
			now := metav1.NewTime(b.now())
			s.Attempts, s.LastAttempt = s.Attempts+1, &now
		})
	}
	if err != nil {
		return err
	}
	return b.deleteJobs(ctx, builder)
}

// updateStatus writes the status of a build.
func (b *buildReconciler) updateStatus(ctx context.Context, builder *builderv1alpha1.JobBuilder, v conditionState, change func(*builderv1alpha1.JobBuilderStatus)) error {
	before := builder.DeepCopy()
	builder.Status.ObservedGeneration = builder.Generation
	setCondition(&builder.Status.Conditions, api.ConditionBuilt, builder.Generation, v)
	if change != nil {
		change(&builder.Status)
	}
	return patchStatus(ctx, b.client, before, builder)
}

// finalize deletes the Job and the image of a deleted build, and removes its finalizer.
func (b *buildReconciler) finalize(ctx context.Context, builder *builderv1alpha1.JobBuilder) error {
	if !controllerutil.ContainsFinalizer(builder, api.Finalizer) {
		return nil
	}
	if err := errors.Join(b.deleteJobs(ctx, builder), b.deleteInput(ctx, builder)); err != nil {
		return err
	}
	if jobs, err := b.listJobs(ctx, builder); err != nil || len(jobs) > 0 {
		return err // the Job's end is an event
	}
	if err := b.deleteImage(ctx, builder); err != nil {
		return err
	}
	return removeFinalizer(ctx, b.client, "JobBuilder", builder)
}

// deleteImage removes the image of a build, if no other build has the same one.
func (b *buildReconciler) deleteImage(ctx context.Context, builder *builderv1alpha1.JobBuilder) error {
	digest, account := imageDigest(builder.Status.Image), builder.Spec.Account
	if digest == "" || account == "" {
		return nil
	}
	others, err := listBuilders(ctx, b.client, builder.Namespace)
	if err != nil {
		return err
	}
	for i := range others {
		if others[i].UID != builder.UID && imageDigest(others[i].Status.Image) == digest {
			return nil
		}
	}
	err = b.Registry.Delete(ctx, account, digest)
	if errors.Is(err, registry.ErrMissing) || errors.Is(err, registry.ErrUnsupported) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("delete image of JobBuilder %s: %w", builder.Name, err)
	}
	return nil
}

// jobResult returns the result of a Job's steps as soon as one of them has reported one: the Job
// itself is Complete about two seconds later.
func (b *buildReconciler) jobResult(ctx context.Context, job *batchv1.Job) (result build.Result, over bool, err error) {
	pods, err := listJobPods(ctx, b.client, job)
	if err != nil {
		return build.Result{}, false, err
	}
	if result, found := firstResult(pods); found {
		return result, true, nil
	}
	over, failed := jobOutcome(job)
	if !over {
		return build.Result{}, false, nil
	}
	// The cache of pods may be behind the status of the Job.
	if pods, err = listJobPods(ctx, b.apiReader, job); err != nil {
		return build.Result{}, false, err
	}
	if result, found := firstResult(pods); found {
		return result, true, nil
	}
	failed = cmp.Or(failed, "it ended without a result")
	return build.Result{Failure: &build.Failure{Message: "Job " + job.Name + ": " + failed + waitingReason(pods), Retry: true}}, true, nil
}

func listJobPods(ctx context.Context, c client.Reader, job *batchv1.Job) ([]corev1.Pod, error) {
	var pods corev1.PodList
	if err := c.List(ctx, &pods, client.InNamespace(job.Namespace), client.MatchingLabels{batchv1.JobNameLabel: job.Name}); err != nil {
		return nil, fmt.Errorf("list pods of Job %s: %w", job.Name, err)
	}
	return slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool { return !metav1.IsControlledBy(&pod, job) }), nil
}

// firstResult returns the result of the first pod that has one.
func firstResult(pods []corev1.Pod) (build.Result, bool) {
	for i := range pods {
		if result, found := podResult(&pods[i]); found {
			return result, true
		}
	}
	return build.Result{}, false
}
