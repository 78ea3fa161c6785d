// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/podrefs"
)

const (
	hubToken = `{"name":"kube-api-access-x7f2p","projected":{"defaultMode":420,"sources":[
		{"serviceAccountToken":{"path":"token","expirationSeconds":3607}},
		{"configMap":{"name":"kube-root-ca.crt","items":[{"key":"ca.crt","path":"ca.crt"}]}},
		{"configMap":{"name":"openshift-service-ca.crt"}},
		{"downwardAPI":{"items":[{"path":"namespace","fieldRef":{"apiVersion":"v1","fieldPath":"metadata.namespace"}}]}}]}}`
	hubMount = `{"name":"kube-api-access-x7f2p","mountPath":"/var/run/secrets/kubernetes.io/serviceaccount","readOnly":true}`
	vault    = `{"name":"vault","projected":{"sources":[{"serviceAccountToken":{"path":"v","audience":"vault","expirationSeconds":600}},
		{"downwardAPI":{"items":[{"path":"ns","fieldRef":{"fieldPath":"metadata.namespace"}}]}}]}}`
)

func hubOptions() Options {
	o := options()
	o.Tokens, o.Issued = TokensHub, true
	return o
}

// name of the token that a source asks for.
func nameOf(audience string, seconds int64) string {
	return podrefs.TokenOf(&corev1.ServiceAccountTokenProjection{Audience: audience, ExpirationSeconds: &seconds}).Name
}

func TestNewPodReadsHubTokensFromItsSecret(t *testing.T) {
	lent := func(mode string) string {
		return `{"name":"hub-api-access-x7f2p","projected":{"defaultMode":420,"sources":[
			{"secret":{"name":"spokelet-token-` + podUID + `","items":[{"key":"` + nameOf("", 3607) + `","path":"token"` + mode + `}]}},
			{"configMap":{"name":"spokelet-hub-root-ca.crt","items":[{"key":"ca.crt","path":"ca.crt"}]}},
			{"secret":{"name":"spokelet-token-` + podUID + `","items":[{"key":"namespace","path":"namespace"}]}}]}}`
	}
	const lentMount = `{"name":"hub-api-access-x7f2p","mountPath":"/var/run/secrets/kubernetes.io/serviceaccount","readOnly":true}`
	cases := map[string]struct {
		reason  string
		options func(*Options)
		spec    string
		want    string
	}{
		"what admission put in": {
			reason: "a client finds the token, the authority and the namespace of the hub where it looks",
			spec: `{"serviceAccountName":"builder","volumes":[` + hubToken + `],"initContainers":[{"name":"i","volumeMounts":[` + hubMount + `]}],
				"containers":[{"name":"a","volumeMounts":[` + hubMount + `]}]}`,
			want: `{"automountServiceAccountToken":false,"volumes":[` + lent("") + `],"initContainers":[{"name":"i","volumeMounts":[` + lentMount + `]}],
				"containers":[{"name":"a","volumeMounts":[` + lentMount + `]}]}`,
		},
		"with a group": {
			reason: "then a token is for the group alone, as by a kubelet",
			spec:   `{"securityContext":{"fsGroup":7},"volumes":[` + hubToken + `],"containers":[{"name":"a","volumeMounts":[` + hubMount + `]}]}`,
			want: `{"automountServiceAccountToken":false,"securityContext":{"fsGroup":7},"volumes":[` + lent(`,"mode":384`) + `],
				"containers":[{"name":"a","volumeMounts":[` + lentMount + `]}]}`,
		},
		"a volume of the user": {
			reason: "what else it shows of the pod is of the spoke's, as elsewhere",
			spec:   `{"volumes":[` + vault + `],"containers":[{"name":"a"}]}`,
			want: `{"automountServiceAccountToken":false,"volumes":[{"name":"vault","projected":{"sources":[
				{"secret":{"name":"spokelet-token-` + podUID + `","items":[{"key":"` + nameOf("vault", 600) + `","path":"v"}]}},
				{"downwardAPI":{"items":[{"path":"ns","fieldRef":{"fieldPath":"metadata.namespace"}}]}}]}}],"containers":[{"name":"a"}]}`,
		},
		"the authority elsewhere": {
			reason: "it belongs to the token",
			spec: `{"volumes":[` + vault[:len(vault)-1] + `},{"name":"ca","configMap":{"name":"kube-root-ca.crt"}}],"containers":[{"name":"a",
				"envFrom":[{"configMapRef":{"name":"kube-root-ca.crt"}}],"env":[{"name":"CA","valueFrom":{"configMapKeyRef":{"name":"kube-root-ca.crt","key":"ca.crt"}}}]}]}`,
			want: `{"automountServiceAccountToken":false,"volumes":[{"name":"vault","projected":{"sources":[
				{"secret":{"name":"spokelet-token-` + podUID + `","items":[{"key":"` + nameOf("vault", 600) + `","path":"v"}]}},
				{"downwardAPI":{"items":[{"path":"ns","fieldRef":{"fieldPath":"metadata.namespace"}}]}}]}},
				{"name":"ca","configMap":{"name":"spokelet-hub-root-ca.crt"}}],"containers":[{"name":"a",
				"envFrom":[{"configMapRef":{"name":"spokelet-hub-root-ca.crt"}}],"env":[{"name":"CA","valueFrom":{"configMapKeyRef":{"name":"spokelet-hub-root-ca.crt","key":"ca.crt"}}}]}]}`,
		},
		"where the hub's API server is": {
			reason: "clients look there, but what a container says itself stays", options: func(o *Options) { o.APIHost, o.APIPort = "hub.example.com", "6443" },
			spec: `{"volumes":[` + vault + `],"containers":[{"name":"a","env":[{"name":"URL","value":"$(KUBERNETES_SERVICE_HOST)"}]},
				{"name":"b","env":[{"name":"KUBERNETES_SERVICE_HOST","value":"x"}]}]}`,
			want: `{"automountServiceAccountToken":false,"volumes":[{"name":"vault","projected":{"sources":[
				{"secret":{"name":"spokelet-token-` + podUID + `","items":[{"key":"` + nameOf("vault", 600) + `","path":"v"}]}},
				{"downwardAPI":{"items":[{"path":"ns","fieldRef":{"fieldPath":"metadata.namespace"}}]}}]}}],
				"containers":[{"name":"a","env":[{"name":"KUBERNETES_SERVICE_HOST","value":"hub.example.com"},{"name":"KUBERNETES_SERVICE_PORT","value":"6443"},
				{"name":"URL","value":"$(KUBERNETES_SERVICE_HOST)"}]},{"name":"b","env":[{"name":"KUBERNETES_SERVICE_HOST","value":"x"}]}]}`,
		},
		"no token at all": {
			reason: "then it is a pod of this cluster as any other", options: func(o *Options) { o.Issued, o.APIHost = false, "hub.example.com" },
			spec: `{"serviceAccountName":"builder","volumes":[{"name":"ca","configMap":{"name":"kube-root-ca.crt"}}],"containers":[{"name":"a"}]}`,
			want: `{"automountServiceAccountToken":false,"volumes":[{"name":"ca","configMap":{"name":"kube-root-ca.crt"}}],"containers":[{"name":"a"}]}`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := hubOptions()
			if tc.options != nil {
				tc.options(&o)
			}
			pod := mustPod(t, hubPod(t, tc.spec), o)
			if diff := cmp.Diff(specFrom(t, tc.want), pod.Spec); diff != "" {
				t.Errorf("%s\nPod() (-want +got):\n%s", tc.reason, diff)
			}
			if c := ComputeChanges(pod, again(t, pod)); !c.Empty() {
				t.Errorf("Change() of the same: %s", c.Update)
			}
		})
	}
}

func TestEphemeralContainersReadHubTokens(t *testing.T) {
	hub := hubPod(t, `{"volumes":[`+hubToken+`],"containers":[{"name":"a","volumeMounts":[`+hubMount+`]}],
		"ephemeralContainers":[{"name":"e","volumeMounts":[`+hubMount+`]}]}`)
	before := hub.DeepCopy()
	o := hubOptions()
	o.APIHost, o.APIPort = "hub.example.com", "6443"
	want, err := NewDesiredPod(hub, o)
	if err != nil {
		t.Fatalf("Want(): %v", err)
	}
	e := want.Spec.EphemeralContainers[0]
	if e.VolumeMounts[0].Name != "hub-api-access-x7f2p" || len(e.Env) != 2 {
		t.Errorf("ephemeral container: %+v", e)
	}
	if diff := cmp.Diff(before, hub); diff != "" {
		t.Errorf("the hub's pod (-before +after):\n%s", diff)
	}
}

func TestNewPodRefusesUnavailableTokens(t *testing.T) {
	cases := map[string]struct {
		reason string
		issued bool
		spec   string
		want   RefusedError
	}{
		"the hub issues none": {
			reason: "a client would fail for a reason that nobody sees",
			spec:   `{"volumes":[` + hubToken + `],"containers":[{"name":"a","volumeMounts":[` + hubMount + `]}]}`,
			want: RefusedError{Reason: ReasonTokenNotIssued, Message: "the hub issues no tokens for this pod, by its options pods.tokens and pods.tokenNamespaces: " +
				"volumes kube-api-access-x7f2p (serviceAccountToken)"},
		},
		"a certificate": {
			reason: "it would be of this cluster", issued: true,
			spec: `{"volumes":[{"name":"c","projected":{"sources":[{"podCertificate":{"signerName":"s"}}]}}],"containers":[{"name":"a"}]}`,
			want: RefusedError{Reason: ReasonTokenNotSupported, Message: "the cluster gives pods no tokens of service accounts: volumes c (podCertificate)"},
		},
		"tokens of another pod": {
			reason: "they are in the namespace, under a name that can be known", issued: true,
			spec: `{"volumes":[{"name":"s","secret":{"secretName":"spokelet-token-other","optional":true}}],"containers":[{"name":"a",
				"envFrom":[{"configMapRef":{"name":"spokelet-hub-root-ca.crt"}}]}]}`,
			want: RefusedError{Reason: ReasonNameReserved, Message: "names that agents use for other pods: configmap spokelet-hub-root-ca.crt, secret spokelet-token-other"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := hubOptions()
			o.Issued = tc.issued
			_, err := NewPod(hubPod(t, tc.spec), o)
			refused, ok := errors.AsType[*RefusedError](err)
			if !ok {
				t.Fatalf("%s\nPod(): got %v, want a RefusedError", tc.reason, err)
			}
			if diff := cmp.Diff(tc.want, *refused); diff != "" || !wire.IsReason(refused.Reason) {
				t.Errorf("%s\nPod() (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// Tokens may be left from a time when the agent had another option.
func TestTokensOfOtherPodsAreReservedWithEveryOption(t *testing.T) {
	sources := map[string]string{
		"an environment":   `{"containers":[{"name":"a","env":[{"name":"T","valueFrom":{"secretKeyRef":{"name":"spokelet-token-x","key":"k"}}}]}]}`,
		"all of it":        `{"initContainers":[{"name":"a","envFrom":[{"secretRef":{"name":"spokelet-token-x"}}]}]}`,
		"a volume":         `{"containers":[{"name":"a"}],"volumes":[{"name":"v","projected":{"sources":[{"secret":{"name":"spokelet-token-x"}}]}}]}`,
		"a pull secret":    `{"containers":[{"name":"a"}],"imagePullSecrets":[{"name":"spokelet-token-x"}]}`,
		"no name, and uid": `{"containers":[{"name":"a","envFrom":[{"secretRef":{"name":"spokelet-token-"}}]}]}`,
	}
	for name, spec := range sources {
		t.Run(name, func(t *testing.T) {
			for _, tokens := range []Tokens{TokensSpoke, TokensHub, TokensNone} {
				o := hubOptions()
				o.Tokens = tokens
				_, err := NewPod(hubPod(t, spec), o)
				if refused, ok := errors.AsType[*RefusedError](err); !ok || refused.Reason != ReasonNameReserved {
					t.Errorf("Pod() with tokens %q: %v", tokens, err)
				}
			}
		})
	}
	for name, spec := range disguised() {
		t.Run(name, func(t *testing.T) {
			for _, tokens := range []Tokens{TokensSpoke, TokensHub, TokensNone} {
				for _, issued := range []bool{true, false} {
					o := hubOptions()
					o.Tokens, o.Issued = tokens, issued
					outOfReach(t, hubPod(t, spec), o)
				}
			}
		})
	}
	hub := hubPod(t, `{"containers":[{"name":"a"}],"ephemeralContainers":[{"name":"good"},
		{"name":"bad","securityContext":{"privileged":true},"envFrom":[{"secretRef":{"name":"spokelet-token-x"}}]}]}`)
	for _, access := range []bool{false, true} {
		o := options()
		o.HostAccess = access
		want, err := NewDesiredPod(hub, o)
		refused, ok := errors.AsType[*RefusedError](err)
		if !ok || want == nil || len(want.Spec.EphemeralContainers) != 1 || access != (refused.Reason == ReasonNameReserved) {
			t.Errorf("Want() with host access %t: %v, %+v", access, err, want)
		}
	}
}

// disguised are pods with volumes that look as if admission had put them in, and hold
// what is another's.
func disguised() map[string]string {
	const (
		secret  = `{"secret":{"name":"spokelet-token-x"}}`
		theirs  = `{"secret":{"name":"database"}},{"configMap":{"name":"settings"}}`
		token   = `{"serviceAccountToken":{"path":"token"}}`
		down    = `{"downwardAPI":{"items":[{"path":"namespace","fieldRef":{"fieldPath":"metadata.namespace"}}]}}`
		elsehow = `{"name":"kube-api-access-x7f2p","mountPath":"/x"}`
	)
	volume := func(name, sources string) string {
		return `{"name":"` + name + `","projected":{"sources":[` + sources + `]}}`
	}
	one := func(sources string) string { return `"volumes":[` + volume("kube-api-access-x7f2p", sources) + `]` }
	const (
		main  = `"containers":[{"name":"a","volumeMounts":[` + hubMount + `]}]`
		other = `"containers":[{"name":"a","volumeMounts":[` + hubMount + `]},{"name":"b","volumeMounts":[{"name":"kube-api-access-y","mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}]}]`
	)
	return map[string]string{
		"a token":              `{` + one(secret) + `,` + main + `}`,
		"the owner's":          `{` + one(theirs) + `,` + main + `}`,
		"the authority":        `{` + one(`{"configMap":{"name":"spokelet-hub-root-ca.crt"}}`) + `,` + main + `}`,
		"the pod's own":        `{` + one(`{"secret":{"name":"spokelet-token-`+podUID+`"}}`) + `,` + main + `}`,
		"beside the namespace": `{` + one(down+`,`+secret) + `,` + main + `}`,
		"beside a token":       `{` + one(token+`,`+secret+`,`+theirs) + `,` + main + `}`,
		"beside another token": `{"volumes":[` + hubToken + `,` + volume("kube-api-access-y", secret+`,`+theirs) + `],` + other + `}`,
		"two of a name":        `{"volumes":[` + hubToken + `,` + volume("kube-api-access-x7f2p", secret+`,`+theirs) + `],` + main + `}`,
		"of another kind":      `{"volumes":[` + hubToken + `,{"name":"kube-api-access-x7f2p","secret":{"secretName":"spokelet-token-x"}}],` + main + `}`,
		"an init container":    `{` + one(secret) + `,"initContainers":[{"name":"i","volumeMounts":[` + hubMount + `]}],"containers":[{"name":"a"}]}`,
		"mounted twice":        `{` + one(secret) + `,"containers":[{"name":"a","volumeMounts":[` + hubMount + `,` + elsehow + `]}]}`,
		"two containers":       `{` + one(secret) + `,"initContainers":[{"name":"i","volumeMounts":[` + hubMount + `]}],` + main + `}`,
		"an ephemeral one":     `{` + one(secret+`,`+theirs) + `,` + main + `,"ephemeralContainers":[{"name":"e","volumeMounts":[` + elsehow + `]}]}`,
		"ephemeral alone":      `{` + one(secret) + `,"containers":[{"name":"a"}],"ephemeralContainers":[{"name":"e","volumeMounts":[` + hubMount + `]}]}`,
		"a user's beside it":   `{"volumes":[` + volume("kube-api-access-x7f2p", secret) + `,{"name":"v","projected":{"sources":[` + token + `]}}],` + main + `}`,
	}
}

// outOfReach tells that what is made of a pod, if any, reads nothing but what it is
// lent and what the hub is seen to refer to.
func outOfReach(t *testing.T, hub *corev1.Pod, o Options) {
	t.Helper()
	pod, err := NewDesiredPod(hub, o)
	if refused, ok := errors.AsType[*RefusedError](err); err != nil && !ok {
		t.Fatalf("Want() with tokens %q, issued %t: %v", o.Tokens, o.Issued, refused)
	}
	if pod == nil {
		return
	}
	known := map[podrefs.Ref]bool{}
	for _, ref := range podrefs.Of(hub) {
		known[ref] = true
	}
	if o.usesHubTokens(&hub.Spec) {
		known[podrefs.Ref{Kind: wire.PodObjectSecret, Name: TokenSecret(hub.UID)}] = true
		known[podrefs.Ref{Kind: wire.PodObjectConfigMap, Name: HubRootCA}] = true
	}
	for _, ref := range podrefs.BeforeAdmission(pod) {
		if !known[ref] || ref.Name == "spokelet-token-x" {
			t.Errorf("with tokens %q, issued %t the pod reads %+v", o.Tokens, o.Issued, ref)
		}
	}
	volumes := map[string]bool{}
	for i := range pod.Spec.Volumes {
		volumes[pod.Spec.Volumes[i].Name] = true
	}
	podrefs.Containers(&pod.Spec, func(c *corev1.Container) {
		for i := range c.VolumeMounts {
			if name := c.VolumeMounts[i].Name; !volumes[name] {
				t.Errorf("with tokens %q, issued %t container %s mounts %s, which is not there", o.Tokens, o.Issued, c.Name, name)
			}
		}
	})
}

// What is made is looked at once more, whatever was left out before.
func TestNoVolumeReadsTokensOfAnotherPod(t *testing.T) {
	for name, spec := range disguised() {
		t.Run(name, func(t *testing.T) {
			hub := hubPod(t, spec)
			reads := slices.ContainsFunc(podrefs.BeforeAdmission(hub), func(ref podrefs.Ref) bool {
				return ref.Name == "spokelet-token-x" || ref.Name == HubRootCA || ref.Name == TokenSecret(hub.UID)
			})
			for _, tokens := range []Tokens{TokensSpoke, TokensHub, TokensNone} {
				o := hubOptions()
				o.Tokens, o.Issued = tokens, false
				if names := o.reservedNames(hub, &hub.Spec); (len(names) > 0) != reads {
					t.Errorf("with tokens %q: reserved() = %v", tokens, names)
				}
			}
		})
	}
}
