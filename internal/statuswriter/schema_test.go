// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package statuswriter

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/api/crds"
)

// manifestWorkValidator validates as the API server does that has our definition.
func manifestWorkValidator(t *testing.T) validation.SchemaValidator {
	t.Helper()
	objects, err := crds.Hub().Objects()
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range objects {
		if !strings.HasPrefix(object.GetName(), "manifestworks.") {
			continue
		}
		var definition apiextensionsv1.CustomResourceDefinition
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &definition); err != nil {
			t.Fatal(err)
		}
		var declared apiextensions.CustomResourceValidation
		if err := apiextensionsv1.Convert_v1_CustomResourceValidation_To_apiextensions_CustomResourceValidation(definition.Spec.Versions[0].Schema, &declared, nil); err != nil {
			t.Fatal(err)
		}
		validator, _, err := validation.NewSchemaValidator(declared.OpenAPIV3Schema)
		if err != nil {
			t.Fatal(err)
		}
		return validator
	}
	t.Fatal("there is no definition of ManifestWork")
	return nil
}

// What the API server names is read from its words, which are another library's.
func TestReduceFindsValuesRefusedBySchema(t *testing.T) {
	long, short := strings.Repeat("x", 2000), "x"
	r := twoManifests(metav1.Condition{})
	for i := range r.Status.Manifests {
		m := &r.Status.Manifests[i]
		m.Conditions = []metav1.Condition{}
		for j := range m.StatusFeedbacks.Values {
			m.StatusFeedbacks.Values[j].Value = workv1.FieldValue{Type: workv1.JsonRaw, JsonRaw: &short}
		}
	}
	r.Status.Manifests[0].StatusFeedbacks.Values[2].Value.JsonRaw = &long
	r.Status.Manifests[1].StatusFeedbacks.Values[0].Value.Type = "Unheard"
	work := workv1.ManifestWork{Status: workv1.ManifestWorkStatus{ResourceStatus: workv1.ManifestResourceStatus{Manifests: r.Status.Manifests}}}
	raw, err := json.Marshal(work)
	if err != nil {
		t.Fatal(err)
	}
	var stored map[string]any
	if err := json.Unmarshal(raw, &stored); err != nil {
		t.Fatal(err)
	}
	refusal := apierrors.NewInvalid(schema.GroupKind{Group: workv1.GroupName, Kind: "ManifestWork"}, "w",
		validation.ValidateCustomResource(nil, stored, manifestWorkValidator(t)))
	rest, ok := r.Reduce(refusal)
	if !ok || rest.OmitReason != "" {
		t.Fatalf("left out %q of what is refused with %v", rest.OmitReason, refusal)
	}
	var names []string
	for _, m := range rest.Status.Manifests {
		names = append(names, valuesOf(m))
	}
	if diff := cmp.Diff([]string{"ab", "bc"}, names); diff != "" {
		t.Errorf("values that stay (-want +got):\n%s", diff)
	}
}
