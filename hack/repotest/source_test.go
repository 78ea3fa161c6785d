// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package repotest

import (
	"go/ast"
	"go/token"
	"path"
	"slices"
	"strings"
	"testing"
)

const (
	maxFunctionLines    = 100
	maxFileLines        = 500
	maxInterfaceMethods = 5

	header = "// Copyright The Spokelet Authors.\n// SPDX-License-Identifier: Apache-2.0\n"
)

// withoutLeakCheck lists the folders whose tests do without goleak, and why.
var withoutLeakCheck = map[string]string{}

func TestSourceFollowsTheHouseRules(t *testing.T) {
	rules := map[string]struct {
		reason string
		check  func([]goFile) []finding
	}{
		"every file names its licence": {
			reason: "a file that is copied elsewhere must still say whose it is",
			check:  eachFile(licence),
		},
		"every package says what lives there": {
			reason: "a reader starts at the package comment",
			check:  packageDocs,
		},
		"no package is a grab bag": {
			reason: "a package is one concept and its name says which",
			check:  eachFile(packageName),
		},
		"no name has a private word": {
			reason: "a reader knows the words of Kubernetes and Go, and those in docs/glossary.md",
			check:  eachFile(privateNames),
		},
		"no function is over 100 lines": {
			reason: "what does not fit on a page is not reviewed",
			check:  eachFile(functionLength),
		},
		"no file is over 500 lines": {
			reason: "a longer file holds more than one concept",
			check:  eachFile(fileLength),
		},
		"no interface has over 5 methods": {
			reason: "the bigger the interface, the weaker the abstraction",
			check:  eachFile(interfaceSize),
		},
		"every tested package checks for leaks": {
			reason: "a goroutine left behind in a test is one left behind in production",
			check:  leakChecks,
		},
		"no test sleeps": {
			reason: "a test that waits for the clock is slow or flaky: wait for the event, or use testing/synctest",
			check:  eachFile(sleeps),
		},
		"workers read clusters by one transport": {
			reason: "what a cluster answers is the cluster's to choose, and one process reads it for all accounts",
			check:  eachFile(readsClusters),
		},
		"no test makes its own context": {
			reason: "t.Context() ends with the test; context.WithoutCancel(t.Context()) serves its cleanup",
			check:  eachFile(forbiddenInTests("context", "Background")),
		},
	}
	files := goFiles(t)
	for name, rule := range rules {
		t.Run(name, func(t *testing.T) { report(t, rule.reason, rule.check(files)) })
	}
}

func eachFile(check func(goFile) []finding) func([]goFile) []finding {
	return func(files []goFile) []finding {
		var all []finding
		for _, f := range files {
			all = append(all, check(f)...)
		}
		return all
	}
}

func licence(f goFile) []finding {
	before := f.text[:f.set.Position(f.syntax.Package).Offset]
	// Some generators put their own notice first.
	if strings.HasPrefix(f.text, header) || f.generated && strings.Contains(before, header) {
		return nil
	}
	return []finding{{file: f.name, line: 1, text: "does not begin with the licence header"}}
}

func packageDocs(files []goFile) []finding {
	first := map[string]goFile{}
	documented := map[string]bool{}
	for _, f := range files {
		if f.isTest() {
			continue
		}
		if _, seen := first[f.dir()]; !seen {
			first[f.dir()] = f
		}
		if f.syntax.Doc != nil {
			documented[f.dir()] = true
		}
	}
	var all []finding
	for dir, f := range first {
		// Generated packages say what they are in the definition they come from.
		if !documented[dir] && !f.generated {
			all = append(all, f.finding(f.syntax.Package, "package %s has no package comment", f.syntax.Name.Name))
		}
	}
	return all
}

func packageName(f goFile) []finding {
	grabBags := []string{"util", "utils", "common", "helper", "helpers", "misc", "shared", "lib"}
	if slices.Contains(grabBags, f.syntax.Name.Name) || slices.Contains(grabBags, path.Base(f.dir())) {
		return []finding{f.finding(f.syntax.Package, "package %s names no concept", f.syntax.Name.Name)}
	}
	return nil
}

func functionLength(f goFile) []finding {
	if f.generated {
		return nil
	}
	var all []finding
	for _, decl := range f.syntax.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok {
			continue
		}
		if lines := f.line(fn.End()) - f.line(fn.Pos()) + 1; lines > maxFunctionLines {
			all = append(all, f.finding(fn.Pos(), "%s has %d lines", fn.Name.Name, lines))
		}
	}
	return all
}

func fileLength(f goFile) []finding {
	lines := strings.Count(f.text, "\n")
	if f.generated || f.isTest() || lines <= maxFileLines {
		return nil
	}
	return []finding{{file: f.name, line: 1, text: "the file is too long"}}
}

func interfaceSize(f goFile) []finding {
	if f.generated {
		return nil
	}
	var all []finding
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		it, ok := n.(*ast.InterfaceType)
		if ok && it.Methods.NumFields() > maxInterfaceMethods {
			all = append(all, f.finding(it.Pos(), "the interface has %d methods", it.Methods.NumFields()))
		}
		return true
	})
	return all
}

func leakChecks(files []goFile) []finding {
	tested := map[string]goFile{}
	checked := map[string]bool{}
	for _, f := range files {
		if !f.isTest() {
			continue
		}
		for _, decl := range f.syntax.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || fn.Recv != nil {
				continue
			}
			switch name := fn.Name.Name; {
			case name == "TestMain":
				checked[f.dir()] = checked[f.dir()] || mentions(fn, "goleak")
			case strings.HasPrefix(name, "Test"), strings.HasPrefix(name, "Fuzz"):
				tested[f.dir()] = f
			}
		}
	}
	var all []finding
	for dir, f := range tested {
		if _, excepted := withoutLeakCheck[dir]; !checked[dir] && !excepted {
			all = append(all, f.finding(f.syntax.Package, "package %s has tests, and no TestMain with goleak", dir))
		}
	}
	for dir := range withoutLeakCheck {
		if _, has := tested[dir]; !has || checked[dir] {
			all = append(all, finding{file: "hack/repotest/source_test.go", line: 1, text: "the exception for " + dir + " is needed no more"})
		}
	}
	return all
}

func mentions(n ast.Node, name string) bool {
	found := false
	ast.Inspect(n, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		found = found || ok && id.Name == name
		return !found
	})
	return found
}

// readsClusters finds the path of clusters/proxy in programs of workers, outside of the package
// whose transport has bounds.
func readsClusters(f goFile) []finding {
	if f.isTest() || !within(f.dir(), "workers") || f.dir() == "workers/spoke" {
		return nil
	}
	var found []finding
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		if text, ok := n.(*ast.BasicLit); ok && strings.Contains(text.Value, "live.spokelet.io") {
			found = append(found, f.finding(n.Pos(), "names the live API: read clusters by package spoke"))
		}
		return true
	})
	return found
}

// sleeps lets files pass that use testing/synctest: in its bubble a sleep takes
// no time, and is how a test moves the clock.
func sleeps(f goFile) []finding {
	for _, imported := range f.syntax.Imports {
		if imported.Path.Value == `"testing/synctest"` {
			return nil
		}
	}
	return forbiddenInTests("time", "Sleep")(f)
}

// forbiddenInTests refuses the functions of a standard package in tests. A line
// may be excepted as for the linter of the same purpose: //nolint:forbidigo
// with its reason.
func forbiddenInTests(pkg string, functions ...string) func(goFile) []finding {
	return func(f goFile) []finding {
		if !f.isTest() {
			return nil
		}
		var all []finding
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			sel, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || !slices.Contains(functions, sel.Sel.Name) {
				return true
			}
			if id, ok := sel.X.(*ast.Ident); ok && id.Name == pkg && !excepted(f, call.Pos()) {
				all = append(all, f.finding(call.Pos(), "%s.%s in a test", pkg, sel.Sel.Name))
			}
			return true
		})
		return all
	}
}

func excepted(f goFile, p token.Pos) bool {
	for _, group := range f.syntax.Comments {
		for _, c := range group.List {
			if f.line(c.Pos()) == f.line(p) && strings.HasPrefix(c.Text, "//nolint:forbidigo // ") {
				return true
			}
		}
	}
	return false
}
