// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import "k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

// manifestsOf are the manifests of a work.
func manifestsOf(work *unstructured.Unstructured) []any {
	list, _, _ := unstructured.NestedFieldNoCopy(work.Object, "spec", "workload", "manifests")
	manifests, _ := list.([]any)
	return manifests
}

// manifestOf returns the first manifest of a kind.
func manifestOf(work *unstructured.Unstructured, kind string) map[string]any {
	for _, m := range manifestsOf(work) {
		if m, ok := m.(map[string]any); ok && m["kind"] == kind {
			return m
		}
	}
	return nil
}

// in returns a field of an object that is an object.
func in(object map[string]any, path ...string) map[string]any {
	for _, name := range path {
		object, _ = object[name].(map[string]any)
	}
	return object
}

func metadataOf(work *unstructured.Unstructured, kind string) map[string]any {
	return in(manifestOf(work, kind), "metadata")
}

func podOf(work *unstructured.Unstructured) map[string]any {
	return in(manifestOf(work, "Deployment"), "spec", "template", "spec")
}

func containerOf(work *unstructured.Unstructured) map[string]any {
	containers, _ := podOf(work)["containers"].([]any)
	c, _ := containers[0].(map[string]any)
	return c
}

// add adds a manifest to a work.
func add(work *unstructured.Unstructured, manifest map[string]any) {
	in(work.Object, "spec", "workload")["manifests"] = append(manifestsOf(work), manifest)
}

// another is a manifest in the account's namespace.
func another(apiVersion, kind string) map[string]any {
	return map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"name": "any", "namespace": "workers-1234"}}
}

type attack = func(work *unstructured.Unstructured)

// podAttacks reach from a pod for its node, or for an account.
func podAttacks() map[string]attack {
	pod := func(field string, value any) attack {
		return func(work *unstructured.Unstructured) { podOf(work)[field] = value }
	}
	container := func(field string, value any) attack {
		return func(work *unstructured.Unstructured) { containerOf(work)[field] = value }
	}
	return map[string]attack{
		"the processes of the node":     pod("hostPID", true),
		"the network of the node":       pod("hostNetwork", true),
		"the IPC of the node":           pod("hostIPC", true),
		"a folder of the node":          pod("volumes", []any{map[string]any{"name": "tmp", "hostPath": map[string]any{"path": "/"}}}),
		"a token in a volume":           pod("volumes", []any{map[string]any{"name": "tmp", "projected": map[string]any{"sources": []any{map[string]any{"serviceAccountToken": map[string]any{"path": "t"}}}}}}),
		"an account":                    pod("serviceAccountName", "default"),
		"an account by its old name":    pod("serviceAccount", "default"),
		"a token of its account":        pod("automountServiceAccountToken", true),
		"a token as nobody says not to": func(work *unstructured.Unstructured) { delete(podOf(work), "automountServiceAccountToken") },
		"a node of its choice":          pod("nodeName", "control-plane"),
		"tolerations":                   pod("tolerations", []any{map[string]any{"operator": "Exists"}}),
		"a runtime class":               pod("runtimeClassName", "kata"),
		"no security context":           func(work *unstructured.Unstructured) { delete(podOf(work), "securityContext") },
		"root":                          pod("securityContext", map[string]any{"runAsUser": int64(0)}),
		"a sysctl": func(work *unstructured.Unstructured) {
			in(podOf(work), "securityContext")["sysctls"] = []any{map[string]any{"name": "kernel.msgmax", "value": "1"}}
		},
		"an init container": pod("initContainers", []any{map[string]any{"name": "i", "image": "i", "securityContext": map[string]any{"privileged": true}}}),
		"an annotation of the pod": func(work *unstructured.Unstructured) {
			in(manifestOf(work, "Deployment"), "spec", "template", "metadata")["annotations"] = map[string]any{"container.apparmor.security.beta.kubernetes.io/workers": "unconfined"}
		},
		"a privileged container": func(work *unstructured.Unstructured) { in(containerOf(work), "securityContext")["privileged"] = true },
		"a second, privileged container": func(work *unstructured.Unstructured) {
			podOf(work)["containers"] = []any{containerOf(work), map[string]any{"name": "two", "image": "i", "securityContext": map[string]any{"privileged": true}}}
		},
		"a capability": func(work *unstructured.Unstructured) {
			in(containerOf(work), "securityContext")["capabilities"] = map[string]any{"add": []any{"SYS_ADMIN"}}
		},
		"a port of the node":          container("ports", []any{map[string]any{"name": "p", "containerPort": int64(8080), "hostPort": int64(80)}}),
		"a program":                   container("command", []any{"/bin/sh"}),
		"a device":                    container("volumeDevices", []any{map[string]any{"name": "tmp", "devicePath": "/dev/sda"}}),
		"a request of the kubelet":    container("livenessProbe", map[string]any{"httpGet": map[string]any{"host": "169.254.169.254", "port": int64(80)}}),
		"a hook that asks somebody":   container("lifecycle", map[string]any{"preStop": map[string]any{"httpGet": map[string]any{"host": "169.254.169.254", "port": int64(80)}}}),
		"a connection of the kubelet": container("startupProbe", map[string]any{"tcpSocket": map[string]any{"host": "10.0.0.1", "port": int64(22)}}),
	}
}

// objectAttacks have a work write what is no part of a bundle.
func objectAttacks() map[string]attack {
	object := func(apiVersion, kind string) attack {
		return func(work *unstructured.Unstructured) { add(work, another(apiVersion, kind)) }
	}
	namespaceLabel := func(key, value string) attack {
		return func(work *unstructured.Unstructured) { in(metadataOf(work, "Namespace"), "labels")[key] = value }
	}
	return map[string]attack{
		"a ClusterRoleBinding that names the namespace": object("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
		"a ClusterRole that names none": func(work *unstructured.Unstructured) {
			role := another("rbac.authorization.k8s.io/v1", "ClusterRole")
			delete(in(role, "metadata"), "namespace")
			add(work, role)
		},
		"a definition":                   object("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
		"a webhook":                      object("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration"),
		"a bare Pod":                     object("v1", "Pod"),
		"a DaemonSet":                    object("apps/v1", "DaemonSet"),
		"a Job":                          object("batch/v1", "Job"),
		"an account":                     object("v1", "ServiceAccount"),
		"a kind of another group":        object("example.com/v1", "Deployment"),
		"an older version":               object("extensions/v1beta1", "Deployment"),
		"a route that is not used":       object("gateway.networking.k8s.io/v1", "HTTPRoute"),
		"an object of kube-system":       func(work *unstructured.Unstructured) { metadataOf(work, "Service")["namespace"] = "kube-system" },
		"an object of no namespace":      func(work *unstructured.Unstructured) { delete(metadataOf(work, "Service"), "namespace") },
		"another namespace":              func(work *unstructured.Unstructured) { metadataOf(work, "Namespace")["name"] = "kube-system" },
		"a privileged namespace":         namespaceLabel("pod-security.kubernetes.io/enforce", "privileged"),
		"a namespace of another account": namespaceLabel("workers.spokelet.io/account", "5678"),
		"a namespace that a mesh knows":  namespaceLabel("istio-injection", "enabled"),
		"a namespace without labels":     func(work *unstructured.Unstructured) { delete(metadataOf(work, "Namespace"), "labels") },
		"an annotation of the namespace": func(work *unstructured.Unstructured) {
			metadataOf(work, "Namespace")["annotations"] = map[string]any{"any": "any"}
		},
		"a second, privileged namespace": func(work *unstructured.Unstructured) {
			add(work, map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "workers-1234", "labels": map[string]any{"pod-security.kubernetes.io/enforce": "privileged"}}})
		},
		"an annotation that others obey": func(work *unstructured.Unstructured) {
			metadataOf(work, "Service")["annotations"] = map[string]any{"service.beta.kubernetes.io/any": "any"}
		},
		"a snippet of the ingress": func(work *unstructured.Unstructured) {
			in(metadataOf(work, "Ingress"), "annotations")["nginx.ingress.kubernetes.io/server-snippet"] = "any"
		},
		"an owner": func(work *unstructured.Unstructured) {
			metadataOf(work, "Service")["ownerReferences"] = []any{map[string]any{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}}
		},
		"a finalizer": func(work *unstructured.Unstructured) {
			metadataOf(work, "Service")["finalizers"] = []any{"example.com/held"}
		},
		"a Service at the nodes' addresses": func(work *unstructured.Unstructured) { in(manifestOf(work, "Service"), "spec")["type"] = "NodePort" },
		"a Service at somebody else's address": func(work *unstructured.Unstructured) {
			in(manifestOf(work, "Service"), "spec")["externalIPs"] = []any{"10.0.0.1"}
		},
		"a Service of another name": func(work *unstructured.Unstructured) {
			in(manifestOf(work, "Service"), "spec")["externalName"] = "kubernetes.default.svc"
		},
		"a token of an account": func(work *unstructured.Unstructured) {
			manifestOf(work, "Secret")["type"] = "kubernetes.io/service-account-token"
		},
		"a Role of another name": func(work *unstructured.Unstructured) { metadataOf(work, "Role")["name"] = "any" },
		"a Role with other rights": func(work *unstructured.Unstructured) {
			manifestOf(work, "Role")["rules"] = []any{map[string]any{"apiGroups": []any{"*"}, "resources": []any{"*"}, "verbs": []any{"*"}}}
		},
		"a binding of another Role": func(work *unstructured.Unstructured) {
			in(manifestOf(work, "RoleBinding"), "roleRef")["kind"] = "ClusterRole"
		},
		"a binding of somebody else": func(work *unstructured.Unstructured) {
			manifestOf(work, "RoleBinding")["subjects"] = []any{map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:authenticated"}}
		},
	}
}

// workAttacks are about the work itself.
func workAttacks() map[string]attack {
	return map[string]attack{
		"an executor": func(work *unstructured.Unstructured) {
			in(work.Object, "spec")["executor"] = map[string]any{"subject": map[string]any{
				"type": "ServiceAccount", "serviceAccount": map[string]any{"namespace": "kube-system", "name": "admin"},
			}}
		},
		"another name": func(work *unstructured.Unstructured) { work.SetName("theirs") },
		"no account": func(work *unstructured.Unstructured) {
			work.SetLabels(map[string]string{"workers.spokelet.io/bundle": "any"})
		},
		"another account": func(work *unstructured.Unstructured) {
			work.SetLabels(map[string]string{"workers.spokelet.io/bundle": "any", "workers.spokelet.io/account": "5678"})
		},
		"no bundle": func(work *unstructured.Unstructured) {
			work.SetLabels(map[string]string{"workers.spokelet.io/account": "1234"})
		},
		"no UID of a bundle":               func(work *unstructured.Unstructured) { work.SetAnnotations(nil) },
		"a namespace that is no cluster's": func(work *unstructured.Unstructured) { work.SetNamespace(namespace) },
	}
}
