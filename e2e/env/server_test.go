// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

// servedAddress names the variable that makes a process of these tests a server.
const servedAddress = "SPOKELET_TEST_SERVES"

func TestMain(m *testing.M) {
	if address := os.Getenv(servedAddress); address != "" {
		os.Exit(serveFor(address))
	}
	goleak.VerifyTestMain(m)
}

// serveFor listens until the process is ended, or says why it does not.
func serveFor(address string) int {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 7
	}
	fmt.Fprintln(os.Stderr, "serves")
	for {
		if conn, err := listener.Accept(); err == nil {
			_ = conn.Close()
		}
	}
}

// testServer is this test's program as a server.
func testServer(t *testing.T, address string) *Server {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{
		Address: address, Log: filepath.Join(t.TempDir(), "log"),
		command: Command{Path: program, Env: []string{servedAddress + "=" + address}},
	}
	t.Cleanup(func() { _ = s.Stop() })
	return s
}

func freeTestAddress(t *testing.T) string {
	t.Helper()
	address, err := freeAddress(t.Context(), "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	return address
}

func TestAServerStartsAgainWhereItWas(t *testing.T) {
	s := testServer(t, freeTestAddress(t))
	for range 2 {
		for range 2 { // the second finds what the first has done
			if err := s.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			if err := s.Stop(); err != nil {
				t.Fatal(err)
			}
		}
		if conn, err := net.Dial("tcp", s.Address); err == nil {
			_ = conn.Close()
			t.Error("a server that was stopped listens")
		}
	}
	log, err := os.ReadFile(s.Log)
	if err != nil || strings.Count(string(log), "serves") != 2 {
		t.Errorf("the log of both lives: %q, %v", log, err)
	}
}

func TestAServerThatEndsSaysWhy(t *testing.T) {
	s := testServer(t, "192.0.2.1:1") // of no machine
	err := s.Start(t.Context())
	failed, ok := errors.AsType[*Error](err)
	if !ok || failed.ExitCode() != 7 || !strings.Contains(failed.Output, "192.0.2.1:1") {
		t.Errorf("got %v", err)
	}
	if err := s.Stop(); err != nil {
		t.Errorf("it does not run any more: %v", err)
	}
}

func TestAServerThatIsNoProgramDoesNotStart(t *testing.T) {
	s := &Server{Address: freeTestAddress(t), Log: filepath.Join(t.TempDir(), "log"), command: Command{Path: "/nowhere/server"}}
	if err := s.Start(t.Context()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestTreeFilesAreThoseThatAreThere(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "usr", "lib"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(root, "tmp"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(root, "tmp"), 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "usr", "lib", "libc.so.6"), []byte("x"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("usr/lib", filepath.Join(root, "lib")); err != nil {
		t.Fatal(err)
	}
	files, err := treeFiles(root)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, file := range files {
		got[file.Path] = fmt.Sprintf("%s %s", file.Mode&os.ModeSticky, file.Link+strings.TrimPrefix(file.Source, root))
	}
	const plain, sticky = "---------- ", "t--------- "
	want := map[string]string{"/lib": plain + "usr/lib", "/tmp": sticky, "/usr": plain, "/usr/lib": plain, "/usr/lib/libc.so.6": plain + "/usr/lib/libc.so.6"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}
