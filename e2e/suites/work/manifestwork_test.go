// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/spokelet/spokelet/e2e/conformance"
	"github.com/spokelet/spokelet/e2e/env"
	"github.com/spokelet/spokelet/e2e/testbed"
)

var manifestWorksResource = schema.GroupVersionResource{Group: "work.open-cluster-management.io", Version: "v1", Resource: "manifestworks"}

// conformanceRights lets works write what the suite writes, and the agent ask what
// executors of a name that nobody knows yet may grant.
const conformanceRights = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: e2e-conformance-works}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: klusterlet-work-sa, namespace: open-cluster-management-agent}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: e2e-conformance-executors}
rules: [{apiGroups: [""], resources: [serviceaccounts, groups], verbs: [impersonate]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: e2e-conformance-executors}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: e2e-conformance-executors}
subjects: [{kind: ServiceAccount, name: spokelet-agent, namespace: spokelet-agent}]
`

// worksConform judges ManifestWork through the tunnel as an unmodified client: what passes the
// tunnel, and what the hub decides. The engine behind it is the one that the suite judges as a
// process (TestTheProcessConforms), in all sections.
func (s *tests) worksConform(t *testing.T) {
	s.Spoke().Apply(t, conformanceRights)
	t.Cleanup(func() {
		if _, err := s.Spoke().Command.RunInput(context.WithoutCancel(t.Context()), strings.NewReader(conformanceRights), "delete", "-f", "-"); err != nil {
			t.Error(err)
		}
	})
	page, err := s.Hub.Kube.CoreV1().ConfigMaps(env.HubNamespace).Get(t.Context(), "spokelet-hub", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	conformance.Run(t, conformance.Target{
		Hub: s.Hub.REST, Spoke: s.Spoke().REST, Namespace: s.Spoke().Name, HubHash: page.Data["hubHash"], Patience: testbed.Settle,
		Sections: []string{"refusals", "status", "order", "anchor", "deletion"},
	})
}

// manifestWork with further fields in its spec.
func manifestWork(name, rest string, manifests ...string) string {
	return fmt.Sprintf("apiVersion: work.open-cluster-management.io/v1\nkind: ManifestWork\nmetadata: {name: %s, namespace: spoke1}\nspec: {workload: {manifests: [%s]}%s}\n",
		name, strings.Join(manifests, ", "), rest)
}

// hello is the documents' Deployment, with further fields in its spec.
func hello(rest string) string {
	return `{apiVersion: apps/v1, kind: Deployment, metadata: {name: hello, namespace: default}, spec: {` + rest + `selector: {matchLabels: {app: hello}},
      template: {metadata: {labels: {app: hello}}, spec: {terminationGracePeriodSeconds: 0, containers: [{name: hello, image: spokelet.io/test/busybox:latest,
      imagePullPolicy: Never, command: [/bin/busybox, sh, -c, 'echo "Hello, Kubernetes!" && sleep 3600']}]}}}}`
}

const helloConfig = `{resourceIdentifier: {group: apps, resource: deployments, namespace: default, name: hello}, `

// shown is what a ManifestWork tells: its conditions as "Type=Status", its values as
// "name=value".
func shown(work *unstructured.Unstructured) []string {
	var out []string
	conditions, _, _ := unstructured.NestedSlice(work.Object, "status", "conditions")
	for _, item := range conditions {
		if c, ok := item.(map[string]any); ok && c["observedGeneration"] == work.GetGeneration() {
			out = append(out, fmt.Sprintf("%v=%v", c["type"], c["status"]))
		}
	}
	manifests, _, _ := unstructured.NestedSlice(work.Object, "status", "resourceStatus", "manifests")
	for _, item := range manifests {
		m, _ := item.(map[string]any)
		values, _, _ := unstructured.NestedSlice(m, "statusFeedback", "values")
		for _, item := range values {
			v, _ := item.(map[string]any)
			field, _ := v["fieldValue"].(map[string]any)
			for _, kind := range []string{"integer", "string", "boolean"} {
				if value, found := field[kind]; found {
					out = append(out, fmt.Sprintf("%v=%v", v["name"], value))
				}
			}
		}
	}
	return out
}

// untilShown waits until a ManifestWork tells all of the words.
func (s *tests) untilShown(t *testing.T, name string, words ...string) {
	t.Helper()
	testbed.Until(t, fmt.Sprintf("manifestwork %s with %v", name, words), testbed.Settle, func(ctx context.Context) error {
		work, err := s.Hub.Dyn.Resource(manifestWorksResource).Namespace("spoke1").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		got := shown(work)
		for _, word := range words {
			if !slices.Contains(got, word) {
				return fmt.Errorf("it shows %v: %v", got, work.Object["status"])
			}
		}
		return nil
	})
}

// untilSaid waits until the Applied condition of a ManifestWork's only manifest has all of the
// words in its message.
func (s *tests) untilSaid(t *testing.T, name string, words ...string) {
	t.Helper()
	testbed.Until(t, fmt.Sprintf("manifestwork %s says %q", name, words), testbed.Settle, func(ctx context.Context) error {
		work, err := s.Hub.Dyn.Resource(manifestWorksResource).Namespace("spoke1").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		manifests, _, _ := unstructured.NestedSlice(work.Object, "status", "resourceStatus", "manifests")
		if len(manifests) != 1 {
			return fmt.Errorf("%d manifests are told of", len(manifests))
		}
		manifest, _ := manifests[0].(map[string]any)
		message := appliedMessage(manifest)
		for _, word := range words {
			if !strings.Contains(message, word) {
				return fmt.Errorf("%q does not name %q", message, word)
			}
		}
		return nil
	})
}

// endWork deletes a ManifestWork and waits for it.
func (s *tests) endWork(t *testing.T, name string) {
	t.Helper()
	s.Hub.Kubectl(t, "delete", "manifestwork", name, "-n", "spoke1", "--timeout=180s")
}

// The examples are what the documents of Open Cluster Management show, on running nodes.

func (s *tests) exampleFeedback(t *testing.T) {
	s.Hub.Apply(t, manifestWork("hello-work-demo", ", manifestConfigs: ["+helloConfig+`feedbackRules: [{type: WellKnownStatus}, {type: JSONPaths, jsonPaths: [
      {name: isAvailable, path: '.status.conditions[?(@.type=="Available")].status'}]}]}]`, hello("replicas: 1, ")))
	s.untilShown(t, "hello-work-demo", "Applied=True", "Available=True", "ReadyReplicas=1", "Replicas=1", "AvailableReplicas=1", "isAvailable=True")
	s.Spoke().Kubectl(t, "delete", "pod", "-n", "default", "-l", "app=hello", "--wait=false")
	s.untilShown(t, "hello-work-demo", "ReadyReplicas=1", "isAvailable=True")
	if out := s.Hub.Kubectl(t, "get", "manifestworks", "-n", "spoke1", "hello-work-demo"); !strings.Contains(out, "True") {
		t.Errorf("the columns say nothing: %s", out)
	}
	s.endWork(t, "hello-work-demo")
	if out := s.Spoke().Kubectl(t, "get", "deployment", "-n", "default", "hello", "--ignore-not-found", "-o", "name"); out != "" {
		t.Errorf("the work is gone, its Deployment is not: %s", out)
	}
}

func (s *tests) examplePermissionSet(t *testing.T) {
	const class = `{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: e2e-example}, value: 1}`
	s.Hub.Apply(t, manifestWork("needs-permission", "", class))
	s.untilShown(t, "needs-permission", "Applied=False")
	s.untilSaid(t, "needs-permission", "Failed to apply manifest: ", "klusterlet-work-sa", "priorityclasses", "forbidden")
	s.Hub.Apply(t, manifestWork("permission-set", "", `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: "open-cluster-management:klusterlet-work:my-role",
      labels: {open-cluster-management.io/aggregate-to-work: "true"}}, rules: [{apiGroups: [scheduling.k8s.io], resources: [priorityclasses], verbs: [get, list, watch, create, update, patch, delete]}]}`))
	s.untilShown(t, "permission-set", "Applied=True", "Available=True")
	s.untilShown(t, "needs-permission", "Applied=True", "Available=True")
	s.endWork(t, "needs-permission")
	s.endWork(t, "permission-set")
}

// exampleJob: a Job has finished once, whatever writes it.
func (s *tests) exampleJob(t *testing.T, name, strategy string) {
	config := fmt.Sprintf(`, manifestConfigs: [{resourceIdentifier: {group: batch, resource: jobs, namespace: default, name: %s}, updateStrategy: {type: %s},
      feedbackRules: [{type: WellKnownStatus}], conditionRules: [{condition: Complete, type: WellKnownConditions}]}]`, name, strategy)
	s.Hub.Apply(t, manifestWork(name, config, quickJob(name)))
	s.untilShown(t, name, "Applied=True", "Available=True", "Complete=True", "JobComplete=True", "JobSucceeded=1")
	s.endWork(t, name)
	if out := s.Spoke().Kubectl(t, "get", "job", "-n", "default", name, "--ignore-not-found", "-o", "name"); out != "" {
		t.Errorf("the work is gone, its Job is not: %s", out)
	}
}

func quickJob(name string) string {
	return fmt.Sprintf(`{apiVersion: batch/v1, kind: Job, metadata: {name: %s, namespace: default}, spec: {backoffLimit: 4, template: {spec: {restartPolicy: Never,
      containers: [{name: main, image: spokelet.io/test/busybox:latest, imagePullPolicy: Never, command: [/bin/busybox, "true"]}]}}}}`, name)
}
