// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/spokelet/spokelet/internal/podrefs"
)

// newSpec returns the part of the hub's spec that has a meaning in the spoke. What
// is not here was about the hub's nodes and the choice of one of them, or is filled
// in by the spoke's own admission. The result shares with hub.
func newSpec(hub *corev1.PodSpec, o Options) *corev1.PodSpec {
	spec := &corev1.PodSpec{
		Volumes:                       hub.Volumes,
		InitContainers:                hub.InitContainers,
		Containers:                    hub.Containers,
		RestartPolicy:                 hub.RestartPolicy,
		TerminationGracePeriodSeconds: hub.TerminationGracePeriodSeconds,
		ActiveDeadlineSeconds:         hub.ActiveDeadlineSeconds,
		DNSPolicy:                     hub.DNSPolicy,
		ServiceAccountName:            hub.ServiceAccountName,
		AutomountServiceAccountToken:  hub.AutomountServiceAccountToken,
		HostNetwork:                   hub.HostNetwork,
		HostPID:                       hub.HostPID,
		HostIPC:                       hub.HostIPC,
		ShareProcessNamespace:         hub.ShareProcessNamespace,
		SecurityContext:               hub.SecurityContext,
		ImagePullSecrets:              hub.ImagePullSecrets,
		Hostname:                      hub.Hostname,
		Subdomain:                     hub.Subdomain,
		HostAliases:                   hub.HostAliases,
		DNSConfig:                     hub.DNSConfig,
		ReadinessGates:                hub.ReadinessGates,
		RuntimeClassName:              hub.RuntimeClassName,
		EnableServiceLinks:            hub.EnableServiceLinks,
		SetHostnameAsFQDN:             hub.SetHostnameAsFQDN,
		OS:                            hub.OS,
		HostUsers:                     hub.HostUsers,
		Resources:                     hub.Resources,
		HostnameOverride:              hub.HostnameOverride,
	}
	if o.Tokens != TokensSpoke {
		spec.ServiceAccountName = ""
		spec.AutomountServiceAccountToken = new(false)
	}
	return withoutVolumes(spec, o.omittedVolumes(hub))
}

// omittedVolumes names the volumes that have no place in the spoke: those of the admission of
// the hub. Nobody looks at what they refer to, so that none may stay as it is. A pod
// that is lent tokens has them rewritten, and one that is not is refused for those that
// ask for one.
func (o Options) omittedVolumes(hub *corev1.PodSpec) []string {
	names := podrefs.TokenVolumes(hub)
	switch {
	case o.Tokens != TokensHub:
		return names
	case o.usesHubTokens(hub):
		return nil
	}
	asks := func(name string) bool {
		return slices.ContainsFunc(hub.Volumes, func(v corev1.Volume) bool {
			return v.Name == name && len(podrefs.Tokens(&corev1.PodSpec{Volumes: []corev1.Volume{v}})) > 0
		})
	}
	return slices.DeleteFunc(names, asks)
}

// withoutVolumes takes volumes out of spec, with their mounts.
func withoutVolumes(spec *corev1.PodSpec, names []string) *corev1.PodSpec {
	spec = spec.DeepCopy()
	spec.Volumes = slices.DeleteFunc(spec.Volumes, func(v corev1.Volume) bool {
		return slices.Contains(names, v.Name)
	})
	podrefs.Containers(spec, func(c *corev1.Container) {
		c.VolumeMounts = slices.DeleteFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
			return slices.Contains(names, m.Name)
		})
	})
	return spec
}
