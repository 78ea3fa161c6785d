// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/httpstream"          //nolint:staticcheck // its successor would be a dependency for tests alone
	"k8s.io/apimachinery/pkg/util/httpstream/spdy"     //nolint:staticcheck // as httpstream
	"k8s.io/apimachinery/pkg/util/httpstream/wsstream" //nolint:staticcheck // as httpstream
	"k8s.io/apimachinery/pkg/util/remotecommand"

	"github.com/spokelet/spokelet/internal/testing/tunneltest"
	"github.com/spokelet/spokelet/tunnel"
)

const protocolSPDY = "SPDY/3.1"

// web is the pod team/web, as the hub has it.
func web() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "web", UID: "u1"},
		Spec: corev1.PodSpec{
			InitContainers:      []corev1.Container{{Name: "init"}},
			Containers:          []corev1.Container{{Name: "main"}, {Name: "side"}},
			EphemeralContainers: []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug"}}},
		},
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{
			{Name: "main", Image: "busybox", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
			{Name: "side", Image: "gone", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}},
		}},
	}
}

// mayAll are the rights of the API server, whose token is "t".
func mayAll() *reviews {
	return &reviews{tokens: map[string]string{"t": "apiserver"}, rights: map[right]bool{
		"apiserver get spoke1/proxy": true, "apiserver create spoke1/proxy": true, "apiserver get spoke1/log": true,
		"apiserver create spoke1/checkpoint": true,
	}}
}

// spoke is a cluster behind a session of a real tunnel.
type spoke struct {
	*fixture
	agent *tunneltest.Agent
	hub   *tunneltest.Hub

	mu    sync.Mutex
	asked []*http.Request
}

// newSpoke connects a cluster whose API server answers with serve, and opens the
// endpoint of its node, which has team/web and perhaps more pods.
func newSpoke(t *testing.T, serve http.HandlerFunc, more ...*corev1.Pod) *spoke {
	t.Helper()
	s := &spoke{hub: tunneltest.NewHub(t, nil)}
	s.agent = s.hub.Connect(t, "spoke1", map[string]http.Handler{
		tunnel.DoorKube: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s.mu.Lock()
			s.asked = append(s.asked, r.Clone(context.WithoutCancel(r.Context())))
			s.mu.Unlock()
			serve(w, r)
		}),
	})
	s.fixture = newFixture(t, mayAll(), DoorFunc(func(ctx context.Context, cluster string) (http.RoundTripper, error) {
		return s.hub.Server.Sessions().Get(ctx, cluster)
	}), append(more, web())...)
	return s
}

// one is the only request that the cluster got.
func (s *spoke) one(t *testing.T) *http.Request {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.asked) != 1 {
		t.Fatalf("the cluster was asked %d times", len(s.asked))
	}
	return s.asked[0]
}

// checkAsked compares the only request that the cluster got.
func (s *spoke) checkAsked(t *testing.T, method, target string, query url.Values) {
	t.Helper()
	r := s.one(t)
	if want := "/api/v1/namespaces/team/pods/web/" + target; r.Method != method || r.URL.Path != want {
		t.Errorf("the cluster was asked for %s %s, want %s %s", r.Method, r.URL.Path, method, want)
	}
	if diff := cmp.Diff(query, r.URL.Query()); diff != "" {
		t.Errorf("query (-want +got):\n%s", diff)
	}
	if r.Header.Get("Spokelet-Principal") != "node" || r.Header.Get("Spokelet-Pod-Uid") != "u1" {
		t.Errorf("asked as %v", r.Header)
	}
	for name := range r.Header {
		if strings.HasPrefix(name, "Impersonate") || name == "Authorization" || name == "Cookie" {
			t.Errorf("header %s was forwarded", name)
		}
	}
}

// process is what runs in a container: it returns its exit code. Streams that
// were not asked for are nil.
type process func(p *proc) int

type proc struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	resize         *json.Decoder
	// gone is closed when the connection of the stream is.
	gone <-chan bool
}

var streamProtocols = []string{"v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io"}

// execs serves exec and attach as container runtimes do, by SPDY and by
// WebSocket.
func execs(run process) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if wsstream.IsWebSocketRequest(r) {
			socketExec(w, r, run)
			return
		}
		protocol, err := httpstream.Handshake(r, w, streamProtocols)
		if err != nil {
			return
		}
		streams := make(chan httpstream.Stream, 8)
		conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, _ <-chan struct{}) error {
			streams <- s
			return nil
		})
		if conn == nil {
			return
		}
		defer func() { _ = conn.Close() }()
		p := &proc{gone: conn.CloseChan()}
		var status io.Writer
		for range expected(r.URL.Query(), protocol) {
			select {
			case s := <-streams:
				if s.Headers().Get(corev1.StreamType) == corev1.StreamTypeError {
					status = s
					continue
				}
				p.add(s)
			case <-conn.CloseChan():
				return
			}
		}
		tell(status, protocol, run(p))
	}
}

func expected(query url.Values, protocol string) int {
	n := 1
	for _, name := range []string{"stdin", "stdout", "stderr"} {
		if query.Get(name) == "true" {
			n++
		}
	}
	if query.Get("tty") == "true" && protocol >= "v3" {
		n++
	}
	return n
}

func (p *proc) add(s httpstream.Stream) {
	switch s.Headers().Get(corev1.StreamType) {
	case corev1.StreamTypeStdin:
		p.stdin = s
	case corev1.StreamTypeStdout:
		p.stdout = s
	case corev1.StreamTypeStderr:
		p.stderr = s
	case corev1.StreamTypeResize:
		p.resize = json.NewDecoder(s)
	}
}

// tell ends a process.
func tell(status io.Writer, protocol string, code int) {
	said := metav1.Status{Status: metav1.StatusSuccess}
	if code != 0 {
		said = metav1.Status{
			Status: metav1.StatusFailure, Reason: remotecommand.NonZeroExitCodeReason,
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: remotecommand.ExitCodeCauseType, Message: strconv.Itoa(code)}}},
		}
	}
	if protocol >= "v4" {
		_ = json.NewEncoder(status).Encode(said)
	} else if code != 0 {
		_, _ = fmt.Fprintf(status, "exit %d", code)
	}
}

// socketExec serves v5 as an API server does that hands it to its kubelet.
func socketExec(w http.ResponseWriter, r *http.Request, run process) {
	channels := wsstream.ChannelProtocolConfig{Binary: true, Channels: []wsstream.ChannelType{
		wsstream.ReadChannel, wsstream.WriteChannel, wsstream.WriteChannel, wsstream.WriteChannel, wsstream.ReadChannel,
	}}
	conn := wsstream.NewConn(map[string]wsstream.ChannelProtocolConfig{"v5.channel.k8s.io": channels, "v4.channel.k8s.io": channels})
	_, streams, err := conn.Open(w, r)
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	// They say that they are ready with an empty message.
	for _, s := range streams[1:4] {
		_, _ = s.Write(nil)
	}
	gone := make(chan bool)
	tell(streams[3], "v5", run(&proc{
		stdin: streams[0], stdout: streams[1], stderr: streams[2], resize: json.NewDecoder(streams[4]), gone: gone,
	}))
}
