// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package crds

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestOCMDefinitionsEqualModuleFiles(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "open-cluster-management.io/api").Output()
	if err != nil {
		t.Fatalf("find the module: %v", err)
	}
	for _, name := range []string{
		"cluster/0000_00_clusters.open-cluster-management.io_managedclusters.crd.yaml",
		"work/0000_00_work.open-cluster-management.io_manifestworks.crd.yaml",
		"work/0000_01_work.open-cluster-management.io_appliedmanifestworks.crd.yaml",
	} {
		t.Run(name, func(t *testing.T) {
			group, file := path.Split(name)
			want, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(out)), group, "v1", file))
			if err != nil {
				t.Fatal(err)
			}
			got, err := fs.ReadFile(files, name)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("the copy differs from the module's file (-module +copy):\n%s", diff)
			}
		})
	}
}

func TestSetsDecode(t *testing.T) {
	tests := map[string]struct {
		reason string
		set    Set
		want   []string
	}{
		"the hub's": {
			reason: "clusters, works, views, actions and shared resources are the hub's, anchors are not",
			set:    Hub(),
			want: []string{
				"managedclusters.cluster.open-cluster-management.io", "manifestworks.work.open-cluster-management.io",
				"works.multicluster.x-k8s.io",
				"works.mcm.ibm.com", "worksets.mcm.ibm.com", "resourceviews.mcm.ibm.com",
				"managedclusterviews.view.open-cluster-management.io", "managedclusteractions.action.open-cluster-management.io",
				"sharedresources.sync.spokelet.io",
			},
		},
		"the agent's": {
			reason: "a spoke holds anchors alone",
			set:    Agent(),
			want:   []string{"appliedmanifestworks.work.open-cluster-management.io", "appliedworks.multicluster.x-k8s.io"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			objects, err := tc.set.Objects()
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, o := range objects {
				got = append(got, o.GetName())
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// The Work API's schema, where a difference would break its clients.
func TestWorkSchemaEqualsWorkAPI(t *testing.T) {
	objects, err := Set{"multicluster/multicluster.x-k8s.io_works.yaml", "multicluster/multicluster.x-k8s.io_appliedworks.yaml"}.Objects()
	if err != nil {
		t.Fatal(err)
	}
	version := func(o *unstructured.Unstructured) map[string]any {
		versions, _, _ := unstructured.NestedSlice(o.Object, "spec", "versions")
		return versions[0].(map[string]any)
	}
	work, applied := version(objects[0]), version(objects[1])
	schema := []string{"schema", "openAPIV3Schema", "properties"}
	tests := map[string]struct {
		reason string
		in     map[string]any
		path   []string
		want   any
	}{
		"manifests are embedded": {
			reason: "each needs apiVersion, kind and metadata",
			in:     work, path: []string{"spec", "properties", "workload", "properties", "manifests", "items"},
			want: map[string]any{"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true},
		},
		"conditions are required": {
			reason: "required once the status is set", in: work, path: []string{"status", "required"}, want: []any{"conditions"},
		},
		"manifest conditions are complete": {
			reason: "identifier and conditions, both required",
			in:     work, path: []string{"status", "properties", "manifestConditions", "items", "required"}, want: []any{"conditions", "identifier"},
		},
		"an identifier needs its ordinal": {
			reason: "a manifest that cannot be parsed has nothing else",
			in:     work, path: []string{"status", "properties", "manifestConditions", "items", "properties", "identifier", "required"}, want: []any{"ordinal"},
		},
		"an anchor names its work": {
			reason: "both names are required", in: applied, path: []string{"spec", "required"}, want: []any{"workName", "workNamespace"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, found, err := unstructured.NestedFieldNoCopy(tc.in, append(schema, tc.path...)...)
			if err != nil || !found {
				t.Fatalf("%v: found %t, %v", tc.path, found, err)
			}
			if m, ok := got.(map[string]any); ok {
				delete(m, "description")
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestManifestWorkHasPrinterColumns(t *testing.T) {
	objects, err := Set{manifestWorks}.Objects()
	if err != nil {
		t.Fatal(err)
	}
	versions, _, err := unstructured.NestedSlice(objects[0].Object, "spec", "versions")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for _, v := range versions {
		version := v.(map[string]any)
		for _, c := range version["additionalPrinterColumns"].([]any) {
			name := version["name"].(string)
			got[name] = append(got[name], c.(map[string]any)["name"].(string))
		}
	}
	if diff := cmp.Diff(map[string][]string{"v1": {"Applied", "Available", "Complete", "Age"}}, got); diff != "" {
		t.Errorf("columns (-want +got):\n%s", diff)
	}
}

func TestIsOursFollowsOwnerOfVersions(t *testing.T) {
	tests := map[string]struct {
		reason    string
		manager   string
		operation metav1.ManagedFieldsOperationType
		fields    string
		want      bool
	}{
		"as installed": {
			reason: "it is ours to upgrade", manager: FieldManager, operation: metav1.ManagedFieldsOperationApply,
			fields: `{"f:spec":{"f:group":{},"f:versions":{}}}`, want: true,
		},
		"replaced by a newer one": {
			reason: "who wrote the versions last knows more of them", manager: FieldManager, operation: metav1.ManagedFieldsOperationApply,
			fields: `{"f:spec":{"f:group":{}}}`,
		},
		"another's": {
			reason: "it was there before us", manager: "work-operator", operation: metav1.ManagedFieldsOperationApply,
			fields: `{"f:spec":{"f:versions":{}}}`,
		},
		"written by our name in another way": {
			reason: "Install applies", manager: FieldManager, operation: metav1.ManagedFieldsOperationUpdate,
			fields: `{"f:spec":{"f:versions":{}}}`,
		},
		"without fields": {
			reason: "nothing says that it is ours", manager: FieldManager, operation: metav1.ManagedFieldsOperationApply, fields: `[]`,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			obj := &unstructured.Unstructured{Object: map[string]any{}}
			obj.SetManagedFields([]metav1.ManagedFieldsEntry{{
				Manager: tc.manager, Operation: tc.operation, FieldsV1: metav1.NewFieldsV1(tc.fields),
			}})
			if got := isOurs(obj); got != tc.want {
				t.Errorf("ours() = %t, want %t: %s", got, tc.want, tc.reason)
			}
		})
	}
}

// The original was published again as v1beta1 with the same types.
func TestMCMVersionsShareSchema(t *testing.T) {
	objects, err := Set{"mcm/mcm.ibm.com_works.yaml", "mcm/mcm.ibm.com_worksets.yaml", "mcm/mcm.ibm.com_resourceviews.yaml"}.Objects()
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		versions, _, err := unstructured.NestedSlice(o.Object, "spec", "versions")
		if err != nil || len(versions) != 2 {
			t.Fatalf("%s has %d versions: %v", o.GetName(), len(versions), err)
		}
		alpha, beta := versions[0].(map[string]any), versions[1].(map[string]any)
		if alpha["name"] != "v1alpha1" || beta["name"] != "v1beta1" || alpha["storage"] != true || beta["storage"] != false || beta["served"] != true {
			t.Errorf("%s: versions %v and %v, stored %v and %v", o.GetName(), alpha["name"], beta["name"], alpha["storage"], beta["storage"])
		}
		if diff := cmp.Diff(alpha["schema"], beta["schema"]); diff != "" {
			t.Errorf("%s: schemas differ:\n%s", o.GetName(), diff)
		}
	}
}

func TestSharedResourceQuotaIsValidated(t *testing.T) {
	const spec = "{group: example.com, resource: widgets, clusterSelector: {}, quota: %s}"
	for name, tc := range map[string]struct {
		reason, quota, want string
	}{
		"nothing of it":  {reason: "each field has a default", quota: "{}"},
		"a quantity":     {reason: "the usual form", quota: "{objects: 5000, bytes: 64Mi}"},
		"a number":       {reason: "bytes are what it is of", quota: "{bytes: 1048576}"},
		"no objects":     {reason: "nothing could be shared", quota: "{objects: 0}", want: "should be greater than or equal to 1"},
		"too many":       {reason: "the hub would not hold them", quota: "{objects: 1000001}", want: "should be less than or equal to 1000000"},
		"no bytes":       {reason: "nothing could be shared", quota: "{bytes: 0}", want: "must be more than 0"},
		"negative bytes": {reason: "nothing could be shared", quota: "{bytes: -1Mi}", want: "must be more than 0"},
		"no quantity":    {reason: "nobody knows how much that is", quota: "{bytes: much}", want: "should match"},
	} {
		t.Run(name, func(t *testing.T) {
			c := validationCase{reason: tc.reason, kind: "sync.spokelet.io/v1alpha1 SharedResource", name: "widgets", spec: fmt.Sprintf(spec, tc.quota), want: tc.want}
			obj := c.object(t)
			c.check(t, validators(t)[obj.GroupVersionKind().GroupKind()](t, obj))
		})
	}
}
