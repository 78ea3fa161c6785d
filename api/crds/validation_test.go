// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package crds

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"

	actionv1beta1 "github.com/spokelet/spokelet/api/action/v1beta1"
	mcmv1alpha1 "github.com/spokelet/spokelet/api/mcm/v1alpha1"
	viewv1beta1 "github.com/spokelet/spokelet/api/view/v1beta1"
)

// The API server's own checks, which also bound what a rule may cost.
func TestLiveInstallDefinitions(t *testing.T) {
	for _, d := range definitionsOf(t, Hub(), Agent()) {
		t.Run(d.Name, func(t *testing.T) {
			if errs := crdvalidation.ValidateCustomResourceDefinition(t.Context(), d); len(errs) > 0 {
				t.Errorf("%v", errs.ToAggregate())
			}
			if d.Spec.Conversion == nil || d.Spec.Conversion.Strategy != apiextensions.NoneConverter {
				t.Errorf("conversion %v, want None", d.Spec.Conversion)
			}
			for _, v := range d.Spec.Versions {
				subresources, err := apiextensions.GetSubresourcesForVersion(d, v.Name)
				if err != nil || subresources == nil || subresources.Status == nil {
					t.Errorf("%s has no status of its own: %v", v.Name, err)
				}
			}
		})
	}
}

func TestObjectsValidateAgainstSchemas(t *testing.T) {
	validators := validators(t)
	for name, tc := range validationCases() {
		t.Run(name, func(t *testing.T) {
			obj := tc.object(t)
			tc.check(t, validators[obj.GroupVersionKind().GroupKind()](t, obj))
		})
	}
}

// An object that is stored and cannot be decoded ends the watches of all others of its kind.
func TestAcceptedObjectsDecode(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := errors.Join(mcmv1alpha1.AddToScheme(scheme), viewv1beta1.AddToScheme(scheme), actionv1beta1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	decoder := serializer.NewCodecFactory(scheme).UniversalDeserializer()
	validators := validators(t)
	for name, tc := range validationCases() {
		t.Run(name, func(t *testing.T) {
			obj := tc.object(t)
			if obj.GetAPIVersion() == "mcm.ibm.com/v1beta1" {
				t.Skip("the hub reads v1alpha1")
			}
			if validators[obj.GroupVersionKind().GroupKind()](t, obj) != nil {
				return
			}
			raw, err := obj.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := decoder.Decode(raw, nil, nil); err != nil {
				t.Errorf("accepted, and %v: %s", err, tc.reason)
			}
		})
	}
}

// The original parsed it, no more.
func TestChartReferencesParse(t *testing.T) {
	validate := validator(t, definitionsOf(t, Set{"mcm/mcm.ibm.com_works.yaml"})[0])
	for _, chart := range []string{
		"", "https://charts.example.com/a-1.0.0.tgz", "oci://registry.example.com/a", "https://h:8443/a?b=c", "http://[::1]/a", "file:///a", "/a.tgz",
		"a.tgz", "dir/a.tgz", "dir/a:1", "?a:b", "mailto:a", "with space",
		"::no url", ":a", "1a:b", "https://h:port/a", "http://[::1", "https://h/%zz", "%zz", "https://a b/", "\x7f",
	} {
		t.Run(chart, func(t *testing.T) {
			obj := validationCase{spec: "{cluster: {name: a}, type: Action, helm: {releaseName: a}}"}.object(t)
			if err := unstructured.SetNestedField(obj.Object, chart, "spec", "helm", "chartURL"); err != nil {
				t.Fatal(err)
			}
			_, parsed := url.Parse(chart)
			if err := validate(t, obj); (err == nil) != (parsed == nil) {
				t.Errorf("refused with %v, parsed with %v", err, parsed)
			}
		})
	}
}

// validationCase is an object that is created. A live test creates all of them, too.
type validationCase struct {
	reason string
	kind   string // apiVersion and kind; empty is an mcm Work
	name   string // empty is a valid one
	spec   string // YAML
	want   string // part of the refusal; empty: it is accepted
}

func (c validationCase) object(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	kind, name := c.kind, c.name
	if kind == "" {
		kind = "mcm.ibm.com/v1alpha1 Work"
	}
	if name == "" {
		name = "a"
	}
	obj := &unstructured.Unstructured{Object: map[string]any{}}
	raw, err := yaml.YAMLToJSON([]byte(c.spec))
	if err != nil {
		t.Fatal(err)
	}
	var spec map[string]any
	if err := utiljson.Unmarshal(raw, &spec); err != nil { // integers are none of floating point
		t.Fatal(err)
	}
	if spec != nil {
		obj.Object["spec"] = spec
	}
	apiVersion, kind, _ := strings.Cut(kind, " ")
	obj.SetAPIVersion(apiVersion)
	obj.SetKind(kind)
	obj.SetName(name)
	return obj
}

func (c validationCase) check(t *testing.T, err error) {
	t.Helper()
	switch {
	case c.want == "" && err != nil:
		t.Errorf("refused with %v, want it accepted: %s", err, c.reason)
	case c.want != "" && err == nil:
		t.Errorf("accepted, want a refusal with %q: %s", c.want, c.reason)
	case c.want != "" && !strings.Contains(err.Error(), c.want):
		t.Errorf("refused with %v, want %q: %s", err, c.want, c.reason)
	}
}

// definitionsOf are those of the sets, as an API server has them when it validates.
func definitionsOf(t *testing.T, sets ...Set) []*apiextensions.CustomResourceDefinition {
	t.Helper()
	var out []*apiextensions.CustomResourceDefinition
	for _, set := range sets {
		objects, err := set.Objects()
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range objects {
			var sent apiextensionsv1.CustomResourceDefinition
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &sent); err != nil {
				t.Fatal(err)
			}
			apiextensionsv1.SetObjectDefaults_CustomResourceDefinition(&sent)
			d := &apiextensions.CustomResourceDefinition{}
			if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(&sent, d, nil); err != nil {
				t.Fatal(err)
			}
			for _, v := range d.Spec.Versions {
				if v.Storage {
					d.Status.StoredVersions = append(d.Status.StoredVersions, v.Name)
				}
			}
			out = append(out, d)
		}
	}
	return out
}

// validators are those of the hub's kinds.
func validators(t *testing.T) map[schema.GroupKind]func(*testing.T, *unstructured.Unstructured) error {
	t.Helper()
	out := map[schema.GroupKind]func(*testing.T, *unstructured.Unstructured) error{}
	for _, d := range definitionsOf(t, Hub()) {
		out[schema.GroupKind{Group: d.Spec.Group, Kind: d.Spec.Names.Kind}] = validator(t, d)
	}
	return out
}

// validator prunes and validates as an API server does when an object is created.
func validator(t *testing.T, d *apiextensions.CustomResourceDefinition) func(*testing.T, *unstructured.Unstructured) error {
	t.Helper()
	declared, err := apiextensions.GetSchemaForVersion(d, d.Spec.Versions[0].Name)
	if err != nil {
		t.Fatal(err)
	}
	fields, _, err := validation.NewSchemaValidator(declared.OpenAPIV3Schema)
	if err != nil {
		t.Fatal(err)
	}
	structural, err := structuralschema.NewStructural(declared.OpenAPIV3Schema)
	if err != nil {
		t.Fatal(err)
	}
	rules := cel.NewValidator(structural, true, celconfig.PerCallLimit)
	return func(t *testing.T, obj *unstructured.Unstructured) error {
		pruning.Prune(obj.Object, structural, true)
		defaulting.PruneNonNullableNullsWithoutDefaults(obj.Object, structural)
		errs := validation.ValidateCustomResource(nil, obj.UnstructuredContent(), fields)
		if rules != nil && len(errs) == 0 {
			errs, _ = rules.Validate(t.Context(), nil, structural, obj.UnstructuredContent(), nil, celconfig.RuntimeCELCostBudget)
		}
		return errs.ToAggregate()
	}
}
