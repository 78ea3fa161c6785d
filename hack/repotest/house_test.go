// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package repotest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

// root is the checkout, seen from this package.
const root = "../.."

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A finding is one place that breaks a rule.
type finding struct {
	file string // slash-separated, from the root of the checkout
	line int
	text string
}

func (f finding) String() string { return fmt.Sprintf("%s:%d: %s", f.file, f.line, f.text) }

// report fails the test with every finding, in the order of the files.
func report(t *testing.T, reason string, findings []finding) {
	t.Helper()
	slices.SortFunc(findings, func(a, b finding) int {
		if byFile := strings.Compare(a.file, b.file); byFile != 0 {
			return byFile
		}
		return a.line - b.line
	})
	for _, f := range findings {
		t.Errorf("%s\n\trule: %s", f, reason)
	}
}

// walk visits the files that people write: no build output, no repository
// data, no test data (which may be wrong on purpose).
func walk(t *testing.T, visit func(file string)) {
	t.Helper()
	names, err := written()
	if err != nil {
		t.Fatalf("cannot walk the checkout: %v", err)
	}
	for _, name := range names {
		visit(name)
	}
}

var written = sync.OnceValues(func() ([]string, error) {
	var names []string
	err := fs.WalkDir(os.DirFS(root), ".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if !entry.IsDir() {
			if entry.Type().IsRegular() {
				names = append(names, file)
			}
			return nil
		}
		if file == "bin" || entry.Name() == ".git" || entry.Name() == "testdata" {
			return fs.SkipDir
		}
		return nil
	})
	return names, err
})

// A goFile is one parsed file of any module of the repository.
type goFile struct {
	name      string // slash-separated, from the root of the checkout
	text      string
	syntax    *ast.File
	set       *token.FileSet
	generated bool
}

func (f goFile) dir() string  { return path.Dir(f.name) }
func (f goFile) isTest() bool { return strings.HasSuffix(f.name, "_test.go") }

func (f goFile) line(p token.Pos) int { return f.set.Position(p).Line }

func (f goFile) finding(p token.Pos, format string, args ...any) finding {
	return finding{file: f.name, line: f.line(p), text: fmt.Sprintf(format, args...)}
}

// goFiles returns the files that are Go. No test changes what it returns.
func goFiles(t *testing.T) []goFile {
	t.Helper()
	files, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	return files
}

var parsed = sync.OnceValues(func() ([]goFile, error) {
	names, err := written()
	if err != nil {
		return nil, fmt.Errorf("cannot walk the checkout: %w", err)
	}
	var files []goFile
	set := token.NewFileSet()
	for _, name := range names {
		if path.Ext(name) != ".go" {
			continue
		}
		text, err := contentOf(name)
		if err != nil {
			return nil, fmt.Errorf("cannot read: %w", err)
		}
		syntax, err := parser.ParseFile(set, name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("cannot parse: %w", err)
		}
		files = append(files, goFile{name: name, text: text, syntax: syntax, set: set, generated: ast.IsGenerated(syntax)})
	}
	return files, nil
})

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := contentOf(name)
	if err != nil {
		t.Fatalf("cannot read: %v", err)
	}
	return text
}

func contentOf(name string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	return string(text), err
}

// lineOf gives the number of the line that holds the byte at offset.
func lineOf(text string, offset int) int { return 1 + strings.Count(text[:offset], "\n") }
