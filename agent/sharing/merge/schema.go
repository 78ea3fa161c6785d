// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/kube-openapi/pkg/schemaconv"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/structured-merge-diff/v6/schema"
)

// Schema knows how the fields of one version of a custom resource are merged. The
// zero value knows no field. A schema can be used by many goroutines.
type Schema struct{ types *schema.Schema }

// root is the name of the type of whole objects.
const root = "object"

// NewSchema reads the openAPIV3Schema of a version of a CustomResourceDefinition,
// as JSON. With none the schema is one that knows no field. The error says what
// could not be read, and is the same whenever it is read.
func NewSchema(openAPIV3 []byte) (*Schema, error) {
	if len(openAPIV3) == 0 {
		return &Schema{}, nil
	}
	object := &spec.Schema{}
	if err := json.Unmarshal(openAPIV3, object); err != nil {
		return nil, fmt.Errorf("cannot read the schema: %w", err)
	}
	normalize(object)
	types, err := schemaconv.ToSchemaFromOpenAPI(map[string]*spec.Schema{root: object}, false)
	if err != nil {
		// The converter collects its messages from maps, so in any order.
		messages := strings.Split(err.Error(), "\n")
		slices.Sort(messages)
		return nil, fmt.Errorf("cannot convert the schema: %s", strings.Join(messages, "; "))
	}
	return &Schema{types: types}, nil
}

// normalize makes the schema of an object that of its content: a definition can say
// nothing of labels and annotations, and the object is never one atomic value.
func normalize(object *spec.Schema) {
	if object.Properties == nil {
		object.Properties = map[string]spec.Schema{}
	}
	object.Properties["metadata"] = spec.Schema{}
	delete(object.Extensions, "x-kubernetes-map-type")
}

// anything is the type of a value that the schema does not know: maps are merged
// by key, and their values are of this type too.
var anything = schema.Atom{Map: &schema.Map{}}

// content is the type of a whole content.
func (s *Schema) content() schema.Atom {
	name := root
	if atom := s.resolve(schema.TypeRef{NamedType: &name}); atom.Map != nil {
		return atom
	}
	return anything
}

func (s *Schema) resolve(ref schema.TypeRef) schema.Atom {
	if s.types == nil {
		return anything
	}
	atom, ok := s.types.Resolve(ref)
	if !ok || atom == (schema.Atom{}) {
		return anything
	}
	return atom
}

// field is the type of a map's value.
func (s *Schema) field(of *schema.Map, name string) schema.Atom {
	if of == nil {
		return anything
	}
	if field, ok := of.FindField(name); ok {
		return s.resolve(field.Type)
	}
	return s.resolve(of.ElementType)
}

// item is the type of a list's items.
func (s *Schema) item(of *schema.List) schema.Atom {
	if of == nil {
		return anything
	}
	return s.resolve(of.ElementType)
}
