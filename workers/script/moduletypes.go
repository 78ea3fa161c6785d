// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package script

import (
	"slices"
	"strings"

	release "github.com/spokelet/spokelet/workers/api/release/v1alpha1"
)

// anyText is a range of media types, all of which are text.
const anyText = "text/"

// kindOfType returns the kind of a media type, false for one that no module has.
func kindOfType(mediaType string) (string, bool) {
	switch mediaType {
	case release.TypeESModule:
		return KindESModule, true
	case release.TypeCommonJS:
		return KindCommonJS, true
	case release.TypeWasm:
		return KindWasm, true
	case release.TypeJSON:
		return KindJSON, true
	case release.TypeData:
		return KindData, true
	}
	subtype, text := strings.CutPrefix(mediaType, anyText)
	return KindText, text && subtype != ""
}

func isJavaScript(kind string) bool { return kind == KindESModule || kind == KindCommonJS }

// setTypes replaces the kinds that modules have by their names. It returns the names of those
// whose kind it set.
func setTypes(modules []Module, types []release.ModuleType) (map[string]bool, error) {
	typed := map[string]bool{}
	for _, t := range types {
		field := "moduleTypes[" + quoted(t.Name) + "]"
		name, err := cleanModuleName(t.Name)
		if err != nil {
			return nil, invalid(field, "is no name of a module")
		}
		i := slices.IndexFunc(modules, func(m Module) bool { return m.Name == name })
		if i < 0 {
			return nil, invalid(field, "there is no such module")
		}
		if typed[name] {
			return nil, invalid(field, "there are two of this module")
		}
		kind, known := kindOfType(t.Type)
		if !known {
			return nil, invalid(field, quoted(t.Type)+" is no type of a module (there are "+strings.Join([]string{
				release.TypeCommonJS, release.TypeESModule, release.TypeJSON, release.TypeData, release.TypeWasm,
			}, ", ")+" and "+anyText+"*)")
		}
		modules[i].Kind, typed[name] = kind, true
	}
	return typed, nil
}

// resolveBody returns the name of the script in the format of service workers, and sets its kind.
// Its name may have any extension, or none, but its type may not say that it is no script.
func resolveBody(s release.Script, modules []Module, typed map[string]bool) (string, error) {
	name, err := cleanModuleName(s.BodyPart)
	if err != nil {
		return "", invalid("bodyPart", quoted(s.BodyPart)+" is no name of a module")
	}
	if s.MainModule != "" {
		return "", invalid("mainModule", "there is a bodyPart, too: a script has one of the two formats")
	}
	i := slices.IndexFunc(modules, func(m Module) bool { return m.Name == name })
	if i < 0 {
		return "", invalid("bodyPart", "there is no module "+quoted(name))
	}
	if m := &modules[i]; typed[name] && !isJavaScript(m.Kind) {
		return "", invalid("bodyPart", "module "+quoted(name)+" is "+m.Kind+" by its type, and no JavaScript")
	}
	modules[i].Kind = KindServiceWorker
	return name, nil
}

// checkUnused refuses JavaScript beside a script in the format of service workers: it was
// meant to be imported, and nothing can. What else no binding names does no harm.
func (w Worker) checkUnused() error {
	if w.Body == "" {
		return nil
	}
	for _, m := range w.Modules {
		named := slices.ContainsFunc(w.Bindings, func(b Binding) bool { return b.Part == m.Name })
		if isJavaScript(m.Kind) && !named {
			return invalid("modules["+m.Name+"]", "a script in the format of service workers imports no modules")
		}
	}
	return nil
}
