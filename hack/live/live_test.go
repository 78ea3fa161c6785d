// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestLiveTestsAreFoundInTheSource(t *testing.T) {
	variable := prefix + "HUB" + suffix + `"`
	root := fstest.MapFS{
		"a/rig_test.go": {Data: []byte("package a\nconst variable = " + variable + "\nfunc rig() string { return os.Getenv(variable) }\n")},
		"a/a_test.go": {Data: []byte("package a\nfunc TestOfTheRig(t *testing.T) { start() }\nfunc start() { rig() }\n" +
			"func TestAlone(t *testing.T) {}\nfunc (s suite) rig() {}\n")},
		"b/b_test.go":          {Data: []byte("package b\nfunc TestItself(t *testing.T) { os.Getenv(" + variable + ") }\n")},
		"c/c_test.go":          {Data: []byte("package c\nfunc TestAlone(t *testing.T) { rig() }\n")},
		"c/c.go":               {Data: []byte("package c\nconst notATest = " + variable + "\n")},
		"other/go.mod":         {Data: []byte("module other\n")},
		"other/d/d_test.go":    {Data: []byte("package d\nfunc TestOfAnotherModule(t *testing.T) { os.Getenv(" + variable + ") }\n")},
		"e/testdata/d_test.go": {Data: []byte("package d\nfunc TestOfNobody(t *testing.T) { os.Getenv(" + variable + ") }\n")},
	}
	got, err := find(root)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{"a": {"TestOfTheRig"}, "b": {"TestItself"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("live tests (-want +got):\n%s", diff)
	}
}

func TestARunIsCompleteWhenEveryLiveTestPassed(t *testing.T) {
	tests := map[string][]string{"agent/work": {"TestOne"}}
	const pkg = `"Package":"example.com/m/agent/work"`
	passed := `{"Action":"pass",` + pkg + `,"Test":"TestOne"}` + "\n"
	for label, c := range map[string]struct {
		reason, events string
		want           bool
	}{
		"it passed":           {reason: "that is what is asked for", events: passed, want: true},
		"nothing ran":         {reason: "no failure is no success", events: ""},
		"it skipped itself":   {reason: "a variable was not set", events: `{"Action":"skip",` + pkg + `,"Test":"TestOne"}` + "\n"},
		"a part was skipped":  {reason: "a part counts", events: `{"Action":"skip",` + pkg + `,"Test":"TestOne/part"}` + "\n" + passed},
		"it never ended":      {reason: "the process died", events: `{"Action":"run",` + pkg + `,"Test":"TestOne"}` + "\n"},
		"its namesake passed": {reason: "names are of their package", events: strings.ReplaceAll(passed, "agent/work", "hub/work")},
	} {
		t.Run(label, func(t *testing.T) {
			v := verdict{}
			if err := v.read(strings.NewReader(c.events)); err != nil {
				t.Fatal(err)
			}
			if err := v.complete(tests); (err == nil) != c.want {
				t.Errorf("%s: got %v", c.reason, err)
			}
		})
	}
}

func TestCheckReadsAllFiles(t *testing.T) {
	tests := map[string][]string{"agent": {"TestOne"}, "hub": {"TestTwo"}}
	var files []string
	for dir, names := range tests {
		file := filepath.Join(t.TempDir(), dir+".json")
		content := `{"Action":"pass","Package":"example.com/m/` + dir + `","Test":"` + names[0] + `"}`
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	if err := check(tests, files); err != nil {
		t.Errorf("both files: %v", err)
	}
	if err := check(tests, files[:1]); err == nil || !strings.Contains(err.Error(), "1 of 2") {
		t.Errorf("one file: error %v", err)
	}
	if err := os.WriteFile(files[0], []byte("# not JSON"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := check(tests, files); err == nil || !strings.Contains(err.Error(), files[0]) {
		t.Errorf("error %v does not name the file that cannot be read", err)
	}
}

func TestListHasALineForEachPackage(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("a_test.go", []byte("package a\nfunc TestB(t *testing.T) { os.Getenv("+prefix+"HUB"+suffix+`") }`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := run(&out, []string{"list"}); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); got != "./. TestB\n" {
		t.Errorf("list: %q", got)
	}
	for _, args := range [][]string{nil, {"check"}, {"list", "all"}} {
		if err := run(&out, args); !errors.Is(err, errUsage) {
			t.Errorf("%q: error %v", args, err)
		}
	}
}
