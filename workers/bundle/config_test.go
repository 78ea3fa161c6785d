// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	release "github.com/spokelet/spokelet/workers/api/release/v1alpha1"
	"github.com/spokelet/spokelet/workers/script"
)

var rewrite = flag.Bool("rewrite", false, "write what is generated to testdata")

func TestConfigMatchesGoldenFiles(t *testing.T) {
	for name, got := range map[string][]byte{
		"config.capnp": input().Config(),
		"probe.capnp":  input().Probe(0, "unix:/work/probe"),
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join("testdata", name)
			if *rewrite {
				if err := os.WriteFile(file, got, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("a change needs another format, and -rewrite (-testdata +now):\n%s", diff)
			}
		})
	}
}

func TestPathsPortsAndNamesFollowOneList(t *testing.T) {
	in := input()
	in.Workers[0], in.Workers[1] = in.Workers[1], in.Workers[0]
	read := fieldsOf(t, in.Config())
	want := []field{
		{"name", "tail"}, {"name", "w0"}, {"name", "w1"}, {"name", "internet"}, {"allow", "public"},
		{"name", "tail"}, {"address", "*:8079"}, {"service", "tail"},
		{"name", "w0"}, {"address", "*:8080"}, {"service", "w0"},
		{"name", "w1"}, {"address", "*:8081"}, {"service", "w1"},
		{"name", "tail.js"}, {"esModule", tailScript}, {"compatibilityDate", tailDate},
		{"name", "hello.mjs"}, {"esModule", in.Path(0, 0)}, {"name", "tail"}, {"json", `{"script":"other"}`}, {"compatibilityDate", "2023-02-28"},
		{"name", "index.js"}, {"esModule", in.Path(1, 0)},
	}
	if diff := cmp.Diff(want, read[1:len(want)+1]); diff != "" {
		t.Errorf("a port serves the script of its place (-want +got):\n%s", diff)
	}
}

func TestProbeHasOneWorkerAndNoNetwork(t *testing.T) {
	read := fieldsOf(t, input().Probe(1, "unix:/work/p"))
	want := []field{
		{"import", "/workerd/workerd.capnp"}, {"name", "w1"}, {"name", "internet"},
		{"name", "w1"}, {"address", "unix:/work/p"}, {"service", "w1"},
		{"name", "hello.mjs"}, {"esModule", "w1/0"}, {"compatibilityDate", "2023-02-28"},
	}
	if diff := cmp.Diff(want, read); diff != "" {
		t.Errorf("modules lie where they lie for the image, and no address may be reached (-want +got):\n%s", diff)
	}
	if text := string(input().Probe(0, "unix:/work/p")); strings.Contains(text, "fromEnvironment") || strings.Contains(text, "public") {
		t.Errorf("a probe reads no environment and knows no network:\n%s", text)
	}
}

// A field is a name of the schema and the text behind it.
type field struct{ Name, Text string }

var (
	literal = regexp.MustCompile(`(\w*)(?: = (?:embed )?| = \[|\[| )?("(?:[^"\\\n]|\\.)*"?)`)
	// skeleton is all that may stand outside of texts.
	skeleton = regexp.MustCompile(`^[A-Za-z0-9 ._:=,;()\[\]\n]*$`)
)

// fieldsOf reads a configuration as Cap'n Proto does, as far as texts go: what is in a text
// and what is around it.
func fieldsOf(t *testing.T, config []byte) []field {
	t.Helper()
	var fields []field
	around := literal.ReplaceAllStringFunc(string(config), func(match string) string {
		m := literal.FindStringSubmatch(match)
		text, ok := unquote(m[2])
		if !ok {
			t.Errorf("%s: is no text", m[2])
		}
		fields = append(fields, field{Name: m[1], Text: text})
		return strings.TrimSuffix(match, m[2])
	})
	if !skeleton.MatchString(around) || strings.Count(around, "(") != strings.Count(around, ")") || strings.Count(around, "[") != strings.Count(around, "]") {
		t.Errorf("a text is not where a text begins and ends:\n%s", around)
	}
	return fields
}

// unquote reads a text of Cap'n Proto: \xHH, and a backslash before what it would end with.
func unquote(quoted string) (string, bool) {
	if len(quoted) < 2 || quoted[0] != '"' || quoted[len(quoted)-1] != '"' {
		return "", false
	}
	inner := quoted[1 : len(quoted)-1]
	var out []byte
	for i := 0; i < len(inner); i++ {
		if inner[i] != '\\' {
			out = append(out, inner[i])
			continue
		}
		i++
		switch {
		case i < len(inner) && (inner[i] == '"' || inner[i] == '\\'):
			out = append(out, inner[i])
		case i+2 < len(inner) && inner[i] == 'x':
			n, err := strconv.ParseUint(inner[i+1:i+3], 16, 8)
			if err != nil {
				return "", false
			}
			out = append(out, byte(n))
			i += 2
		default:
			return "", false
		}
	}
	return string(out), true
}

// hostile texts are those that end a text, begin another, or are none.
var hostile = map[string]string{
	"a quote":         `a"b`,
	"a backslash":     `a\`,
	"a second line":   "a\nb\r\n",
	"a NUL":           "a\x00b",
	"a field":         `", embed = "/etc/passwd" ), ( name = "`,
	"an escape":       `\x22\"\\x`,
	"a comment":       "# a\n\"",
	"not UTF-8":       "\xff\xfe\xc3",
	"other alphabets": "héllo wörld \u2028 \U0001f600",
	"control":         "\x01\x1b\x7f\u0085",
	"nothing":         "",
}

// filled is an input whose texts are all of the one kind.
func filled(text string) Input {
	return Input{Account: text, Workers: []script.Worker{{
		Name: text, EnvPrefix: text, Main: text, CompatibilityDate: text, CompatibilityFlags: []string{text, text},
		Modules: []script.Module{{Name: text, Kind: script.KindESModule, Key: text, ETag: text}, {Name: "b" + text, Kind: text}},
		Bindings: []script.Binding{
			{Name: text, Type: release.BindingPlainText, Text: text}, {Name: text, Type: release.BindingJSON, JSON: []byte(text)},
			{Name: text, Type: release.BindingSecretText, Variable: text}, {Name: text, Type: text, Text: text},
			{Name: text, Type: release.BindingDataBlob, Part: "b" + text}, {Name: text, Type: release.BindingTextBlob, Part: text},
		},
	}}}
}

func FuzzConfigRoundTrip(f *testing.F) {
	for _, text := range hostile {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		// A type chosen by the text may be one of those that have a field of their own.
		if strings.Contains(text, "_blob") || text == release.BindingJSON || text == release.BindingSecretText || text == release.BindingWasmModule {
			return
		}
		in := filled(text)
		want := []field{
			{"import", "/workerd/workerd.capnp"}, {"name", "tail"}, {"name", "w0"}, {"name", "internet"}, {"allow", "public"},
			{"name", "tail"}, {"address", "*:8079"}, {"service", "tail"},
			{"name", "w0"}, {"address", "*:8080"}, {"service", "w0"},
			{"name", "tail.js"}, {"esModule", tailScript}, {"compatibilityDate", tailDate},
			{"name", text}, {"esModule", "w0/0"}, {"name", "b" + text}, {fieldFor(text), "w0/1"},
			{"name", "tail"}, {"json", tailProps(in.Workers[0])},
			{"compatibilityDate", text}, {"compatibilityFlags", text}, {"", text},
			{"name", text}, {"text", text}, {"name", text}, {"json", text}, {"name", text}, {"fromEnvironment", text}, {"name", text}, {"text", text},
			{"name", text}, {"data", "w0/1"}, {"name", text}, {"text", "w0/0"},
		}
		if diff := cmp.Diff(want, fieldsOf(t, in.Config())); diff != "" {
			t.Errorf("Config() of %q (-want +got):\n%s", text, diff)
		}
		read := fieldsOf(t, in.Probe(0, text))
		if got := read[4]; got != (field{"address", text}) {
			t.Errorf("Probe() at %q: got %s", text, got)
		}
	})
}

// fieldFor a kind that was never checked.
func fieldFor(kind string) string {
	if slices.Contains([]string{script.KindESModule, script.KindCommonJS, script.KindWasm, script.KindText, script.KindJSON}, kind) {
		return kind
	}
	return script.KindData
}

func (f field) String() string { return fmt.Sprintf("%s = %q", f.Name, f.Text) }
