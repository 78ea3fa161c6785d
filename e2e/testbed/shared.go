// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GadgetsResource is that of Gadgets, which the spokes' owners let the hub share, and whose
// definition they let it bring.
var GadgetsResource = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "gadgets"}

// SharedDefinition is a CustomResourceDefinition of example.com with a status subresource.
func SharedDefinition(kind string) string {
	singular := strings.ToLower(kind)
	return fmt.Sprintf(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[2]ss.example.com}
spec:
  group: example.com
  names: {kind: %[1]s, plural: %[2]ss, singular: %[2]s}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              a: {type: string}
              b: {type: string}
              c: {type: string, maxLength: 20}
              ports:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items: {type: object, required: [name], properties: {name: {type: string}, port: {type: integer}}}
          status:
            type: object
            properties: {phase: {type: string}}
`, kind, singular)
}

// SharedResourceManifest has objects of a resource shared with the default namespace of
// clusters; the fields are further ones of its spec.
func SharedResourceManifest(name string, gvr schema.GroupVersionResource, fields string) string {
	return fmt.Sprintf(`
apiVersion: sync.spokelet.io/v1alpha1
kind: SharedResource
metadata: {name: %s}
spec: {group: %s, resource: %s, spokeNamespace: default, %s}
`, name, gvr.Group, gvr.Resource, fields)
}

// Gadget is a manifest of one, in a namespace.
func Gadget(namespace, name, spec string) string {
	return fmt.Sprintf("---\napiVersion: example.com/v1\nkind: Gadget\nmetadata: {name: %s, namespace: %s}\nspec: {%s}\n", name, namespace, spec)
}
