// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"encoding/base64"
	"fmt"
	"slices"
)

func alwaysRecreate(_, _ map[string]any) bool { return true }

// keepLiveFields repeats fields of a section that the manifest leaves to the API server.
func keepLiveFields(name string, fields ...string) func(required, live map[string]any) (map[string]any, error) {
	return func(required, live map[string]any) (map[string]any, error) {
		want, err := mapField(required, name)
		if err != nil {
			return nil, err
		}
		have, err := mapField(live, name)
		if err != nil || want == nil {
			return required, err
		}
		want = shallowCopy(want)
		for _, f := range fields {
			if value, ok := have[f]; ok && want[f] == nil {
				want[f] = value
			}
		}
		out := shallowCopy(required)
		out[name] = want
		return out, nil
	}
}

// prepareJob repeats the selector that the API server gave a Job, and the labels
// that it put on the pods for it.
func prepareJob(required, live map[string]any) (map[string]any, error) {
	out, err := keepLiveFields("spec", "selector")(required, live)
	if err != nil {
		return nil, err
	}
	have := nestedMap(live, "spec", "template", "metadata", "labels")
	spec, _ := out["spec"].(map[string]any)
	template, ok := spec["template"].(map[string]any)
	if !ok || have == nil {
		return out, nil
	}
	metadata, err := mapField(template, "metadata")
	if err != nil {
		return nil, fmt.Errorf("spec.template.%w", err)
	}
	want, err := mapField(metadata, "labels")
	if err != nil {
		return nil, fmt.Errorf("spec.template.metadata.%w", err)
	}
	labels := shallowCopy(want)
	for _, key := range []string{"batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name", "controller-uid", "job-name"} {
		if value, ok := have[key]; ok && labels[key] == nil {
			labels[key] = value
		}
	}
	metadata, template = shallowCopy(metadata), shallowCopy(template)
	metadata["labels"], template["metadata"] = labels, metadata
	spec["template"] = template // of the copy that keep has made
	return out, nil
}

// nestedMap follows a path of maps; nil when there is none.
func nestedMap(m map[string]any, path ...string) map[string]any {
	for _, name := range path {
		m, _ = m[name].(map[string]any)
	}
	return m
}

// prepareConfigMap leaves the bundle of certificates to who injects it.
func prepareConfigMap(required, live map[string]any) (map[string]any, error) {
	out := shallowCopy(required)
	if err := normalizeBase64(out, "binaryData"); err != nil {
		return nil, err
	}
	data, err := mapField(required, "data")
	if err != nil {
		return nil, err
	}
	bundle, injected := nestedMap(live, "data")[caBundleKey]
	if _, forced := data[caBundleKey]; !injected || forced || !requestsBundle(required) {
		return out, nil
	}
	data = shallowCopy(data)
	data[caBundleKey] = bundle
	out["data"] = data
	return out, nil
}

func requestsBundle(required map[string]any) bool {
	return nestedMap(required, "metadata", "labels")[injectBundle] == "true" || nestedMap(required, "metadata", "annotations")[injectBundle] == "true"
}

// prepareSecret puts stringData where the API server puts it. A token's keys come
// from a controller, and stay.
func prepareSecret(required, live map[string]any) (map[string]any, error) {
	out := shallowCopy(required)
	if stringField(out, "type") == "" {
		out["type"] = "Opaque"
	}
	if err := normalizeBase64(out, "data"); err != nil {
		return nil, err
	}
	plain, err := mapField(required, "stringData")
	if err != nil {
		return nil, err
	}
	data := shallowCopy(nestedMap(out, "data"))
	for key, value := range plain {
		s, ok := value.(string)
		if !ok {
			return nil, fmt.Errorf("stringData has a value that is not a string: %w", ErrMalformed)
		}
		data[key] = base64.StdEncoding.EncodeToString([]byte(s))
	}
	if out["type"] == tokenSecret {
		for key, value := range nestedMap(live, "data") {
			if _, own := data[key]; !own {
				data[key] = value
			}
		}
	}
	delete(out, "stringData")
	out["data"] = data
	return out, nil
}

// normalizeBase64 rewrites a map of bytes as an API server writes it. What does
// not decode is left for the API server to refuse.
func normalizeBase64(object map[string]any, name string) error {
	values, err := mapField(object, name)
	if err != nil || values == nil {
		return err
	}
	out := shallowCopy(values)
	for key, value := range values {
		s, ok := value.(string)
		if !ok {
			continue
		}
		if raw, err := base64.StdEncoding.DecodeString(s); err == nil {
			out[key] = base64.StdEncoding.EncodeToString(raw)
		}
	}
	object[name] = out
	return nil
}

// secretRequiresRecreate: the type cannot be changed, and of an immutable one nothing.
func secretRequiresRecreate(required, live map[string]any) bool {
	return live["immutable"] == true || !equal(required["type"], live["type"])
}

func storageClassRequiresRecreate(required, live map[string]any) bool {
	l := newComparator(storage)
	for _, name := range []string{"provisioner", "reclaimPolicy", "volumeBindingMode"} {
		if !l.includes(live[name], required[name], name) {
			return true
		}
	}
	return !equal(required["parameters"], live["parameters"])
}

// prepareClusterRole leaves the rules of an aggregated role to its controller.
func prepareClusterRole(required, live map[string]any) (map[string]any, error) {
	if isEmpty(required["aggregationRule"]) {
		return required, nil
	}
	out := shallowCopy(required)
	out["rules"] = live["rules"]
	return out, nil
}

// prepareBinding names the groups that the API server fills in.
func prepareBinding(required, _ map[string]any) (map[string]any, error) {
	out := shallowCopy(required)
	ref, err := mapField(required, "roleRef")
	if err != nil {
		return nil, err
	}
	if ref != nil && stringField(ref, "apiGroup") == "" {
		ref = shallowCopy(ref)
		ref["apiGroup"] = rbac
		out["roleRef"] = ref
	}
	subjects, ok := required["subjects"].([]any)
	if !ok {
		return out, nil
	}
	subjects = slices.Clone(subjects)
	for i, entry := range subjects {
		if s, ok := entry.(map[string]any); ok {
			subjects[i] = normalizeSubject(s)
		}
	}
	out["subjects"] = subjects
	return out, nil
}

func normalizeSubject(s map[string]any) map[string]any {
	s = shallowCopy(s)
	for _, name := range []string{"apiGroup", "namespace"} {
		if s[name] == "" {
			delete(s, name)
		}
	}
	if kind := stringField(s, "kind"); (kind == "User" || kind == "Group") && s["apiGroup"] == nil {
		s["apiGroup"] = rbac
	}
	return s
}

// prepareWebhooks keeps the certificates that were injected into webhooks of
// the same name.
func prepareWebhooks(required, live map[string]any) (map[string]any, error) {
	list, ok := required["webhooks"].([]any)
	if !ok {
		return required, nil
	}
	bundles := map[string][]any{} // in order, should a name come twice
	injected, _ := live["webhooks"].([]any)
	for _, entry := range injected {
		if hook, ok := entry.(map[string]any); ok {
			name := stringField(hook, "name")
			bundles[name] = append(bundles[name], nestedMap(hook, "clientConfig")["caBundle"])
		}
	}
	list = slices.Clone(list)
	for i, entry := range list {
		hook, ok := entry.(map[string]any)
		if rest := bundles[stringField(hook, "name")]; ok && len(rest) > 0 {
			list[i], bundles[stringField(hook, "name")] = withCABundle(hook, rest[0]), rest[1:]
		}
	}
	out := shallowCopy(required)
	out["webhooks"] = list
	return out, nil
}

// withCABundle gives the clientConfig of a webhook the certificates of the live
// one, unless it has its own.
func withCABundle(hook map[string]any, bundle any) map[string]any {
	client := nestedMap(hook, "clientConfig")
	if client == nil || bundle == nil || !isEmpty(client["caBundle"]) && client["caBundle"] != "" {
		return hook
	}
	client, hook = shallowCopy(client), shallowCopy(hook)
	client["caBundle"], hook["clientConfig"] = bundle, client
	return hook
}

// prepareDefinition does the same for a definition's conversion.
func prepareDefinition(required, live map[string]any) (map[string]any, error) {
	webhook := nestedMap(required, "spec", "conversion", "webhook")
	bundle := nestedMap(live, "spec", "conversion", "webhook", "clientConfig")["caBundle"]
	if webhook == nil || bundle == nil {
		return required, nil
	}
	out, spec, conversion := shallowCopy(required), shallowCopy(nestedMap(required, "spec")), shallowCopy(nestedMap(required, "spec", "conversion"))
	conversion["webhook"] = withCABundle(webhook, bundle)
	spec["conversion"], out["spec"] = conversion, spec
	return out, nil
}
