// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package upload

import (
	"encoding/json"
	"maps"
	"slices"
	"unicode/utf8"

	release "github.com/spokelet/spokelet/workers/api/release/v1alpha1"
)

// The limits of a WorkerDeployment, and of what is kept of a version, in bytes where they are
// of texts.
const (
	maxBindings = 128
	maxFlags    = 64
	maxFlag     = 128
	maxBinding  = 128
	maxText     = 64 << 10
	maxDate     = 32
	maxMessage  = 4096
	maxTag      = 256

	// maxFields and maxKeep are more than there are fields and types of bindings.
	maxFields = 64
	maxKeep   = 64
	maxType   = 64
)

// metadata is what is read of it. The bindings are JSON.
type metadata struct {
	script       release.Script
	bindings     [][]byte
	keep         []string
	message, tag string
}

var (
	// readFields are the fields that are read.
	readFields = []string{"main_module", "body_part", "bindings", "compatibility_date", "compatibility_flags", "keep_bindings", "annotations"}
	// ignoredFields are the fields that have no effect here, whatever they say. Nothing that a script
	// does depends on them.
	ignoredFields = []string{"observability", "placement", "cache_options", "package_dependencies", "code_update_strategy", "usage_model"}
)

// fieldProducts say what the fields are for that a developer did not write himself.
var fieldProducts = map[string]string{
	"migrations": " (classes of Durable Objects)", "assets": " (static files)", "exports": " (Durable Objects, workflows)",
	"limits": " (of CPU time and subrequests)", "capnp_schema": " (unsafe.capnp)",
}

// parseMetadata reads metadata, and refuses what it does not know.
func parseMetadata(raw []byte) (metadata, error) {
	if !utf8.Valid(raw) || !json.Valid(raw) {
		return metadata{}, malformed("the metadata is no JSON")
	}
	o, err := newObject("the metadata", raw, maxFields)
	if err != nil {
		return metadata{}, err
	}
	for _, name := range slices.Sorted(maps.Keys(o.fields)) {
		if err := checkField(name, o.fields[name]); err != nil {
			return metadata{}, err
		}
	}
	m := metadata{bindings: o.list("bindings", maxBindings), keep: o.texts("keep_bindings", maxKeep, maxType)}
	m.script = release.Script{
		MainModule: o.text("main_module", maxName), BodyPart: o.text("body_part", maxName),
		CompatibilityDate: o.text("compatibility_date", maxDate), CompatibilityFlags: o.texts("compatibility_flags", maxFlags, maxFlag),
	}
	if o.err != nil {
		return metadata{}, o.err
	}
	if err := m.readAnnotations(o); err != nil {
		return metadata{}, err
	}
	if err := m.checkKeep(); err != nil {
		return metadata{}, err
	}
	return m, m.resolveEntry()
}

// checkField refuses a setting that would be ignored silently.
func checkField(name string, value []byte) error {
	switch {
	case slices.Contains(readFields, name), slices.Contains(ignoredFields, name), isEmpty(value):
		return nil
	case name == "exports" && hasOnlyCacheExports(value):
		return nil
	}
	return unsupported("setting %s%s", quoteName(name), fieldProducts[name])
}

// hasOnlyCacheExports reports whether exports configure nothing but caches. Bindings to other entry points than the
// default are not supported.
func hasOnlyCacheExports(raw []byte) bool {
	all, err := newObject("exports", raw, maxFields)
	if err != nil {
		return false
	}
	for name, value := range all.fields {
		entry, err := newObject(name, value, maxFields)
		if err != nil || entry.text("type", maxType) != "worker" {
			return false
		}
		for field := range entry.fields {
			if field != "type" && field != "cache" {
				return false
			}
		}
	}
	return true
}

// readAnnotations reads the annotations. Others than these are about the repository, but for a name
// of the version's own.
func (m *metadata) readAnnotations(o *object) error {
	if !o.has("annotations") {
		return nil
	}
	a, err := newObject("annotations", o.fields["annotations"], maxFields)
	if err != nil {
		return err
	}
	if alias := "workers/alias"; a.has(alias) && !isEmpty(a.fields[alias]) {
		return unsupported("annotation %s (a preview alias)", alias)
	}
	m.message, m.tag = a.text("workers/message", maxMessage), a.text("workers/tag", maxTag)
	return a.err
}

// checkKeep refuses to keep modules of the previous version: they are not in the upload.
func (m *metadata) checkKeep() error {
	for _, kind := range m.keep {
		if valueFields[kind] == "part" {
			return unsupported("keep_bindings: type %s", kind)
		}
	}
	return nil
}

// resolveEntry resolves the name of the module that handles events.
func (m *metadata) resolveEntry() (err error) {
	switch s := &m.script; {
	case s.MainModule != "" && s.BodyPart != "":
		return malformed("the metadata has both main_module and body_part")
	case s.MainModule != "":
		s.MainModule, err = moduleName(s.MainModule)
	case s.BodyPart != "":
		s.BodyPart, err = moduleName(s.BodyPart)
	default:
		return malformed("the metadata has neither main_module nor body_part")
	}
	return err
}
