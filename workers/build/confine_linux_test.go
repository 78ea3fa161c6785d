// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package build

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	landlock "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// self is the test binary.
func self(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// standIn is a step whose workerd is the test binary.
func standIn(t *testing.T) CheckConfig {
	t.Helper()
	c := CheckConfig{Work: filepath.Join(t.TempDir(), "work"), Temp: t.TempDir(), Workerd: self(t), Confine: []string{self(t), confined}}
	write(t, filepath.Join(c.Work, "script.js"), "")
	c.setDefaults()
	return c
}

// run runs a command confined, and returns how it ended and what it said.
func (c *CheckConfig) run(t *testing.T, file string) (progress, *os.ProcessState, string) {
	t.Helper()
	p, err := c.start(t.Context(), file, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	got := p.readProgress(t.Context())
	state, err := p.wait()
	if err != nil {
		t.Fatal(err)
	}
	return got, state, string(p.output.buffer)
}

func TestConfinedCodeHasNoAccess(t *testing.T) {
	c := standIn(t)
	write(t, filepath.Join(filepath.Dir(c.Work), "secret"), "secret")
	t.Setenv("SPOKELET_SECRET", "secret")
	file := filepath.Join(c.Work, "do")
	write(t, file, doAttempts+":"+c.Work)
	_, state, said := c.run(t, file)
	var got map[string]string
	if err := json.NewDecoder(strings.NewReader(said)).Decode(&got); err != nil {
		t.Fatalf("%v: %v: %s", state, err, said)
	}
	cases := map[string]struct{ reason, want string }{
		"socket inet":          {"a tenant's code has no network while it is checked", "EPERM"},
		"socket inet6":         {"nor the newer one", "EPERM"},
		"socket inet, padded":  {"the kernel looks at the lower half of the argument alone, and so does the filter", "EPERM"},
		"socket netlink":       {"the kernel has more networks than those", "EPERM"},
		"socket packet":        {"as netlink", "EPERM"},
		"socket vsock":         {"a virtual machine reaches its host by it", "EPERM"},
		"socket unix":          {"workerd listens on one", "done"},
		"socketpair inet":      {"no way around socket", "EPERM"},
		"socketpair unix":      {"workerd's threads wake each other with it", "done"},
		"io_uring":             {"it makes sockets past the filter", "EPERM"},
		"ptrace":               {"the process that checks is of the same user", "EPERM"},
		"read other memory":    {"as ptrace", "EPERM"},
		"write other memory":   {"as ptrace", "EPERM"},
		"take other file":      {"another process may have a socket", "EPERM"},
		"signal other":         {"the process that checks is not ended by what it checks", "EPERM"},
		"signal itself":        {"V8 aborts", "done"},
		"limit other":          {"a limit can end a process", "EPERM"},
		"user namespace":       {"in one of its own a process has rights in the kernel", "EPERM"},
		"clone with namespace": {"as unshare", "EPERM"},
		"clone3":               {"its flags cannot be filtered: libraries then use clone", "ENOSYS"},
		"bpf":                  {"a part of the kernel that workerd has no need of", "EPERM"},
		"read script":          {"workerd reads it", "done"},
		"write own":            {"its socket is there", "done"},
		"descriptors":          {"nothing is inherited that leads out", "done"},
		"environment":          {"nothing is inherited", "done"},
	}
	files := map[string]struct{ reason, want string }{
		"read system":    {"only libraries are read", "EACCES"},
		"read processes": {"others' environments are there", "EACCES"},
		"read neighbour": {"the folder of the steps is all that is read", "EACCES"},
		"write script":   {"what was fetched is what is pushed", "EACCES"},
		"write beside":   {"as write script", "EACCES"},
	}
	for name, test := range cases {
		if got[name] != test.want {
			t.Errorf("%s: %s\n%s, not %s", name, test.reason, got[name], test.want)
		}
	}
	for name, test := range files {
		if version, _ := landlock.LandlockGetABIVersion(); version < 1 {
			t.Logf("%s: not tested, as this kernel has no Landlock", name)
		} else if got[name] != test.want {
			t.Errorf("%s: %s\n%s, not %s", name, test.reason, got[name], test.want)
		}
	}
	if len(got) != len(cases)+len(files) {
		t.Errorf("%d attempts, and %d are judged", len(got), len(cases)+len(files))
	}
}

// program is an ELF file of some instructions.
func program(machine uint16, code []byte) []byte {
	const base, head = 0x400000, 64 + 56
	image := make([]byte, head, head+len(code))
	copy(image, "\x7fELF\x02\x01\x01")
	put := func(at int, size int, value uint64) {
		for i := range size {
			image[at+i] = byte(value >> (8 * i))
		}
	}
	size := uint64(head + len(code))
	put(16, 2, 2) // executable
	put(18, 2, uint64(machine))
	put(20, 4, 1)         // version
	put(24, 8, base+head) // entry
	put(32, 8, 64)        // program headers
	put(52, 2, 64)        // size of this one
	put(54, 2, 56)        // of one of them
	put(56, 2, 1)         // how many
	put(64, 4, 1)         // loaded
	put(68, 4, 5)         // to be read and executed
	put(80, 8, base)
	put(88, 8, base)
	put(96, 8, size)
	put(104, 8, size)
	put(112, 8, 0x1000)
	return append(image, code...)
}

func TestForeignArchitectureCallKillsProcess(t *testing.T) {
	if architecture != unix.AUDIT_ARCH_X86_64 {
		t.Skip("the programs are for x86-64")
	}
	cases := map[string]struct {
		reason string
		code   []byte
		want   syscall.Signal
	}{
		"a call of this architecture": {
			reason: "the programs are what ends",
			code:   []byte{0xb8, 60, 0, 0, 0, 0x31, 0xff, 0x0f, 0x05}, // ends well
			want:   -1,
		},
		"a call of i386": {
			reason: "its numbers are others: socket has the number of another call",
			code:   []byte{0xb8, 20, 0, 0, 0, 0xcd, 0x80, 0xb8, 60, 0, 0, 0, 0x31, 0xff, 0x0f, 0x05}, // ends well, but for the first
			want:   syscall.SIGSYS,
		},
		"a call of x32": {
			reason: "the architecture is the same one, and the numbers have one more bit",
			code:   []byte{0xb8, 39, 0, 0, 0x40, 0x0f, 0x05, 0xb8, 60, 0, 0, 0, 0x31, 0xff, 0x0f, 0x05}, // ends well, but for the first
			want:   syscall.SIGSYS,
		},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			c := standIn(t)
			c.Workerd = filepath.Join(t.TempDir(), "program")
			if err := os.WriteFile(c.Workerd, program(62, test.code), 0o700); err != nil {
				t.Fatal(err)
			}
			plain := exec.Command(c.Workerd)
			if err := plain.Run(); plain.ProcessState == nil {
				t.Fatal(err)
			}
			// A kernel with ia32_emulation=0 ends by itself what makes a call of i386.
			if test.want == syscall.SIGSYS && endedBy(plain.ProcessState) == syscall.SIGSEGV {
				t.Skip("this kernel has no such calls")
			}
			got, state, said := c.run(t, filepath.Join(c.Work, "script.js"))
			if !got.confined {
				t.Fatalf("%+v: %v: %s", got, state, said)
			}
			if signal := endedBy(state); signal != test.want {
				t.Errorf("%s\nit ended with %v, not %v", test.reason, state, test.want)
			}
		})
	}
}

// endedBy is the signal that ended a process, or -1.
func endedBy(state *os.ProcessState) syscall.Signal {
	return state.Sys().(syscall.WaitStatus).Signal()
}

func TestCheckFailsWithoutSeccompFilter(t *testing.T) {
	c := standIn(t)
	file := filepath.Join(c.Work, "do")
	write(t, file, doNothing+":it ran")
	c.Confine = []string{self(t), unfiltered}
	got, state, said := c.run(t, file)
	want := progress{failure: "seccomp: " + syscall.ENOSYS.Error()}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(progress{})); diff != "" || strings.Contains(said, "it ran") {
		t.Errorf("%v: %s\n%s", state, said, diff)
	}
}

func TestConfineReportsErrors(t *testing.T) {
	cases := map[string]struct {
		reason    string
		arguments []string
		want      string
	}{
		"no argument":      {"it is called by Check alone", nil, "confine: takes one argument"},
		"two arguments":    {"as none", []string{"{}", "{}"}, "confine: takes one argument"},
		"another argument": {"as none", []string{"serve"}, "confine: invalid character 's' looking for beginning of value"},
		"no command":       {"there is nothing to become", []string{"{}"}, "confine: has no command"},
		"a command that is not there": {
			"an image without workerd says so", []string{`{"command":["/nowhere/workerd"],"write":"/tmp","memory":1000000000}`},
			"execute /nowhere/workerd: no such file or directory",
		},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			var said bytes.Buffer
			reader, writer, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer reader.Close()
			// Not through Check: it is what is called otherwise.
			command := exec.CommandContext(t.Context(), self(t), append([]string{confinedArguments}, test.arguments...)...)
			command.Env, command.Stderr, command.ExtraFiles = []string{}, &said, []*os.File{writer}
			if err := command.Start(); err != nil {
				t.Fatal(err)
			}
			writer.Close()
			got := (&process{events: reader}).readProgress(t.Context())
			if err := command.Wait(); err == nil || !strings.Contains(got.failure, test.want) {
				t.Errorf("%s\n%v, %q, not %q: %s", test.reason, err, got.failure, test.want, said.String())
			}
		})
	}
}
