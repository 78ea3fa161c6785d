// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spokelet/spokelet/hack/clusters/internal/cgroup"
	"github.com/spokelet/spokelet/hack/clusters/toolchain"
)

// bench is a real set with what the tests ask of it.
type bench struct {
	*testing.T
	set *Set
}

func needsKubernetes(t *testing.T) *slog.Logger {
	t.Helper()
	if testing.Short() {
		t.Skip("makes real clusters; -short leaves it out")
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	if !toolchain.New(log).Built(t.Context(), "kubectl") {
		t.Skip("needs Kubernetes, whose build takes minutes; build it with: go run ./cmd/clusters bin kubectl")
	}
	return log
}

func newBench(t *testing.T, config Config) *bench {
	t.Helper()
	removeAtEnd(t, config)
	set, err := Up(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	return &bench{t, set}
}

// removeAtEnd has a set go with the test, however far it got.
func removeAtEnd(t *testing.T, config Config) {
	t.Helper()
	t.Cleanup(func() {
		if err := Down(context.WithoutCancel(t.Context()), config); err != nil {
			t.Error(err)
		}
	})
}

func (b *bench) kubectl(c *Cluster, input string, args ...string) string {
	b.Helper()
	kubectl, err := b.set.Program(b.Context(), "kubectl")
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.CommandContext(b.Context(), kubectl, append([]string{"--kubeconfig=" + c.Kubeconfig}, args...)...)
	cmd.Stdin = strings.NewReader(input)
	var stderr strings.Builder
	cmd.Stderr = &stderr // apart: the two arrive in any order
	out, err := cmd.Output()
	if err != nil {
		b.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, stderr.String())
	}
	return string(out)
}

// reaches tells whether a TCP connection can be opened from a cluster.
func (b *bench) reaches(from, to *Cluster, port string) bool {
	b.Helper()
	_, err := from.Exec(b.Context(), "timeout", "2", "bash", "-c", "exec 3<>/dev/tcp/"+to.Address+"/"+port)
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) {
		b.Fatal(err)
	}
	return err == nil
}

// testPromises are parts that run in order and leave the set as they found it.
func (b *bench) testPromises(hub, spoke *Cluster) {
	for _, part := range []struct {
		name string
		run  func(b *bench)
	}{
		{"pods run, and answer logs, exec and port-forward", func(b *bench) { b.testPods(spoke) }},
		{"pods reach services, and the hub's node", func(b *bench) { b.testServices(hub, spoke) }},
		{"the hub reaches no spoke", func(b *bench) { b.testOneWay(hub, spoke) }},
		{"cuts stop traffic until they are healed", func(b *bench) { b.testCuts(hub, spoke) }},
		{"the aggregation layer authenticates itself", func(b *bench) { b.testAggregation(hub) }},
		{"the audit log records each request once", func(b *bench) { b.testAudit(hub) }},
		{"kubelets give figures", func(b *bench) { b.testFigures(hub) }},
		{"nodes read images from a plain registry", func(b *bench) { b.testPlainRegistry(spoke) }},
		{"the API server stops and starts", func(b *bench) { b.testAPIServer(spoke) }},
		{"up finds a healthy set", func(b *bench) { b.testReuse() }},
	} {
		b.Run(part.name, func(t *testing.T) { part.run(b.on(t)) })
	}
}

// on is the same bench for a part of the test.
func (b *bench) on(t *testing.T) *bench {
	t.Helper()
	return &bench{t, b.set}
}

const echoPod = `apiVersion: v1
kind: Pod
metadata: {name: echo, labels: {app: echo}}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: echo
    image: spokelet.io/test/busybox:latest
    imagePullPolicy: Never
    command: [sh, -c, "echo started; mkdir /www; echo hello >/www/index.html; exec httpd -f -p 8080 -h /www"]
    ports: [{containerPort: 8080, hostPort: 8088}]
---
apiVersion: v1
kind: Service
metadata: {name: echo}
spec: {type: NodePort, selector: {app: echo}, ports: [{port: 80, targetPort: 8080, nodePort: 30080}]}
`

func (b *bench) startEcho(c *Cluster) {
	b.Helper()
	b.kubectl(c, echoPod, "apply", "--filename=-")
	b.kubectl(c, "", "wait", "pod/echo", "--for=condition=Ready", "--timeout=60s")
}

func (b *bench) testPods(c *Cluster) {
	b.startEcho(c)
	if got := b.kubectl(c, "", "logs", "echo"); got != "started\n" {
		b.Errorf("logs: %q", got)
	}
	if got := b.kubectl(c, "", "exec", "echo", "--", "cat", "/www/index.html"); got != "hello\n" {
		b.Errorf("exec: %q", got)
	}
	kubectl, err := b.set.Program(b.Context(), "kubectl")
	if err != nil {
		b.Fatal(err)
	}
	forward := exec.CommandContext(b.Context(), kubectl, "--kubeconfig="+c.Kubeconfig, "port-forward", "pod/echo", ":8080")
	out, err := forward.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := forward.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() { _ = forward.Process.Kill(); _ = forward.Wait() }()
	var port int
	if _, err := fmt.Fscanf(out, "Forwarding from 127.0.0.1:%d -> 8080", &port); err != nil {
		b.Fatal(err)
	}
	b.get(fmt.Sprintf("127.0.0.1:%d", port))
}

// eventually tries until there is no error: rules for a new Service and
// containers' listeners come a moment after the pod is ready.
func (b *bench) eventually(what string, try func() error) {
	b.Helper()
	deadline := time.After(20 * time.Second)
	for {
		err := try()
		if err == nil {
			return
		}
		select {
		case <-deadline:
			b.Fatalf("%s: %v", what, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// get fetches the echo pod's page from here.
func (b *bench) get(address string) {
	b.Helper()
	b.eventually(address, func() error { return b.tryGet(address) })
}

var errStatus = errors.New("unexpected status")

func (b *bench) tryGet(address string) error {
	request, err := http.NewRequestWithContext(b.Context(), http.MethodGet, "http://"+address+"/index.html", nil)
	if err != nil {
		return err
	}
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%w %s", errStatus, response.Status)
	}
	return nil
}

func (b *bench) testServices(hub, spoke *Cluster) {
	b.startEcho(hub)
	b.get(hub.Address + ":30080")
	b.get(hub.Address + ":8088")
	service := b.kubectl(spoke, "", "get", "service", "echo", "--output=jsonpath={.spec.clusterIP}")
	for what, address := range map[string]string{
		"its own service":       service,
		"the hub's node port":   hub.Address + ":30080",
		"the hub's host port":   hub.Address + ":8088",
		"the spoke's node port": spoke.Address + ":30080",
		"the spoke's host port": spoke.Address + ":8088",
	} {
		script := "until timeout 5 wget -q -O - http://" + address + "/index.html; do sleep 0.1; done"
		if got := b.kubectl(spoke, "", "exec", "echo", "--", "timeout", "20", "sh", "-c", script); got != "hello\n" {
			b.Errorf("from a pod of the spoke, %s answers %q", what, got)
		}
	}
}

func (b *bench) testOneWay(hub, spoke *Cluster) {
	if !b.reaches(spoke, hub, "6443") {
		b.Error("the spoke does not reach the hub's API server")
	}
	for _, port := range []string{"6443", "10250", "30080", "8088"} {
		if b.reaches(hub, spoke, port) {
			b.Errorf("the hub reaches port %s of the spoke", port)
		}
	}
	script := "nc -w 2 " + spoke.Address + " 6443 </dev/null && echo open || echo shut"
	if got := b.kubectl(hub, "", "exec", "echo", "--", "sh", "-c", script); !strings.HasSuffix(got, "shut\n") {
		b.Errorf("from a pod of the hub, the spoke's API server is %q", got)
	}
}

func (b *bench) testCuts(hub, spoke *Cluster) {
	for _, mode := range Modes() {
		if err := b.set.Cut(b.Context(), spoke, mode); err != nil {
			b.Fatal(err)
		}
		if b.reaches(spoke, hub, "6443") {
			b.Errorf("with %s, the spoke reaches the hub", mode)
		}
	}
	if err := b.set.Heal(b.Context(), spoke); err != nil {
		b.Fatal(err)
	}
	if !b.reaches(spoke, hub, "6443") {
		b.Error("after healing, the spoke does not reach the hub")
	}
	if err := b.set.Cut(b.Context(), hub, Drop); !errors.Is(err, ErrConfig) {
		b.Errorf("cutting the hub from itself: %v", err)
	}
}

const aggregatedFormat = `apiVersion: v1
kind: Service
metadata: {name: aggregated}
spec: {ports: [{port: 443, targetPort: %[2]d}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: aggregated, labels: {kubernetes.io/service-name: aggregated}}
addressType: IPv4
endpoints: [{addresses: [%[1]s], conditions: {ready: true}}]
ports: [{port: %[2]d, protocol: TCP}]
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.clusters.test}
spec:
  group: clusters.test
  version: v1
  insecureSkipTLSVerify: true
  groupPriorityMinimum: 1000
  versionPriority: 10
  service: {name: aggregated, namespace: default}
`

// testAggregation serves an API group from this process.
func (b *bench) testAggregation(hub *Cluster) {
	listener, err := (&net.ListenConfig{}).Listen(b.Context(), "tcp", hub.Gateway+":0")
	if err != nil {
		b.Fatal(err)
	}
	clients := make(chan string, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprint(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"clusters.test/v1","resources":[]}`)
		// Discovery is asked by the aggregator itself; the caller's name comes only with a user's request.
		if user := r.Header.Get("X-Remote-User"); strings.HasSuffix(user, "admin") && len(r.TLS.PeerCertificates) > 0 {
			select {
			case clients <- r.TLS.PeerCertificates[0].Subject.CommonName:
			default:
			}
		}
	}))
	_ = server.Listener.Close()
	server.Listener = listener
	server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	defer server.Close()
	address, isTCP := listener.Addr().(*net.TCPAddr)
	if !isTCP {
		b.Fatalf("listening on %s", listener.Addr())
	}
	manifest := fmt.Sprintf(aggregatedFormat, hub.Gateway, address.Port)
	b.kubectl(hub, manifest, "apply", "--filename=-")
	b.kubectl(hub, "", "wait", "apiservice/v1.clusters.test", "--for=condition=Available", "--timeout=60s")
	b.kubectl(hub, "", "get", "--raw=/apis/clusters.test/v1")
	select {
	case name := <-clients:
		if name != "front-proxy-client" {
			b.Errorf("the aggregator presents itself as %q", name)
		}
	default:
		b.Error("the aggregator presented no certificate with the user's name")
	}
	b.kubectl(hub, manifest, "delete", "--filename=-")
}

// testPlainRegistry has a pod's image asked for at a registry that has none.
func (b *bench) testPlainRegistry(c *Cluster) {
	asked := make(chan string, 100)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case asked <- r.URL.Path:
		default: // the kubelet tries again for as long as the pod is there
		}
		http.NotFound(w, r)
	}))
	_ = server.Listener.Close()
	listener, err := (&net.ListenConfig{}).Listen(b.Context(), "tcp", c.Gateway+":0")
	if err != nil {
		b.Fatal(err)
	}
	server.Listener = listener
	server.Start()
	defer server.Close()
	registry := listener.Addr().String()
	if err := c.UsePlainRegistry(b.Context(), registry); err != nil {
		b.Fatal(err)
	}
	b.kubectl(c, "", "run", "absent", "--image="+registry+"/team/absent:v1", "--restart=Never")
	defer b.kubectl(c, "", "delete", "pod", "absent", "--now")
	select {
	case path := <-asked:
		if want := "/v2/team/absent/manifests/v1"; path != want {
			b.Errorf("the node asks for %s, want %s", path, want)
		}
	case <-time.After(60 * time.Second):
		b.Error("the node asks the registry for nothing")
	}
}

func (b *bench) testAudit(hub *Cluster) {
	b.kubectl(hub, "", "get", "configmaps", "--namespace=kube-public")
	content, err := os.ReadFile(hub.AuditLog)
	if err != nil {
		b.Fatal(err)
	}
	var found int
	for line := range strings.Lines(string(content)) {
		var event struct{ Level, Stage, RequestURI string }
		if err := json.Unmarshal([]byte(line), &event); err != nil {
			continue // the last line may be half written
		}
		if event.Level != "Metadata" || event.Stage == "RequestReceived" {
			b.Fatalf("event %+v", event)
		}
		if strings.HasPrefix(event.RequestURI, "/api/v1/namespaces/kube-public/configmaps?limit=") {
			found++
		}
	}
	if found != 1 {
		b.Errorf("one request is there %d times", found)
	}
}

func (b *bench) testAPIServer(c *Cluster) {
	if err := c.StopAPIServer(b.Context()); err != nil {
		b.Fatal(err)
	}
	if err := b.set.Healthy(b.Context()); err == nil {
		b.Error("a set without an API server is called healthy")
	}
	if err := c.StartAPIServer(b.Context()); err != nil {
		b.Fatal(err)
	}
	if err := b.set.Healthy(b.Context()); err != nil {
		b.Error(err)
	}
}

// checkGone looks for everything that a set leaves when it is not removed.
func checkGone(t *testing.T, driver *resources) {
	t.Helper()
	if left := driver.processes(); len(left) != 0 {
		t.Errorf("processes: %v", left)
	}
	paths := []string{driver.dir(), driver.runDir()}
	for _, plan := range driver.plans {
		paths = append(paths, plan.Path(), "/sys/class/net/"+plan.Link())
	}
	for _, path := range paths {
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there: %v", path, err)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || strings.Contains(string(mounts), driver.dir()+"/") || strings.Contains(string(mounts), driver.runDir()+"/") {
		t.Errorf("mounts are left, or cannot be read: %v", err)
	}
	if left, err := cgroup.Processes(driver.cgroup()); err != nil || len(left) != 0 {
		t.Errorf("processes in control groups: %v, %v", left, err)
	}
	for _, pattern := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
		groups, err := filepath.Glob(pattern + driver.cgroup())
		if err != nil || len(groups) != 0 {
			t.Errorf("control groups: %v, %v", groups, err)
		}
	}
	rules, err := exec.CommandContext(t.Context(), "iptables-save").CombinedOutput()
	if err != nil || strings.Contains(string(rules), fmt.Sprintf("SPOKELET-%d ", driver.set.state.Slot)) {
		t.Errorf("packet filter: %v, %s", err, rules)
	}
}

// uid tells a cluster from one that has been made anew.
func (b *bench) uid(c *Cluster) string {
	b.Helper()
	return b.kubectl(c, "", "get", "namespace", "kube-system", "--output=jsonpath={.metadata.uid}")
}

func (b *bench) testReuse() {
	before := b.uid(b.set.Hub())
	again, err := Up(b.Context(), b.set.config)
	if err != nil {
		b.Fatal(err)
	}
	if again.Hub().Address != b.set.Hub().Address || b.uid(again.Hub()) != before {
		b.Error("up replaced a healthy set")
	}
}

// testFigures asks the kubelet, with the certificate of the cluster's CA verified.
func (b *bench) testFigures(c *Cluster) {
	if got := b.kubectl(c, "", "get", "node", c.Node, "--output=jsonpath={.status.addresses[?(@.type=='InternalIP')].address}"); got != c.Address {
		b.Errorf("the node %s is at %q, the set says %s", c.Node, got, c.Address)
	}
	got := b.kubectl(c, "", "get", "--raw", "/api/v1/nodes/"+c.Node+"/proxy/metrics/resource")
	if !strings.Contains(got, "node_memory_working_set_bytes") {
		b.Errorf("figures of the node: %.200s", got)
	}
}

// doAt is a log handler that does something at a message.
type doAt struct {
	slog.Handler
	message string
	do      func()
}

func (h doAt) Handle(ctx context.Context, record slog.Record) error {
	if record.Message == h.message {
		h.do()
	}
	return h.Handler.Handle(ctx, record)
}

// halfMade gives what there is of a set whose Up did not get to its end.
func halfMade(t *testing.T, config Config) *Set {
	t.Helper()
	config.Default()
	found, err := load(config.StateDir, config.Name)
	if err != nil {
		t.Fatal(err)
	}
	half, err := attach(config, found)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), config); !errors.Is(err, ErrIncomplete) {
		t.Errorf("opening it: %v, want %v", err, ErrIncomplete)
	}
	return half
}
