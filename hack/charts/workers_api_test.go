// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const (
	workersAPI     = "spokelet-workers-api"
	workersAPIUser = "system:serviceaccount:" + namespace + ":" + workersAPI
	// accountRole is what an administrator binds in the namespace of an account.
	accountRole = "spokelet-workers:account"
)

// withAPI are the values that install the API, and more.
func withAPI(more ...string) []string {
	return append([]string{"api.enabled=true", "api.tlsSecret=certificate"}, more...)
}

// named converts the object of a kind and a name; the test ends where there is none.
func named(t *testing.T, objects []unstructured.Unstructured, kind, name string, into any) {
	t.Helper()
	for _, object := range objects {
		if object.GetKind() == kind && object.GetName() == name {
			convert(t, object, into)
			return
		}
	}
	t.Fatalf("the chart has no %s %s", kind, name)
}

// apiPod is the pod of the API, of which there is one.
func apiPod(t *testing.T, values ...string) corev1.PodSpec {
	t.Helper()
	var deployment appsv1.Deployment
	named(t, render(t, workersChart, withAPI(values...)...), "Deployment", workersAPI, &deployment)
	if replicas := deployment.Spec.Replicas; replicas == nil || *replicas != 1 {
		t.Errorf("replicas %v: a tail is known to one process alone", replicas)
	}
	return deployment.Spec.Template.Spec
}

func TestNothingOfTheAPIIsInstalledUnasked(t *testing.T) {
	kinds := func(values ...string) (got []string) {
		for _, object := range render(t, workersChart, values...) {
			got = append(got, object.GetKind()+" "+object.GetNamespace()+"/"+object.GetName())
		}
		slices.Sort(got)
		return got
	}
	without := kinds()
	for _, object := range without {
		if strings.HasSuffix(object, "/"+workersAPI) || strings.HasSuffix(object, "/"+accountRole) {
			t.Errorf("installed unasked: %s", object)
		}
	}
	want := append(
		slices.Clone(without),
		"Deployment "+namespace+"/"+workersAPI,
		"Service "+namespace+"/"+workersAPI,
		"ServiceAccount "+namespace+"/"+workersAPI,
		"ClusterRole /"+workersAPI,
		"ClusterRoleBinding /"+workersAPI,
		"ClusterRole /"+accountRole,
		"ValidatingAdmissionPolicy /"+workersAPI,
		"ValidatingAdmissionPolicyBinding /"+workersAPI,
		"NetworkPolicy "+namespace+"/"+workersAPI,
	)
	slices.Sort(want)
	if diff := cmp.Diff(want, kinds(withAPI()...)); diff != "" {
		t.Errorf("what is installed with the API (-want +got):\n%s", diff)
	}
}

// TestTheClustersKnowTheAPIByItsName: the operator lets who has it read logs there.
func TestTheClustersKnowTheAPIByItsName(t *testing.T) {
	cases := map[string]struct {
		reason string
		values []string
		want   string
	}{
		"without the API":  {reason: "nobody reads logs", want: ""},
		"a name, unasked":  {reason: "nobody reads logs", values: []string{"api.clusterUser=hub:other"}, want: ""},
		"by default":       {reason: "agents put this before the name on the hub", values: withAPI(), want: "hub:" + workersAPIUser},
		"by another name":  {reason: "the agents may have another prefix", values: withAPI("api.clusterUser=a:b"), want: "a:b"},
		"a name by quotes": {reason: "a name of YAML's is a name, too", values: withAPI(`api.clusterUser=a: "b"`), want: `a: "b"`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := workersFile(t, tc.values...)["place"]["tailUser"]; got != tc.want {
				t.Errorf("tailUser %q, want %q: %s", got, tc.want, tc.reason)
			}
		})
	}
}

// TestTheAPIHasTheRightsThatItUses, each of them and no other, and changes nobody else's: the
// Role that lets it read logs gets to the clusters with the works.
func TestTheAPIHasTheRightsThatItUses(t *testing.T) {
	var got []rbacv1.PolicyRule
	others := []grant{}
	for _, g := range install(t, workersChart, withAPI()...) {
		if g.account != namespace+"/"+workersAPI {
			others = append(others, g)
			continue
		}
		if g.namespace != "" {
			t.Errorf("the API has rights in namespace %s", g.namespace)
		}
		got = append(got, g.rule)
	}
	want := []rbacv1.PolicyRule{
		{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"tokenreviews"}, Verbs: []string{"create"}},
		{APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"subjectaccessreviews"}, Verbs: []string{"create"}},
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"list", "watch"}},
		{APIGroups: []string{"live.spokelet.io"}, Resources: []string{"clusters/proxy"}, Verbs: []string{"get", "create"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rights of the API (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(install(t, workersChart), others, cmp.AllowUnexported(grant{})); diff != "" {
		t.Errorf("rights of others, by the API (-without +with):\n%s", diff)
	}
}

// TestWhatTheAPIDoesForAnAccountIsLetByAnAdministrator: the chart binds the role nowhere, and
// adds it to no other.
func TestWhatTheAPIDoesForAnAccountIsLetByAnAdministrator(t *testing.T) {
	objects := render(t, workersChart, withAPI()...)
	var role rbacv1.ClusterRole
	named(t, objects, "ClusterRole", accountRole, &role)
	want := []rbacv1.PolicyRule{
		{APIGroups: []string{"api.worker-deployment"}, Resources: []string{"workerdeployments"}, Verbs: []string{"list", "watch", "create", "update", "delete"}},
		{APIGroups: []string{"api.worker-release"}, Resources: []string{"workerreleases"}, Verbs: []string{"get", "list"}},
		{APIGroups: []string{"api.worker-bundle"}, Resources: []string{"workerbundles"}, Verbs: []string{"list", "watch"}},
		{APIGroups: []string{"api.worker-account"}, Resources: []string{"workeraccounts"}, Verbs: []string{"list"}},
		{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "list", "create", "patch", "delete"}},
	}
	if diff := cmp.Diff(want, role.Rules); diff != "" {
		t.Errorf("rights in the namespace of an account (-want +got):\n%s", diff)
	}
	for _, name := range []string{accountRole, workersAPI} {
		named(t, objects, "ClusterRole", name, &role)
		for label := range role.Labels {
			if strings.HasPrefix(label, "rbac.authorization.k8s.io/") {
				t.Errorf("ClusterRole %s is part of another one: %s", name, label)
			}
		}
	}
	for _, object := range objects {
		if kind := object.GetKind(); kind != "ClusterRoleBinding" && kind != "RoleBinding" {
			continue
		}
		var binding rbacv1.RoleBinding // a ClusterRoleBinding has the same fields
		convert(t, object, &binding)
		if binding.RoleRef.Name == accountRole {
			t.Errorf("%s %s gives the role to %+v", object.GetKind(), object.GetName(), binding.Subjects)
		}
	}
}

// TestTheOperatorAndTheAPIHavePodsOfTheirOwn by what selects them, whatever labels users add.
func TestTheOperatorAndTheAPIHavePodsOfTheirOwn(t *testing.T) {
	objects := render(t, workersChart, withAPI("commonLabels.team=a", "podLabels.tier=b", "networkPolicy.egress.api[0].to[0].ipBlock.cidr=192.0.2.1/32")...)
	pods := map[string]labels.Set{"build": {"workers.spokelet.io/builder": "bundle-1234"}}
	got := map[string][]string{}
	selects := func(what string, selector metav1.LabelSelector) {
		parsed, err := metav1.LabelSelectorAsSelector(&selector)
		if err != nil {
			t.Fatal(err)
		}
		for _, pod := range slices.Sorted(maps.Keys(pods)) {
			if parsed.Matches(pods[pod]) {
				got[what] = append(got[what], pod)
			}
		}
	}
	deployments := map[string]metav1.LabelSelector{}
	for pod, name := range map[string]string{"operator": "spokelet-workers", "API": workersAPI} {
		var deployment appsv1.Deployment
		named(t, objects, "Deployment", name, &deployment)
		pods[pod], deployments[name] = deployment.Spec.Template.Labels, *deployment.Spec.Selector
	}
	for name, selector := range deployments {
		selects("Deployment "+name, selector)
	}
	var service corev1.Service
	named(t, objects, "Service", workersAPI, &service)
	selects("Service "+workersAPI, metav1.LabelSelector{MatchLabels: service.Spec.Selector})
	for _, name := range []string{"spokelet-workers", "spokelet-workers-build", workersAPI} {
		var policy networkingv1.NetworkPolicy
		named(t, objects, "NetworkPolicy", name, &policy)
		selects("NetworkPolicy "+name, policy.Spec.PodSelector)
	}
	want := map[string][]string{
		"Deployment spokelet-workers":          {"operator"},
		"Deployment " + workersAPI:             {"API"},
		"Service " + workersAPI:                {"API"},
		"NetworkPolicy spokelet-workers":       {"operator"},
		"NetworkPolicy spokelet-workers-build": {"build"},
		"NetworkPolicy " + workersAPI:          {"API"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pods that are selected (-want +got):\n%s", diff)
	}
}

func TestWhoReachesTheAPIAndWhatItReaches(t *testing.T) {
	peer := func(cidr string) []networkingv1.NetworkPolicyPeer {
		return []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: cidr}}}
	}
	const ingress, egress = networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress
	cases := map[string]struct {
		reason string
		values []string
		types  []networkingv1.PolicyType
		from   []networkingv1.NetworkPolicyPeer
		egress []networkingv1.NetworkPolicyEgressRule
	}{
		"by default": {reason: "where developers and the hub are is not known here", types: []networkingv1.PolicyType{ingress}},
		"callers": {
			reason: "the others do not call it", values: []string{"networkPolicy.from.api[0].ipBlock.cidr=192.0.2.0/28"},
			types: []networkingv1.PolicyType{ingress}, from: peer("192.0.2.0/28"),
		},
		"targets": {
			reason: "the owner knows them", values: []string{"networkPolicy.egress.api[0].to[0].ipBlock.cidr=192.0.2.1/32"},
			types: []networkingv1.PolicyType{ingress, egress}, egress: []networkingv1.NetworkPolicyEgressRule{{To: peer("192.0.2.1/32")}},
		},
		"what is the operator's": {
			reason: "it is about the operator and its builds",
			values: []string{
				"networkPolicy.from.metrics[0].ipBlock.cidr=192.0.2.0/28", "networkPolicy.egress.operator[0].to[0].ipBlock.cidr=192.0.2.1/32",
				"networkPolicy.egress.build[0].to[0].ipBlock.cidr=192.0.2.1/32",
			},
			types: []networkingv1.PolicyType{ingress},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var policy networkingv1.NetworkPolicy
			named(t, render(t, workersChart, withAPI(tc.values...)...), "NetworkPolicy", workersAPI, &policy)
			got := policy.Spec
			got.PodSelector = metav1.LabelSelector{}
			want := networkingv1.NetworkPolicySpec{
				PolicyTypes: tc.types, Egress: tc.egress,
				Ingress: []networkingv1.NetworkPolicyIngressRule{{
					Ports: []networkingv1.NetworkPolicyPort{{Port: new(intstr.FromInt32(8443)), Protocol: new(corev1.ProtocolTCP)}}, From: tc.from,
				}},
			}
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
	for _, object := range render(t, workersChart, withAPI("networkPolicy.enabled=false")...) {
		if object.GetKind() == "NetworkPolicy" {
			t.Errorf("NetworkPolicy %s is there, against networkPolicy.enabled", object.GetName())
		}
	}
}

func TestTheServiceOfTheAPIIsAsItsOwnerSays(t *testing.T) {
	cases := map[string]struct {
		reason string
		values []string
		want   corev1.ServiceSpec
	}{
		"by default": {
			reason: "who is outside of the cluster is let in by its owner",
			want:   corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, Ports: []corev1.ServicePort{{Port: 443}}},
		},
		"on a node's port": {
			reason: "the demo names the port", values: []string{"api.service.type=NodePort", "api.service.nodePort=30843"},
			want: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal, Ports: []corev1.ServicePort{{Port: 443, NodePort: 30843}}},
		},
		"at a load balancer": {
			reason: "it may have another port", values: []string{"api.service.type=LoadBalancer", "api.service.port=8443"},
			want: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal, Ports: []corev1.ServicePort{{Port: 8443}}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects := render(t, workersChart, withAPI(tc.values...)...)
			var service corev1.Service
			named(t, objects, "Service", workersAPI, &service)
			tc.want.Ports[0].Name, tc.want.Ports[0].TargetPort = "https", intstr.FromString("https")
			if diff := cmp.Diff(tc.want, service.Spec, cmpopts.IgnoreFields(corev1.ServiceSpec{}, "Selector")); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestThePodOfTheAPIIsRestricted, as the profile of that name wants it, and serves with the
// account whose rights are above.
func TestThePodOfTheAPIIsRestricted(t *testing.T) {
	pod := apiPod(t)
	container := pod.Containers[0]
	if diff := cmp.Diff(&corev1.PodSecurityContext{
		RunAsNonRoot: new(true), RunAsUser: new(int64(65532)), RunAsGroup: new(int64(65532)), FSGroup: new(int64(65532)),
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}, pod.SecurityContext); diff != "" {
		t.Errorf("pod (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(&corev1.SecurityContext{
		AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
		Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}, container.SecurityContext); diff != "" {
		t.Errorf("container (-want +got):\n%s", diff)
	}
	if pod.HostNetwork || pod.HostPID || pod.HostIPC || len(pod.Containers)+len(pod.InitContainers) != 1 || pod.ServiceAccountName != workersAPI {
		t.Errorf("pod: %+v", pod)
	}
	if diff := cmp.Diff([]string{"api", "--config=/config/config.yaml"}, container.Args); diff != "" {
		t.Errorf("arguments (-want +got):\n%s", diff)
	}
	ports := map[string]int32{}
	for _, port := range container.Ports {
		ports[port.Name] = port.ContainerPort
	}
	if diff := cmp.Diff(map[string]int32{"https": 8443, "health": 8080}, ports); diff != "" {
		t.Errorf("ports (-want +got):\n%s", diff)
	}
}

func TestTheAPIKnowsItsMemoryLimit(t *testing.T) {
	cases := map[string]struct {
		reason        string
		values        []string
		limit, target string
	}{
		"by default":     {reason: "four uploads at once are within it", limit: "512Mi", target: "460MiB"},
		"in Gi":          {reason: "it is nine tenths", values: []string{"api.resources.limits.memory=1Gi"}, limit: "1Gi", target: "921MiB"},
		"in bytes":       {reason: "what is not understood is not guessed", values: []string{"api.resources.limits.memory=600000000"}, limit: "600M"},
		"without":        {reason: "it is theirs to take away", values: []string{"api.resources.limits=null"}, limit: "0"},
		"the operator's": {reason: "it is another process", values: []string{"resources.limits.memory=1Gi"}, limit: "512Mi", target: "460MiB"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			container, target := apiPod(t, tc.values...).Containers[0], ""
			for _, env := range container.Env {
				if env.Name == "GOMEMLIMIT" {
					target = env.Value
				}
			}
			if limit := container.Resources.Limits.Memory().String(); limit != tc.limit || target != tc.target {
				t.Errorf("limit %s and target %q, want %s and %q: %s", limit, target, tc.limit, tc.target, tc.reason)
			}
		})
	}
}

func TestTheAPIHasTheCertificateAndTheStoresCredentials(t *testing.T) {
	registry := []string{"registry.pushSecret=two", "registry.caSecret=three", "registry.pullSecret=four"}
	cases := map[string]struct {
		reason string
		values []string
		want   map[string]string
	}{
		"by default": {
			reason: "the operator's credentials, if they may write", values: registry,
			want: map[string]string{"/tls": "certificate", "/secrets/store": "store"},
		},
		"credentials of its own": {
			reason: "the operator's need not write", values: append([]string{"api.storeSecret=writer", "store.caSecret=one"}, registry...),
			want: map[string]string{"/tls": "certificate", "/secrets/store": "writer", "/secrets/store-ca": "one"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod, secrets, got := apiPod(t, tc.values...), map[string]string{}, map[string]string{}
			for _, volume := range pod.Volumes {
				if volume.Secret != nil {
					secrets[volume.Name] = volume.Secret.SecretName
				}
			}
			for _, mount := range pod.Containers[0].VolumeMounts {
				if secret := secrets[mount.Name]; secret != "" {
					got[mount.MountPath] = secret
					delete(secrets, mount.Name)
				}
				if mount.Name == "tls" && mount.SubPath != "" {
					t.Error("a part of a volume does not change when the Secret does")
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" || len(secrets) > 0 {
				t.Errorf("%s: unused %v (-want +got):\n%s", tc.reason, secrets, diff)
			}
			for _, env := range pod.Containers[0].Env {
				if env.ValueFrom != nil {
					t.Errorf("%s is from elsewhere: %+v", env.Name, env.ValueFrom)
				}
			}
		})
	}
}

func TestTheChartRefusesAnAPIThatCannotServe(t *testing.T) {
	cases := map[string]struct{ reason, values, about string }{
		"no certificate":       {reason: "tokens are sent to it", values: "api.enabled=true", about: "/api/tlsSecret"},
		"a certificate's file": {reason: "it is the name of a Secret", values: "api.enabled=true,api.tlsSecret=/tls/tls.crt", about: "/api/tlsSecret"},
		"maybe":                {reason: "it is yes or no", values: "api.enabled=maybe", about: "/api/enabled"},
		"another Service":      {reason: "it would have no pods", values: "api.service.type=ExternalName", about: "/api/service/type"},
		"a type by a typo":     {reason: "Kubernetes has none of that name", values: "api.service.type=nodePort", about: "/api/service/type"},
		"port 0":               {reason: "there is none", values: "api.service.port=0", about: "/api/service/port"},
		"port 65536":           {reason: "there is none", values: "api.service.port=65536", about: "/api/service/port"},
		"a port by name":       {reason: "Services have numbers", values: "api.service.port=https", about: "/api/service/port"},
		"a node's port -1":     {reason: "there is none", values: "api.service.nodePort=-1", about: "/api/service/nodePort"},
		"a node's port 65536":  {reason: "there is none", values: "api.service.nodePort=65536", about: "/api/service/nodePort"},
		"a long user":          {reason: "the operator would not start", values: "api.clusterUser=" + strings.Repeat("x", 254), about: "/api/clusterUser"},
		"tails without pods":   {reason: "they would show nothing", values: "api.tails.maxPods=0", about: "/api/tails/maxPods"},
		"no tails":             {reason: "the API would not start", values: "api.tails.max=0", about: "/api/tails/max"},
		"a store by its URL":   {reason: "it is the name of a Secret", values: "api.storeSecret=https://s3.example.com", about: "/api/storeSecret"},
		"two of them":          {reason: "a tail is known to one process alone", values: "api.replicas=2", about: "replicas"},
		"callers by address":   {reason: "they are peers", values: "networkPolicy.from.api[0]=192.0.2.1", about: "/networkPolicy/from/api"},
		"targets by address":   {reason: "they are rules", values: "networkPolicy.egress.api[0]=192.0.2.1", about: "/networkPolicy/egress/api"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkRefused(t, tc.reason, tc.about, workersChart, "--set", tc.values)
		})
	}
}
