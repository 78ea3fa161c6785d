// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package repotest

import (
	"encoding/json"
	"go/ast"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const dependencies = "docs/adr/0004-parts-and-direct-dependencies.md"

var (
	testName  = regexp.MustCompile("`((?:Test|Fuzz|Benchmark)[A-Z]\\w*)(?:/([^`]+))?`")
	moduleRow = regexp.MustCompile("(?m)^\\| `([^`]+)` \\|")
)

func TestDocumentsNameTestsThatExist(t *testing.T) {
	files := goFiles(t)
	tests := map[string]bool{}
	for _, f := range files {
		for _, decl := range f.syntax.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && f.isTest() {
				tests[fn.Name.Name] = true
			}
		}
	}
	// A case may stand in a suite that several tests run.
	isCase := func(name string) bool {
		return slices.ContainsFunc(files, func(f goFile) bool { return strings.Contains(f.text, strconv.Quote(name)) })
	}
	var all []finding
	walk(t, func(file string) {
		if path.Ext(file) != ".md" {
			return
		}
		text := read(t, file)
		for _, m := range testName.FindAllStringSubmatchIndex(text, -1) {
			line, name := lineOf(text, m[0]), text[m[2]:m[3]]
			if !tests[name] {
				all = append(all, finding{file: file, line: line, text: "names " + name + ", which is no test"})
			}
			if m[4] >= 0 && !isCase(text[m[4]:m[5]]) {
				all = append(all, finding{file: file, line: line, text: "names " + text[m[4]:m[5]] + ", which is no case of " + name})
			}
		}
	})
	report(t, "a defence that a document claims has the test that it names", all)
}

func TestDirectDependenciesAreExplained(t *testing.T) {
	var explained []string
	for _, m := range moduleRow.FindAllStringSubmatch(read(t, dependencies), -1) {
		explained = append(explained, m[1])
	}
	direct := directDependencies(t)
	for _, name := range direct {
		if !slices.Contains(explained, name) {
			t.Errorf("%s: has no row for %s\n\trule: a dependency is a decision, and a decision has its reason", dependencies, name)
		}
	}
	for _, name := range explained {
		if !slices.Contains(direct, name) {
			t.Errorf("%s: explains %s, which go.mod does not require directly", dependencies, name)
		}
	}
}

func directDependencies(t *testing.T) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("cannot read go.mod: %v", err)
	}
	var mod struct {
		Require []struct {
			Path     string `json:"Path"`
			Indirect bool   `json:"Indirect"`
		} `json:"Require"`
	}
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatalf("cannot read go.mod: %v", err)
	}
	var direct []string
	for _, r := range mod.Require {
		if !r.Indirect {
			direct = append(direct, r.Path)
		}
	}
	return direct
}
