// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/podrefs"
)

const (
	// staticPrefix is that of the annotations by which kubelets know the pods that
	// are theirs.
	staticPrefix     = "kubernetes.io/config."
	sourceAnnotation = staticPrefix + "source"
	sourceAPI        = "api"

	noHostAccess = "the cluster permits no access to its nodes: "

	// unknownKind is of what is newer than this program, and was lost in reading.
	unknownKind = "unknown"

	// maxNamed is how many offenders of one kind are named.
	maxNamed = 8
)

// findings are what speaks against a pod.
type findings struct {
	reason string
	texts  []string
}

func (f *findings) add(reason, text string) {
	if f.reason == "" {
		f.reason = reason
	}
	f.texts = append(f.texts, text)
}

// err returns a *RefusedError, or nil when there is no finding.
func (f *findings) err() error {
	if f.reason == "" {
		return nil
	}
	return &RefusedError{Reason: f.reason, Message: wire.Line(strings.Join(f.texts, "; "))}
}

// checkPermitted looks at the pod that is to be, without its ephemeral containers.
func checkPermitted(hub *corev1.Pod, meta *metav1.ObjectMeta, spec *corev1.PodSpec, o Options) error {
	var f findings
	if isStatic(hub) {
		f.add(ReasonStaticPod, "a pod of a kubelet's own, or its mirror, stays where it is")
	}
	if text := hostAccess(meta, spec); text != "" && !o.HostAccess {
		f.add(ReasonHostAccess, noHostAccess+text)
	}
	checkVolumes(spec, o, &f)
	if names := o.reservedNames(hub, spec); len(names) > 0 {
		f.add(ReasonNameReserved, nameReserved+joinNames(names))
	}
	if len(hub.Spec.ResourceClaims) > 0 {
		claims := make([]string, 0, len(hub.Spec.ResourceClaims))
		for i := range hub.Spec.ResourceClaims {
			claims = append(claims, hub.Spec.ResourceClaims[i].Name)
		}
		f.add(ReasonResourceClaimsNotSupported, "resource claims are of the hub's devices: "+joinNames(claims))
	}
	return f.err()
}

func isStatic(pod *corev1.Pod) bool {
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return true
	}
	source, ok := pod.Annotations[sourceAnnotation]
	return ok && source != sourceAPI
}

// baseline holds the checks of Pod Security's profile of that name, in their newest
// version: what a pod may do without reaching its node.
var baseline = sync.OnceValues(func() (policy.Evaluator, error) {
	return policy.NewEvaluator(policy.DefaultChecks(), nil)
})

// hostAccess says what of a pod the profile refuses; it is empty if nothing is.
func hostAccess(meta *metav1.ObjectMeta, spec *corev1.PodSpec) string {
	checks, err := baseline()
	if err != nil {
		return fmt.Sprintf("it cannot be told: %v", err)
	}
	level := api.LevelVersion{Level: api.LevelBaseline, Version: api.LatestVersion()}
	found := policy.AggregateCheckResults(checks.EvaluatePod(level, meta, spec))
	return found.ForbiddenDetail()
}

// addEphemeral adds to pod the ephemeral containers of hub that are permitted. The
// error names the others.
func addEphemeral(pod, hub *corev1.Pod, o Options) error {
	spec := ephemeralContainers(hub, o)
	var access, names []string
	for i := range spec.EphemeralContainers {
		e := &spec.EphemeralContainers[i]
		text := ephemeralAccess(pod, e)
		taken := reservedNames(podrefs.Of(&corev1.Pod{Spec: corev1.PodSpec{EphemeralContainers: hub.Spec.EphemeralContainers[i : i+1]}}))
		if text != "" && !o.HostAccess || len(taken) > 0 {
			access, names = append(access, text), append(names, taken...)
			continue
		}
		pod.Spec.EphemeralContainers = append(pod.Spec.EphemeralContainers, *e)
	}
	var f findings
	if access = slices.DeleteFunc(access, func(text string) bool { return text == "" }); len(access) > 0 && !o.HostAccess {
		f.add(ReasonHostAccess, noHostAccess+joinNames(access))
	}
	if len(names) > 0 {
		f.add(ReasonNameReserved, nameReserved+joinNames(names))
	}
	return f.err()
}

// ephemeralContainers are the ephemeral containers as they are to be in the spoke.
func ephemeralContainers(hub *corev1.Pod, o Options) *corev1.PodSpec {
	spec := &corev1.PodSpec{EphemeralContainers: hub.Spec.EphemeralContainers}
	if !o.usesHubTokens(&hub.Spec) {
		return withoutVolumes(spec, podrefs.TokenVolumes(&hub.Spec))
	}
	spec = spec.DeepCopy()
	newTokenInjector(hub, o).inject(spec)
	return spec
}

// ptraceCapability is what "kubectl debug" asks for by default. In an ephemeral container it
// reaches the processes of the container that is debugged, and no others: those of
// the node are out of its namespace.
const ptraceCapability = corev1.Capability("SYS_PTRACE")

func ephemeralAccess(pod *corev1.Pod, e *corev1.EphemeralContainer) string {
	e = e.DeepCopy()
	if c := e.SecurityContext; c != nil && c.Capabilities != nil {
		c.Capabilities.Add = slices.DeleteFunc(c.Capabilities.Add, func(name corev1.Capability) bool { return name == ptraceCapability })
	}
	return hostAccess(&metav1.ObjectMeta{}, &corev1.PodSpec{
		OS: pod.Spec.OS, HostUsers: pod.Spec.HostUsers,
		EphemeralContainers: []corev1.EphemeralContainer{*e},
	})
}

// checkVolumes finds those that do not travel. Host paths are a matter of host access.
func checkVolumes(spec *corev1.PodSpec, o Options, f *findings) {
	var unknown, tokens []string
	for i := range spec.Volumes {
		v := &spec.Volumes[i]
		if kind, ok := isSupportedVolume(&v.VolumeSource); !ok {
			unknown = append(unknown, fmt.Sprintf("%s (%s)", v.Name, kind))
		}
		if v.Projected == nil {
			continue
		}
		for j := range v.Projected.Sources {
			switch kind, ok := isSupportedProjection(&v.Projected.Sources[j]); {
			case !ok:
				unknown = append(unknown, fmt.Sprintf("%s (projected %s)", v.Name, kind))
			case kind != "" && o.Tokens != TokensSpoke:
				tokens = append(tokens, fmt.Sprintf("%s (%s)", v.Name, kind))
			}
		}
	}
	if len(unknown) > 0 {
		f.add(ReasonVolumeNotSupported, "volumes of these kinds are not supported: "+joinNames(unknown))
	}
	if len(tokens) > 0 {
		o.addNoTokens(f, "volumes "+joinNames(tokens))
	}
}

// isSupportedVolume tells whether a volume can be had in the spoke, and names its kind if not.
func isSupportedVolume(v *corev1.VolumeSource) (kind string, ok bool) {
	rest := *v
	rest.EmptyDir, rest.ConfigMap, rest.Secret, rest.Projected, rest.DownwardAPI = nil, nil, nil, nil, nil
	rest.PersistentVolumeClaim, rest.Ephemeral, rest.Image, rest.HostPath = nil, nil, nil, nil
	if rest == (corev1.VolumeSource{}) && *v != rest {
		return "", true
	}
	return fieldNames(rest), false
}

// isSupportedProjection is travels for what is projected. With ok, kind names a credential.
func isSupportedProjection(p *corev1.VolumeProjection) (kind string, ok bool) {
	if *p == (corev1.VolumeProjection{}) {
		return unknownKind, false
	}
	rest := *p
	rest.Secret, rest.ConfigMap, rest.DownwardAPI, rest.ClusterTrustBundle = nil, nil, nil, nil
	if rest == (corev1.VolumeProjection{}) {
		return "", true
	}
	kind = fieldNames(rest)
	rest.ServiceAccountToken, rest.PodCertificate = nil, nil
	return kind, rest == (corev1.VolumeProjection{})
}

// fieldNames names the fields that are set as they are called in a manifest.
func fieldNames(source any) string {
	fields := map[string]json.RawMessage{}
	out, err := json.Marshal(source)
	if err != nil || json.Unmarshal(out, &fields) != nil || len(fields) == 0 {
		return unknownKind
	}
	return strings.Join(slices.Sorted(maps.Keys(fields)), ", ")
}

// joinNames joins names, the first of them.
func joinNames(names []string) string {
	if more := len(names) - maxNamed; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNamed], ", "), more)
	}
	return strings.Join(names, ", ")
}
