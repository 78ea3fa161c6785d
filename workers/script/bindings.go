// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package script

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	release "github.com/spokelet/spokelet/workers/api/release/v1alpha1"
)

var (
	identifier  = regexp.MustCompile(`^[A-Za-z_$][A-Za-z0-9_$]*$`)
	environment = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// supportedTypes are the types that workerd has without a service of Cloudflare's behind them.
var supportedTypes = []string{
	release.BindingDataBlob, release.BindingJSON, release.BindingPlainText, release.BindingSecretText, release.BindingTextBlob,
	release.BindingWasmModule,
}

// unsupportedTypes are the other types of Cloudflare's API.
var unsupportedTypes = []string{
	"ai", "analytics_engine", "assets", "browser", "browser_rendering", "d1", "dispatch_namespace",
	"durable_object_namespace", "hyperdrive", "images", "inherit", "kv_namespace", "logfwdr", "media",
	"mtls_certificate", "pipelines", "queue", "r2_bucket", "ratelimit", "secret_key", "secrets_store_secret",
	"send_email", "service", "tail_consumer", "vectorize", "version_metadata", "vpc_service", "worker_loader", "workflow",
}

// partKinds are the kinds of module that a type of binding takes.
var partKinds = map[string][]string{
	release.BindingTextBlob: {KindText, KindJSON, KindData},
	release.BindingDataBlob: {KindData, KindText, KindJSON, KindWasm},
	// workerd: "Wasm bindings are not allowed in modules-based scripts".
	release.BindingWasmModule: {KindWasm},
}

// bindings are those of the spec, and one for each key of the Secret that none of them has.
func (w Worker) bindings(said []release.Binding, secretKeys []string) ([]Binding, error) {
	keys := slices.Compact(slices.Sorted(slices.Values(secretKeys)))
	for _, key := range keys {
		if !environment.MatchString(key) {
			return nil, invalid("secretRef", "the key "+quoted(key)+" is no name of an environment variable")
		}
	}
	var bindings []Binding
	taken := func(name string) bool {
		return slices.ContainsFunc(bindings, func(b Binding) bool { return b.Name == name })
	}
	claimed := map[string]bool{}
	for _, b := range said {
		if err := checkBindingName(b.Name); err != nil {
			return nil, err
		}
		if taken(b.Name) {
			return nil, invalid(bindingField(b, "name"), "there are two of this name")
		}
		binding, err := w.binding(b, keys)
		if err != nil {
			return nil, err
		}
		if b.Type == release.BindingSecretText {
			claimed[secretKey(b)] = true
		}
		bindings = append(bindings, binding)
	}
	for _, key := range keys {
		if claimed[key] {
			continue
		}
		if err := checkBindingName(key); err != nil {
			return nil, err
		}
		if taken(key) {
			return nil, invalid("bindings["+key+"].name", "a key of the Secret has this name, too")
		}
		bindings = append(bindings, w.secretBinding(key, key))
	}
	slices.SortFunc(bindings, func(a, b Binding) int { return cmp.Compare(a.Name, b.Name) })
	return bindings, nil
}

// checkBindingName refuses what no script could read. workerd takes __proto__ and has no such
// property afterwards.
func checkBindingName(name string) error {
	if !identifier.MatchString(name) || name == "__proto__" {
		return invalid("bindings["+quoted(name)+"].name", "is no name that JavaScript can read: letters, digits, _ and $, and no digit first")
	}
	return nil
}

func bindingField(b release.Binding, field string) string { return "bindings[" + b.Name + "]." + field }

func secretKey(b release.Binding) string { return cmp.Or(b.Key, b.Name) }

func (w Worker) secretBinding(name, key string) Binding {
	return Binding{Name: name, Type: release.BindingSecretText, Variable: w.EnvPrefix + key}
}

// binding checks one of the spec. Its name was checked.
func (w Worker) binding(b release.Binding, keys []string) (Binding, error) {
	if err := w.checkType(b); err != nil {
		return Binding{}, err
	}
	if err := checkFields(b); err != nil {
		return Binding{}, err
	}
	switch b.Type {
	case release.BindingPlainText:
		if !utf8.ValidString(b.Text) {
			return Binding{}, invalid(bindingField(b, "text"), "is not UTF-8")
		}
		return Binding{Name: b.Name, Type: b.Type, Text: b.Text}, nil
	case release.BindingJSON:
		return jsonBinding(b)
	case release.BindingSecretText:
		if key := secretKey(b); !slices.Contains(keys, key) {
			return Binding{}, invalid(bindingField(b, "key"), "the Secret of secretRef has no key "+quoted(key))
		}
		return w.secretBinding(b.Name, secretKey(b)), nil
	default:
		return w.partBinding(b)
	}
}

func (w Worker) checkType(b release.Binding) error {
	switch {
	case b.Type == release.BindingWasmModule && w.Body == "":
		return invalid(bindingField(b, "type"), "type wasm_module is not supported: workerd has it for scripts without modules alone; import the module by its name")
	case slices.Contains(supportedTypes, b.Type):
		return nil
	case slices.Contains(unsupportedTypes, b.Type):
		return invalid(bindingField(b, "type"), "type "+b.Type+" is not supported")
	}
	return invalid(bindingField(b, "type"), "unknown type "+quoted(b.Type)+" (there are "+strings.Join(supportedTypes, ", ")+")")
}

// checkFields refuses values that the type does not take: one that is given and has no
// effect is a mistake, and a secret in a spec is a secret that everybody reads.
func checkFields(b release.Binding) error {
	_, blob := partKinds[b.Type]
	for _, f := range []struct {
		name       string
		set, takes bool
	}{
		{"text", b.Text != "", b.Type == release.BindingPlainText},
		{"json", b.JSON != nil, b.Type == release.BindingJSON},
		{"part", b.Part != "", blob},
		{"key", b.Key != "", b.Type == release.BindingSecretText},
	} {
		if !f.set || f.takes {
			continue
		}
		if b.Type == release.BindingSecretText {
			return invalid(bindingField(b, f.name), "the value of a secret is in the Secret")
		}
		return invalid(bindingField(b, f.name), "type "+b.Type+" takes none")
	}
	return nil
}

// jsonBinding writes the value as encoding/json does, so that it stays the same bytes when
// a Worker is written and read again.
func jsonBinding(b release.Binding) (Binding, error) {
	if b.JSON == nil || len(b.JSON.Raw) == 0 {
		return Binding{}, invalid(bindingField(b, "json"), "there is none")
	}
	compact, err := json.Marshal(json.RawMessage(b.JSON.Raw))
	if err != nil || !utf8.Valid(compact) {
		return Binding{}, invalid(bindingField(b, "json"), "is not JSON")
	}
	return Binding{Name: b.Name, Type: b.Type, JSON: compact}, nil
}

// partBinding is the content of a module, which can be imported as well.
func (w Worker) partBinding(b release.Binding) (Binding, error) {
	name, err := cleanModuleName(b.Part)
	if err != nil {
		return Binding{}, invalid(bindingField(b, "part"), quoted(b.Part)+" is no name of a module")
	}
	i := slices.IndexFunc(w.Modules, func(m Module) bool { return m.Name == name })
	if i < 0 {
		return Binding{}, invalid(bindingField(b, "part"), "there is no module "+quoted(b.Part))
	}
	if kind := w.Modules[i].Kind; !slices.Contains(partKinds[b.Type], kind) {
		return Binding{}, invalid(bindingField(b, "part"), fmt.Sprintf("module %s is %s, and %s takes %s", quoted(name), kind, b.Type, strings.Join(partKinds[b.Type], ", ")))
	}
	return Binding{Name: b.Name, Type: b.Type, Part: name}, nil
}
