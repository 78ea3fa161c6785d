// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/podrefs"
)

const (
	// HubRootCA is the ConfigMap of the spoke that holds the hub's podrefs.RootCA.
	HubRootCA = "spokelet-hub-root-ca.crt"
	// NamespaceKey is the key of a token Secret that holds the namespace of the pod on
	// the hub; the others are the names of tokens.
	NamespaceKey = "namespace"

	tokenSecretPrefix = "spokelet-token-"
	// injectedPrefix is that of the volumes in which admission puts a token, and
	// hubVolumePrefix what it becomes: such a volume must not pass for one of the spoke's.
	injectedPrefix  = "kube-api-access-"
	hubVolumePrefix = "hub-api-access-"

	serviceHost = "KUBERNETES_SERVICE_HOST"
	servicePort = "KUBERNETES_SERVICE_PORT"

	// privateMode is that of a token of which the group of the pod's volumes is made
	// an owner. Without such a group it would be for root alone.
	privateMode = 0o600

	namespacePath = "metadata.namespace"
	nameReserved  = "names that agents use for other pods: "
)

// TokenSecret is the name of the Secret that holds the tokens of one pod of the hub.
func TokenSecret(uid types.UID) string { return tokenSecretPrefix + string(uid) }

// TokenSecretUID is the inverse of [TokenSecret]; false when there is none.
func TokenSecretUID(name string) (types.UID, bool) {
	uid, ok := strings.CutPrefix(name, tokenSecretPrefix)
	return types.UID(uid), ok
}

// TokensRead are the names of the tokens that a pod of the spoke reads from the Secret
// of a pod of the hub.
func TokensRead(spec *corev1.PodSpec, uid types.UID) []string {
	var names []string
	for i := range spec.Volumes {
		projected := spec.Volumes[i].Projected
		if projected == nil {
			continue
		}
		for j := range projected.Sources {
			from := projected.Sources[j].Secret
			if from == nil || from.Name != TokenSecret(uid) {
				continue
			}
			for _, item := range from.Items {
				if podrefs.IsTokenName(item.Key) {
					names = append(names, item.Key)
				}
			}
		}
	}
	return names
}

// reservedNames returns what a pod of the hub refers to that it must not: tokens of other
// pods, for one.
func reservedNames(refs []podrefs.Ref) []string {
	var names []string
	for _, ref := range refs {
		_, token := TokenSecretUID(ref.Name)
		if ref.Kind == wire.PodObjectSecret && token || ref.Kind == wire.PodObjectConfigMap && ref.Name == HubRootCA {
			names = append(names, refName(ref.Kind, ref.Name))
		}
	}
	return names
}

func refName(kind, name string) string { return kind + " " + name }

// reservedNames is of a pod without its ephemeral containers: of what the hub asks for, and
// of what is to be, whatever volume it is in. There nothing is but what was lent.
func (o Options) reservedNames(hub *corev1.Pod, made *corev1.PodSpec) []string {
	asked := corev1.Pod{Spec: hub.Spec}
	asked.Spec.EphemeralContainers = nil
	names := reservedNames(podrefs.BeforeAdmission(&corev1.Pod{Spec: *made}))
	if o.usesHubTokens(&hub.Spec) {
		lent := []string{
			refName(wire.PodObjectSecret, TokenSecret(hub.UID)), refName(wire.PodObjectConfigMap, HubRootCA),
		}
		names = slices.DeleteFunc(names, func(name string) bool { return slices.Contains(lent, name) })
	}
	names = append(names, reservedNames(podrefs.Of(&asked))...)
	slices.Sort(names)
	return slices.Compact(names)
}

// usesHubTokens tells whether a pod gets tokens of the hub.
func (o Options) usesHubTokens(hub *corev1.PodSpec) bool {
	return o.Tokens == TokensHub && o.Issued && len(podrefs.Tokens(hub)) > 0
}

// addNoTokens says that there are none for what asks for them.
func (o Options) addNoTokens(f *findings, what string) {
	if o.Tokens == TokensHub && !o.Issued {
		f.add(ReasonTokenNotIssued, "the hub issues no tokens for this pod, by its options pods.tokens and pods.tokenNamespaces: "+what)
		return
	}
	f.add(ReasonTokenNotSupported, "the cluster gives pods no tokens of service accounts: "+what)
}

// tokenInjector has the spoke's pod read from objects beside it what a kubelet of the hub
// would have projected into it.
type tokenInjector struct {
	options Options
	// secretRef names the Secret of the tokens.
	secretRef corev1.LocalObjectReference
	// mode of tokens; nil is that of their volume.
	mode *int32
	// injected are the volumes that the hub's admission added.
	injected []string
}

func newTokenInjector(hub *corev1.Pod, o Options) *tokenInjector {
	l := &tokenInjector{
		options:   o,
		secretRef: corev1.LocalObjectReference{Name: TokenSecret(hub.UID)},
		injected:  podrefs.TokenVolumes(&hub.Spec),
	}
	if s := hub.Spec.SecurityContext; s != nil && s.FSGroup != nil {
		l.mode = new(int32(privateMode))
	}
	return l
}

// inject changes volumes and containers.
func (l *tokenInjector) inject(spec *corev1.PodSpec) {
	for i := range spec.Volumes {
		v := &spec.Volumes[i]
		if v.ConfigMap != nil {
			renameRootCA(&v.ConfigMap.LocalObjectReference)
		}
		if v.Projected != nil {
			v.Projected.Sources = l.projectedSources(v.Projected.Sources, slices.Contains(l.injected, v.Name))
		}
		v.Name = l.volumeName(v.Name)
	}
	podrefs.Containers(spec, l.injectContainer)
}

// volumeName is what a volume is called in the spoke.
func (l *tokenInjector) volumeName(volume string) string {
	if rest, ok := strings.CutPrefix(volume, injectedPrefix); ok && slices.Contains(l.injected, volume) {
		return hubVolumePrefix + rest
	}
	return volume
}

// projectedSources are those of a projected volume. Of one that admission added those are left
// out that are about neither the pod nor the API server.
func (l *tokenInjector) projectedSources(from []corev1.VolumeProjection, injected bool) []corev1.VolumeProjection {
	var out []corev1.VolumeProjection
	for _, p := range from {
		switch {
		case p.ServiceAccountToken != nil:
			p = l.secretSource(podrefs.TokenOf(p.ServiceAccountToken).Name, p.ServiceAccountToken.Path, l.mode)
		case p.ConfigMap != nil && p.ConfigMap.Name == podrefs.RootCA:
			renameRootCA(&p.ConfigMap.LocalObjectReference)
		case injected && p.DownwardAPI != nil:
			out = append(out, l.downwardAPI(p.DownwardAPI)...)
			continue
		case injected:
			continue
		}
		out = append(out, p)
	}
	return out
}

// downwardAPI has the pod's namespace be that of the hub.
func (l *tokenInjector) downwardAPI(from *corev1.DownwardAPIProjection) []corev1.VolumeProjection {
	rest := from.DeepCopy()
	var out []corev1.VolumeProjection
	rest.Items = slices.DeleteFunc(rest.Items, func(item corev1.DownwardAPIVolumeFile) bool {
		if item.FieldRef == nil || item.FieldRef.FieldPath != namespacePath {
			return false
		}
		out = append(out, l.secretSource(NamespaceKey, item.Path, item.Mode))
		return true
	})
	if len(rest.Items) > 0 {
		out = append(out, corev1.VolumeProjection{DownwardAPI: rest})
	}
	return out
}

func (l *tokenInjector) secretSource(key, path string, mode *int32) corev1.VolumeProjection {
	return corev1.VolumeProjection{Secret: &corev1.SecretProjection{
		LocalObjectReference: l.secretRef, Items: []corev1.KeyToPath{{Key: key, Path: path, Mode: mode}},
	}}
}

func (l *tokenInjector) injectContainer(c *corev1.Container) {
	for i := range c.VolumeMounts {
		c.VolumeMounts[i].Name = l.volumeName(c.VolumeMounts[i].Name)
	}
	for i := range c.EnvFrom {
		if r := c.EnvFrom[i].ConfigMapRef; r != nil {
			renameRootCA(&r.LocalObjectReference)
		}
	}
	for i := range c.Env {
		if source := c.Env[i].ValueFrom; source != nil && source.ConfigMapKeyRef != nil {
			renameRootCA(&source.ConfigMapKeyRef.LocalObjectReference)
		}
	}
	own := func(e corev1.EnvVar) bool { return e.Name == serviceHost || e.Name == servicePort }
	if l.options.APIHost == "" || slices.ContainsFunc(c.Env, own) {
		return
	}
	// First, for others may be made of them.
	c.Env = append([]corev1.EnvVar{
		{Name: serviceHost, Value: l.options.APIHost}, {Name: servicePort, Value: l.options.APIPort},
	}, c.Env...)
}

// renameRootCA makes a reference to the authority of a cluster one to that of the hub.
func renameRootCA(ref *corev1.LocalObjectReference) {
	if ref.Name == podrefs.RootCA {
		ref.Name = HubRootCA
	}
}
