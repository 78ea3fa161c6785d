// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package repotest

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestTextSpeaksOfTheProjectAlone(t *testing.T) {
	// Written in two parts where the rule would find itself.
	rules := map[string]struct {
		reason string
		// parts are texts of which every match has one: they are found much faster.
		parts   []string
		pattern *regexp.Regexp
	}{
		"no path of one machine": {
			reason:  "a file speaks of the project, not of where it was written",
			parts:   []string{"/" + "root/", "/" + "work/", "/" + "home/"},
			pattern: regexp.MustCompile("(^|[\\s\"'`(=:])/(" + "root/|work/(main|shared|notes)|home/[a-z])"),
		},
		"nothing left for later": {
			reason:  "what is missing is an issue, not a comment",
			parts:   []string{"TO" + "DO", "FIX" + "ME"},
			pattern: regexp.MustCompile("\\b(TO" + "DO|FIX" + "ME)\\b"),
		},
	}
	for name, rule := range rules {
		t.Run(name, func(t *testing.T) {
			var all []finding
			walk(t, func(file string) {
				if !isText(file) {
					return
				}
				text := read(t, file)
				if !slices.ContainsFunc(rule.parts, func(part string) bool { return strings.Contains(text, part) }) {
					return
				}
				for _, at := range rule.pattern.FindAllStringIndex(text, -1) {
					all = append(all, finding{file: file, line: lineOf(text, at[0]), text: "says " + strings.TrimSpace(text[at[0]:at[1]])})
				}
			})
			report(t, rule.reason, all)
		})
	}
}

// isText tells the files that people write and read. Generated Go carries what
// its generator says.
func isText(file string) bool {
	if strings.HasPrefix(path.Base(file), "zz_generated.") {
		return false
	}
	extensions := []string{".go", ".md", ".yaml", ".yml", ".sh", ".proto", ".tpl", ".txt", ".json"}
	return slices.Contains(extensions, path.Ext(file)) || slices.Contains([]string{"Makefile", "Dockerfile", ".ci/run"}, file)
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#{1,6} +(.+?) *$`)
	fence   = regexp.MustCompile("(?s)```.*?```")
	code    = regexp.MustCompile("`[^`\n]*`")
)

func TestLinksOfDocumentsLeadSomewhere(t *testing.T) {
	var all []finding
	walk(t, func(file string) {
		if path.Ext(file) != ".md" {
			return
		}
		text := code.ReplaceAllString(fence.ReplaceAllStringFunc(read(t, file), blank), "")
		for _, at := range link.FindAllStringSubmatchIndex(text, -1) {
			target := text[at[2]:at[3]]
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			if problem := follow(t, file, target); problem != "" {
				all = append(all, finding{file: file, line: lineOf(text, at[0]), text: problem})
			}
		}
	})
	report(t, "a link in a document leads to something that exists", all)
}

// blank keeps the lines of a piece of text and nothing else of it.
func blank(s string) string { return strings.Repeat("\n", strings.Count(s, "\n")) }

// follow says what is wrong with a relative link, or nothing.
func follow(t *testing.T, from, target string) string {
	t.Helper()
	file, anchor, _ := strings.Cut(target, "#")
	to := from
	if file != "" {
		to = path.Join(path.Dir(from), file)
	}
	info, err := os.Stat(filepath.Join(root, filepath.FromSlash(to)))
	if err != nil {
		return "links to " + target + ", which does not exist"
	}
	if anchor == "" {
		return ""
	}
	if info.IsDir() || !slices.Contains(anchors(read(t, to)), anchor) {
		return "links to " + target + ", but there is no such heading"
	}
	return ""
}

// anchors makes the names that a Markdown page's headings can be linked by.
func anchors(text string) []string {
	var names []string
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		name := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-', r == '_', r >= 'a' && r <= 'z', r >= '0' && r <= '9':
				return r
			default:
				return -1
			}
		}, strings.ToLower(m[1]))
		names = append(names, name)
	}
	return names
}
