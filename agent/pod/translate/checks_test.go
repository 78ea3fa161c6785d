// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/spokelet/spokelet/api/wire"
)

func TestNewPodRefuses(t *testing.T) {
	cases := map[string]struct {
		reason      string
		tokens      Tokens
		annotations map[string]string
		spec        string
		want        RefusedError
	}{
		"a mirror of a static pod": {
			reason: "its kubelet runs it already", annotations: map[string]string{corev1.MirrorPodAnnotationKey: "x"},
			spec: `{"containers":[{"name":"a"}]}`,
			want: RefusedError{Reason: ReasonStaticPod, Message: "a pod of a kubelet's own, or its mirror, stays where it is"},
		},
		"a static pod": {
			reason: "it is none of the API server's", annotations: map[string]string{"kubernetes.io/config.source": "file"},
			spec: `{"containers":[{"name":"a"}]}`,
			want: RefusedError{Reason: ReasonStaticPod, Message: "a pod of a kubelet's own, or its mirror, stays where it is"},
		},
		"the host's namespaces": {
			reason: "they are those of a node of the spoke",
			spec:   `{"hostNetwork":true,"hostPID":true,"hostIPC":true,"containers":[{"name":"a"}]}`,
			want: RefusedError{Reason: ReasonHostAccess, Message: `the cluster permits no access to its nodes: ` +
				`host namespaces (hostNetwork=true, hostPID=true, hostIPC=true)`},
		},
		"a host path": {
			reason: "it is a node's file", spec: `{"containers":[{"name":"a"}],"volumes":[{"name":"root","hostPath":{"path":"/"}}]}`,
			want: RefusedError{Reason: ReasonHostAccess, Message: `the cluster permits no access to its nodes: hostPath volumes (volume "root")`},
		},
		"a host port": {
			reason: "it is a node's port", spec: `{"containers":[{"name":"a","ports":[{"containerPort":80,"hostPort":80}]}]}`,
			want: RefusedError{Reason: ReasonHostAccess, Message: `the cluster permits no access to its nodes: hostPort (container "a" uses hostPort 80)`},
		},
		"a privileged container that begins the pod": {
			reason: "init containers count",
			spec:   `{"containers":[{"name":"a"}],"initContainers":[{"name":"i","securityContext":{"privileged":true}}]}`,
			want: RefusedError{Reason: ReasonHostAccess, Message: `the cluster permits no access to its nodes: ` +
				`privileged (container "i" must not set securityContext.privileged=true)`},
		},
		"unknown volumes": {
			reason: "a kind that was lost in reading cannot be named",
			spec:   `{"containers":[{"name":"a"}],"volumes":[{"name":"new","holographic":{}},{"name":"share","nfs":{"server":"s","path":"/"}}]}`,
			want:   RefusedError{Reason: ReasonVolumeNotSupported, Message: "volumes of these kinds are not supported: new (unknown), share (nfs)"},
		},
		"an unknown projection": {
			reason: "as an unknown volume",
			spec:   `{"containers":[{"name":"a"}],"volumes":[{"name":"p","projected":{"sources":[{"secret":{"name":"s"}},{"holographic":{}}]}}]}`,
			want:   RefusedError{Reason: ReasonVolumeNotSupported, Message: "volumes of these kinds are not supported: p (projected unknown)"},
		},
		"a token where there is none": {
			reason: "a container that reads it would fail for a reason that nobody sees", tokens: TokensNone,
			spec: `{"containers":[{"name":"a"}],"volumes":[{"name":"vault","projected":{"sources":[{"serviceAccountToken":{"path":"t"}},{"podCertificate":{"signerName":"s"}}]}}]}`,
			want: RefusedError{Reason: ReasonTokenNotSupported, Message: "the cluster gives pods no tokens of service accounts: " +
				"volumes vault (serviceAccountToken), vault (podCertificate)"},
		},
		"resource claims": {
			reason: "they were allocated of the hub's devices",
			spec:   `{"containers":[{"name":"a"}],"resourceClaims":[{"name":"gpu"}]}`,
			want:   RefusedError{Reason: ReasonResourceClaimsNotSupported, Message: "resource claims are of the hub's devices: gpu"},
		},
		"several things at once": {
			reason: "all are named, so that one edit cures them",
			spec:   `{"hostPID":true,"containers":[{"name":"a"}],"volumes":[{"name":"n","nfs":{}}],"resourceClaims":[{"name":"gpu"}]}`,
			want: RefusedError{Reason: ReasonHostAccess, Message: "the cluster permits no access to its nodes: host namespaces (hostPID=true); " +
				"volumes of these kinds are not supported: n (nfs); resource claims are of the hub's devices: gpu"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := options()
			if tc.tokens != "" {
				o.Tokens = tc.tokens
			}
			hub := hubPod(t, tc.spec)
			hub.Annotations = tc.annotations
			_, err := NewPod(hub, o)
			refused, ok := errors.AsType[*RefusedError](err)
			if !ok {
				t.Fatalf("%s\nPod(): got %v, want a RefusedError", tc.reason, err)
			}
			if diff := cmp.Diff(tc.want, *refused); diff != "" {
				t.Errorf("%s\nPod() (-want +got):\n%s", tc.reason, diff)
			}
			if !wire.IsReason(refused.Reason) {
				t.Errorf("reason %q is not one that travels", refused.Reason)
			}
		})
	}
}

// The rest of the profile is upstream's, and tested there; this is that it is asked.
func TestNewPodRefusesWhatBaselineRefuses(t *testing.T) {
	cases := map[string]string{
		"an added capability":    `{"containers":[{"name":"a","securityContext":{"capabilities":{"add":["SYS_ADMIN"]}}}]}`,
		"tracing":                `{"containers":[{"name":"a","securityContext":{"capabilities":{"add":["SYS_PTRACE"]}}}]}`,
		"an unmasked proc":       `{"containers":[{"name":"a","securityContext":{"procMount":"Unmasked"}}]}`,
		"no seccomp":             `{"securityContext":{"seccompProfile":{"type":"Unconfined"}},"containers":[{"name":"a"}]}`,
		"no AppArmor":            `{"containers":[{"name":"a","securityContext":{"appArmorProfile":{"type":"Unconfined"}}}]}`,
		"a role of SELinux":      `{"securityContext":{"seLinuxOptions":{"role":"r"}},"containers":[{"name":"a"}]}`,
		"an unsafe sysctl":       `{"securityContext":{"sysctls":[{"name":"kernel.msgmax","value":"1"}]},"containers":[{"name":"a"}]}`,
		"a process of the host":  `{"securityContext":{"windowsOptions":{"hostProcess":true}},"containers":[{"name":"a"}]}`,
		"a probe of the network": `{"containers":[{"name":"a","livenessProbe":{"httpGet":{"host":"169.254.169.254","port":80}}}]}`,
	}
	for name, spec := range cases {
		t.Run(name, func(t *testing.T) {
			hub := hubPod(t, spec)
			_, err := NewPod(hub, options())
			if refused, ok := errors.AsType[*RefusedError](err); !ok || refused.Reason != ReasonHostAccess {
				t.Errorf("Pod(): got %v, want a refusal for %s", err, ReasonHostAccess)
			}
			o := options()
			o.HostAccess = true
			if _, err := NewPod(hub, o); err != nil {
				t.Errorf("Pod() with host access: %v", err)
			}
		})
	}
}

func TestNewPodRefusesAppArmorAnnotation(t *testing.T) {
	hub := hubPod(t, `{"containers":[{"name":"a"}]}`)
	hub.Annotations["container.apparmor.security.beta.kubernetes.io/a"] = "unconfined"
	_, err := NewPod(hub, options())
	if refused, ok := errors.AsType[*RefusedError](err); !ok || refused.Reason != ReasonHostAccess {
		t.Errorf("Pod(): got %v, want a refusal for %s", err, ReasonHostAccess)
	}
}

func TestRefusalMessageIsBounded(t *testing.T) {
	hub := hubPod(t, `{"containers":[{"name":"a"}]}`)
	for i := range 500 {
		hub.Spec.Volumes = append(hub.Spec.Volumes, corev1.Volume{Name: fmt.Sprintf("v%03d", i), VolumeSource: corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{}}})
	}
	_, err := NewPod(hub, options())
	const want = "volumes of these kinds are not supported: v000 (nfs), v001 (nfs), v002 (nfs), v003 (nfs), v004 (nfs), v005 (nfs), v006 (nfs), v007 (nfs) and 492 more"
	if err == nil || err.Error() != want {
		t.Errorf("Pod(): got %v\nwant %s", err, want)
	}
	hub.Spec.Volumes[0].Name = strings.Repeat("n", 5000)
	if _, err := NewPod(hub, options()); err == nil || len(err.Error()) > 300 {
		t.Errorf("Pod(): got a text of %d bytes", len(err.Error()))
	}
}

func TestNewDesiredPodHasAllowedEphemeralContainers(t *testing.T) {
	hub := hubPod(t, `{"containers":[{"name":"a","volumeMounts":[`+mount+`]}],"volumes":[`+token+`],"ephemeralContainers":[
		{"name":"plain","image":"i","volumeMounts":[`+mount+`]},
		{"name":"debugger","targetContainerName":"a","securityContext":{"capabilities":{"add":["SYS_PTRACE"]}}},
		{"name":"root","securityContext":{"privileged":true}},
		{"name":"net","securityContext":{"capabilities":{"add":["SYS_PTRACE","NET_ADMIN"]}}}]}`)
	want, err := NewDesiredPod(hub, options())
	refused, ok := errors.AsType[*RefusedError](err)
	if !ok || want == nil {
		t.Fatalf("Want(): got %v, %v, want a pod and a refusal", want, err)
	}
	if diff := cmp.Diff(RefusedError{Reason: ReasonHostAccess, Message: `the cluster permits no access to its nodes: ` +
		`privileged (container "root" must not set securityContext.privileged=true), ` +
		`non-default capabilities (container "net" must not include "NET_ADMIN" in securityContext.capabilities.add)`}, *refused); diff != "" {
		t.Errorf("refusal (-want +got):\n%s", diff)
	}
	spec := specFrom(t, `{"ephemeralContainers":[{"name":"plain","image":"i","volumeMounts":[]},
		{"name":"debugger","targetContainerName":"a","securityContext":{"capabilities":{"add":["SYS_PTRACE"]}}}]}`)
	if diff := cmp.Diff(spec.EphemeralContainers, want.Spec.EphemeralContainers); diff != "" {
		t.Errorf("ephemeral containers (-want +got):\n%s", diff)
	}
	o := options()
	o.HostAccess = true
	if want, err = NewDesiredPod(hub, o); err != nil || len(want.Spec.EphemeralContainers) != 4 {
		t.Errorf("Want() with host access: got %d ephemeral containers, %v", len(want.Spec.EphemeralContainers), err)
	}
}

func TestNewDesiredPodOfRefusedPodIsNil(t *testing.T) {
	if want, err := NewDesiredPod(hubPod(t, `{"hostPID":true,"containers":[{"name":"a"}]}`), options()); want != nil || err == nil {
		t.Errorf("Want(): got %v, %v", want, err)
	}
}
