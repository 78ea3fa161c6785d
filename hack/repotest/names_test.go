// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package repotest

import (
	"go/ast"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// privateWords were once verbs and nouns of this project alone: no documentation of Kubernetes,
// Go or HTTP uses them for what a function does or a type is.
var privateWords = []string{
	"astray", "backlog", "broom", "bury", "deed", "disbelieve", "doorkeeper", "equip", "happenings",
	"hinder", "instruct", "lay", "meet", "memo", "mute", "paying", "recall", "reckon", "shake",
	"shelf", "sight", "sighting", "strange", "tend", "unsaid", "vouch", "waive", "yield",
}

// privateNames reports names of packages, files, types and functions that have a private word.
func privateNames(f goFile) []finding {
	if f.generated {
		return nil
	}
	var all []finding
	check := func(at ast.Node, name string) {
		for _, word := range wordsOf(name) {
			if slices.Contains(privateWords, word) {
				all = append(all, f.finding(at.Pos(), "%s: %q is no word of the field", name, word))
			}
		}
	}
	check(f.syntax.Name, f.syntax.Name.Name)
	check(f.syntax.Name, strings.TrimSuffix(path.Base(f.name), ".go"))
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			check(n.Name, n.Name.Name)
		case *ast.TypeSpec:
			check(n.Name, n.Name.Name)
		}
		return true
	})
	return all
}

// wordPattern matches a word, or one letter of an abbreviation in capitals.
var wordPattern = regexp.MustCompile(`[A-Z]?[a-z]+|[A-Z]`)

// wordsOf returns the words of a name in camel case or with underscores, in lower case.
func wordsOf(name string) []string {
	var all []string
	for _, word := range wordPattern.FindAllString(name, -1) {
		all = append(all, strings.ToLower(word))
	}
	return all
}

func TestWordsOf(t *testing.T) {
	cases := map[string]struct {
		reason string
		want   []string
	}{
		"recallYields":  {reason: "each word of a name counts", want: []string{"recall", "yields"}},
		"memo_test":     {reason: "files have underscores", want: []string{"memo", "test"}},
		"TestAMemo":     {reason: "an article is a word", want: []string{"test", "a", "memo"}},
		"tenderloin":    {reason: "a word is whole", want: []string{"tenderloin"}},
		"HTTPProxyMemo": {reason: "letters of an abbreviation are not part of the next word", want: []string{"h", "t", "t", "p", "proxy", "memo"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, wordsOf(name)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
