// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/spokelet/spokelet/e2e/env"
	"github.com/spokelet/spokelet/hack/clusters"
)

// verbsAgree runs each verb of two releases of kubectl against the pods of the
// virtual node, and against the same pods in their cluster.
func (s *suite) verbsAgree(t *testing.T) {
	s.hub.apply(t, attachedPod("attached")+pod("crashed", "volumes: [{name: work, emptyDir: {}}], initContainers: ["+container("prepare", "echo prepared", "")+"], ",
		container("main", "if [ -e /work/tried ]; then echo second; exec sleep 1d; fi; touch /work/tried; echo first", "volumeMounts: [{name: work, mountPath: /work}], "),
		container("other", "echo beside; sleep 1d", ""))+
		pod("debugged", "", container("main", forever, ""))+
		// One for each kubectl: what it says there no other reads.
		pod("followed", "", container("spdy", "echo begun; sleep 1d", ""), container("websocket", "echo begun; sleep 1d", "")))
	untilPod(t, s.hub, "crashed", "started anew", func(pod *corev1.Pod) error {
		if len(pod.Status.ContainerStatuses) == 0 || pod.Status.ContainerStatuses[0].RestartCount == 0 {
			return errors.New("not restarted")
		}
		return ready(pod)
	})
	for _, name := range []string{"attached", "debugged", "followed"} {
		untilPod(t, s.hub, name, "ready", ready)
	}
	tests := map[string]func(*testing.T){"who may not is refused": s.execNeedsARight}
	for _, c := range s.clients() {
		for name, run := range map[string]func(*testing.T, client){
			"logs": s.logsAgree, "logs that are followed": s.followedLogsAgree, "exec": s.execAgrees,
			"a terminal": s.terminalsAgree, "attach": s.attachAgrees, "port-forward": s.portForwardAgrees,
			"cp": s.copiesAgree, "debug": s.debugAgrees, "describe": s.describeAgrees, "cordon and drain": s.cordonAgrees,
			"a client that goes away": s.leavingAgrees,
		} {
			tests[name+", "+c.name] = func(t *testing.T) { run(t, c) }
		}
	}
	parallel(t, tests)
	s.hub.inPods(t, "delete", "pod", "attached", "crashed", "debugged", "followed", "--timeout=90s")
}

func (s *suite) execNeedsARight(t *testing.T) {
	s.hub.inPods(t, "create", "role", "reader", "--verb=get,list", "--resource=pods,pods/log")
	s.hub.inPods(t, "create", "rolebinding", "reader", "--role=reader", "--user=bob")
	bob := s.hub.as("bob").With("-n", podsNamespace)
	// The API server knows of a right a moment after it was given.
	until(t, "logs for who may read them", settle, func(ctx context.Context) error {
		out, err := bob.Run(ctx, "logs", longLived, "-c", "main")
		if err == nil && !strings.Contains(out, "line 20") {
			err = fmt.Errorf("got %q", out)
		}
		return err
	})
	for _, args := range [][]string{{"exec", longLived, "-c", "main", "--", "true"}, {"attach", longLived, "-c", "main"}, {"port-forward", longLived, ":8080"}} {
		refused(t, "who may read only", bob, "", args, "orbidden", "bob")
	}
}

func (s *suite) logsAgree(t *testing.T, c client) {
	stamped := c.same(t, answer.plain, "", "logs", longLived, "-c", "main", "--timestamps")
	stamp, _, _ := strings.Cut(logLine(t, stamped.Out, "line 11"), " ")
	c.verbs(t, map[string]verb{
		"of one container":   {args: []string{"logs", longLived, "-c", "main"}, out: "line 20\n"},
		"the last lines":     {args: []string{"logs", longLived, "-c", "main", "--tail=3"}, out: "line 18\nline 19\nline 20\n"},
		"no line":            {args: []string{"logs", longLived, "-c", "main", "--tail=0"}},
		"with their times":   {args: []string{"logs", longLived, "-c", "main", "--timestamps", "--tail=2"}, out: "Z line 20\n"},
		"since a time":       {args: []string{"logs", longLived, "-c", "main", "--since-time=" + stamp}, out: "line 11\n"},
		"of the last hour":   {args: []string{"logs", longLived, "-c", "main", "--since=1h"}, out: "line 1\n"},
		"of the last moment": {args: []string{"logs", longLived, "-c", "main", "--since=1s"}},
		"some bytes":         {args: []string{"logs", longLived, "-c", "main", "--limit-bytes=10"}, out: "line 1\nlin"},
		"of all containers":  {args: []string{"logs", "crashed", "--all-containers", "--prefix"}, unordered: true, out: "[pod/crashed/other] beside\n"},
		"by label":           {args: []string{"logs", "-l", "app=" + longLived, "-c", "side"}, out: "side 1\n"},
		"of the default":     {args: []string{"logs", longLived}, out: "line 20\n", err: "Defaulted container"},
		"bytes of the last":  {args: []string{"logs", longLived, "-c", "main", "--tail=3", "--limit-bytes=10"}, out: "line 18\nli"},
		"unverified":         {args: []string{"logs", longLived, "-c", "main", "--insecure-skip-tls-verify-backend"}, out: "line 20\n"},
		"of a beginning":     {args: []string{"logs", "crashed", "-c", "prepare"}, out: "prepared\n"},
		"before the restart": {args: []string{"logs", "crashed", "-c", "main", "--previous"}, out: "first\n"},
		"before, with times": {args: []string{"logs", "crashed", "-c", "main", "--previous", "--timestamps", "--tail=1"}, out: "Z first\n"},
		"after the restart":  {args: []string{"logs", "crashed", "-c", "main"}, out: "second\n"},
		"no restart":         {args: []string{"logs", longLived, "-c", "main", "--previous"}, code: 1, err: "previous terminated container"},
		"no such container":  {args: []string{"logs", longLived, "-c", "nope"}, code: 1, err: "nope"},
		"no such pod":        {args: []string{"logs", "nowhere"}, code: 1, err: "not found"},
		"of one that ended":  {args: []string{"logs", "-f", "fails"}, out: "last 3\n"},
		"its end, with time": {args: []string{"logs", "-f", "fails", "--all-containers", "--timestamps", "--tail=1"}, out: "Z last 3\n"},
	})
}

// logLine returns the line of a log that ends with a text.
func logLine(t *testing.T, log, end string) string {
	t.Helper()
	for line := range strings.Lines(log) {
		if strings.HasSuffix(strings.TrimSpace(line), end) {
			return line
		}
	}
	t.Fatalf("no line %q in %q", end, log)
	return ""
}

// followedLogsAgree makes a line while both ways follow, and waits for it.
func (s *suite) followedLogsAgree(t *testing.T, c client) {
	mark, name := "said live, "+c.name, strings.ToLower(c.name)
	args := []string{"logs", "-f", "followed", "-c", name, "--tail=1"}
	hub, spoke := follow(t, c.hub, args...), follow(t, c.spoke, args...)
	for _, f := range []*following{hub, spoke} {
		f.until(t, "begun\n")
	}
	s.spoke().inPods(t, "exec", "followed", "-c", name, "--", "sh", "-c", "echo '"+mark+"' >/proc/1/fd/1")
	spoke.until(t, mark)
	start := time.Now()
	hub.until(t, mark)
	t.Logf("a line is here %s after it was in the spoke", time.Since(start).Round(time.Millisecond))
}

// following is a command that runs until the test ends, or it is stopped.
type following struct {
	cmd  *exec.Cmd
	done chan error

	mu  sync.Mutex
	out bytes.Buffer
}

// Write implements io.Writer for the command's output, of both kinds.
func (f *following) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.out.Write(p)
}

func (f *following) text() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.out.String()
}

func follow(t *testing.T, ctl env.Command, args ...string) *following {
	t.Helper()
	return followWith(t, nil, ctl, args...)
}

// followWith is follow with an input.
func followWith(t *testing.T, in *os.File, ctl env.Command, args ...string) *following {
	t.Helper()
	f := &following{cmd: ctl.Cmd(t.Context(), args...), done: make(chan error, 1)}
	f.cmd.Stdout, f.cmd.Stderr = f, f
	if in != nil {
		f.cmd.Stdin = in
	}
	if err := f.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { f.done <- f.cmd.Wait() }()
	t.Cleanup(func() {
		_ = f.cmd.Process.Kill() // it may have ended
		select {
		case err := <-f.done:
			f.done <- err
		case <-time.After(patience):
			t.Errorf("%v does not end", f.cmd.Args)
		}
	})
	return f
}

// until waits for a text in the output.
func (f *following) until(t *testing.T, want string) {
	t.Helper()
	until(t, fmt.Sprintf("%q from %v", want, f.cmd.Args[1:]), patience, func(context.Context) error {
		if got := f.text(); !strings.Contains(got, want) {
			return fmt.Errorf("got %.400q", got)
		}
		return nil
	})
}

// ended waits for the end of the command and returns its exit code.
func (f *following) ended(t *testing.T, within time.Duration) int {
	t.Helper()
	select {
	case err := <-f.done:
		f.done <- err
		return f.cmd.ProcessState.ExitCode()
	case <-time.After(within):
		t.Errorf("%v runs on after %s", f.cmd.Args[1:], within)
		return 0
	}
}

func (s *suite) execAgrees(t *testing.T, c client) {
	in := func(args ...string) []string {
		return append([]string{"exec", "-i", longLived, "-c", "main", "--"}, args...)
	}
	large := strings.Repeat("0123456789abcdef", 1<<18)
	sum := sha256.Sum256([]byte(large))
	c.verbs(t, map[string]verb{
		"output":                {args: in("echo", "hello"), out: "hello\n"},
		"another container":     {args: []string{"exec", longLived, "-c", "side", "--", "sh", "-c", "echo $HOSTNAME"}, out: longLived},
		"the default container": {args: []string{"exec", longLived, "--", "echo", "hello"}, out: "hello", err: "Defaulted container"},
		"both outputs":          {args: in("sh", "-c", "echo out; echo err >&2"), out: "out\n", err: "err\n"},
		"arguments with signs":  {args: in("echo", "a b", "c&d=e", "100%", "ä"), out: "a b c&d=e 100% ä\n"},
		"input":                 {args: in("cat"), input: "said\n", out: "said\n"},
		"4 MiB of input":        {args: in("sha256sum"), input: large, out: hex.EncodeToString(sum[:])},
		"much output":           {args: in("seq", "1", "300000"), out: "\n300000\n"},
		"a terminal's output":   {args: []string{"exec", "-t", longLived, "-c", "main", "--", "echo", "hello"}, out: "hello"},
		"exit code 3":           {args: in("sh", "-c", "echo before; exit 3"), code: 3, out: "before\n", err: "exit code 3"},
		"exit code 126":         {args: in("sh", "-c", "exit 126"), code: 126},
		"exit code 127":         {args: in("sh", "-c", "nonexistent"), code: 127, err: "not found"},
		"killed":                {args: in("sh", "-c", "kill -9 $$"), code: 137},
		"no such program":       {args: in("/nonexistent"), code: 1, err: "no such file"},
		"no such container":     {args: []string{"exec", longLived, "-c", "nope", "--", "true"}, code: 1, err: "nope"},
		"a pod that has ended":  {args: []string{"exec", "fails", "--", "true"}, code: 1, err: "completed pod"},
		"no such pod":           {args: []string{"exec", "nowhere", "--", "true"}, code: 1, err: "not found"},
	})
}

// leavingAgrees kills a client: what it ran learns that nobody speaks any more.
func (s *suite) leavingAgrees(t *testing.T, c client) {
	read, write, err := os.Pipe() // which says nothing, and does not end
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = errors.Join(read.Close(), write.Close()) }()
	for _, way := range []string{waySpoke, wayHub} {
		mark := "/tmp/left-" + way + "-" + c.name
		f := followWith(t, read, c.on(way), "exec", "-i", longLived, "-c", "side", "--", "sh", "-c", "echo begun; cat; touch "+mark)
		f.until(t, "begun\n")
		if err := f.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		seen := "until [ -e " + mark + " ]; do sleep 0.05; done; echo noticed"
		if got := ask(t.Context(), c.spoke, "", "exec", longLived, "-c", "side", "--", "sh", "-c", seen); got.Out != "noticed\n" {
			t.Errorf("%s: %+v", way, got)
		}
		t.Logf("%s: noticed within %s", way, time.Since(start).Round(time.Millisecond))
	}
}

// attachedPod waits in some containers for a line, and in others on a terminal.
// Each way of each client has one of both.
func attachedPod(name string) string {
	var containers []string
	for _, way := range []string{waySpoke, wayHub} {
		for _, c := range []string{"websocket", "spdy"} {
			containers = append(containers,
				container(way+"-"+c, `echo ready; read line; echo "got $line"; echo end >&2; sleep 0.2`, "stdin: true, "),
				container(way+"-"+c+"-tty", "exec sh", "stdin: true, tty: true, "))
		}
	}
	return pod(name, "restartPolicy: Never, ", containers...)
}

func (s *suite) attachAgrees(t *testing.T, c client) {
	c.both(t, func(ctl env.Command, way string) (string, error) {
		return speakOnTerminal(t, ctl, "attach", "-it", "attached", "-c", way+"-"+strings.ToLower(c.name)+"-tty")
	})
	c.both(t, func(ctl env.Command, way string) (string, error) {
		got := speak(t.Context(), ctl, "a word", "attach", "-i", "attached", "-c", way+"-"+strings.ToLower(c.name))
		if got.Code != 0 || !strings.Contains(got.Out, "got a word\n") || !strings.Contains(got.Err, "end\n") {
			return "", fmt.Errorf("got %d, %q, %q", got.Code, got.Out, got.Err)
		}
		return got.Out, nil
	})
	c.verbs(t, map[string]verb{
		"no such container":    {args: []string{"attach", longLived, "-c", "nope"}, code: 1, err: "nope"},
		"a pod that has ended": {args: []string{"attach", "fails"}, code: 1, err: "completed pod"},
	})
}

// copiesAgree takes a folder to the pod and back.
func (s *suite) copiesAgree(t *testing.T, c client) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "from", "deep"), 0o750); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"small": "a little\n", "deep/large": strings.Repeat("0123456789", 200_000), "empty": ""} {
		if err := os.WriteFile(filepath.Join(dir, "from", filepath.FromSlash(name)), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c.both(t, func(ctl env.Command, way string) (string, error) {
		there, back := "/tmp/"+c.name+"-"+way, filepath.Join(dir, way)
		// A client that pings while the end of the output is on its way may lose it to a
		// server that has closed: the spoke's own, or by WebSocket the hub's.
		retries := "3"
		if way == wayHub && c.name == "SPDY" {
			retries = "0"
		}
		for _, args := range [][]string{
			{"cp", "-c", "side", filepath.Join(dir, "from"), longLived + ":" + there},
			{"cp", "--retries=" + retries, "-c", "side", longLived + ":" + there, back},
		} {
			if got := ask(t.Context(), ctl, "", args...); got.Code != 0 {
				return "", fmt.Errorf("%v: %d, %s", args, got.Code, got.Err)
			}
		}
		out, err := exec.CommandContext(t.Context(), "diff", "-r", filepath.Join(dir, "from"), back).CombinedOutput()
		return string(out), err
	})
	c.verbs(t, map[string]verb{
		"no such container": {args: []string{"cp", "-c", "nope", filepath.Join(dir, "from"), longLived + ":/tmp"}, code: 1, err: "nope"},
	})
}

// debugAgrees adds an ephemeral container and speaks with it.
func (s *suite) debugAgrees(t *testing.T, c client) {
	name := "debug-" + strings.ToLower(c.name)
	image := []string{"--image=" + clusters.BusyboxImage, "--image-pull-policy=Never"}
	// It sees the processes of the container that it is for.
	got := speak(t.Context(), c.hub, "a word", slices.Concat([]string{"debug", "-i", "debugged", "-c", name, "--target=main"}, image,
		[]string{"--", "sh", "-c", `read line; ps | grep -q "[s]leep 1d" && echo "got $line"; sleep 0.2`})...)
	if got.Code != 0 || !strings.Contains(got.Out, "got a word\n") {
		t.Errorf("debug answers %d, %q, %q", got.Code, got.Out, got.Err)
	}
	for _, on := range []*site{s.hub, s.spoke()} {
		untilPod(t, on, "debugged", "end of the ephemeral container", func(pod *corev1.Pod) error {
			for _, c := range pod.Status.EphemeralContainerStatuses {
				if c.Name == name && c.State.Terminated != nil {
					return nil
				}
			}
			return fmt.Errorf("they are %+v", pod.Status.EphemeralContainerStatuses)
		})
	}
	c.verbs(t, map[string]verb{"its log": {args: []string{"logs", "debugged", "-c", name}, out: "got a word\n"}})
	s.copyIsDebugged(t, c, image)
}

// copyIsDebugged makes a copy of the pod on the same node, with another command and
// without the capability that newer kubectl ask for by default.
func (s *suite) copyIsDebugged(t *testing.T, c client, image []string) {
	t.Helper()
	name := "copy-" + strings.ToLower(c.name)
	got := ask(t.Context(), c.hub, "", slices.Concat([]string{"debug", "debugged", "--copy-to=" + name, "--same-node", "--profile=baseline", "-c", "main"}, image,
		[]string{"--", "sh", "-c", "echo copied; sleep 1d"})...)
	if got.Code != 0 {
		t.Errorf("debug of a copy answers %d, %q, %q", got.Code, got.Out, got.Err)
		return
	}
	for _, on := range []*site{s.hub, s.spoke()} {
		untilPod(t, on, name, "ready", ready)
	}
	c.verbs(t, map[string]verb{"the log of a copy": {args: []string{"logs", name, "-c", "main"}, out: "copied\n"}})
	s.hub.inPods(t, "delete", "pod", name, "--timeout=90s")
}

// describedContainers is the part of what describe says that is the same on both
// sides.
var describedContainers = regexp.MustCompile(`(?s)\nIP:.*\nConditions:\n`)

// describeAgrees compares what describe says of a pod's containers, and reads what
// it says of the node.
func (s *suite) describeAgrees(t *testing.T, c client) {
	c.both(t, func(ctl env.Command, _ string) (string, error) {
		got := ask(t.Context(), ctl, "", "describe", "pod", longLived)
		described := describedContainers.FindString(got.Out)
		if got.Code != 0 || !strings.Contains(described, "  side:\n") || !strings.Contains(described, "Running") {
			return "", fmt.Errorf("describe answers %d, %q, %q", got.Code, got.Out, got.Err)
		}
		return tokenVolumes.ReplaceAllString(described, "TOKEN"), nil
	})
	got := ask(t.Context(), c.hub, "", "describe", "node", c.node)
	for _, want := range []string{"spokelet.io/virtual-node", "Ready  ", "Kubelet Version:", "Non-terminated Pods:", " " + longLived + " ", "cpu  "} {
		if got.Code != 0 || !strings.Contains(got.Out, want) {
			t.Errorf("describe node answers %d, %q; want %q in %s", got.Code, got.Err, want, got.Out)
		}
	}
	c.verbs(t, map[string]verb{"no such pod": {args: []string{"describe", "pod", "nowhere"}, code: 1, err: "not found"}})
}

// tokenVolumes have another name on each side.
var tokenVolumes = regexp.MustCompile(`kube-api-access-\w+`)

// cordonAgrees tries what would take the node out of service, and changes nothing.
func (s *suite) cordonAgrees(t *testing.T, c client) {
	for name, tc := range map[string]struct {
		args []string
		code int
	}{
		"cordon":                   {args: []string{"cordon"}},
		"uncordon":                 {args: []string{"uncordon"}},
		"drain":                    {args: []string{"drain", "--pod-selector=app=" + longLived, "--force"}},
		"drain of what is nobodys": {args: []string{"drain", "--pod-selector=app=" + longLived}, code: 1},
		"drain of nothing":         {args: []string{"drain", "--pod-selector=app=nowhere"}},
	} {
		t.Run(name, func(t *testing.T) {
			c.both(t, func(ctl env.Command, way string) (string, error) {
				got := ask(t.Context(), ctl, "", append(slices.Clone(tc.args), c.nodeOn(way), "--dry-run=server")...)
				if got.Code != tc.code {
					return "", fmt.Errorf("exit code %d: %s%s", got.Code, got.Out, got.Err)
				}
				return strings.ReplaceAll(got.Out+got.Err, c.nodeOn(way), "NODE"), nil
			})
		})
	}
}
