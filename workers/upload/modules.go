// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package upload

import (
	"cmp"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	release "github.com/spokelet/spokelet/workers/api/release/v1alpha1"
)

const (
	maxName       = 512
	typeSourceMap = "application/source-map"
	// typePython is how the types of Python's modules and requirements begin.
	typePython = "text/x-python"
)

// extensionTypes are the types that package script takes from names. What has another extension
// is data.
var extensionTypes = map[string]string{
	".js": release.TypeESModule, ".mjs": release.TypeESModule,
	".wasm": release.TypeWasm,
	".txt":  release.TypeText, ".html": release.TypeText, ".css": release.TypeText, ".md": release.TypeText, ".sql": release.TypeText,
	".json": release.TypeJSON,
}

// addModules adds the modules, with the types that differ from their extensions.
func (up *Upload) addModules(files []File) error {
	for _, f := range files {
		if strings.EqualFold(path.Ext(f.Name), ".map") {
			// Package script leaves it out, and an import of it would fail when it is served.
			return unsupported("module %s: a name with .map that is no source map", quoteName(f.Name))
		}
		var err error
		if f.Type, err = typeOf(f); err != nil {
			return err
		}
		up.Files = append(up.Files, f)
		expected := cmp.Or(extensionTypes[strings.ToLower(path.Ext(f.Name))], release.TypeData)
		if f.Type != expected && f.Name != up.Script.BodyPart {
			up.Script.ModuleTypes = append(up.Script.ModuleTypes, release.ModuleType{Name: f.Name, Type: f.Type})
		}
	}
	slices.SortFunc(up.Files, func(a, b File) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(up.Script.ModuleTypes, func(a, b release.ModuleType) int { return cmp.Compare(a.Name, b.Name) })
	if err := up.checkEntry(); err != nil {
		return err
	}
	return up.checkParts()
}

func (up *Upload) findFile(name string) (File, bool) {
	i := slices.IndexFunc(up.Files, func(f File) bool { return f.Name == name })
	if i < 0 {
		return File{}, false
	}
	return up.Files[i], true
}

// checkEntry returns an error if the module that handles events is missing or has the wrong type.
func (up *Upload) checkEntry() error {
	field, name, want := "main_module", up.Script.MainModule, release.TypeESModule
	if up.Script.BodyPart != "" {
		field, name, want = "body_part", up.Script.BodyPart, release.TypeCommonJS
	}
	switch f, found := up.findFile(name); {
	case !found:
		return malformed("module %s, which %s names, is not in the upload", quoteName(name), field)
	case f.Type != want:
		return malformed("module %s, which %s names, has type %s, and has to be %s", quoteName(name), field, f.Type, want)
	}
	return nil
}

func (up *Upload) checkParts() error {
	for _, b := range up.Script.Bindings {
		if b.Part == "" {
			continue
		}
		if _, found := up.findFile(b.Part); !found {
			return malformed("binding %s: part %s is not in the upload", quoteName(b.Name), quoteName(b.Part))
		}
	}
	return nil
}

// typeOf returns the type of a module as the release API has it.
func typeOf(f File) (string, error) {
	switch kind := f.Type; {
	case strings.HasPrefix(kind, typePython):
		return "", unsupported("module %s: Python", quoteName(f.Name))
	case kind == "text/javascript+module":
		return release.TypeESModule, nil
	case kind == "text/javascript":
		return release.TypeCommonJS, nil
	case strings.HasPrefix(kind, "text/"):
		return release.TypeText, nil
	case kind == release.TypeESModule, kind == release.TypeCommonJS, kind == release.TypeWasm, kind == release.TypeJSON, kind == release.TypeData:
		return kind, nil
	default:
		return "", unsupported("module %s: type %s", quoteName(f.Name), quoteName(kind))
	}
}

// moduleName returns the name that an import of a module resolves to.
func moduleName(name string) (string, error) {
	clean := path.Clean(name)
	switch {
	case name == "":
		return "", malformed("the upload has a part without a name")
	case len(name) > maxName:
		return "", malformed("module %s: its name has more than %d bytes", quoteName(name), maxName)
	case strings.ContainsFunc(name, unicode.IsControl) || !utf8.ValidString(name):
		return "", malformed("module %s: its name is no text", quoteName(name))
	case clean == "." || path.IsAbs(name) || slices.Contains(strings.Split(name, "/"), ".."):
		return "", malformed("module %s: its name is no path within the script", quoteName(name))
	}
	return clean, nil
}
