// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	llsys "github.com/landlock-lsm/go-landlock/landlock/syscall"
)

const (
	// confinedVariable has the test binary be a process that gives up what it does not
	// need, and tries to reach the rest: files, and the process of an ID.
	confinedVariable = "CONFINED_FILES"
	signalVariable   = "CONFINED_SIGNAL"
)

// runRestricted says of each file whether it can be read, and of the process whether it can be
// reached. It returns the code to exit with.
func runRestricted(out io.Writer) int {
	if err := restrictProcess(); err != nil {
		_, _ = fmt.Fprintln(out, err)
		return 1
	}
	verdict := func(what string, err error) {
		said := "open"
		switch {
		case errors.Is(err, os.ErrPermission):
			said = "shut"
		case err != nil:
			said = err.Error()
		}
		_, _ = fmt.Fprintln(out, what, said)
	}
	for _, name := range filepath.SplitList(os.Getenv(confinedVariable)) {
		_, err := os.ReadFile(name)
		verdict(name, err)
	}
	verdict("write", os.WriteFile(filepath.Join(os.TempDir(), "confined"), nil, 0o600))
	pid, _ := strconv.Atoi(os.Getenv(signalVariable))
	verdict("signal", syscall.Kill(pid, 0))
	_, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	verdict("environment", err)
	_, err = x509.SystemCertPool()
	verdict("authorities", err)
	_, err = net.LookupHost("localhost")
	verdict("names", err)
	return 0
}

func TestRestrictedProcessCannotReadFiles(t *testing.T) {
	abi, err := llsys.LandlockGetABIVersion()
	if err != nil || abi < 1 {
		t.Skipf("needs a kernel with Landlock: version %d, %v", abi, err)
	}
	dir := t.TempDir()
	for _, name := range []string{"token", "authority"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	token, authority := filepath.Join(dir, "token"), filepath.Join(dir, "authority")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = []string{
		confinedVariable + "=" + strings.Join([]string{"/etc/passwd", token, authority, "/etc/hosts", "/dev/null"}, ":"),
		signalVariable + "=" + strconv.Itoa(os.Getpid()), "SSL_CERT_FILE=" + authority,
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	want := []string{"/etc/passwd shut", token + " shut", authority + " open", "/etc/hosts open", "/dev/null open", "write shut", "signal shut", "environment shut", "authorities open", "names open"}
	if abi < 6 {
		want[slices.Index(want, "signal shut")] = "signal open"
	}
	if diff := cmp.Diff(want, strings.Split(strings.TrimSpace(string(out)), "\n")); diff != "" {
		t.Errorf("Landlock %d (-want +got):\n%s", abi, diff)
	}
}
