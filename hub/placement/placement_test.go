// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/spokelet/spokelet/hub/mutation"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newDaemonSet is a DaemonSet with a template of that spec.
func newDaemonSet(t *testing.T, spec string) *appsv1.DaemonSet {
	t.Helper()
	d := &appsv1.DaemonSet{}
	d.Namespace, d.Name = "kube-system", "everywhere"
	if err := yaml.UnmarshalStrict([]byte(spec), &d.Spec.Template.Spec); err != nil {
		t.Fatalf("%s: %v", spec, err)
	}
	return d
}

const (
	everything = "{tolerations: [{operator: Exists}]}"
	onLinux    = "{tolerations: [{operator: Exists}], nodeSelector: {kubernetes.io/os: linux}}"
	elsewhere  = "{key: spokelet.io/cluster, operator: DoesNotExist}"
	required   = "{nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: "
)

// templates are specs of DaemonSets' pods, and what the policy makes of the affinity of
// each; it leaves alone those of whom it says nothing.
var templates = map[string]struct{ reason, spec, affinity string }{
	"everything": {
		reason: "its pod would wait", spec: everything,
		affinity: required + "[{matchExpressions: [" + elsewhere + "]}]}}}",
	},
	"everything on linux": {
		reason: "its pod would wait", spec: onLinux,
		affinity: required + "[{matchExpressions: [" + elsewhere + "]}]}}}",
	},
	"everything that keeps pods from being scheduled": {
		reason: "as the taint of virtual nodes does", spec: "{tolerations: [{operator: Exists, effect: NoSchedule}]}",
		affinity: required + "[{matchExpressions: [" + elsewhere + "]}]}}}",
	},
	"an affinity to pods": {
		reason: "it stays", spec: "{tolerations: [{operator: Exists}], affinity: {podAntiAffinity: {}}}",
		affinity: "{podAntiAffinity: {}, " + required[1:] + "[{matchExpressions: [" + elsewhere + "]}]}}}",
	},
	"a preference": {
		reason:   "it stays",
		spec:     "{tolerations: [{operator: Exists}], affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: [{key: a, operator: Exists}]}}]}}}",
		affinity: "{nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: [{key: a, operator: Exists}]}}], requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [" + elsewhere + "]}]}}}",
	},
	"some terms": {
		reason:   "a node fits if any of them does, and one without a requirement fits none",
		spec:     "{tolerations: [{operator: Exists}], affinity: " + required + "[{matchExpressions: [{key: a, operator: Exists}]}, {}, {matchExpressions: [{key: kubernetes.io/os, operator: In, values: [linux]}]}]}}}}",
		affinity: required + "[{matchExpressions: [{key: a, operator: Exists}, " + elsewhere + "]}, {}, {matchExpressions: [{key: kubernetes.io/os, operator: In, values: [linux]}, " + elsewhere + "]}]}}}",
	},
	"nothing":                {reason: "the taint keeps it off", spec: "{nodeSelector: {kubernetes.io/os: linux}}"},
	"other taints":           {reason: "the taint keeps it off", spec: "{tolerations: [{key: a, operator: Exists}, {operator: Exists, effect: NoExecute}]}"},
	"the taint":              {reason: "it asks for virtual nodes", spec: "{tolerations: [{key: spokelet.io/virtual-node, operator: Exists}]}"},
	"the taint, and all":     {reason: "it asks for virtual nodes", spec: "{tolerations: [{operator: Exists}, {key: spokelet.io/virtual-node, operator: Exists}]}"},
	"one cluster":            {reason: "it asks for virtual nodes", spec: "{tolerations: [{operator: Exists}], nodeSelector: {spokelet.io/cluster: store-17}}"},
	"virtual kubelets":       {reason: "it asks for virtual nodes", spec: "{tolerations: [{operator: Exists}], nodeSelector: {type: virtual-kubelet}}"},
	"not virtual kubelets":   {reason: "it is kept off them already", spec: "{tolerations: [{operator: Exists}], affinity: " + required + "[{matchExpressions: [{key: type, operator: NotIn, values: [virtual-kubelet]}]}]}}}}"},
	"what the policy made":   {reason: "once is enough", spec: "{tolerations: [{operator: Exists}], affinity: " + required + "[{matchExpressions: [" + elsewhere + "]}]}}}}"},
	"a host's name":          {reason: "it is for that node", spec: "{tolerations: [{operator: Exists}], nodeSelector: {kubernetes.io/hostname: store-17}}"},
	"a host's name in terms": {reason: "it is for that node", spec: "{tolerations: [{operator: Exists}], affinity: " + required + "[{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [a]}]}]}}}}"},
	"all but a host": {
		reason: "it says nothing of virtual nodes", spec: "{tolerations: [{operator: Exists}], affinity: " + required + "[{matchExpressions: [{key: kubernetes.io/hostname, operator: NotIn, values: [a]}]}]}}}}",
		affinity: required + "[{matchExpressions: [{key: kubernetes.io/hostname, operator: NotIn, values: [a]}, " + elsewhere + "]}]}}}",
	},
	"a node's name":          {reason: "it is for that node", spec: "{tolerations: [{operator: Exists}], nodeName: a}"},
	"a node's name in terms": {reason: "it is for that node", spec: "{tolerations: [{operator: Exists}], affinity: " + required + "[{matchFields: [{key: metadata.name, operator: In, values: [a]}]}]}}}}"},
}

func TestPolicyKeepsDaemonSetsOffVirtualNodes(t *testing.T) {
	policy := compilePolicy(t)
	for name, tc := range templates {
		t.Run(name, func(t *testing.T) {
			before := newDaemonSet(t, tc.spec)
			want := before.DeepCopy()
			if tc.affinity != "" {
				want.Spec.Template.Spec.Affinity = &corev1.Affinity{}
				if err := yaml.UnmarshalStrict([]byte(tc.affinity), want.Spec.Template.Spec.Affinity); err != nil {
					t.Fatal(err)
				}
			}
			made := admit(t, policy, before, nil)
			if diff := cmp.Diff(want.Spec, made.Spec); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(made.Spec, admit(t, policy, made, nil).Spec); diff != "" {
				t.Errorf("a second time (-want +got):\n%s", diff)
			}
			if got := toleratesAllUntargeted(before); got != (tc.affinity != "") {
				t.Errorf("%s: counted among those that the policy did not see: %t", tc.reason, got)
			}
			if toleratesAllUntargeted(made) {
				t.Error("what the policy made is counted among those that it did not see")
			}
		})
	}
}

// podOf is a pod with the template of a DaemonSet.
func podOf(d *appsv1.DaemonSet) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: *d.Spec.Template.Spec.DeepCopy()}
}

func TestPolicyKeepsPodsOffVirtualNodesOfOtherSystem(t *testing.T) {
	policy := compilePolicy(t)
	for name, tc := range templates {
		t.Run(name, func(t *testing.T) {
			for _, system := range []string{"", "kubernetes.io/os", "kubernetes.io/arch", "beta.kubernetes.io/os", "beta.kubernetes.io/arch"} {
				d := newDaemonSet(t, tc.spec)
				spec := &d.Spec.Template.Spec
				drawn := system != "" || spec.NodeSelector["kubernetes.io/os"] != "" || strings.Contains(tc.spec, "key: kubernetes.io/os")
				if system != "" {
					spec.NodeSelector = map[string]string{system: "any"}
					maps.Copy(spec.NodeSelector, newDaemonSet(t, tc.spec).Spec.Template.Spec.NodeSelector)
				}
				made := admit(t, policy, podOf(d), nil)
				want := podOf(d)
				if drawn {
					want.Spec = admit(t, policy, d, nil).Spec.Template.Spec
				}
				if diff := cmp.Diff(want.Spec, made.Spec); diff != "" {
					t.Errorf("with the selector %q (-want +got):\n%s", system, diff)
				}
			}
		})
	}
}

func TestPolicyIgnoresPodsOfNode(t *testing.T) {
	d := newDaemonSet(t, "{tolerations: [{operator: Exists}], nodeSelector: {kubernetes.io/os: linux}, affinity: "+required+"[{matchFields: [{key: metadata.name, operator: In, values: [store-17]}]}]}}}}")
	if diff := cmp.Diff(podOf(d), admit(t, compilePolicy(t), podOf(d), nil)); diff != "" {
		t.Errorf("a pod that the DaemonSets' controller made for a node (-want +got):\n%s", diff)
	}
}

// TestADaemonSetThatIsThereIsLeftAlone until its template changes: another template has
// all its pods replaced.
func TestPolicyIgnoresExistingDaemonSetUntilTemplateChanges(t *testing.T) {
	policy := compilePolicy(t)
	before := newDaemonSet(t, onLinux)
	labelled := before.DeepCopy()
	labelled.Labels = map[string]string{"a": "b"}
	labelled.Spec.MinReadySeconds = 7
	if got := admit(t, policy, labelled, before); !cmp.Equal(labelled, got) {
		t.Errorf("a change of something else (-want +got):\n%s", cmp.Diff(labelled, got))
	}
	restarted := before.DeepCopy()
	restarted.Spec.Template.Annotations = map[string]string{"kubectl.kubernetes.io/restartedAt": "now"}
	if got := admit(t, policy, restarted, before); toleratesAllUntargeted(got) {
		t.Error("kubectl rollout restart does not take the DaemonSet off virtual nodes")
	}
}

func TestPolicyIgnoresFailures(t *testing.T) {
	made := parsePolicy(t)
	if *made.Spec.FailurePolicy != admissionv1.Ignore {
		t.Errorf("failure policy %s: DaemonSets must be admitted where the policy does not run", *made.Spec.FailurePolicy)
	}
	objects, err := mutation.Parse(policyYAML)
	if err != nil {
		t.Fatal(err)
	}
	var bound admissionv1.MutatingAdmissionPolicyBinding
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(objects[1].Object, &bound, true); err != nil {
		t.Fatal(err)
	}
	if bound.Spec.PolicyName != made.Name {
		t.Errorf("the binding is of policy %q, want %q", bound.Spec.PolicyName, made.Name)
	}
}
