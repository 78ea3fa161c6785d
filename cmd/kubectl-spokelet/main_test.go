// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"os/exec"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// envMain has the test's binary run the command in place of the tests.
const envMain = "SPOKELET_TEST_RUN_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(envMain) != "" {
		main()
	}
	goleak.VerifyTestMain(m)
}

func TestSecondSignalEndsProcess(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), os.Args[0], "detach", "-f", "-")
	cmd.Env = append(os.Environ(), envMain+"=1")
	names, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	defer func() { _ = cmd.Process.Kill(); <-ended }()
	// More than a pipe holds: when it is written the command reads, and has its handler of
	// signals.
	if _, err := names.Write(bytes.Repeat([]byte("#\n"), 1<<18)); err != nil {
		t.Fatal(err)
	}
	deadline := time.After(20 * time.Second)
	for {
		select {
		case <-ended:
			return
		case <-deadline:
			t.Fatal("the command reads on after many signals")
		case <-time.After(20 * time.Millisecond):
			_ = cmd.Process.Signal(os.Interrupt)
		}
	}
}
