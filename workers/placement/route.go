// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"maps"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	bundlev1alpha1 "github.com/spokelet/spokelet/workers/api/bundle/v1alpha1"
	"github.com/spokelet/spokelet/workers/script"
)

// routes route the account's host to the workers, each by the path of its name. A route without a
// host would match all hosts.
func (p Placement) routes() []runtime.Object {
	if p.Host == "" {
		return nil
	}
	workers := slices.SortedFunc(slices.Values(p.Bundle.Spec.Workers), func(a, b bundlev1alpha1.Worker) int {
		return strings.Compare(a.WorkerName, b.WorkerName)
	})
	switch p.Options.Route {
	case RouteIngress:
		return []runtime.Object{p.ingress(workers)}
	case RouteGateway:
		return p.httpRoutes(workers)
	default:
		return nil
	}
}

func (p Placement) ingress(workers []bundlev1alpha1.Worker) runtime.Object {
	o := p.Options.Ingress
	meta := p.objectMeta(p.deploymentName(), p.labels())
	meta.Annotations = maps.Clone(o.Annotations)
	if o.Rewrite == RewriteNginx {
		if meta.Annotations == nil {
			meta.Annotations = map[string]string{}
		}
		meta.Annotations["nginx.ingress.kubernetes.io/use-regex"] = "true"
		meta.Annotations["nginx.ingress.kubernetes.io/rewrite-target"] = "/$2"
	}
	var paths []networkingv1.HTTPIngressPath
	for _, w := range workers {
		path, pathType := "/"+w.WorkerName, networkingv1.PathTypePrefix
		if o.Rewrite == RewriteNginx {
			// The name has no character that means something in an expression.
			path, pathType = path+"(/|$)(.*)", networkingv1.PathTypeImplementationSpecific
		}
		paths = append(paths, networkingv1.HTTPIngressPath{
			Path: path, PathType: &pathType,
			Backend: networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{
				Name: script.ServiceName(w.WorkerName), Port: networkingv1.ServiceBackendPort{Name: servicePortName},
			}},
		})
	}
	spec := networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{
		Host: p.Host, IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{Paths: paths}},
	}}}
	if o.Class != "" {
		spec.IngressClassName = new(o.Class)
	}
	return &networkingv1.Ingress{
		TypeMeta: metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "Ingress"}, ObjectMeta: meta, Spec: spec,
	}
}

// httpRoutes are one for each worker: an HTTPRoute has at most 16 rules, and what does not
// move between objects is always somewhere.
func (p Placement) httpRoutes(workers []bundlev1alpha1.Worker) []runtime.Object {
	parents := make([]any, 0, len(p.Options.Gateway.ParentRefs))
	for _, ref := range p.Options.Gateway.ParentRefs {
		parents = append(parents, ref.toUnstructured())
	}
	all := make([]runtime.Object, 0, len(workers))
	for _, w := range workers {
		spec := map[string]any{
			"parentRefs": parents,
			"hostnames":  []any{p.Host},
			"rules": []any{map[string]any{
				"matches": []any{map[string]any{"path": map[string]any{"type": "PathPrefix", "value": "/" + w.WorkerName}}},
				"filters": []any{map[string]any{
					"type":       "URLRewrite",
					"urlRewrite": map[string]any{"path": map[string]any{"type": "ReplacePrefixMatch", "replacePrefixMatch": "/"}},
				}},
				"backendRefs": []any{map[string]any{"name": script.ServiceName(w.WorkerName), "port": int64(servicePort)}},
			}},
		}
		route := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
		route.SetAPIVersion("gateway.networking.k8s.io/v1")
		route.SetKind("HTTPRoute")
		route.SetNamespace(Name(p.Account))
		route.SetName(script.ServiceName(w.WorkerName))
		route.SetLabels(p.workerLabels(w))
		all = append(all, route)
	}
	return all
}

// toUnstructured is the reference as the Gateway API has it; what is empty has its defaults there.
func (r ParentRef) toUnstructured() map[string]any {
	content := map[string]any{}
	for key, value := range map[string]string{
		"group": r.Group, "kind": r.Kind, "namespace": r.Namespace, "name": r.Name, "sectionName": r.SectionName,
	} {
		if value != "" {
			content[key] = value
		}
	}
	if r.Port != 0 {
		content["port"] = int64(r.Port)
	}
	return content
}
