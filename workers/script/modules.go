// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package script

import (
	"fmt"
	"path"
	"slices"
	"strings"

	release "github.com/spokelet/spokelet/workers/api/release/v1alpha1"
)

// Kinds of modules, named as in the schema of workerd's configuration.
const (
	KindESModule = "esModule"
	KindCommonJS = "commonJsModule"
	KindWasm     = "wasm"
	KindText     = "text"
	KindJSON     = "json"
	KindData     = "data"
	// KindServiceWorker is that of a script which is no module: [Worker.Body].
	KindServiceWorker = "serviceWorkerScript"
)

// kinds by extension. What has another one is data.
var kinds = map[string]string{
	".js": KindESModule, ".mjs": KindESModule,
	".wasm": KindWasm,
	".txt":  KindText, ".html": KindText, ".css": KindText, ".md": KindText, ".sql": KindText,
	".json": KindJSON,
}

// mainNames are the names of a main module that nobody named, the likeliest first.
var mainNames = []string{"index.js", "index.mjs", "worker.js", "worker.mjs", "main.js", "main.mjs"}

func kindOf(name string) string {
	if kind, ok := kinds[strings.ToLower(path.Ext(name))]; ok {
		return kind
	}
	return KindData
}

// isIgnored reports whether a stored object is no module: a source map, or an empty object that consoles of
// stores show as a folder.
func isIgnored(name string) bool {
	return strings.HasSuffix(name, "/") || strings.EqualFold(path.Ext(name), ".map")
}

// parseModules checks what is stored. workerd resolves names as paths, so two that resolve to
// the same are one.
func parseModules(stored []release.Module) ([]Module, error) {
	modules := make([]Module, 0, len(stored))
	for _, s := range stored {
		if isIgnored(s.Name) {
			continue
		}
		name, err := cleanModuleName(s.Name)
		if err != nil {
			return nil, err
		}
		m := Module{Name: name, Kind: kindOf(name), Key: s.Key, ETag: s.ETag, Size: s.Size}
		switch field := "modules[" + name + "]"; {
		case slices.ContainsFunc(modules, func(other Module) bool { return other.Name == name }):
			return nil, invalid(field, "there are two of this name")
		case !isPlainText(s.Key) || s.Key == "":
			return nil, invalid(field+".key", quoted(s.Key)+" is no key of an object")
		case !isPlainText(s.ETag) || s.ETag == "":
			return nil, invalid(field+".etag", quoted(s.ETag)+" tells no content from another")
		case s.Size < 0:
			return nil, invalid(field+".size", "is negative")
		}
		modules = append(modules, m)
	}
	if len(modules) == 0 {
		return nil, invalid("modules", "nothing that is stored at scriptUrls is a module")
	}
	return modules, nil
}

// cleanModuleName returns the name that workerd resolves a stored one to.
func cleanModuleName(stored string) (string, error) {
	name := path.Clean(stored)
	switch {
	case stored == "" || name == ".":
		return "", invalid("modules", "the name "+quoted(stored)+" is empty")
	case !isPlainText(stored):
		return "", invalid("modules", "the name "+quoted(stored)+" has characters that are not text")
	case path.IsAbs(stored) || slices.Contains(strings.Split(stored, "/"), ".."):
		return "", invalid("modules", "the name "+quoted(stored)+" leads out of the script")
	}
	return name, nil
}

// resolveMain returns the name of the module that handles events.
func resolveMain(named string, modules []Module) (string, error) {
	var scripts []string
	for _, m := range modules {
		if m.Kind == KindESModule {
			scripts = append(scripts, m.Name)
		}
	}
	slices.Sort(scripts)
	switch {
	case named != "" && slices.Contains(scripts, path.Clean(named)):
		return path.Clean(named), nil
	case named != "" && slices.ContainsFunc(modules, func(m Module) bool { return m.Name == path.Clean(named) && m.Kind == KindCommonJS }):
		return "", invalid("mainModule", quoted(named)+" is CommonJS, and only an ES module handles events")
	case named != "":
		return "", invalid("mainModule", quoted(named)+" is none of the JavaScript modules: "+joinNames(scripts))
	case len(scripts) == 0:
		return "", invalid("mainModule", "there is no JavaScript module, which ends in .js or .mjs")
	case len(scripts) == 1:
		return scripts[0], nil
	}
	for _, name := range mainNames {
		if slices.Contains(scripts, name) {
			return name, nil
		}
	}
	return "", invalid("mainModule", "is empty, and there are several JavaScript modules: "+joinNames(scripts))
}

// joinNames lists names for a message, ten at most.
func joinNames(names []string) string {
	const most = 10
	switch {
	case len(names) == 0:
		return "there is none"
	case len(names) > most:
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}
