// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/spokelet/spokelet/workers/bundle"
	"github.com/spokelet/spokelet/workers/script"
)

const (
	// AnnotationRevision, on the Deployment, is the revision that was asked for.
	AnnotationRevision = "workers.spokelet.io/revision"
	// containerName is that of the only container.
	containerName = "workers"
	// targetCPU, of what is requested, is what the autoscaler aims at, in percent.
	targetCPU = 80
	// oldReplicaSets are kept for who looks: going back is a new revision here.
	oldReplicaSets = 2
	// tailPortName is that of the port of the tail worker. No name of a script's port is like
	// it: they have 8 hexadecimal digits.
	tailPortName = "w-tail"
)

func (p Placement) deployment(revision string) runtime.Object {
	meta := p.objectMeta(p.deploymentName(), p.labels())
	meta.Annotations = map[string]string{AnnotationRevision: revision}
	return &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: meta,
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: p.labels()},
			// Never less than there was; a quarter is rounded up, so it is one pod of one.
			Strategy: appsv1.DeploymentStrategy{
				Type: appsv1.RollingUpdateDeploymentStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDeployment{
					MaxUnavailable: new(intstr.FromInt32(0)), MaxSurge: new(intstr.FromString("25%")),
				},
			},
			RevisionHistoryLimit: new(int32(oldReplicaSets)),
			Template:             corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: p.labels()}, Spec: p.pod()},
		},
	}
}

// pod is one that the standard "restricted" admits.
func (p Placement) pod() corev1.PodSpec {
	pod := corev1.PodSpec{
		Containers:                    []corev1.Container{p.container()},
		AutomountServiceAccountToken:  new(false),
		EnableServiceLinks:            new(false), // code would see the names of the account's other scripts
		TerminationGracePeriodSeconds: new(int64(p.Options.TerminationGrace.Seconds())),
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot:   new(true),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Volumes: []corev1.Volume{{Name: "tmp", VolumeSource: corev1.VolumeSource{
			EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: new(resource.MustParse("64Mi"))},
		}}},
	}
	for _, domain := range []string{corev1.LabelTopologyZone, corev1.LabelHostname} {
		pod.TopologySpreadConstraints = append(pod.TopologySpreadConstraints, corev1.TopologySpreadConstraint{
			MaxSkew: 1, TopologyKey: domain, WhenUnsatisfiable: corev1.ScheduleAnyway,
			LabelSelector: &metav1.LabelSelector{MatchLabels: p.labels()},
		})
	}
	if len(p.PullSecret) > 0 {
		pod.ImagePullSecrets = []corev1.LocalObjectReference{{Name: p.pullSecretName()}}
	}
	return pod
}

func (p Placement) container() corev1.Container {
	c := corev1.Container{
		Name:      containerName,
		Image:     p.Bundle.Spec.PodTemplate.Image,
		Resources: p.Options.Resources,
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false),
			ReadOnlyRootFilesystem:   new(true),
			Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
		VolumeMounts: []corev1.VolumeMount{{Name: "tmp", MountPath: "/tmp"}},
		// The image has no program that could wait.
		Lifecycle: &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{
			Sleep: &corev1.SleepAction{Seconds: int64(p.Options.Drain.Seconds())},
		}},
	}
	for _, w := range p.Bundle.Spec.Workers {
		c.Ports = append(c.Ports, corev1.ContainerPort{
			Name: script.PortName(w.WorkerName), ContainerPort: w.WorkerNumber, Protocol: corev1.ProtocolTCP,
		})
		if w.SecretRef != "" {
			c.EnvFrom = append(c.EnvFrom, corev1.EnvFromSource{
				Prefix:    w.EnvPrefix,
				SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: w.Release}},
			})
		}
	}
	// One process opens all ports before it serves any. That of the tail worker is none to ask:
	// an image that was built before there was one does not open it.
	open := corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromString(c.Ports[0].Name)}}
	c.Ports = append(c.Ports, corev1.ContainerPort{Name: tailPortName, ContainerPort: bundle.TailPort, Protocol: corev1.ProtocolTCP})
	c.StartupProbe = &corev1.Probe{ProbeHandler: open, PeriodSeconds: 1, TimeoutSeconds: 1, FailureThreshold: 60}
	c.ReadinessProbe = &corev1.Probe{ProbeHandler: open, PeriodSeconds: 1, TimeoutSeconds: 1, FailureThreshold: 3}
	// A pod that is busy is not helped by a restart.
	c.LivenessProbe = &corev1.Probe{ProbeHandler: open, PeriodSeconds: 10, TimeoutSeconds: 5, FailureThreshold: 6}
	return c
}

func (p Placement) autoscaler() runtime.Object {
	return &autoscalingv2.HorizontalPodAutoscaler{
		TypeMeta:   metav1.TypeMeta{APIVersion: "autoscaling/v2", Kind: "HorizontalPodAutoscaler"},
		ObjectMeta: p.objectMeta(p.deploymentName(), p.labels()),
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: p.deploymentName()},
			MinReplicas:    new(p.Options.MinReplicas),
			MaxReplicas:    p.Options.MaxReplicas,
			Metrics: []autoscalingv2.MetricSpec{{
				Type: autoscalingv2.ResourceMetricSourceType,
				Resource: &autoscalingv2.ResourceMetricSource{
					Name:   corev1.ResourceCPU,
					Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: new(int32(targetCPU))},
				},
			}},
		},
	}
}

func (p Placement) disruptionBudget() runtime.Object {
	return &policyv1.PodDisruptionBudget{
		TypeMeta:   metav1.TypeMeta{APIVersion: "policy/v1", Kind: "PodDisruptionBudget"},
		ObjectMeta: p.objectMeta(p.deploymentName(), p.labels()),
		Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: new(intstr.FromInt32(1)),
			Selector:       &metav1.LabelSelector{MatchLabels: p.labels()},
			// A script that never gets ready must not keep a node from being emptied.
			UnhealthyPodEvictionPolicy: new(policyv1.AlwaysAllow),
		},
	}
}
