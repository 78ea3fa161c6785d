// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

const (
	hubID  = "0b0e7c6a-5f7e-4a0e-9f0e-1a2b3c4d5e6f"
	podUID = "5d1f8e0a-0000-4000-8000-000000000001"
	token  = `{"name":"kube-api-access-x7f2p","projected":{"sources":[{"serviceAccountToken":{"path":"token"}},{"configMap":{"name":"kube-root-ca.crt"}}]}}`
	mount  = `{"name":"kube-api-access-x7f2p","mountPath":"/var/run/secrets/kubernetes.io/serviceaccount","readOnly":true}`
)

func options() Options {
	return Options{HubID: hubID, Namespace: "east-shop", Tokens: TokensSpoke}
}

func specFrom(t testing.TB, text string) corev1.PodSpec {
	t.Helper()
	var spec corev1.PodSpec
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		t.Fatalf("read spec: %v", err)
	}
	return spec
}

// hubPod is a pod as a hub has it, of a spec in JSON.
func hubPod(t testing.TB, spec string) *corev1.Pod {
	t.Helper()
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web-1", Namespace: "shop", UID: podUID, ResourceVersion: "7", Generation: 3, GenerateName: "web-",
			Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"note": "a"},
			OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web"}}, Finalizers: []string{"batch.kubernetes.io/job-tracking"},
		},
		Spec:   specFrom(t, spec),
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
}

func mustPod(t testing.TB, hub *corev1.Pod, o Options) *corev1.Pod {
	t.Helper()
	pod, err := NewPod(hub, o)
	if err != nil {
		t.Fatalf("Pod(): %v", err)
	}
	return pod
}

func TestNewPodKeepsPortableMetadata(t *testing.T) {
	hub := hubPod(t, `{"containers":[{"name":"main","image":"web:1"}]}`)
	hub.Labels[LabelHub] = "forged"
	for _, key := range []string{
		"kubectl.kubernetes.io/last-applied-configuration", "kubernetes.io/config.seen", AnnotationWritten,
		"seccomp.security.alpha.kubernetes.io/pod", "container.seccomp.security.alpha.kubernetes.io/main",
		"controller.kubernetes.io/pod-deletion-cost",
	} {
		hub.Annotations[key] = "unconfined"
	}
	got := mustPod(t, hub, options())
	delete(got.Annotations, AnnotationWritten)
	want := metav1.ObjectMeta{
		Name: "web-1", Namespace: "east-shop",
		Labels:      map[string]string{"app": "web", LabelHub: hubID, LabelHubPodUID: podUID},
		Annotations: map[string]string{"note": "a"},
	}
	if diff := cmp.Diff(want, got.ObjectMeta); diff != "" {
		t.Errorf("metadata (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(corev1.PodStatus{}, got.Status); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}

func TestNewPodIsADeepCopy(t *testing.T) {
	hub := hubPod(t, `{"containers":[{"name":"main","image":"web:1","volumeMounts":[`+mount+`]}],"volumes":[`+token+`],
		"ephemeralContainers":[{"name":"e","volumeMounts":[`+mount+`]}]}`)
	before := hub.DeepCopy()
	want, err := NewDesiredPod(hub, options())
	if err != nil {
		t.Fatalf("Want(): %v", err)
	}
	want.Labels["app"], want.Annotations["note"], want.Spec.Containers[0].Image = "x", "x", "x"
	want.Spec.EphemeralContainers[0].Image = "x"
	if diff := cmp.Diff(before, hub); diff != "" {
		t.Errorf("the hub's pod (-before +after):\n%s", diff)
	}
}

func TestNewPodSpec(t *testing.T) {
	cases := map[string]struct {
		reason  string
		options func(*Options)
		spec    string
		want    string
	}{
		"the choice of a node": {
			reason: "it was made on the hub, of the hub's nodes; the spoke makes its own",
			spec: `{"containers":[{"name":"a"}],"nodeName":"east","nodeSelector":{"a":"b"},"affinity":{"nodeAffinity":{}},
				"topologySpreadConstraints":[{"maxSkew":1,"topologyKey":"zone","whenUnsatisfiable":"DoNotSchedule"}],
				"schedulerName":"mine","schedulingGates":[{"name":"g"}],"priority":7,"priorityClassName":"high",
				"preemptionPolicy":"Never","overhead":{"cpu":"1"},"tolerations":[{"operator":"Exists"}],"serviceAccount":"old"}`,
			want: `{"containers":[{"name":"a"}]}`,
		},
		"what a container gets": {
			reason: "it is the same wherever it runs",
			spec: `{"containers":[{"name":"a","image":"i","env":[{"name":"A","value":"1"}],"resources":{"limits":{"cpu":"1"}}}],
				"initContainers":[{"name":"s","restartPolicy":"Always"}],"enableServiceLinks":false,"runtimeClassName":"gvisor",
				"hostname":"h","subdomain":"s","dnsPolicy":"ClusterFirst","terminationGracePeriodSeconds":3,"restartPolicy":"Never"}`,
			want: `{"containers":[{"name":"a","image":"i","env":[{"name":"A","value":"1"}],"resources":{"limits":{"cpu":"1"}}}],
				"initContainers":[{"name":"s","restartPolicy":"Always"}],"enableServiceLinks":false,"runtimeClassName":"gvisor",
				"hostname":"h","subdomain":"s","dnsPolicy":"ClusterFirst","terminationGracePeriodSeconds":3,"restartPolicy":"Never"}`,
		},
		"ephemeral containers": {
			reason: "an API server creates no pod that has some",
			spec:   `{"containers":[{"name":"a"}],"ephemeralContainers":[{"name":"e"}]}`,
			want:   `{"containers":[{"name":"a"}]}`,
		},
		"a token of the spoke": {
			reason: "its admission puts in a volume of its own; what the user projects is issued there",
			spec: `{"serviceAccountName":"shop","automountServiceAccountToken":true,
				"volumes":[` + token + `,{"name":"mine","projected":{"sources":[{"serviceAccountToken":{"path":"t","audience":"x"}}]}}],
				"containers":[{"name":"a","volumeMounts":[` + mount + `,{"name":"mine","mountPath":"/t"}]}]}`,
			want: `{"serviceAccountName":"shop","automountServiceAccountToken":true,
				"volumes":[{"name":"mine","projected":{"sources":[{"serviceAccountToken":{"path":"t","audience":"x"}}]}}],
				"containers":[{"name":"a","volumeMounts":[{"name":"mine","mountPath":"/t"}]}]}`,
		},
		"no tokens": {
			reason:  "the pod runs as the namespace's default account, without its token",
			options: func(o *Options) { o.Tokens = TokensNone },
			spec: `{"serviceAccountName":"shop","volumes":[` + token + `],
				"containers":[{"name":"a","volumeMounts":[` + mount + `]}],"initContainers":[{"name":"i","volumeMounts":[` + mount + `]}]}`,
			want: `{"automountServiceAccountToken":false,"volumes":[],
				"containers":[{"name":"a","volumeMounts":[]}],"initContainers":[{"name":"i","volumeMounts":[]}]}`,
		},
		"options without a word about tokens": {
			reason:  "what was not permitted is not",
			options: func(o *Options) { o.Tokens = "" },
			spec:    `{"serviceAccountName":"shop","containers":[{"name":"a"}]}`,
			want:    `{"automountServiceAccountToken":false,"containers":[{"name":"a"}]}`,
		},
		"access to the host": {
			reason:  "the spoke's owner permits it",
			options: func(o *Options) { o.HostAccess = true },
			spec: `{"hostNetwork":true,"hostPID":true,"hostIPC":true,"volumes":[{"name":"root","hostPath":{"path":"/"}}],
				"containers":[{"name":"a","securityContext":{"privileged":true}}]}`,
			want: `{"hostNetwork":true,"hostPID":true,"hostIPC":true,"volumes":[{"name":"root","hostPath":{"path":"/"}}],
				"containers":[{"name":"a","securityContext":{"privileged":true}}]}`,
		},
		"volumes that travel": {
			reason: "they are made in the spoke, or copied there",
			spec: `{"containers":[{"name":"a"}],"volumes":[{"name":"a","emptyDir":{}},{"name":"b","configMap":{"name":"c"}},{"name":"c","secret":{"secretName":"s"}},
				{"name":"d","projected":{"sources":[{"configMap":{"name":"c"}},{"secret":{"name":"s"}},{"downwardAPI":{}},{"clusterTrustBundle":{"path":"p"}}]}},
				{"name":"e","downwardAPI":{}},{"name":"f","persistentVolumeClaim":{"claimName":"c"}},{"name":"g","ephemeral":{}},{"name":"h","image":{"reference":"i"}}]}`,
			want: `{"containers":[{"name":"a"}],"volumes":[{"name":"a","emptyDir":{}},{"name":"b","configMap":{"name":"c"}},{"name":"c","secret":{"secretName":"s"}},
				{"name":"d","projected":{"sources":[{"configMap":{"name":"c"}},{"secret":{"name":"s"}},{"downwardAPI":{}},{"clusterTrustBundle":{"path":"p"}}]}},
				{"name":"e","downwardAPI":{}},{"name":"f","persistentVolumeClaim":{"claimName":"c"}},{"name":"g","ephemeral":{}},{"name":"h","image":{"reference":"i"}}]}`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := options()
			if tc.options != nil {
				tc.options(&o)
			}
			got := mustPod(t, hubPod(t, tc.spec), o)
			if diff := cmp.Diff(specFrom(t, tc.want), got.Spec); diff != "" {
				t.Errorf("%s\nspec (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// A field that a new version of the API brings has to be decided about.
func TestEverySpecFieldIsClassified(t *testing.T) {
	stays := sets.New(
		"NodeName", "NodeSelector", "Affinity", "TopologySpreadConstraints", "SchedulerName", "SchedulingGates",
		"Priority", "PriorityClassName", "PreemptionPolicy", "Overhead", "Tolerations", "DeprecatedServiceAccount",
		"SchedulingGroup",     // as the scheduler's other fields
		"EvictionResponders",  // they are asked where the eviction is, on the hub
		"ResourceClaims",      // refused
		"EphemeralContainers", // of Want
	)
	full := &corev1.PodSpec{}
	fill(reflect.ValueOf(full).Elem())
	got := reflect.ValueOf(newSpec(full, Options{Tokens: TokensSpoke})).Elem()
	for i := range got.NumField() {
		name := got.Type().Field(i).Name
		if travelled := !got.Field(i).IsZero(); travelled == stays.Has(name) {
			t.Errorf("%s: travels %t, which nobody decided", name, travelled)
		}
	}
}

// fill makes every field of a struct other than its zero.
func fill(v reflect.Value) {
	for _, f := range v.Fields() {
		switch f.Kind() {
		case reflect.Pointer:
			f.Set(reflect.New(f.Type().Elem()))
		case reflect.Slice:
			f.Set(reflect.MakeSlice(f.Type(), 1, 1))
		case reflect.Map:
			f.Set(reflect.MakeMap(f.Type()))
		case reflect.String:
			f.SetString("x")
		case reflect.Bool:
			f.SetBool(true)
		default:
			panic("a field of a new kind: " + f.Kind().String())
		}
	}
}
