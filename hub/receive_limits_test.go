// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	root = ".."
	// keptSection is the part of the threat model that has a bound for all that is kept.
	keptSection = "### What a hostile spoke has the hub keep at most"
)

// A kind that is new has no row, and nobody has said yet how much of it there can be.
func TestReceivedKindsAreLimited(t *testing.T) {
	kept := bounds(t)
	kinds := append(mirrored(t), methods(t)...)
	if len(kinds) < 10 {
		t.Fatalf("only %q were found: look at how kinds are declared", kinds)
	}
	for _, kind := range kinds {
		if !slices.ContainsFunc(kept, func(b bound) bool { return slices.Contains(b.what, kind) }) {
			t.Errorf("docs/threat-model.md has no bound for the sum of %q", kind)
		}
	}
	for _, b := range kept {
		for _, what := range b.what {
			if !slices.Contains(kinds, what) && !strings.Contains(what, "/") {
				t.Errorf("docs/threat-model.md has a bound for %q, which no spoke sends", what)
			}
		}
		if b.sum == "" {
			t.Errorf("docs/threat-model.md does not say how much there can be of %q", b.what)
		}
	}
}

// What a spoke says is heard through the tunnel, or read by the packages of the wire.
func TestReceivingPackagesAreLimited(t *testing.T) {
	kept := bounds(t)
	for _, part := range hearing(t) {
		if !slices.ContainsFunc(kept, func(b bound) bool { return slices.Contains(b.by, part) }) {
			t.Errorf("docs/threat-model.md does not say what %s keeps of what spokes send", part)
		}
	}
}

// bound is a row of the threat model.
type bound struct {
	what, by []string
	sum      string
}

var code = regexp.MustCompile("`([^`]+)`")

func bounds(t *testing.T) (out []bound) {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(root, "docs", "threat-model.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(page), keptSection)
	_, table, has := strings.Cut(section, "|---|---|---|\n")
	if !ok || !has {
		t.Fatalf("docs/threat-model.md has no table under %q", keptSection)
	}
	for row := range strings.Lines(table) {
		cells := strings.Split(strings.TrimSpace(row), "|")
		if len(cells) != 5 {
			return out
		}
		out = append(out, bound{what: spans(cells[1]), by: spans(cells[2]), sum: strings.TrimSpace(cells[3])})
	}
	return out
}

func spans(text string) (out []string) {
	for _, match := range code.FindAllStringSubmatch(text, -1) {
		out = append(out, match[1])
	}
	return out
}

// sources parses the files of some folders that are no tests.
func sources(t *testing.T, mode parser.Mode, folders ...string) map[string]*ast.File {
	t.Helper()
	out := map[string]*ast.File{}
	for _, folder := range folders {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			out[path], err = parser.ParseFile(token.NewFileSet(), path, nil, mode)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// mirrored are the kinds that the hub mirrors: those of calls of Mirror.
func mirrored(t *testing.T) (out []string) {
	t.Helper()
	values := kindValues(t)
	for path, file := range sources(t, 0, "hub", "provider") {
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) != 2 {
				return true
			}
			if f, ok := call.Fun.(*ast.SelectorExpr); !ok || f.Sel.Name != "Mirror" {
				return true
			}
			kind, _ := call.Args[0].(*ast.SelectorExpr)
			if kind == nil || values[kind.Sel.Name] == "" {
				t.Errorf("%s: Mirror is not called with a constant of package wire", path)
				return true
			}
			out = append(out, values[kind.Sel.Name])
			return true
		})
	}
	return out
}

// kindValues are the texts of the constants of package wire.
func kindValues(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, file := range sources(t, 0, filepath.Join("api", "wire")) {
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Names) != 1 || len(spec.Values) != 1 {
				return true
			}
			if text, ok := spec.Values[0].(*ast.BasicLit); ok && text.Kind == token.STRING {
				out[spec.Names[0].Name], _ = strconv.Unquote(text.Value)
			}
			return true
		})
	}
	return out
}

var method = regexp.MustCompile(`(?m)^\s*rpc (\w+)\(`)

// methods are those of the RPC definitions.
func methods(t *testing.T) (out []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "api", "rpc", "v1", "*.proto"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range method.FindAllStringSubmatch(string(text), -1) {
			out = append(out, match[1])
		}
	}
	return out
}

// hearing are the packages of the hub that import the tunnel or the wire.
func hearing(t *testing.T) (out []string) {
	t.Helper()
	const module = "github.com/spokelet/spokelet/"
	for path, file := range sources(t, parser.ImportsOnly, "hub", "provider") {
		for _, spec := range file.Imports {
			name, _ := strconv.Unquote(spec.Path.Value)
			name = strings.TrimPrefix(name, module)
			if strings.HasPrefix(name, "tunnel") || strings.HasPrefix(name, "api/rpc") || name == "api/wire" || name == "internal/httpproxy" {
				part, _ := filepath.Rel(root, filepath.Dir(path))
				out = append(out, filepath.ToSlash(part))
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
