// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package script

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"unicode"
	"unicode/utf8"

	release "github.com/spokelet/spokelet/workers/api/release/v1alpha1"
)

// Worker is a script that was checked: all that an image needs to know of it.
type Worker struct {
	// Name of the script.
	Name string `json:"name"`
	// EnvPrefix is put before the keys of its Secret.
	EnvPrefix string `json:"envPrefix"`
	// Main is the name of the module that handles events. It is empty where Body is not.
	Main string `json:"main"`
	// Body is the name of a script in the format of service workers. The other modules are
	// values of its bindings.
	Body string `json:"bodyPart,omitempty"`
	// CompatibilityDate as workerd reads it: 2026-01-15.
	CompatibilityDate string `json:"compatibilityDate"`
	// CompatibilityFlags are sorted.
	CompatibilityFlags []string `json:"compatibilityFlags,omitempty"`
	// Modules are sorted by their names, after the one that handles events.
	Modules []Module `json:"modules"`
	// Bindings are sorted by their names.
	Bindings []Binding `json:"bindings,omitempty"`
}

// Module is one stored object, as workerd takes it.
type Module struct {
	// Name is what other modules import it by, with nothing to resolve in it.
	Name string `json:"name"`
	// Kind is one of the Kind constants.
	Kind string `json:"kind"`
	Key  string `json:"key"`
	ETag string `json:"etag"`
	Size int64  `json:"size"`
}

// Binding is one name in the environment of the script. Its type is one of [release]'s and
// says which of the other fields is set.
type Binding struct {
	Name string `json:"name"`
	Type string `json:"type"`
	// Text of plain_text.
	Text string `json:"text,omitempty"`
	// JSON of json: compact, and as encoding/json writes it.
	JSON json.RawMessage `json:"json,omitempty"`
	// Part is the name of the module of text_blob, data_blob and wasm_module.
	Part string `json:"part,omitempty"`
	// Variable of the process's environment that holds the value of secret_text.
	Variable string `json:"variable,omitempty"`
}

// InvalidError is returned by [New] for what the account has to change.
type InvalidError struct {
	// Field, named as in the spec.
	Field string
	// Problem says what is wrong with it, and no value.
	Problem string
}

// Error returns the message.
func (e *InvalidError) Error() string { return e.Field + ": " + e.Problem }

func invalid(field, problem string) error { return &InvalidError{Field: field, Problem: problem} }

// New checks a script, with the modules that are stored for it and the keys of its Secret.
// Its error is a *[InvalidError].
func New(s release.Script, modules []release.Module, secretKeys []string) (Worker, error) {
	if err := CheckName(s.ScriptName); err != nil {
		return Worker{}, err
	}
	date, err := Date(s.CompatibilityDate)
	if err != nil {
		return Worker{}, invalid("compatibilityDate", err.Error())
	}
	w := Worker{Name: s.ScriptName, EnvPrefix: EnvPrefix(s.ScriptName), CompatibilityDate: date}
	if w.CompatibilityFlags, err = normalizeFlags(s.CompatibilityFlags); err != nil {
		return Worker{}, err
	}
	if w, err = w.withModules(s, modules); err != nil {
		return Worker{}, err
	}
	if w.Bindings, err = w.bindings(s.Bindings, secretKeys); err != nil {
		return Worker{}, err
	}
	if err := w.checkUnused(); err != nil {
		return Worker{}, err
	}
	return w, nil
}

// withModules adds the modules, and says which of them handles events.
func (w Worker) withModules(s release.Script, stored []release.Module) (Worker, error) {
	modules, err := parseModules(stored)
	if err != nil {
		return Worker{}, err
	}
	typed, err := setTypes(modules, s.ModuleTypes)
	if err != nil {
		return Worker{}, err
	}
	if s.BodyPart != "" {
		w.Body, err = resolveBody(s, modules, typed)
	} else {
		w.Main, err = resolveMain(s.MainModule, modules)
	}
	w.Modules = modules
	slices.SortFunc(w.Modules, func(a, b Module) int { return cmp.Compare(w.sortKey(a), w.sortKey(b)) })
	return w, err
}

// sortKey sorts the module that handles events before all names, none of which is empty.
func (w Worker) sortKey(m Module) string {
	if m.Name == w.Main || m.Name == w.Body {
		return ""
	}
	return m.Name
}

// normalizeFlags are a set: neither order nor repetition says anything.
func normalizeFlags(said []string) ([]string, error) {
	for _, flag := range said {
		if flag == "" || !isPlainText(flag) {
			return nil, invalid("compatibilityFlags", quoted(flag)+" is no flag")
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(said))), nil
}

// isPlainText reports whether a text is valid UTF-8 without control characters.
func isPlainText(s string) bool {
	for _, r := range s {
		if unicode.IsControl(r) {
			return false
		}
	}
	return utf8.ValidString(s)
}

// quoted quotes and shortens a name for a message.
func quoted(name string) string {
	const most = 128
	if len(name) > most {
		return strconv.Quote(name[:most]) + "..."
	}
	return strconv.Quote(name)
}
