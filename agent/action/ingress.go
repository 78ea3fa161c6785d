// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package action

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/spokelet/spokelet/api/wire"
)

// convertIngress converts backends and path types to networking.k8s.io/v1.
func convertIngress(obj *unstructured.Unstructured, _ wire.Verb) bool {
	spec, ok := obj.Object["spec"].(map[string]any)
	if !ok {
		return obj.Object["spec"] == nil
	}
	if backend, found := spec["backend"]; found {
		delete(spec, "backend")
		if spec["defaultBackend"], ok = convertBackend(backend); !ok {
			return false
		}
	}
	rules, ok := asList(spec["rules"])
	for _, rule := range rules {
		ok = ok && convertRule(rule)
	}
	return ok
}

func convertRule(rule any) bool {
	fields, ok := rule.(map[string]any)
	if !ok {
		return false
	}
	http, ok := fields["http"].(map[string]any)
	if !ok {
		return fields["http"] == nil
	}
	paths, ok := asList(http["paths"])
	for _, path := range paths {
		ok = ok && convertPath(path)
	}
	return ok
}

func convertPath(path any) bool {
	fields, ok := path.(map[string]any)
	if !ok {
		return false
	}
	if fields["pathType"] == nil {
		fields["pathType"] = "ImplementationSpecific" // the former default
	}
	fields["backend"], ok = convertBackend(fields["backend"])
	return ok
}

// convertBackend converts the backend of a service. That of a resource has not changed.
func convertBackend(backend any) (any, bool) {
	b, ok := backend.(map[string]any)
	if !ok {
		return nil, false
	}
	name, port := b["serviceName"], b["servicePort"]
	if name == nil {
		return b, b["resource"] != nil && port == nil
	}
	if b["resource"] != nil {
		return nil, false
	}
	service := map[string]any{"name": name}
	switch port := port.(type) {
	case string:
		service["port"] = map[string]any{"name": port}
	case int64:
		service["port"] = map[string]any{"number": port}
	default:
		return nil, false
	}
	return map[string]any{"service": service}, true
}

// asList returns a list, empty for nil, and false for other values.
func asList(value any) ([]any, bool) {
	list, ok := value.([]any)
	return list, ok || value == nil
}
