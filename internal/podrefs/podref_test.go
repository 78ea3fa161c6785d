// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package podrefs

import (
	"cmp"
	"encoding/json"
	"slices"
	"sync"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/spokelet/spokelet/api/wire"
)

func configMap(name string, optional bool) Ref {
	return Ref{Kind: wire.PodObjectConfigMap, Name: name, Optional: optional}
}

func secret(name string, optional bool) Ref {
	return Ref{Kind: wire.PodObjectSecret, Name: name, Optional: optional}
}

func read(t testing.TB, spec string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{}
	if err := json.Unmarshal([]byte(spec), &pod.Spec); err != nil {
		t.Fatalf("read spec: %v", err)
	}
	return pod
}

func TestOf(t *testing.T) {
	cases := map[string]struct {
		reason string
		spec   string
		want   []Ref
	}{
		"a pod that refers to nothing": {reason: "most do not", spec: `{"containers":[{"name":"a","env":[{"name":"A","value":"1"}]}]}`, want: []Ref{}},
		"environment": {
			reason: "a container does not start without",
			spec: `{"containers":[{"name":"a",
				"env":[{"name":"A","valueFrom":{"secretKeyRef":{"name":"s","key":"k"}}},
					{"name":"B","valueFrom":{"configMapKeyRef":{"name":"c","key":"k","optional":true}}},
					{"name":"C","valueFrom":{"fieldRef":{"fieldPath":"spec.nodeName"}}}],
				"envFrom":[{"configMapRef":{"name":"all","optional":true}},{"secretRef":{"name":"all"}}]}]}`,
			want: []Ref{configMap("all", true), configMap("c", true), secret("all", false), secret("s", false)},
		},
		"containers of all kinds": {
			reason: "an ephemeral container has an environment as well",
			spec: `{"initContainers":[{"name":"i","envFrom":[{"secretRef":{"name":"init"}}]}],
				"containers":[{"name":"m","envFrom":[{"secretRef":{"name":"main"}}]}],
				"ephemeralContainers":[{"name":"e","envFrom":[{"secretRef":{"name":"ephemeral"}}]}]}`,
			want: []Ref{secret("ephemeral", false), secret("init", false), secret("main", false)},
		},
		"volumes": {
			reason: "a kubelet waits for them",
			spec: `{"volumes":[{"name":"a","configMap":{"name":"c"}},{"name":"b","secret":{"secretName":"s","optional":true}},
				{"name":"p","projected":{"sources":[{"configMap":{"name":"pc","optional":true}},{"secret":{"name":"ps"}},{"downwardAPI":{}}]}}]}`,
			want: []Ref{configMap("c", false), configMap("pc", true), secret("ps", false), secret("s", true)},
		},
		"volumes that do not travel": {
			reason: "a pod that has them is refused in the spoke",
			spec:   `{"volumes":[{"name":"a","csi":{"driver":"d","nodePublishSecretRef":{"name":"s"}}},{"name":"b","azureFile":{"secretName":"s","shareName":"x"}}]}`,
			want:   []Ref{},
		},
		"pull secrets are optional": {
			reason: "a kubelet starts the pod without",
			spec:   `{"imagePullSecrets":[{"name":"pull"},{}]}`,
			want:   []Ref{secret("pull", true)},
		},
		"one reference that is not optional": {
			reason: "it wins, wherever it stands",
			spec: `{"imagePullSecrets":[{"name":"s"}],"containers":[
				{"name":"a","envFrom":[{"configMapRef":{"name":"c"}},{"secretRef":{"name":"s"}}]},
				{"name":"b","envFrom":[{"configMapRef":{"name":"c","optional":true}},{"secretRef":{"name":"s","optional":true}}]}]}`,
			want: []Ref{configMap("c", false), secret("s", false)},
		},
		"the authority of the cluster": {
			reason: "each cluster has its own",
			spec:   `{"volumes":[{"name":"a","configMap":{"name":"kube-root-ca.crt"}},{"name":"b","secret":{"secretName":"kube-root-ca.crt"}}]}`,
			want:   []Ref{secret("kube-root-ca.crt", false)},
		},
		"what admission put in": {
			reason: "some distributions project a ConfigMap of every namespace there, which the spoke has too",
			spec: `{"volumes":[{"name":"kube-api-access-x7f2p","projected":{"sources":[{"configMap":{"name":"openshift-service-ca.crt"}}]}}],
				"containers":[{"name":"a","volumeMounts":[{"name":"kube-api-access-x7f2p","mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}]}]}`,
			want: []Ref{},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := gocmp.Diff(tc.want, Of(read(t, tc.spec))); diff != "" {
				t.Errorf("%s\nOf() (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestTokenVolumes(t *testing.T) {
	const volume = `"volumes":[{"name":"kube-api-access-a","projected":{"sources":[{"serviceAccountToken":{"path":"token"}}]}}]`
	cases := map[string]struct {
		reason string
		spec   string
		want   []string
	}{
		"mounted where tokens are": {
			reason: "as admission does",
			spec:   `{` + volume + `,"containers":[{"name":"a","volumeMounts":[{"name":"kube-api-access-a","mountPath":"` + TokenPath + `"}]}]}`,
			want:   []string{"kube-api-access-a"},
		},
		"mounted by an init container only": {
			reason: "the others brought a mount of their own",
			spec:   `{` + volume + `,"initContainers":[{"name":"a","volumeMounts":[{"name":"kube-api-access-a","mountPath":"` + TokenPath + `"}]}]}`,
			want:   []string{"kube-api-access-a"},
		},
		"mounted elsewhere too": {
			reason: "somebody means this very volume",
			spec: `{` + volume + `,"containers":[{"name":"a","volumeMounts":[
				{"name":"kube-api-access-a","mountPath":"` + TokenPath + `"},{"name":"kube-api-access-a","mountPath":"/t"}]}]}`,
		},
		"mounted elsewhere by an ephemeral container": {
			reason: "what a volume is does not change when somebody debugs",
			spec: `{` + volume + `,"containers":[{"name":"a","volumeMounts":[{"name":"kube-api-access-a","mountPath":"` + TokenPath + `"}]}],
				"ephemeralContainers":[{"name":"e","volumeMounts":[{"name":"kube-api-access-a","mountPath":"/t"}]}]}`,
			want: []string{"kube-api-access-a"},
		},
		"not mounted": {reason: "admission adds no volume without a mount", spec: `{` + volume + `}`},
		"of another name": {
			reason: "it is the user's own",
			spec: `{"volumes":[{"name":"mine","projected":{"sources":[]}}],
				"containers":[{"name":"a","volumeMounts":[{"name":"mine","mountPath":"` + TokenPath + `"}]}]}`,
		},
		"of another kind": {
			reason: "admission projects",
			spec: `{"volumes":[{"name":"kube-api-access-a","emptyDir":{}}],
				"containers":[{"name":"a","volumeMounts":[{"name":"kube-api-access-a","mountPath":"` + TokenPath + `"}]}]}`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := gocmp.Diff(tc.want, TokenVolumes(&read(t, tc.spec).Spec)); diff != "" {
				t.Errorf("%s\nTokenVolumes() (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// One of the hub's that stayed would be read by the spoke's kubelet, seen by nobody.
func TestBeforeAdmissionReadsEveryVolume(t *testing.T) {
	pod := read(t, `{"volumes":[{"name":"kube-api-access-a","projected":{"sources":[
			{"secret":{"name":"s"}},{"configMap":{"name":"kube-root-ca.crt"}},{"configMap":{"name":"c","optional":true}}]}}],
		"containers":[{"name":"a",`+injectedAt+`,"envFrom":[{"secretRef":{"name":"e"}}]}]}`)
	if diff := gocmp.Diff([]Ref{secret("e", false)}, Of(pod)); diff != "" {
		t.Errorf("Of() (-want +got):\n%s", diff)
	}
	if diff := gocmp.Diff([]Ref{configMap("c", true), secret("e", false), secret("s", false)}, BeforeAdmission(pod)); diff != "" {
		t.Errorf("Made() (-want +got):\n%s", diff)
	}
}

func TestOfIsSafeForConcurrentUse(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{EphemeralContainers: []corev1.EphemeralContainer{{
		EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debugger", EnvFrom: []corev1.EnvFromSource{{
			SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "s"}},
		}}},
	}}}}
	var readers sync.WaitGroup // the race detector is the judge
	for range 4 {
		readers.Go(func() {
			if len(Of(pod)) != 1 {
				t.Error("the reference is not seen")
			}
		})
	}
	readers.Wait()
}

func TestContainersVisitsEveryKind(t *testing.T) {
	pod := read(t, `{"initContainers":[{"name":"i"}],"containers":[{"name":"m"}],"ephemeralContainers":[{"name":"e"}]}`)
	var names []string
	Containers(&pod.Spec, func(c *corev1.Container) {
		names = append(names, c.Name)
		c.Image = "of " + c.Name
	})
	if diff := gocmp.Diff([]string{"i", "m", "e"}, names); diff != "" {
		t.Errorf("visited (-want +got):\n%s", diff)
	}
	got := []string{pod.Spec.InitContainers[0].Image, pod.Spec.Containers[0].Image, pod.Spec.EphemeralContainers[0].Image}
	if diff := gocmp.Diff([]string{"of i", "of m", "of e"}, got); diff != "" {
		t.Errorf("images (-want +got):\n%s", diff)
	}
}

// A spec comes from whoever may create pods on the hub.
func FuzzFromObject(f *testing.F) {
	f.Add([]byte(`{"containers":[{"name":"a","envFrom":[{"configMapRef":{"name":"c"}}]}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		pod := &corev1.Pod{}
		if json.Unmarshal(body, &pod.Spec) != nil {
			return // JSON of something else
		}
		refs := Of(pod)
		byName := func(a, b Ref) int { return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name)) }
		if !slices.IsSortedFunc(refs, byName) {
			t.Errorf("Of(): not sorted: %v", refs)
		}
		for i, r := range refs {
			if r.Name == "" || r == configMap(RootCA, r.Optional) {
				t.Errorf("Of(): refers to %v", r)
			}
			if i > 0 && byName(refs[i-1], r) == 0 {
				t.Errorf("Of(): %v is there twice", r)
			}
		}
	})
}
