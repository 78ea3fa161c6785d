// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
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
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/spokelet/spokelet/e2e/env"
	"github.com/spokelet/spokelet/e2e/testbed"
	"github.com/spokelet/spokelet/hack/clusters"
)

// verbsAgree runs each verb of kubectl against the pods of the virtual node, and against the
// same pods in their cluster: those that are streams with two releases of it.
func (s *tests) verbsAgree(t *testing.T) {
	// Containers that an earlier run has spoken to are of no use.
	remove := []string{"delete", "pod", "--ignore-not-found", "--timeout=300s", "attached", "crashed", "debugged", "ended", "followed"}
	s.Hub.InPods(t, remove...)
	s.Hub.Apply(t, attachedPod("attached")+testbed.Pod("debugged", "", testbed.Container("main", testbed.Forever, ""))+
		testbed.Pod("ended", "restartPolicy: Never, ", testbed.Container("main", "for i in 1 2 3; do echo \"last $i\"; done; exit 3", ""))+
		// One for each kubectl: what it says there no other reads.
		testbed.Pod("followed", "", testbed.Container("spdy", "echo begun; sleep 1d", ""), testbed.Container("websocket", "echo begun; sleep 1d", "")))
	if _, err := testbed.Retry(t, "a pod that was restarted", func(try int) (testbed.Answer, error) { return s.restarted(t, try) }); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"attached", "debugged", "followed"} {
		testbed.UntilPod(t, s.Hub, name, "ready", testbed.Ready)
	}
	testbed.UntilPod(t, s.Hub, "ended", "failed", inPhase(corev1.PodFailed))
	c := s.webSocket()
	tests := map[string]func(*testing.T){"who may not is refused": s.execNeedsARight}
	for name, run := range map[string]func(*testing.T, testbed.Client){
		"logs": s.logsAgree, "debug": s.debugAgrees, "describe": s.describeAgrees, "cordon and drain": s.cordonAgrees,
	} {
		tests[name] = func(t *testing.T) { run(t, c) }
	}
	// These the two clients say over protocols of their own.
	for _, c := range s.Clients() {
		for name, run := range map[string]func(*testing.T, testbed.Client){
			"logs that are followed": s.followedLogsAgree, "exec": s.execAgrees, "a terminal": s.terminalsAgree, "attach": s.attachAgrees,
			"port-forward": s.portForwardAgrees, "cp": s.copiesAgree, "a client that goes away": s.leavingAgrees,
		} {
			tests[name+", "+c.Name] = func(t *testing.T) { run(t, c) }
		}
	}
	testbed.Parallel(t, tests)
	s.Hub.InPods(t, remove...)
}

// restarted makes the pod "crashed", and returns what its cluster knows of the time before
// its container was started anew.
func (s *tests) restarted(t *testing.T, try int) (testbed.Answer, error) {
	if try > 1 {
		s.Hub.InPods(t, "delete", "pod", "crashed", "--timeout=300s")
	}
	s.Hub.Apply(t, testbed.Pod("crashed", "volumes: [{name: work, emptyDir: {}}], initContainers: ["+testbed.Container("prepare", "echo prepared", "")+"], ",
		testbed.Container("main", "if [ -e /work/tried ]; then echo second; exec sleep 1d; fi; touch /work/tried; echo first", "volumeMounts: [{name: work, mountPath: /work}], "),
		testbed.Container("other", "echo beside; sleep 1d", "")))
	testbed.UntilPod(t, s.Hub, "crashed", "started anew", func(pod *corev1.Pod) error {
		if len(pod.Status.ContainerStatuses) == 0 || pod.Status.ContainerStatuses[0].RestartCount == 0 {
			return errors.New("not restarted")
		}
		return testbed.Ready(pod)
	})
	before := testbed.Ask(t.Context(), s.Clients()[0].Spoke, "", "logs", "crashed", "-c", "main", "--previous")
	return before, before.Collected()
}

func (s *tests) execNeedsARight(t *testing.T) {
	s.Hub.Apply(t, "{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: reader, namespace: "+testbed.PodsNamespace+"}, "+
		"rules: [{apiGroups: [\"\"], resources: [pods, pods/log], verbs: [get, list]}]}\n---\n"+
		"{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: reader, namespace: "+testbed.PodsNamespace+"}, "+
		"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}, subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: bob}]}\n")
	bob := s.Hub.As("bob").With("-n", testbed.PodsNamespace)
	// The API server knows of a right a moment after it was given.
	testbed.Until(t, "logs for who may read them", testbed.Settle, func(ctx context.Context) error {
		out, err := bob.Run(ctx, "logs", testbed.LongLived, "-c", "main")
		if err == nil && !strings.Contains(out, "line 20") {
			err = fmt.Errorf("got %q", out)
		}
		return err
	})
	for _, args := range [][]string{{"exec", testbed.LongLived, "-c", "main", "--", "true"}, {"attach", testbed.LongLived, "-c", "main"}, {"port-forward", testbed.LongLived, ":8080"}} {
		testbed.Refused(t, "who may read only", bob, "", args, "orbidden", "bob")
	}
}

func (s *tests) logsAgree(t *testing.T, c testbed.Client) {
	stamped := c.Same(t, testbed.Verb{Args: []string{"logs", testbed.LongLived, "-c", "main", "--timestamps"}, Out: "Z line 20\n"})
	stamp, _, _ := strings.Cut(logLine(t, stamped.Out, "line 11"), " ")
	c.Verbs(t, map[string]testbed.Verb{
		"of one container":   {Args: []string{"logs", testbed.LongLived, "-c", "main"}, Out: "line 20\n"},
		"the last lines":     {Args: []string{"logs", testbed.LongLived, "-c", "main", "--tail=3"}, Out: "line 18\nline 19\nline 20\n"},
		"no line":            {Args: []string{"logs", testbed.LongLived, "-c", "main", "--tail=0"}},
		"with their times":   {Args: []string{"logs", testbed.LongLived, "-c", "main", "--timestamps", "--tail=2"}, Out: "Z line 20\n"},
		"since a time":       {Args: []string{"logs", testbed.LongLived, "-c", "main", "--since-time=" + stamp}, Out: "line 11\n"},
		"of the last hour":   {Args: []string{"logs", testbed.LongLived, "-c", "main", "--since=1h"}, Out: "line 1\n"},
		"of the last moment": {Args: []string{"logs", testbed.LongLived, "-c", "main", "--since=1s"}},
		"some bytes":         {Args: []string{"logs", testbed.LongLived, "-c", "main", "--limit-bytes=10"}, Out: "line 1\nlin"},
		"of all containers":  {Args: []string{"logs", "crashed", "--all-containers", "--prefix"}, Unordered: true, Out: "[pod/crashed/other] beside\n"},
		"by label":           {Args: []string{"logs", "-l", "app=" + testbed.LongLived, "-c", "side"}, Out: "side 1\n"},
		"of the default":     {Args: []string{"logs", testbed.LongLived}, Out: "line 20\n", Err: "Defaulted container"},
		"bytes of the last":  {Args: []string{"logs", testbed.LongLived, "-c", "main", "--tail=3", "--limit-bytes=10"}, Out: "line 18\nli"},
		"unverified":         {Args: []string{"logs", testbed.LongLived, "-c", "main", "--insecure-skip-tls-verify-backend"}, Out: "line 20\n"},
		"of a beginning":     {Args: []string{"logs", "crashed", "-c", "prepare"}, Out: "prepared\n"},
		"before the restart": {Args: []string{"logs", "crashed", "-c", "main", "--previous"}, Out: "first\n"},
		"before, with times": {Args: []string{"logs", "crashed", "-c", "main", "--previous", "--timestamps", "--tail=1"}, Out: "Z first\n"},
		"after the restart":  {Args: []string{"logs", "crashed", "-c", "main"}, Out: "second\n"},
		"no restart":         {Args: []string{"logs", testbed.LongLived, "-c", "main", "--previous"}, Code: 1, Err: "previous terminated container"},
		"no such container":  {Args: []string{"logs", testbed.LongLived, "-c", "nope"}, Code: 1, Err: "nope"},
		"no such pod":        {Args: []string{"logs", "nowhere"}, Code: 1, Err: "not found"},
		"of one that ended":  {Args: []string{"logs", "-f", "ended"}, Out: "last 3\n"},
		"its end, with time": {Args: []string{"logs", "-f", "ended", "--all-containers", "--timestamps", "--tail=1"}, Out: "Z last 3\n"},
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
func (s *tests) followedLogsAgree(t *testing.T, c testbed.Client) {
	mark, name := "said live, "+c.Name, strings.ToLower(c.Name)
	args := []string{"logs", "-f", "followed", "-c", name, "--tail=1"}
	hub, spoke := testbed.Follow(t, c.Hub, args...), testbed.Follow(t, c.Spoke, args...)
	for _, f := range []*testbed.Following{hub, spoke} {
		f.Until(t, "begun\n")
	}
	s.Spoke().InPods(t, "exec", "followed", "-c", name, "--", "sh", "-c", "echo '"+mark+"' >/proc/1/fd/1")
	spoke.Until(t, mark)
	start := time.Now()
	hub.Until(t, mark)
	t.Logf("a line is here %s after it was in the spoke", time.Since(start).Round(time.Millisecond))
}

func (s *tests) execAgrees(t *testing.T, c testbed.Client) {
	in := func(args ...string) []string {
		return append([]string{"exec", testbed.LongLived, "-c", "main", "--"}, args...)
	}
	// Only for a command that reads its input: the end of what nobody reads reaches a kubelet
	// that may have closed, which resets the connection with the output still in it.
	reading := func(args ...string) []string {
		return append([]string{"exec", "-i", testbed.LongLived, "-c", "main", "--"}, args...)
	}
	large := strings.Repeat("0123456789abcdef", 1<<18)
	sum := sha256.Sum256([]byte(large))
	c.Verbs(t, map[string]testbed.Verb{
		"output":                {Args: in("echo", "hello"), Out: "hello\n"},
		"another container":     {Args: []string{"exec", testbed.LongLived, "-c", "side", "--", "sh", "-c", "echo $HOSTNAME"}, Out: testbed.LongLived},
		"the default container": {Args: []string{"exec", testbed.LongLived, "--", "echo", "hello"}, Out: "hello", Err: "Defaulted container"},
		"both outputs":          {Args: in("sh", "-c", "echo out; echo err >&2"), Out: "out\n", Err: "err\n"},
		"arguments with signs":  {Args: in("echo", "a b", "c&d=e", "100%", "ä"), Out: "a b c&d=e 100% ä\n"},
		"input":                 {Args: reading("cat"), Input: "said\n", Out: "said\n"},
		"4 MiB of input":        {Args: reading("sha256sum"), Input: large, Out: hex.EncodeToString(sum[:])},
		"much output":           {Args: in("seq", "1", "300000"), Out: "\n300000\n"},
		"a terminal's output":   {Args: []string{"exec", "-t", testbed.LongLived, "-c", "main", "--", "echo", "hello"}, Out: "hello"},
		"exit code 3":           {Args: in("sh", "-c", "echo before; exit 3"), Code: 3, Out: "before\n", Err: "exit code 3"},
		"exit code 126":         {Args: in("sh", "-c", "exit 126"), Code: 126},
		"exit code 127":         {Args: in("sh", "-c", "nonexistent"), Code: 127, Err: "not found"},
		"killed":                {Args: in("sh", "-c", "kill -9 $$"), Code: 137},
		"no such program":       {Args: in("/nonexistent"), Code: 1, Err: "no such file"},
		"no such container":     {Args: []string{"exec", testbed.LongLived, "-c", "nope", "--", "true"}, Code: 1, Err: "nope"},
		"a pod that has ended":  {Args: []string{"exec", "ended", "--", "true"}, Code: 1, Err: "completed pod"},
		"no such pod":           {Args: []string{"exec", "nowhere", "--", "true"}, Code: 1, Err: "not found"},
	})
}

// leavingAgrees kills a client: what it ran learns that nobody speaks any more.
func (s *tests) leavingAgrees(t *testing.T, c testbed.Client) {
	read, write, err := os.Pipe() // which says nothing, and does not end
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = errors.Join(read.Close(), write.Close()) }()
	for _, way := range []string{testbed.WaySpoke, testbed.WayHub} {
		mark := "/tmp/left-" + way + "-" + c.Name
		f := testbed.FollowWith(t, read, c.On(way), "exec", "-i", testbed.LongLived, "-c", "side", "--", "sh", "-c", "echo begun; cat; touch "+mark)
		f.Until(t, "begun\n")
		if err := f.Cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		seen := "until [ -e " + mark + " ]; do sleep 0.05; done; echo noticed"
		if _, err := testbed.Retry(t, "a look at what was left", func(int) (testbed.Answer, error) {
			got := testbed.Ask(t.Context(), c.Spoke, "", "exec", testbed.LongLived, "-c", "side", "--", "sh", "-c", seen)
			if got.Out != "noticed\n" {
				return got, got.Wrong(testbed.WaySpoke, 0)
			}
			return got, nil
		}); err != nil {
			t.Errorf("%s: %v", way, err)
		}
		t.Logf("%s: noticed within %s", way, time.Since(start).Round(time.Millisecond))
	}
}

// attachedPod waits in some containers for a line, and in others on a terminal.
// Each way of each client has one of both.
func attachedPod(name string) string {
	var containers []string
	for _, way := range []string{testbed.WaySpoke, testbed.WayHub} {
		for _, c := range []string{"websocket", "spdy"} {
			containers = append(containers,
				testbed.Container(way+"-"+c, `echo ready; read line; echo "got $line"; echo end >&2; sleep 0.2`, "stdin: true, "),
				testbed.Container(way+"-"+c+"-tty", "exec sh", "stdin: true, tty: true, "))
		}
	}
	return testbed.Pod(name, "restartPolicy: Never, ", containers...)
}

// podToAttachTo is the name of a pod that no earlier try has spoken to: the first is there,
// further ones are made.
func (s *tests) podToAttachTo(t *testing.T, c testbed.Client, way string, try int) (string, error) {
	t.Helper()
	if try == 1 {
		return "attached", nil
	}
	name := fmt.Sprintf("attached-%s-%s-%d", way, strings.ToLower(c.Name), try)
	pods := s.Hub.Command.With("-n", testbed.PodsNamespace)
	t.Cleanup(func() {
		_, _ = pods.Run(context.WithoutCancel(t.Context()), "delete", "pod", name, "--ignore-not-found", "--wait=false") // its namespace goes, too
	})
	if _, err := pods.RunInput(t.Context(), strings.NewReader(attachedPod(name)), "apply", "-f", "-"); err != nil {
		return "", err
	}
	_, err := pods.Run(t.Context(), "wait", "--for=condition=Ready", "pod/"+name, "--timeout=300s")
	return name, err
}

func (s *tests) attachAgrees(t *testing.T, c testbed.Client) {
	c.Both(t, func(ctl env.Command, way string) (string, error) {
		return testbed.Retry(t, "attach -it, "+way, func(try int) (string, error) {
			pod, err := s.podToAttachTo(t, c, way, try)
			if err != nil {
				return "", err
			}
			// Who attaches is not told the code of what ran.
			return speakOnTerminal(t, ctl, way, 0, "attach", "-it", pod, "-c", way+"-"+strings.ToLower(c.Name)+"-tty")
		})
	})
	c.Both(t, func(ctl env.Command, way string) (string, error) {
		return testbed.Retry(t, "attach -i, "+way, func(try int) (string, error) {
			pod, err := s.podToAttachTo(t, c, way, try)
			if err != nil {
				return "", err
			}
			got := testbed.Speak(t.Context(), ctl, "a word", "attach", "-i", pod, "-c", way+"-"+strings.ToLower(c.Name))
			if got.Code != 0 || !strings.Contains(got.Out, "got a word\n") || !strings.Contains(got.Err, "end\n") {
				return "", got.Wrong(way, 0)
			}
			return got.Out, nil
		})
	})
	c.Verbs(t, map[string]testbed.Verb{
		"no such container":    {Args: []string{"attach", testbed.LongLived, "-c", "nope"}, Code: 1, Err: "nope"},
		"a pod that has ended": {Args: []string{"attach", "ended"}, Code: 1, Err: "completed pod"},
	})
}

// copiesAgree takes a folder to the pod and back.
func (s *tests) copiesAgree(t *testing.T, c testbed.Client) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "from", "deep"), 0o750); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"small": "a little\n", "deep/large": strings.Repeat("0123456789", 200_000), "empty": ""} {
		if err := os.WriteFile(filepath.Join(dir, "from", filepath.FromSlash(name)), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c.Both(t, func(ctl env.Command, way string) (string, error) {
		return testbed.Retry(t, "cp, "+way, func(try int) (string, error) {
			return copyThereAndBack(t, fmt.Sprintf("%s-%s-%d", c.Name, way, try), ctl, way, dir)
		})
	})
	c.Verbs(t, map[string]testbed.Verb{
		"no such container": {Args: []string{"cp", "-c", "nope", filepath.Join(dir, "from"), testbed.LongLived + ":/tmp"}, Code: 1, Err: "nope"},
	})
}

// copyThereAndBack copies a folder and returns what came back otherwise.
func copyThereAndBack(t *testing.T, name string, ctl env.Command, way, dir string) (diff string, err error) {
	t.Helper()
	from, there, back := filepath.Join(dir, "from"), testbed.LongLived+":/tmp/"+name, filepath.Join(dir, name)
	if err := errors.Join(copyTo(t, ctl, way, from, there), copyTo(t, ctl, way, there, back)); err != nil {
		return "", err
	}
	out, err := exec.CommandContext(t.Context(), "diff", "-r", from, back).CombinedOutput()
	return strings.ReplaceAll(string(out), back, "back"), err
}

// copyTo runs "kubectl cp", which does not try again by itself.
func copyTo(t *testing.T, ctl env.Command, way, from, to string) error {
	t.Helper()
	if got := testbed.Ask(t.Context(), ctl, "", "cp", "--retries=0", "-c", "side", from, to); got.Code != 0 {
		return fmt.Errorf("cp %s %s: %w", from, to, got.Wrong(way, 0))
	}
	return nil
}

// debugAgrees adds an ephemeral container and speaks with it.
func (s *tests) debugAgrees(t *testing.T, c testbed.Client) {
	image := []string{"--image=" + clusters.BusyboxImage, "--image-pull-policy=Never"}
	// Who has spoken to a container, and was cut, needs another.
	name, err := testbed.Retry(t, "debug", func(try int) (string, error) {
		name := fmt.Sprintf("debug-%s-%d", strings.ToLower(c.Name), try)
		// It sees the processes of the container that it is for.
		got := testbed.Speak(t.Context(), c.Hub, "a word", slices.Concat([]string{"debug", "-i", "debugged", "-c", name, "--target=main"}, image,
			[]string{"--", "sh", "-c", `read line; ps | grep -q "[s]leep 1d" && echo "got $line"; sleep 0.2`})...)
		return name, debugged(got, testbed.WayHub)
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, on := range []*testbed.Site{s.Hub, s.Spoke()} {
		testbed.UntilPod(t, on, "debugged", "end of the ephemeral container", func(pod *corev1.Pod) error {
			for _, c := range pod.Status.EphemeralContainerStatuses {
				if c.Name == name && c.State.Terminated != nil {
					return nil
				}
			}
			return fmt.Errorf("they are %+v", pod.Status.EphemeralContainerStatuses)
		})
	}
	c.Verbs(t, map[string]testbed.Verb{"its log": {Args: []string{"logs", "debugged", "-c", name}, Out: "got a word\n"}})
	s.copyIsDebugged(t, c, image)
}

// debugged is the error of "kubectl debug" that does not answer as it should. Where a
// stream was cut it shows the log, with a warning, and looks like a success.
func debugged(got testbed.Answer, way string) error {
	switch {
	case strings.Contains(got.Err, "couldn't attach to pod/"):
		return fmt.Errorf("%w: %w", testbed.ErrCut, got.Wrong(way, 0))
	case got.Code != 0 || !strings.Contains(got.Out, "got a word\n"):
		return got.Wrong(way, 0)
	}
	return nil
}

// copyIsDebugged makes a copy of the pod on the same node, with another command and
// without the capability that newer kubectl ask for by default.
func (s *tests) copyIsDebugged(t *testing.T, c testbed.Client, image []string) {
	t.Helper()
	name := "copy-" + strings.ToLower(c.Name)
	got := testbed.Ask(t.Context(), c.Hub, "", slices.Concat([]string{"debug", "debugged", "--copy-to=" + name, "--same-node", "--profile=baseline", "-c", "main"}, image,
		[]string{"--", "sh", "-c", "echo copied; sleep 1d"})...)
	if got.Code != 0 {
		t.Errorf("debug of a copy answers %d, %q, %q", got.Code, got.Out, got.Err)
		return
	}
	for _, on := range []*testbed.Site{s.Hub, s.Spoke()} {
		testbed.UntilPod(t, on, name, "ready", testbed.Ready)
	}
	c.Verbs(t, map[string]testbed.Verb{"the log of a copy": {Args: []string{"logs", name, "-c", "main"}, Out: "copied\n"}})
	s.Hub.InPods(t, "delete", "pod", name, "--timeout=300s")
}

// describedContainers is the part of what describe says that is the same on both
// sides.
var describedContainers = regexp.MustCompile(`(?s)\nIP:.*\nConditions:\n`)

// describeAgrees compares what describe says of a pod's containers, and reads what
// it says of the node.
func (s *tests) describeAgrees(t *testing.T, c testbed.Client) {
	c.Both(t, func(ctl env.Command, _ string) (string, error) {
		got := testbed.Ask(t.Context(), ctl, "", "describe", "pod", testbed.LongLived)
		described := describedContainers.FindString(got.Out)
		if got.Code != 0 || !strings.Contains(described, "  side:\n") || !strings.Contains(described, "Running") {
			return "", fmt.Errorf("describe answers %d, %q, %q", got.Code, got.Out, got.Err)
		}
		return tokenVolumes.ReplaceAllString(described, "TOKEN"), nil
	})
	got := testbed.Ask(t.Context(), c.Hub, "", "describe", "node", c.Node)
	for _, want := range []string{"spokelet.io/virtual-node", "Ready  ", "Kubelet Version:", "Non-terminated Pods:", " " + testbed.LongLived + " ", "cpu  "} {
		if got.Code != 0 || !strings.Contains(got.Out, want) {
			t.Errorf("describe node answers %d, %q; want %q in %s", got.Code, got.Err, want, got.Out)
		}
	}
	c.Verbs(t, map[string]testbed.Verb{"no such pod": {Args: []string{"describe", "pod", "nowhere"}, Code: 1, Err: "not found"}})
}

// tokenVolumes have another name on each side.
var tokenVolumes = regexp.MustCompile(`kube-api-access-\w+`)

// cordonAgrees tries what would take the node out of service, and changes nothing.
func (s *tests) cordonAgrees(t *testing.T, c testbed.Client) {
	for name, tc := range map[string]struct {
		args []string
		code int
	}{
		"cordon":                   {args: []string{"cordon"}},
		"uncordon":                 {args: []string{"uncordon"}},
		"drain":                    {args: []string{"drain", "--pod-selector=app=" + testbed.LongLived, "--force"}},
		"drain of what is nobodys": {args: []string{"drain", "--pod-selector=app=" + testbed.LongLived}, code: 1},
		"drain of nothing":         {args: []string{"drain", "--pod-selector=app=nowhere"}},
	} {
		t.Run(name, func(t *testing.T) {
			c.Both(t, func(ctl env.Command, way string) (string, error) {
				got := testbed.Ask(t.Context(), ctl, "", append(slices.Clone(tc.args), c.NodeOn(way), "--dry-run=server")...)
				if got.Code != tc.code {
					return "", fmt.Errorf("exit code %d: %s%s", got.Code, got.Out, got.Err)
				}
				return strings.ReplaceAll(got.Out+got.Err, c.NodeOn(way), "NODE"), nil
			})
		})
	}
}
