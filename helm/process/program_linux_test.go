// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/spokelet/spokelet/agent/helm"
	"github.com/spokelet/spokelet/agent/helm/message"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/testing/livetest"
)

// built is the program, as it is in the agent's image. It is where the Makefile and package
// env of the end-to-end tests build it, with the same flags: one that is new is left alone.
var built = sync.OnceValues(func() (path string, err error) {
	path, err = filepath.Abs("../../bin/spokelet-helm")
	if err != nil {
		return "", err
	}
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", path, "../cmd/spokelet-helm")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return path, nil
})

// door leads to a cluster, and adds who asks.
type door struct{ config *rest.Config }

func (d door) Config(r wire.Requester) (*rest.Config, error) {
	config := rest.CopyConfig(d.config)
	config.Impersonate.UserName = r.User
	config.Impersonate.Groups = []string{"system:masters"}
	return config, nil
}

// program is run as the agent runs it.
type program struct {
	runner   *helm.Runner
	begun    int
	progress []string
}

func newProgram(t *testing.T, cluster *rest.Config, allowed string) *program {
	t.Helper()
	path, err := built()
	if err != nil {
		t.Fatal(err)
	}
	runner, err := helm.New(helm.Config{Binary: path, Door: door{cluster}, Allowed: []string{allowed}, Logger: testr.New(t)})
	if err != nil {
		t.Fatal(err)
	}
	return &program{runner: runner}
}

func (r *program) run(ctx context.Context, request message.Request) (message.Answer, error) {
	return r.runner.Run(ctx, wire.Requester{User: "alice"}, request, helm.Events{
		BeforeChange: func(context.Context) error { r.begun++; return nil },
		Progress:     func(what string) { r.progress = append(r.progress, what) },
	})
}

// archiveOf is a chart of files.
func archiveOf(t *testing.T, content map[string]string) []byte {
	t.Helper()
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	all := tar.NewWriter(zipped)
	for _, name := range slices.Sorted(maps.Keys(content)) {
		if err := all.WriteHeader(&tar.Header{Name: "web/" + name, Mode: 0o644, Size: int64(len(content[name])), Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(all, content[name]); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(all.Close(), zipped.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// newUsualChart is a chart of 20 templates and 40 objects, with values of usual size.
func newUsualChart(t *testing.T) []byte {
	content := map[string]string{
		"Chart.yaml":             "apiVersion: v2\nname: web\nversion: 1.0.0\n",
		"values.yaml":            "text: " + strings.Repeat("words of a text. ", 4000) + "\n",
		"README.md":              strings.Repeat("words of a text. ", 4000),
		"templates/_helpers.tpl": `{{- define "web.labels" }}app.kubernetes.io/name: web{{ end }}`,
	}
	for i := range 20 {
		content[fmt.Sprintf("templates/%d.yaml", i)] = fmt.Sprintf(`apiVersion: v1
kind: ConfigMap
metadata: {name: web-%d, labels: { {{ include "web.labels" . }} }}
data: {text: {{ .Values.text | trunc 8000 | quote }} }
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web-%[1]d}
spec:
  selector: {matchLabels: {a: "%[1]d"}}
  template:
    metadata: {labels: {a: "%[1]d"}, annotations: {sum: {{ .Values.text | sha256sum }} }}
    spec: {schedulerName: nobody, containers: [{name: a, image: a, ports: [{containerPort: 80}], env: [{name: A, value: b}]}]}
`, i)
	}
	return archiveOf(t, content)
}

// newBomb is a chart that is small only while it is packed: the charts in it are.
func newBomb(t *testing.T) []byte {
	inner := archiveOf(t, map[string]string{"Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.0.0\n", "files/a": strings.Repeat("a", 30<<20)})
	content := map[string]string{"Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.0.0\n"}
	for i := range 100 {
		content[fmt.Sprintf("charts/a%d.tgz", i)] = string(inner)
	}
	return archiveOf(t, content)
}

func chartServer(t *testing.T, raw []byte) (url string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(raw) }))
	t.Cleanup(s.Close)
	return s.URL
}

func request(url string) message.Request {
	return message.Request{Verb: message.Install, Name: "web", Namespace: "shop", Chart: message.Chart{URL: url + "/web.tgz"}, ActionLabel: "uid.1", Timeout: time.Minute}
}

func TestProgramActsAsRequester(t *testing.T) {
	var mu sync.Mutex
	users := map[string]bool{}
	cluster := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		users[r.Header.Get("Impersonate-User")] = true
		mu.Unlock()
		forbidden(w, r)
	}))
	defer cluster.Close()
	url := chartServer(t, newUsualChart(t))
	r := newProgram(t, &rest.Config{Host: cluster.URL, Transport: &http.Transport{DisableKeepAlives: true}}, url)
	answer, err := r.run(t.Context(), request(url))
	if err != nil || answer.Failure == nil || answer.Failure.Reason != "Forbidden" {
		t.Fatalf("got %+v, %v", answer, err)
	}
	if r.begun != 0 || !slices.Contains(r.progress, "reading chart "+url+"/web.tgz") || !maps.Equal(users, map[string]bool{"alice": true}) {
		t.Errorf("begun %d times, progress %q, asked as %v", r.begun, r.progress, users)
	}
}

func TestHangingProgramIsKilled(t *testing.T) {
	asked := make(chan struct{})
	var once sync.Once
	cluster := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		once.Do(func() { close(asked) })
		<-r.Context().Done()
	}))
	defer cluster.Close()
	url := chartServer(t, newUsualChart(t))
	r := newProgram(t, &rest.Config{Host: cluster.URL, Transport: &http.Transport{DisableKeepAlives: true}}, url)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked
		cancel()
	}()
	if _, err := r.run(ctx, request(url)); !errors.Is(err, helm.ErrEnded) {
		t.Errorf("got %v, want %v", err, helm.ErrEnded)
	}
}

func TestProgramIsKilledBeyondMemoryLimit(t *testing.T) {
	url := chartServer(t, newBomb(t))
	r := newProgram(t, &rest.Config{Host: "http://127.0.0.1:1"}, url)
	if _, err := r.run(t.Context(), request(url)); !errors.Is(err, helm.ErrEnded) || !strings.Contains(err.Error(), "MiB") {
		t.Errorf("got %v, want %v", err, helm.ErrEnded)
	}
}

func TestUsualChartFitsInMemoryLimit(t *testing.T) {
	cfg := livetest.Config(t, "SPOKELET_TEST_KUBECONFIG")
	kube, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	url := chartServer(t, newUsualChart(t))
	install := request(url)
	install.Namespace = livetest.Namespace(t, kube, "helm-")
	r := newProgram(t, cfg, url)
	for _, verb := range []message.Verb{message.Install, message.Upgrade, message.Uninstall} {
		install.Verb = verb
		answer, err := r.run(t.Context(), install)
		if err != nil || answer.Release == nil {
			t.Fatalf("%s: got %+v, %v", verb, answer.Failure, err)
		}
	}
	if r.begun != 3 || !slices.Contains(r.progress, "creating ConfigMap web-0, ConfigMap web-1, ConfigMap web-10 and 37 more") {
		t.Errorf("begun %d times, progress %q", r.begun, r.progress)
	}
}
