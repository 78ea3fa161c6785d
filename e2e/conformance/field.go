// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// thingGroup is the API group of Thing, the suite's kind: it has a status, and
// takes whatever it is given.
const thingGroup = "conformance.spokelet.io"

// quietLabel marks the namespaces of a run, in which controllers write nothing.
const quietLabel = "conformance.spokelet.io/run"

// resources of the kinds that cases use, by kind.
var resources = map[string]schema.GroupVersionResource{
	"ClusterRole":              {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"},
	"ConfigMap":                {Version: "v1", Resource: "configmaps"},
	"CustomResourceDefinition": {Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"},
	"DaemonSet":                {Group: "apps", Version: "v1", Resource: "daemonsets"},
	"Deployment":               {Group: "apps", Version: "v1", Resource: "deployments"},
	"Job":                      {Group: "batch", Version: "v1", Resource: "jobs"},
	"Lease":                    {Group: "coordination.k8s.io", Version: "v1", Resource: "leases"},
	"LimitRange":               {Version: "v1", Resource: "limitranges"},
	"Namespace":                {Version: "v1", Resource: "namespaces"},
	"Pod":                      {Version: "v1", Resource: "pods"},
	"Role":                     {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"},
	"RoleBinding":              {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"},
	"Secret":                   {Version: "v1", Resource: "secrets"},
	"Service":                  {Version: "v1", Resource: "services"},
	"ServiceAccount":           {Version: "v1", Resource: "serviceaccounts"},
	"Thing":                    {Group: thingGroup, Version: "v1", Resource: "things"},

	"ValidatingAdmissionPolicy":        {Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicies"},
	"ValidatingAdmissionPolicyBinding": {Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicybindings"},

	"ManifestWork":        {Group: "work.open-cluster-management.io", Version: "v1", Resource: "manifestworks"},
	"AppliedManifestWork": {Group: "work.open-cluster-management.io", Version: "v1", Resource: "appliedmanifestworks"},
}

// clusterScoped kinds among them.
var clusterScoped = map[string]bool{
	"ClusterRole": true, "CustomResourceDefinition": true, "Namespace": true, "AppliedManifestWork": true,
	"ValidatingAdmissionPolicy": true, "ValidatingAdmissionPolicyBinding": true,
}

// field is what the cases of one run share.
type field struct {
	target Target
	// run names this one in everything that it makes.
	run   string
	count atomic.Int64
	hub   dynamic.Interface
	spoke dynamic.Interface
	// controller is the spoke for a user whom the policy takes for a controller.
	controller dynamic.Interface
}

func newField(t *testing.T, target Target) *field {
	t.Helper()
	f := &field{target: target, run: "conf-" + rand.String(5)}
	dialed := &connections{}
	t.Cleanup(dialed.close)
	f.hub = client(t, dialed, target.Hub)
	f.spoke = client(t, dialed, target.Spoke)
	impersonating := rest.CopyConfig(target.Spoke)
	impersonating.Impersonate = rest.ImpersonationConfig{UserName: "conformance-controller", Groups: []string{"system:masters"}}
	f.controller = client(t, dialed, impersonating)
	f.furnish(t)
	return f
}

func client(t *testing.T, dialed *connections, cfg *rest.Config) dynamic.Interface {
	t.Helper()
	cfg = rest.CopyConfig(cfg)
	cfg.QPS = -1
	cfg.Dial = dialed.dial
	c, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// connections end with the run: one whose watch was only just cancelled is not
// idle, and would outlive it.
type connections struct {
	mu   sync.Mutex
	open []net.Conn
}

func (c *connections) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.open = append(c.open, conn)
	}
	return conn, err
}

func (c *connections) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.open {
		_ = conn.Close()
	}
}

// furnish makes what all cases find on the spoke: the kind Thing and the policy.
func (f *field) furnish(t *testing.T) {
	t.Helper()
	s := &stage{field: f, t: t, ctx: t.Context(), ns: f.run}
	// Two runs may share the kind, and an earlier one may have left it.
	if err := s.tryMake(definition("things", "Thing", thingGroup)); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	s.established("things." + thingGroup)
	s.make(quietPolicy)
	s.make(quietBinding)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		for _, kind := range []string{"ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy"} {
			if err := f.spoke.Resource(resources[kind]).Delete(ctx, f.run, metav1.DeleteOptions{}); err != nil {
				t.Errorf("cannot delete the policy: %v", err)
			}
		}
	})
	s.namespace(f.run)
	s.untilRefused(f.controller, "ConfigMap", cm("probe", "1"), "controllers write nothing here")
}

const quietPolicy = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: $ns}
spec:
	failurePolicy: Fail
	matchConstraints:
		namespaceSelector: {matchLabels: {conformance.spokelet.io/run: $ns}}
		resourceRules:
		- {apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [configmaps, pods, pods/status]}
		- {apiGroups: [apps, batch], apiVersions: [v1], operations: [CREATE, UPDATE], resources: ["*/*"]}
	validations:
	- {expression: "!request.userInfo.username.contains('controller')", message: controllers write nothing here}
`

const quietBinding = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: $ns}
spec: {policyName: $ns, validationActions: [Deny]}
`

// definition makes a CRD in YAML: namespaced, with a status, and with no opinion on
// what it holds. The first of its versions, v1 if none is named, is stored.
func definition(plural, kind, group string, versions ...string) string {
	if len(versions) == 0 {
		versions = []string{"v1"}
	}
	var list []string
	for i, v := range versions {
		list = append(list, fmt.Sprintf(`{name: %s, served: true, storage: %t, subresources: {status: {}},
			schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}`, v, i == 0))
	}
	return fmt.Sprintf(`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: %[1]s.%[2]s}, spec: {
		group: %[2]s, scope: Namespaced, names: {plural: %[1]s, singular: %[3]s, kind: %[4]s, listKind: %[4]sList}, versions: [%[5]s]}}`,
		plural, group, strings.ToLower(kind), kind, strings.Join(list, ", "))
}

// established waits until a definition is.
func (s *stage) established(name string) {
	s.t.Helper()
	s.until("definition "+name, s.on("CustomResourceDefinition"), name, func(obj *unstructured.Unstructured) error {
		if obj == nil {
			return errAbsent
		}
		conditions, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions")
		for _, c := range conditions {
			if m, ok := c.(map[string]any); ok && m["type"] == "Established" && m["status"] == "True" {
				return nil
			}
		}
		return fmt.Errorf("it has %v", conditions)
	})
}
