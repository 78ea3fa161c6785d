// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/spokelet/spokelet/internal/quota"
)

func podNamed(namespace, name string) *corev1.Pod {
	pod := web()
	pod.ObjectMeta = metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "u2"}
	return pod
}

func TestTheLogsOfOnePodLeaveStreamsToOthers(t *testing.T) {
	s := newSpoke(t, func(w http.ResponseWriter, r *http.Request) {
		if !r.URL.Query().Has("follow") {
			return
		}
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}, podNamed("team", "db"))
	ctx, hangUp := context.WithCancel(t.Context())
	defer hangUp()
	for i := range maxLogsOfPod {
		if res := s.open(ctx, logPath+"?follow=true"); res.StatusCode != http.StatusOK {
			t.Fatalf("log %d: %d", i, res.StatusCode)
		}
	}
	res := s.open(t.Context(), logPath)
	text, _ := io.ReadAll(res.Body)
	if want := `cluster "spoke1": too many logs of one pod are being read: limit 64`; res.StatusCode != http.StatusTooManyRequests ||
		string(text) != want || res.Header.Get("Retry-After") == "" {
		t.Errorf("one more: %d %q, want 429 %q", res.StatusCode, text, want)
	}
	if code, text := s.do(http.MethodGet, "/containerLogs/team/db/main", "t", nil); code != http.StatusOK {
		t.Errorf("the log of another pod: %d %q", code, text)
	}
	// The cluster is asked, and does not switch.
	if code, text := s.upgrade("GET " + execPath + "&output=1"); code == http.StatusTooManyRequests {
		t.Errorf("a command in the same pod: %d %q", code, text)
	}
	hangUp()
	for range 1000 {
		if code, _ := s.do(http.MethodGet, logPath, "t", nil); code == http.StatusOK {
			return
		}
	}
	t.Error("logs that are not read any more count")
}

func TestACommandsStreamIsGivenBack(t *testing.T) {
	for _, protocol := range []string{protocolSPDY, protocolWebSocket} {
		t.Run(protocol, func(t *testing.T) {
			s := newSpoke(t, execs(func(p *proc) int {
				_, _ = io.WriteString(p.stdout, "x")
				_, _ = io.ReadAll(io.LimitReader(p.stdin, 1))
				return 0
			}))
			s.server.limits.pods.Take("spoke1/team/web", maxStreamsOfPod-1) // all but one
			in, feed := io.Pipe()
			refused := false
			busy := func() {
				code, text := s.upgrade("GET " + execPath + "&output=1")
				refused = code == http.StatusTooManyRequests &&
					text == `cluster "spoke1": too many streams of one pod are open: limit 1024`
				_, _ = feed.Write([]byte("x"))
			}
			err := s.executor(t, protocol, execPath+"&input=1&output=1").
				StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: in, Stdout: &first{f: busy}})
			_ = feed.Close()
			if err != nil || !refused {
				t.Errorf("ended with %v; refused the next: %t", err, refused)
			}
			for range 1000 {
				if s.server.limits.pods.Take("spoke1/team/web", 1) {
					return
				}
				s.do(http.MethodGet, pathHealthz, "t", nil) // takes time, and no stream
			}
			t.Error("a stream that ended counts")
		})
	}
}

func TestAStreamThatIsRefusedIsGivenBack(t *testing.T) {
	s := newSpoke(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
	s.server.limits.pods.Take("spoke1/team/web", maxStreamsOfPod-1) // all but one
	for range 3 {
		for _, path := range []string{execPath + "&output=1", "/portForward/team/web?port=80", logPath} {
			if code, text := s.upgrade("GET " + path); code != http.StatusForbidden {
				t.Errorf("%s: %d %q", path, code, text)
			}
		}
	}
}

func TestStreamsAreCountedByPodNamespaceAndCluster(t *testing.T) {
	doors := quota.NewSlots(math.MaxInt64, maxStreams+10)
	c := newStreamLimits(doors)
	var leaves []func()
	enter := func(node, namespace, name string) error {
		leave, err := c.acquirePod(node, podNamed(namespace, name), false)
		if err == nil {
			leaves = append(leaves, leave)
		}
		return err
	}
	fill := func(reason, namespace, name string, n int, want string) {
		t.Helper()
		for i := range n {
			// A cluster's nodes share its session.
			if err := enter([]string{"spoke1", "spoke1.gpu"}[i%2], namespace, name); err != nil {
				t.Fatalf("%s: stream %d: %v", reason, i, err)
			}
		}
		if err := enter("spoke1", namespace, name); err == nil || codeOf(err) != http.StatusTooManyRequests || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", reason, err, want)
		}
	}
	fill("a pod", "team", "web", maxStreamsOfPod, "streams of one pod are open: limit 1024")
	fill("the rest of its namespace", "team", "db", maxStreamsOfNamespace-maxStreamsOfPod, "streams of pods of one namespace are open: limit 1152")
	fill("the rest of its cluster", "shop", "web", maxStreams-maxStreamsOfNamespace, "streams of pods are open: limit 1280")
	if err := enter("spoke2", "team", "web"); err != nil {
		t.Errorf("another cluster: %v", err)
	}
	for _, leave := range leaves {
		leave()
		leave() // twice does nothing
	}
	if !doors.Take("spoke1", maxStreams+10) {
		t.Fatal("streams that ended count")
	}
	if err := enter("spoke1", "team", "web"); err == nil || !strings.Contains(err.Error(), "streams of users are open: limit 1290") {
		t.Errorf("other doors have all: %v", err)
	}
	doors.Give("spoke1", 1)
	fill("what other doors leave", "team", "web", 1, "streams of users are open")
}

func TestFiguresHaveStreamsOfTheirOwn(t *testing.T) {
	authn, authz := anybody()
	e := &endpoint{node: "spoke1", limits: newStreamLimits(quota.NewSlots(0, 0)), config: Config{
		Authenticator: authn, Authorizer: authz, Pods: testPods{web()}, Door: testDoor{"spoke1": says(http.StatusOK, "{}")},
	}}
	get := func(path string) string {
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return fmt.Sprint(w.Code, " ", w.Body)
	}
	if got := get(pathStats); got != "200 {}" {
		t.Errorf("users have no stream: %s", got)
	}
	for range maxMetricsRequests {
		if _, err := e.limits.acquireMetrics("spoke1.gpu"); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := get(pathStats), `429 cluster "spoke1": too many figures are being read: limit 130`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
