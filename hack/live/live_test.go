// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"maps"
	"slices"
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

func TestTheFirstArgumentNarrowsARun(t *testing.T) {
	for label, c := range map[string]struct {
		reason     string
		args       []string
		want, rest []string
	}{
		"no such argument": {reason: "everything is run", args: []string{"-race"}, want: []string{"agent", "agent/work", "agents", "hub"}, rest: []string{"-race"}},
		"--in":             {reason: "a folder has those below it", args: []string{"--in=agent", "-race"}, want: []string{"agent", "agent/work"}, rest: []string{"-race"}},
		"--not-in":         {reason: "together they are all", args: []string{"--not-in=agent"}, want: []string{"agents", "hub"}, rest: []string{}},
	} {
		t.Run(label, func(t *testing.T) {
			tests := map[string][]string{"agent": nil, "agent/work": nil, "agents": nil, "hub": nil}
			rest := narrow(tests, c.args)
			if diff := cmp.Diff(c.want, slices.Sorted(maps.Keys(tests))) + cmp.Diff(c.rest, rest); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.reason, diff)
			}
		})
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
			v, err := judge(strings.NewReader(c.events), t.Output())
			if err != nil {
				t.Fatal(err)
			}
			if err := v.complete(tests); (err == nil) != c.want {
				t.Errorf("%s: got %v", c.reason, err)
			}
		})
	}
}

func TestWhatFailedIsShownWhole(t *testing.T) {
	var out strings.Builder
	events := `{"Action":"output","Package":"p","Test":"TestBad","Output":"why\n"}
{"Action":"output","Package":"p","Test":"TestGood","Output":"noise\n"}
{"Action":"pass","Package":"p","Test":"TestGood","Elapsed":1}
{"Action":"fail","Package":"p","Test":"TestBad"}
`
	if _, err := judge(strings.NewReader(events), &out); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("pass TestGood 1.0s\nwhy\n", out.String()); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
	if _, err := judge(strings.NewReader("# not JSON"), &out); err == nil {
		t.Error("what cannot be read was taken")
	}
}

func TestTheArgumentsHaveTheLastWord(t *testing.T) {
	tests := map[string][]string{"hub": {"TestB", "TestA"}, "agent": {"TestA"}}
	got := goTest(tests, []string{"-race", "-timeout=1m"})
	want := []string{"test", "-run=^(TestA|TestB)$", "-json", "-count=1", "-timeout=17m", "-race", "-timeout=1m", "./agent", "./hub"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("command line of go (-want +got):\n%s", diff)
	}
}
