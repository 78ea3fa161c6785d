// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tail

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/spokelet/spokelet/workers/api"
	bundlev1alpha1 "github.com/spokelet/spokelet/workers/api/bundle/v1alpha1"
)

// A fakeHub stands for a hub and, behind its live API, the clusters: WorkerBundles, pods,
// their logs and their tail workers. It is reached by pipes, so that time may be a test's.
type fakeHub struct {
	server *httptest.Server
	pipes  *pipes

	mu      sync.Mutex
	open    int
	bundles *collection
	spokes  map[string]*fakeSpoke
	// otherwise, if set, answers what nothing else does.
	otherwise http.Handler
}

// A fakeSpoke is a cluster. refuse, if set, answers everything.
type fakeSpoke struct {
	pods     *collection
	running  map[string]*fakePod
	refuse   *metav1.Status
	requests int
	hostile  http.HandlerFunc // answers everything, in place of the cluster
}

// A fakePod has a log, and writes events while it was asked to within 30 s.
type fakePod struct {
	lines  []string
	until  time.Time
	posts  int
	refuse *metav1.Status // answers a POST
	gone   chan struct{}  // closed when the pod has ended
	more   chan struct{}  // closed at each line
}

// A collection is what is listed and watched: the version is the number of changes.
type collection struct {
	list    func(items []any, version string) any
	items   map[string]metav1.Object
	changes [][]byte
	more    chan struct{} // closed at each change
}

func newCollection(list func([]any, string) any) *collection {
	return &collection{list: list, items: map[string]metav1.Object{}, more: make(chan struct{})}
}

// write is called with the hub's lock held.
func (c *collection) write(kind string, object metav1.Object) {
	c.items[object.GetName()] = object
	if kind == "DELETED" {
		delete(c.items, object.GetName())
	}
	object.SetResourceVersion(strconv.Itoa(len(c.changes) + 1))
	change, err := json.Marshal(map[string]any{"type": kind, "object": object})
	if err != nil {
		panic(err)
	}
	c.changes = append(c.changes, change)
	close(c.more)
	c.more = make(chan struct{})
}

func newFakeHub() *fakeHub {
	h := &fakeHub{pipes: newPipes(), spokes: map[string]*fakeSpoke{}}
	h.bundles = newCollection(func(items []any, version string) any {
		return map[string]any{
			"apiVersion": bundlev1alpha1.GroupVersion.String(), "kind": "WorkerBundleList",
			"metadata": map[string]any{"resourceVersion": version}, "items": items,
		}
	})
	mux := http.NewServeMux()
	const cluster = "/apis/live.spokelet.io/v1alpha1/clusters/{cluster}/proxy/api/v1/namespaces/workers-1234"
	mux.HandleFunc("GET /apis/api.worker-bundle/v1alpha1/namespaces/team-a/workerbundles", func(w http.ResponseWriter, r *http.Request) {
		h.serveCollection(w, r, h.bundles)
	})
	mux.HandleFunc("GET "+cluster+"/pods", h.behind(func(w http.ResponseWriter, r *http.Request, s *fakeSpoke) {
		if r.FormValue("fieldSelector") != "status.phase=Running" || !strings.Contains(r.Header.Get("Accept"), ";as=PartialObjectMetadata") {
			refuseWith(w, status(http.StatusBadRequest, "this is more than a tail needs"))
			return
		}
		h.serveCollection(w, r, s.pods)
	}))
	mux.HandleFunc("GET "+cluster+"/pods/{pod}/log", h.behind(h.serveLog))
	mux.HandleFunc("POST "+cluster+"/pods/{port}/proxy/{$}", h.behind(h.serveTailWorker))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if h.otherwise == nil {
			http.NotFound(w, r)
			return
		}
		h.otherwise.ServeHTTP(w, r)
	})
	h.server = &httptest.Server{Listener: h.pipes, Config: &http.Server{Handler: h.count(mux)}}
	h.server.Start()
	return h
}

func (h *fakeHub) config() *rest.Config {
	return &rest.Config{Host: "http://hub.example/", Dial: h.pipes.dial}
}

func (h *fakeHub) count(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.add(1)
		defer h.add(-1)
		next.ServeHTTP(w, r)
	})
}

func (h *fakeHub) add(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open += n
}

// requests that the hub is answering.
func (h *fakeHub) requests() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.open
}

func (h *fakeHub) behind(serve func(http.ResponseWriter, *http.Request, *fakeSpoke)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		s := h.spokes[r.PathValue("cluster")]
		var refuse *metav1.Status
		var hostile http.HandlerFunc
		if s != nil {
			s.requests++
			refuse, hostile = s.refuse, s.hostile
		}
		h.mu.Unlock()
		switch {
		case s == nil:
			refuseWith(w, status(http.StatusNotFound, "there is no such cluster"))
		case hostile != nil:
			hostile(w, r)
		case refuse != nil:
			refuseWith(w, refuse)
		default:
			serve(w, r, s)
		}
	}
}

func status(code int, message string) *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: int32(code), Message: message,
	}
}

func refuseWith(w http.ResponseWriter, s *metav1.Status) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(s.Code))
	json.NewEncoder(w).Encode(s)
}

func (h *fakeHub) serveCollection(w http.ResponseWriter, r *http.Request, c *collection) {
	if r.FormValue("labelSelector") != api.LabelAccount+"=1234" {
		refuseWith(w, status(http.StatusBadRequest, "the selector is not that of the account"))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	h.mu.Lock()
	if r.FormValue("watch") == "" {
		items := []any{}
		for _, o := range c.items {
			items = append(items, o)
		}
		body, _ := json.Marshal(c.list(items, strconv.Itoa(len(c.changes))))
		h.mu.Unlock()
		w.Write(body)
		return
	}
	h.mu.Unlock()
	seen, _ := strconv.Atoi(r.FormValue("resourceVersion"))
	life, _ := strconv.Atoi(r.FormValue("timeoutSeconds"))
	end := time.NewTimer(time.Duration(life) * time.Second)
	defer end.Stop()
	for {
		h.mu.Lock()
		changes, more := c.changes[seen:], c.more
		seen = len(c.changes)
		h.mu.Unlock()
		for _, change := range changes {
			w.Write(append(bytes.Clone(change), '\n'))
		}
		w.(http.Flusher).Flush()
		select {
		case <-more:
		case <-end.C:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// serveLog begins to answer with the first line, as a kubelet does.
func (h *fakeHub) serveLog(w http.ResponseWriter, r *http.Request, s *fakeSpoke) {
	if r.FormValue("container") != "workers" || r.FormValue("follow") != "true" || r.FormValue("tailLines") != "0" {
		refuseWith(w, status(http.StatusBadRequest, "these are no parameters of a tail: "+r.URL.RawQuery))
		return
	}
	h.mu.Lock()
	p := s.running[r.PathValue("pod")]
	if p == nil {
		h.mu.Unlock()
		refuseWith(w, status(http.StatusNotFound, "there is no such pod"))
		return
	}
	seen := len(p.lines)
	h.mu.Unlock()
	for {
		h.mu.Lock()
		lines, more := p.lines[seen:], p.more
		seen = len(p.lines)
		h.mu.Unlock()
		for _, line := range lines {
			fmt.Fprintln(w, line)
			w.(http.Flusher).Flush()
		}
		select {
		case <-more:
		case <-p.gone:
			return
		case <-r.Context().Done():
			return
		}
	}
}

func (h *fakeHub) serveTailWorker(w http.ResponseWriter, r *http.Request, s *fakeSpoke) {
	h.mu.Lock()
	defer h.mu.Unlock()
	name, port, _ := strings.Cut(r.PathValue("port"), ":")
	p := s.running[name]
	if p == nil || port != "8079" {
		refuseWith(w, status(http.StatusBadGateway, "nothing listens there"))
		return
	}
	p.posts++
	if p.refuse != nil {
		refuseWith(w, p.refuse)
		return
	}
	p.until = time.Now().Add(30 * time.Second)
}

// place puts the account on clusters, which exist and have no pods at first.
func (h *fakeHub) place(clusters ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	b := &bundlev1alpha1.WorkerBundle{
		TypeMeta: metav1.TypeMeta{APIVersion: bundlev1alpha1.GroupVersion.String(), Kind: "WorkerBundle"}, ObjectMeta: metav1.ObjectMeta{Name: "bundle-1234", Namespace: "team-a"},
	}
	for _, name := range clusters {
		b.Status.Clusters = append(b.Status.Clusters, bundlev1alpha1.ClusterStatus{Name: name})
		if h.spokes[name] == nil {
			h.spokes[name] = &fakeSpoke{running: map[string]*fakePod{}, pods: newCollection(podList)}
		}
	}
	kind := "ADDED"
	if len(h.bundles.items) > 0 {
		kind = "MODIFIED"
	}
	h.bundles.write(kind, b)
}

func podList(items []any, version string) any {
	return map[string]any{"apiVersion": "v1", "kind": "PodList", "metadata": map[string]any{"resourceVersion": version}, "items": items}
}

// start runs a pod.
func (h *fakeHub) start(cluster, name, uid string) *fakePod {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.spokes[cluster]
	p := &fakePod{gone: make(chan struct{}), more: make(chan struct{})}
	s.running[name] = p
	s.pods.write("ADDED", runningPod(name, uid))
	return p
}

func runningPod(name, uid string) *corev1.Pod {
	return &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid)},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

// stop ends a pod: first its process, then its object.
func (h *fakeHub) stop(cluster, name, uid string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.spokes[cluster]
	close(s.running[name].gone)
	delete(s.running, name)
	s.pods.write("DELETED", runningPod(name, uid))
}

// leave has a pod end while its object is still there, to be deleted.
func (h *fakeHub) leave(cluster, name, uid string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.spokes[cluster]
	p := runningPod(name, uid)
	p.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	s.pods.write("MODIFIED", p)
	close(s.running[name].gone)
	delete(s.running, name)
}

// refuse has a cluster answer everything with a status; nil ends that.
func (h *fakeHub) refuse(cluster string, s *metav1.Status) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.spokes[cluster].refuse = s
}

// asked is how often a cluster was.
func (h *fakeHub) asked(cluster string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.spokes[cluster].requests
}

// print writes a line to the log of a pod.
func (h *fakeHub) print(p *fakePod, line string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p.lines = append(p.lines, line)
	close(p.more)
	p.more = make(chan struct{})
}

// call has a pod write the event of a call, if it was asked to.
func (h *fakeHub) call(p *fakePod, script, message string) {
	h.mu.Lock()
	asked := time.Now().Before(p.until)
	h.mu.Unlock()
	if asked {
		h.print(p, eventLine(script, message))
	}
}

func eventLine(script, message string) string {
	return "\x1e" + `{"script":"` + script + `","event":{"outcome":"ok","scriptName":null,"exceptions":[],"logs":[{"message":["` + message +
		`"],"level":"log","timestamp":1795834959695}],"eventTimestamp":1795834959695,"event":{"request":{"url":"http://a/","method":"GET","headers":{}}}}}`
}

// pipes are a listener in memory.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.conns <- server:
		return client, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }
