// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package upload

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	release "github.com/spokelet/spokelet/workers/api/release/v1alpha1"
)

const bindingInherit = "inherit"

// valueFields names the field that has the value, by the types of bindings that are supported.
var valueFields = map[string]string{
	bindingInherit:            "",
	release.BindingPlainText:  "text",
	release.BindingSecretText: "text",
	release.BindingJSON:       "json",
	release.BindingTextBlob:   "part",
	release.BindingDataBlob:   "part",
	release.BindingWasmModule: "part",
}

// unsupportedTypes are those of products of Cloudflare that bindings reach, by the types of wrangler 4.164.0 and of its API.
var unsupportedTypes = []string{
	"agent_memory", "ai", "ai_search", "ai_search_namespace", "analytics", "analytics_engine", "artifacts", "assets", "browser",
	"browser_rendering", "d1", "dispatch_namespace", "durable_object_namespace", "flagship", "hello_world", "hyperdrive", "images",
	"k2", "kv_namespace", "logfwdr", "media", "mtls_certificate", "pipelines", "queue", "r2_bucket", "ratelimit", "secret_key",
	"secrets_store_secret", "send_email", "service", "stream", "tail_consumer", "unsafe_hello_world", "vectorize", "version_metadata",
	"vpc_network", "vpc_service", "worker_loader", "workflow",
}

// addBindings adds the bindings of a script.
func (up *Upload) addBindings(bindings [][]byte) error {
	seen := map[string]bool{}
	for i, raw := range bindings {
		o, err := newObject(fmt.Sprintf("binding %d", i+1), raw, maxFields)
		if err != nil {
			return err
		}
		name := o.text("name", maxBinding)
		switch {
		case o.err != nil:
			return o.err
		case name == "":
			return malformed("%s has no name", o.subject)
		case seen[name]:
			return malformed("binding %s: there are two of this name", quoteName(name))
		}
		seen[name] = true
		o.subject = "binding " + quoteName(name)
		if err := up.addBinding(name, o); err != nil {
			return err
		}
	}
	return nil
}

// addBinding adds a binding whose name was checked.
func (up *Upload) addBinding(name string, o *object) error {
	kind := o.text("type", maxName)
	if o.err != nil {
		return o.err
	}
	if err := checkType(kind, o); err != nil {
		return err
	}
	field := valueFields[kind]
	if field != "" && field != "json" && !o.has(field) || field == "json" && o.fields[field] == nil {
		return malformed("%s: %s is missing", o.subject, field)
	}
	b := release.Binding{Name: name, Type: kind}
	switch kind {
	case bindingInherit:
		up.Inherit = append(up.Inherit, name)
		return nil
	case release.BindingSecretText:
		if up.Secrets == nil {
			up.Secrets = map[string]string{}
		}
		up.Secrets[name] = o.text(field, maxText)
		return o.err
	case release.BindingPlainText:
		b.Text = o.text(field, maxText)
	case release.BindingJSON:
		b.JSON = o.value(field)
	default:
		b.Part = o.part(field)
	}
	up.Script.Bindings = append(up.Script.Bindings, b)
	return o.err
}

// checkType refuses unsupported types, and unsupported fields of supported types.
func checkType(kind string, o *object) error {
	value, supported := valueFields[kind]
	switch {
	case kind == "":
		return malformed("%s has no type", o.subject)
	case slices.Contains(unsupportedTypes, kind):
		return unsupported("%s: type %s", o.subject, kind)
	case !supported:
		return &Error{Kind: Unknown, Problem: fmt.Sprintf("%s: type %s is unknown: Cloudflare has none of this name", o.subject, quoteName(kind))}
	}
	for _, field := range slices.Sorted(maps.Keys(o.fields)) {
		if field != "name" && field != "type" && field != value && !isEmpty(o.fields[field]) && !o.isDefault(kind, field) {
			return unsupported("%s: %s of type %s", o.subject, quoteName(field), kind)
		}
	}
	return nil
}

// isDefault reports whether a field of inherit has its default: the binding of the same name, of the latest
// version.
func (o *object) isDefault(kind, field string) bool {
	text, ok := textOf(o.fields[field])
	if !ok || kind != bindingInherit {
		return false
	}
	return field == "old_name" && text == o.text("name", maxBinding) || field == "version_id" && text == "latest"
}

// value returns any JSON, in memory of its own.
func (o *object) value(field string) *apiextensionsv1.JSON {
	raw := o.fields[field]
	if len(raw) > maxText {
		o.setError(malformed("%s: %s has %d bytes, and the limit is %d", o.subject, field, len(raw), maxText))
		return nil
	}
	return &apiextensionsv1.JSON{Raw: bytes.Clone(raw)}
}

// part returns the name of a module.
func (o *object) part(field string) string {
	name, err := moduleName(o.text(field, maxName))
	if err != nil {
		o.setError(malformed("%s: its part is no name of a module", o.subject))
	}
	return name
}
