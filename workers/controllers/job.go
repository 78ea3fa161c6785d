// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/workers/api"
	builderv1alpha1 "github.com/spokelet/spokelet/workers/api/builder/v1alpha1"
	"github.com/spokelet/spokelet/workers/build"
	"github.com/spokelet/spokelet/workers/bundle"
	"github.com/spokelet/spokelet/workers/config"
)

const (
	// maxInput bounds what a ConfigMap takes, which is 1 MiB with all its names.
	maxInput = 900 << 10
	inputKey = "bundle.json"
	// user that the steps run as; the image has it.
	user = 65532
)

// The steps of a build, by their names.
const (
	stepFetch = "fetch"
	stepCheck = "check"
	stepPush  = "push"
)

// Where the steps find what they need.
const (
	inputDir  = "/input"
	configDir = "/config"
	workDir   = "/work"
	tempDir   = "/tmp" // what workerd may write to
)

// jobKey names the Job of a build, and the ConfigMap of its input. Each attempt has a name of its
// own, so that a late event of a deleted Job is ignored.
func (b *buildReconciler) jobKey(builder *builderv1alpha1.JobBuilder) types.NamespacedName {
	sum := sha256.Sum256([]byte(builder.Namespace + "/" + builder.Name + "/" + string(builder.UID)))
	name := fmt.Sprintf("build-%s-%d", hex.EncodeToString(sum[:])[:16], builder.Status.Attempts+1)
	return types.NamespacedName{Namespace: b.Namespace, Name: name}
}

// createJob creates the input and the Job.
func (b *buildReconciler) createJob(ctx context.Context, builder *builderv1alpha1.JobBuilder, in bundle.Input) error {
	raw, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("input of JobBuilder %s: %w", builder.Name, err)
	}
	if len(raw) > maxInput {
		return b.updateStatus(ctx, builder, conditionFalse(api.ReasonInvalid, fmt.Sprintf("bindings and names of all scripts have %d KiB, of %d at most", len(raw)>>10, maxInput>>10)), nil)
	}
	key := b.jobKey(builder)
	labels := accountLabels(in.Account, builder.Namespace)
	labels[api.LabelBuilder] = builder.Name
	object := metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Labels: labels}
	input := &corev1.ConfigMap{ObjectMeta: object, Data: map[string]string{inputKey: string(raw)}}
	if err := b.client.Create(ctx, input); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create ConfigMap %s: %w", key.Name, err)
	}
	job := &batchv1.Job{ObjectMeta: object, Spec: batchv1.JobSpec{
		BackoffLimit:          new(int32(0)), // an attempt is a Job
		ActiveDeadlineSeconds: new(int64(b.Settings.Build.Deadline.Seconds())),
		Template:              corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: b.podSpec(key.Name)},
	}}
	if err := b.client.Create(ctx, job); err != nil {
		return fmt.Errorf("create Job %s: %w", key.Name, err)
	}
	return nil
}

// deleteInput deletes the input of a Job that was never created.
func (b *buildReconciler) deleteInput(ctx context.Context, builder *builderv1alpha1.JobBuilder) error {
	key := b.jobKey(builder)
	input := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	return deleteObject(ctx, b.client, "ConfigMap", input)
}

// podSpec has a container for each step, which mounts only the secrets that it needs.
func (b *buildReconciler) podSpec(input string) corev1.PodSpec {
	mode := new(int32(0o440))
	volumes := []corev1.Volume{
		{Name: "work", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		{Name: "temp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		{Name: "input", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: input}}}},
		{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: b.Settings.Build.ConfigMap}}}},
	}
	mounts := map[string][]corev1.VolumeMount{}
	mount := func(step, secret, path string) {
		if secret == "" {
			return
		}
		name := step + "-" + strconv.Itoa(len(mounts[step]))
		volumes = append(volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: secret, DefaultMode: mode}}})
		mounts[step] = append(mounts[step], corev1.VolumeMount{Name: name, MountPath: path, ReadOnly: true})
	}
	mount(stepFetch, b.Settings.Store.Secret, config.StoreDir)
	mount(stepFetch, b.Settings.Store.CASecret, config.StoreCADir)
	mount(stepPush, b.Settings.Registry.Secret, config.RegistryDir)
	mount(stepPush, b.Settings.Registry.CASecret, config.RegistryCADir)
	return corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, ServiceAccountName: b.Settings.Build.ServiceAccount,
		AutomountServiceAccountToken: new(false), EnableServiceLinks: new(false),
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot: new(true), RunAsUser: new(int64(user)), RunAsGroup: new(int64(user)), FSGroup: new(int64(user)),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		ImagePullSecrets: b.Settings.Build.ImagePullSecrets, NodeSelector: b.Settings.Build.NodeSelector, Tolerations: b.Settings.Build.Tolerations,
		TerminationGracePeriodSeconds: new(int64(1)), Volumes: volumes,
		InitContainers: []corev1.Container{b.stepContainer(stepFetch, mounts[stepFetch]), b.stepContainer(stepCheck, []corev1.VolumeMount{{Name: "temp", MountPath: tempDir}})},
		Containers:     []corev1.Container{b.stepContainer(stepPush, mounts[stepPush])},
	}
}

func (b *buildReconciler) stepContainer(name string, mounts []corev1.VolumeMount) corev1.Container {
	return corev1.Container{
		Name: name, Image: b.Settings.Build.Image, ImagePullPolicy: corev1.PullIfNotPresent,
		Args: []string{"build", name, "--config=" + configDir + "/config.yaml", "--input=" + inputDir + "/" + inputKey, "--dir=" + workDir},
		VolumeMounts: append([]corev1.VolumeMount{
			{Name: "work", MountPath: workDir, ReadOnly: name != stepFetch}, {Name: "input", MountPath: inputDir, ReadOnly: true}, {Name: "config", MountPath: configDir, ReadOnly: true},
		}, mounts...),
		Resources: b.Settings.Build.Resources,
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
	}
}

// deleteJobs deletes the Jobs and inputs of a build in the operator's namespace.
func (b *buildReconciler) deleteJobs(ctx context.Context, builder *builderv1alpha1.JobBuilder) error {
	jobs, err := b.listJobs(ctx, builder)
	if err != nil {
		return err
	}
	for i := range jobs {
		if isDeleting(&jobs[i]) {
			continue
		}
		key := client.ObjectKeyFromObject(&jobs[i])
		input := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
		if err := deleteObject(ctx, b.client, "ConfigMap", input); err != nil {
			return err
		}
		if err := deleteObject(ctx, b.client, "Job", &jobs[i], client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
			return err
		}
	}
	return nil
}

// listJobs are those of a build.
func (b *buildReconciler) listJobs(ctx context.Context, builder *builderv1alpha1.JobBuilder) ([]batchv1.Job, error) {
	var jobs batchv1.JobList
	err := b.client.List(ctx, &jobs, client.InNamespace(b.Namespace), client.MatchingLabels{api.LabelNamespace: builder.Namespace, api.LabelBuilder: builder.Name})
	if err != nil {
		return nil, fmt.Errorf("list Jobs: %w", err)
	}
	return jobs.Items, nil
}

// podResult returns the result of the last step of a pod that reported one.
func podResult(pod *corev1.Pod) (build.Result, bool) {
	statuses := slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
	for _, s := range slices.Backward(statuses) {
		t := s.State.Terminated
		if t == nil {
			continue
		}
		var result build.Result
		err := json.Unmarshal([]byte(t.Message), &result)
		if s.Name != stepPush {
			result.Image = "" // only push writes images, and check runs code of tenants
		}
		if err == nil && (result.Image != "" || len(result.Rejected) > 0 || result.Failure != nil) {
			return result, true
		}
		if t.ExitCode != 0 {
			why := fmt.Sprintf("step %s ended with code %d (%s)", s.Name, t.ExitCode, cmp.Or(t.Reason, "no reason"))
			return build.Result{Failure: &build.Failure{Message: why, Retry: true}}, true
		}
	}
	return build.Result{}, false
}

// waitingReason returns why the containers of pods do not start.
func waitingReason(pods []corev1.Pod) string {
	for i := range pods {
		for _, s := range slices.Concat(pods[i].Status.InitContainerStatuses, pods[i].Status.ContainerStatuses) {
			if w := s.State.Waiting; w != nil && w.Reason != "PodInitializing" {
				return "; step " + s.Name + " waits: " + w.Reason
			}
		}
	}
	return ""
}
