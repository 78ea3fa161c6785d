// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// A variable that names the kubeconfig of a cluster, or several, begins and
// goes on like this.
const (
	prefix = `"SPOKELET_`
	suffix = `_KUBECONFIG`
)

// find returns the names of the live tests of each folder.
func find(root fs.FS) (map[string][]string, error) {
	uses := map[string]map[string]*mentions{}
	err := fs.WalkDir(root, ".", func(file string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && foreign(root, file):
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(file, "_test.go"):
			return nil
		}
		text, err := fs.ReadFile(root, file)
		if err != nil {
			return err
		}
		syntax, err := parser.ParseFile(token.NewFileSet(), file, text, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir := path.Dir(file)
		if uses[dir] == nil {
			uses[dir] = map[string]*mentions{}
		}
		read(syntax, uses[dir])
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("live tests: %w", err)
	}
	tests := map[string][]string{}
	for dir, declared := range uses {
		if found := live(declared); len(found) > 0 {
			tests[dir] = found
		}
	}
	return tests, nil
}

// foreign tells the folders of other modules, and those that hold no packages.
func foreign(root fs.FS, dir string) bool {
	if dir == "." {
		return false
	}
	name := path.Base(dir)
	_, err := fs.Stat(root, path.Join(dir, "go.mod"))
	return err == nil || name == "bin" || name == "testdata" || strings.HasPrefix(name, ".")
}

// mentions are what a declaration of a package names: other declarations, and
// maybe a variable of a cluster.
type mentions struct {
	names   []string
	cluster bool
}

// read adds the functions and constants of a file.
func read(file *ast.File, declared map[string]*mentions) {
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				declared[d.Name.Name] = mentionsOf(d)
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				if v, ok := s.(*ast.ValueSpec); ok {
					for _, name := range v.Names {
						declared[name.Name] = mentionsOf(v)
					}
				}
			}
		}
	}
}

func mentionsOf(n ast.Node) *mentions {
	m := &mentions{}
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			m.names = append(m.names, n.Name)
		case *ast.BasicLit:
			m.cluster = m.cluster || strings.HasPrefix(n.Value, prefix) && strings.Contains(n.Value, suffix)
		}
		return true
	})
	return m
}

// live returns the tests from which a variable of a cluster is reached.
func live(declared map[string]*mentions) []string {
	for again := true; again; {
		again = false
		for _, m := range declared {
			if !m.cluster && slices.ContainsFunc(m.names, func(name string) bool { return declared[name] != nil && declared[name].cluster }) {
				m.cluster, again = true, true
			}
		}
	}
	var tests []string
	for name, m := range declared {
		if m.cluster && strings.HasPrefix(name, "Test") {
			tests = append(tests, name)
		}
	}
	slices.Sort(tests)
	return tests
}
