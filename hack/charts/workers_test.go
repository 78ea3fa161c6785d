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
	"sigs.k8s.io/yaml"
)

const (
	workersChart = "spokelet-workers"
	workers      = namespace + "/spokelet-workers"
)

// TestTheOperatorOfWorkersHasTheRightsThatItUses, each of them and no other.
func TestTheOperatorOfWorkersHasTheRightsThatItUses(t *testing.T) {
	var got []string
	for _, g := range install(t, workersChart) {
		right := strings.Join(g.rule.Verbs, ",") + " " + strings.Join(g.rule.Resources, ",") + " in " + g.namespace
		if g.account != workers {
			t.Errorf("%s may %s", g.account, right)
		}
		if names := g.rule.ResourceNames; len(names) > 0 {
			right += ": " + strings.Join(names, ",")
		}
		got = append(got, right)
	}
	want := []string{
		"get,list,watch,update,patch workerdeployments in ",
		"get,list,watch,update,patch workeraccounts in ",
		"get,list,watch,create,update,patch,delete workerreleases in ",
		"get,list,watch,create,update,patch,delete workerbundles in ",
		"get,list,watch,create,update,patch,delete jobbuilders in ",
		"update,patch jobbuilders/status,jobbuilders/finalizers in ",
		"update,patch workeraccounts/status,workeraccounts/finalizers in ",
		"update,patch workerbundles/status,workerbundles/finalizers in ",
		"update,patch workerdeployments/status,workerdeployments/finalizers in ",
		"update,patch workerreleases/status,workerreleases/finalizers in ",
		"get,list,watch namespaces in ",
		"get,list,watch,create secrets in ",
		"get,list,watch managedclusters in ",
		"get,list,watch,create,update,patch,delete manifestworks in ",
		"execute-as manifestworks in : system:serviceaccount::klusterlet-work-sa",
		"get,watch,create,patch customresourcedefinitions in : jobbuilders.api.job-builder,workeraccounts.api.worker-account," +
			"workerbundles.api.worker-bundle,workerdeployments.api.worker-deployment,workerreleases.api.worker-release",
		"create,patch events in ",
		"get,list,watch,create,delete jobs in " + namespace,
		"get,list,watch pods in " + namespace,
		"get,list,watch,create,delete configmaps in " + namespace,
		"create leases in " + namespace,
		"get,update leases in " + namespace + ": spokelet-workers",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rights of the operator (-want +got):\n%s", diff)
	}
}

func TestNobodyMayEverythingForWorkers(t *testing.T) {
	for _, g := range install(t, workersChart) {
		if rule := g.rule; slices.Contains(slices.Concat(rule.Verbs, rule.APIGroups, rule.Resources), "*") {
			t.Errorf("%s has a wildcard: %+v", g.account, rule)
		}
	}
}

// TestTheStepsOfABuildHaveNoRights: they read what strangers wrote.
func TestTheStepsOfABuildHaveNoRights(t *testing.T) {
	found := false
	for _, object := range render(t, workersChart) {
		if object.GetKind() != "ServiceAccount" || object.GetName() != "spokelet-workers-build" {
			continue
		}
		var account corev1.ServiceAccount
		convert(t, object, &account)
		found = true
		if mounts := account.AutomountServiceAccountToken; mounts == nil || *mounts {
			t.Error("pods of the account get a token")
		}
	}
	if !found {
		t.Error("the chart makes no account for builds")
	}
	for _, g := range install(t, workersChart) {
		if g.account == namespace+"/spokelet-workers-build" {
			t.Errorf("a build may %v %v", g.rule.Verbs, g.rule.Resources)
		}
	}
}

// TestWhoMayEditMayWriteScripts, and not what the operator makes of them.
func TestWhoMayEditMayWriteScripts(t *testing.T) {
	got := map[string]map[string]string{}
	for _, object := range render(t, workersChart) {
		if object.GetKind() != "ClusterRole" {
			continue
		}
		var role rbacv1.ClusterRole
		convert(t, object, &role)
		for _, to := range []string{"view", "edit", "admin"} {
			if role.Labels["rbac.authorization.k8s.io/aggregate-to-"+to] != "true" {
				continue
			}
			got[to] = map[string]string{}
			for _, rule := range role.Rules {
				got[to][strings.Join(rule.Resources, ",")] = strings.Join(rule.Verbs, ",")
			}
		}
	}
	const read, write = "get,list,watch", "create,update,patch,delete,deletecollection"
	edit := map[string]string{"workerdeployments": write, "workerreleases": write, "workeraccounts": write}
	want := map[string]map[string]string{
		"view": {"workerdeployments": read, "workerreleases": read, "workeraccounts": read, "workerbundles": read, "jobbuilders": read},
		"edit": edit, "admin": edit,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what is added to Kubernetes' own roles (-want +got):\n%s", diff)
	}
}

func TestTheOperatorOfWorkersKnowsItsMemoryLimit(t *testing.T) {
	knowsItsLimit(t, workersChart, "512Mi", "460MiB")
}

// TestThePodOfTheOperatorOfWorkersIsRestricted, as the profile of that name wants it.
func TestThePodOfTheOperatorOfWorkersIsRestricted(t *testing.T) {
	var deployment appsv1.Deployment
	find(t, workersChart, "Deployment", &deployment)
	pod := deployment.Spec.Template.Spec
	security, container := pod.SecurityContext, pod.Containers[0].SecurityContext
	if !*security.RunAsNonRoot || security.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("pod: %+v", security)
	}
	if *container.AllowPrivilegeEscalation || !*container.ReadOnlyRootFilesystem || !slices.Equal(container.Capabilities.Drop, []corev1.Capability{"ALL"}) {
		t.Errorf("container: %+v", container)
	}
	if *deployment.Spec.Replicas != 1 || deployment.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType {
		t.Errorf("replicas %d by %s, want one at a time", *deployment.Spec.Replicas, deployment.Spec.Strategy.Type)
	}
}

func TestTheOperatorOfWorkersHasTheSecretsThatAreNamed(t *testing.T) {
	cases := map[string]struct {
		reason string
		values []string
		want   map[string]string
	}{
		"by default": {
			reason: "a registry may let everybody write, a store does not",
			want:   map[string]string{"/secrets/store": "store"},
		},
		"all of them": {
			reason: "each has a folder of its own",
			values: []string{"store.caSecret=one", "registry.pushSecret=two", "registry.caSecret=three", "registry.pullSecret=four"},
			want: map[string]string{
				"/secrets/store": "store", "/secrets/store-ca": "one", "/secrets/registry": "two", "/secrets/registry-ca": "three",
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var deployment appsv1.Deployment
			find(t, workersChart, "Deployment", &deployment, tc.values...)
			pod, secrets, got := deployment.Spec.Template.Spec, map[string]string{}, map[string]string{}
			for _, volume := range pod.Volumes {
				if volume.Secret != nil {
					secrets[volume.Name] = volume.Secret.SecretName
				}
			}
			for _, mount := range pod.Containers[0].VolumeMounts {
				if secret := secrets[mount.Name]; secret != "" {
					got[mount.MountPath] = secret
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// workersFile is the operator's configuration, of which package config of the operator's
// module knows what it means.
func workersFile(t *testing.T, values ...string) map[string]map[string]any {
	t.Helper()
	var files corev1.ConfigMap
	if !find(t, workersChart, "ConfigMap", &files, values...) {
		t.Fatal("the chart has no ConfigMap")
	}
	var file map[string]map[string]any
	if err := yaml.UnmarshalStrict([]byte(files.Data["config.yaml"]), &file); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestTheFileOfTheOperatorOfWorkers(t *testing.T) {
	cases := map[string]struct {
		reason string
		values []string
		// want are fields, by their section and name.
		want map[string]any
	}{
		"by default": {
			reason: "clusters read where the operator writes, workerd is this release's, and nothing is routed",
			want: map[string]any{
				"registry.push": "registry.example.com/workers", "registry.pull": "registry.example.com/workers",
				"registry.runtime": "ghcr.io/spokelet/spokelet-workerd:0.1.0", "registry.insecure": false,
				"build.image": "ghcr.io/spokelet/spokelet-workers:0.1.0", "build.configMap": "spokelet-workers-config",
				"build.serviceAccount": "spokelet-workers-build", "build.deadline": "180s",
				"place.route": "None", "place.hostSuffix": "", "place.minReplicas": float64(1), "place.maxReplicas": float64(5), "place.maxBytes": float64(512000),
				"store.maxScriptBytes": float64(16 << 20), "store.maxModules": float64(200),
				"tails.maxTails": float64(200), "tails.maxPerAccount": float64(50), "tails.maxPerUser": float64(10), "tails.maxPerToken": float64(5),
				"tails.maxPods": float64(32), "tails.maxFollowed": float64(2048),
			},
		},
		"what users say": {
			reason: "numbers keep all of their digits",
			values: []string{
				"store.region=eu-1", "registry.pull=mirror.example.com:5000/w", "limits.maxScriptBytes=1073741824", "build.deadlineSeconds=3600",
				"route.kind=Ingress", "route.hostSuffix=workers.example.com", "route.ingress.className=nginx", "route.ingress.rewrite=Nginx",
			},
			want: map[string]any{
				"store.region": "eu-1", "registry.pull": "mirror.example.com:5000/w", "store.maxScriptBytes": float64(1 << 30), "build.deadline": "3600s",
				"place.route": "Ingress", "place.hostSuffix": "workers.example.com", "place.ingress": map[string]any{"class": "nginx", "annotations": map[string]any{}, "rewrite": "Nginx"},
			},
		},
		"a gateway": {
			reason: "it is named as routes name it",
			values: []string{"route.kind=Gateway", "route.gateway.parentRefs[0].name=public", "route.gateway.parentRefs[0].namespace=gateways"},
			want: map[string]any{
				"place.route":   "Gateway",
				"place.gateway": map[string]any{"parentRefs": []any{map[string]any{"name": "public", "namespace": "gateways"}}},
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file, got := workersFile(t, tc.values...), map[string]any{}
			for field := range tc.want {
				section, name, _ := strings.Cut(field, ".")
				got[field] = file[section][name]
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if sections := slices.Sorted(maps.Keys(file)); !slices.Equal(sections, []string{"build", "place", "registry", "store", "tails"}) {
				t.Errorf("sections %q", sections)
			}
		})
	}
}

// What the operator would refuse at its start is refused before it is installed.
func TestTheChartRefusesWorkersThatCannotRun(t *testing.T) {
	cases := map[string]struct{ reason, values, about string }{
		"no store":              {reason: "there would be no scripts", values: "store.endpoint=", about: "store/endpoint"},
		"a store with a path":   {reason: "S3 has none", values: "store.endpoint=https://s3.example.com/a", about: "store/endpoint"},
		"a store with a user":   {reason: "a password has no place in it", values: "store.endpoint=https://a:b@s3.example.com", about: "store/endpoint"},
		"no credentials":        {reason: "a bucket of scripts is not everybody's", values: "store.credentialsSecret=", about: "credentialsSecret"},
		"no registry":           {reason: "there would be nowhere to write to", values: "registry.push=", about: "registry/push"},
		"a registry with a tag": {reason: "the tags are the operator's", values: "registry.push=registry.example.com/workers:v1", about: "registry/push"},
		"a registry by URL":     {reason: "images have no scheme in their names", values: "registry.push=https://registry.example.com", about: "registry/push"},
		"an unknown route":      {reason: "a typo must not be ignored", values: "route.kind=ingress", about: "route/kind"},
		"a suffix with a dot":   {reason: "the operator puts one before it", values: "route.hostSuffix=.workers.example", about: "hostSuffix"},
		"a suffix in capitals":  {reason: "a host has one spelling", values: "route.hostSuffix=Workers.example", about: "hostSuffix"},
		"an address":            {reason: "no name ends in one", values: "route.hostSuffix=192.0.2.1", about: "hostSuffix"},
		"no gateway":            {reason: "a route needs one", values: "route.kind=Gateway", about: "parentRefs"},
		"a long build":          {reason: "nobody waits for it", values: "build.deadlineSeconds=3601", about: "deadlineSeconds"},
		"many modules":          {reason: "a release has no room for them", values: "limits.maxModules=201", about: "maxModules"},
		"a large work":          {reason: "the hub would refuse it", values: "limits.maxManifestBytes=1048577", about: "maxManifestBytes"},
		"part of a second":      {reason: "Kubernetes counts whole ones", values: "workers.drain=500ms", about: "drain"},
		"replicas":              {reason: "a second operator would do nothing", values: "replicas=2", about: "replicas"},
		"an unknown value":      {reason: "a typo must not be ignored", values: "store.bucketName=a", about: "bucketName"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkRefused(t, tc.reason, tc.about, workersChart, "--set", tc.values)
		})
	}
}

func TestNobodyReachesThePodsOfBuilds(t *testing.T) {
	for _, object := range render(t, workersChart, "networkPolicy.from.metrics[0].ipBlock.cidr=192.0.2.0/28", "networkPolicy.egress.build[0].to[0].ipBlock.cidr=192.0.2.1/32") {
		if object.GetKind() != "NetworkPolicy" {
			continue
		}
		var policy networkingv1.NetworkPolicy
		convert(t, object, &policy)
		spec := policy.Spec
		if policy.Name == "spokelet-workers" {
			if len(spec.Ingress) != 1 || spec.Ingress[0].Ports[0].Port.IntVal != 8081 || len(spec.Ingress[0].From) != 2 || len(spec.PolicyTypes) != 1 {
				t.Errorf("operator: %+v", spec)
			}
			continue
		}
		want := networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: "workers.spokelet.io/builder", Operator: metav1.LabelSelectorOpExists},
			}},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
			Egress:      []networkingv1.NetworkPolicyEgressRule{{To: []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: "192.0.2.1/32"}}}}},
		}
		if diff := cmp.Diff(want, spec, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", policy.Name, diff)
		}
	}
}
