// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/spokelet/spokelet/internal/connlimit"
)

const (
	pathHealthz     = "/healthz"
	pathMetrics     = "/metrics/resource"
	pathStats       = "/stats/summary"
	pathConfigz     = "/configz"
	pathPods        = "/pods"
	pathRunningPods = "/runningpods"
	pathLogs        = "/logs"
	pathRun         = "/run"
	pathCheckpoint  = "/checkpoint"
	pathExec        = "/exec"
	pathAttach      = "/attach"
	pathPortForward = "/portForward"
	pathContainer   = "/containerLogs"
)

// endpoint answers for one node.
type endpoint struct {
	node   string
	config Config
	limits streamLimits    // of all nodes
	life   context.Context // of the streams, which outlive their requests
}

// ServeHTTP authenticates, authorizes and routes, in this order.
func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	who, ok := e.authenticate(r)
	if !ok {
		http.Error(w, "Unauthorized", http.StatusUnauthorized)
		return
	}
	if !e.authorize(r, who) {
		http.Error(w, "Forbidden", http.StatusForbidden)
		return
	}
	connlimit.MarkAuthorized(r.Context())
	// Paths are compared and never cleaned: what was authorized is what is served.
	switch to := e.route(r.URL.Path); {
	case to.serve == nil:
		http.NotFound(w, r)
	case !slices.Contains(to.methods, r.Method):
		w.Header().Set("Allow", strings.Join(to.methods, ", "))
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
	default:
		to.serve(w, r)
	}
}

// route is what is served under a path; its zero value is nothing.
type route struct {
	methods []string
	serve   http.HandlerFunc
}

func getRoute(serve http.HandlerFunc) route {
	return route{methods: []string{http.MethodGet}, serve: serve}
}

func (e *endpoint) route(path string) route {
	switch {
	case path == pathHealthz:
		return getRoute(e.healthz)
	case path == pathMetrics:
		// The type that kubelets give, and the one that clients parse by.
		return getRoute(e.metrics("text/plain; version=0.0.4; charset=utf-8", filterMetrics))
	case path == pathStats:
		return getRoute(e.metrics("application/json", filterStats))
	case path == pathConfigz:
		return getRoute(e.configz)
	case isBelow(path, pathLogs):
		return notImplemented("a virtual node has no log files, and its cluster's nodes are not asked for theirs; logs of pods are served")
	case isBelow(path, pathRun):
		return notImplemented("run is not served; exec is")
	case isBelow(path, pathCheckpoint):
		return notImplemented("containers of a virtual node cannot be checkpointed")
	case e.config.Pods == nil:
		return route{}
	case path == pathPods, path == pathPods+"/":
		return getRoute(e.pods)
	case path == pathRunningPods, path == pathRunningPods+"/":
		return getRoute(e.runningPods)
	default:
		return e.podRoute(path)
	}
}

// notImplemented is the route of a part of a kubelet that a virtual node does not have. Of
// the status codes for that, 501 is the one whose text reaches a user of kubectl.
func notImplemented(why string) route {
	return route{
		methods: []string{http.MethodGet, http.MethodPost},
		serve:   func(w http.ResponseWriter, r *http.Request) { refuse(w, r, &refusal{http.StatusNotImplemented, why}) },
	}
}

// podRoute is what is served of one pod: /KIND/NAMESPACE/POD and what the kind
// has behind it.
func (e *endpoint) podRoute(path string) route {
	parts := strings.Split(path, "/")
	if len(parts) < 4 || parts[0] != "" || slices.Contains(parts[1:], "") {
		return route{}
	}
	kind, behind := "/"+parts[1], parts[4:]
	t := podTarget{namespace: parts[2], pod: parts[3]}
	switch len(behind) {
	case 0:
	case 1:
		t.container = behind[0]
	case 2:
		t.uid, t.container = behind[0], behind[1]
	default:
		return route{}
	}
	switch {
	case kind == pathContainer && len(behind) == 1:
		return getRoute(func(w http.ResponseWriter, r *http.Request) { e.containerLogs(w, r, t) })
	case kind == pathExec && len(behind) > 0:
		return streamRoute(e.exec, t)
	case kind == pathAttach && len(behind) > 0:
		return streamRoute(e.attach, t)
	case kind == pathPortForward && len(behind) < 2:
		t.uid, t.container = t.container, ""
		return streamRoute(e.portForward, t)
	default:
		return route{}
	}
}

func streamRoute(serve func(http.ResponseWriter, *http.Request, podTarget), t podTarget) route {
	return route{
		methods: []string{http.MethodGet, http.MethodPost},
		serve:   func(w http.ResponseWriter, r *http.Request) { serve(w, r, t) },
	}
}

// healthz answers ok while the cluster is connected.
func (e *endpoint) healthz(w http.ResponseWriter, r *http.Request) {
	if _, err := e.config.Door.RoundTripper(r.Context(), e.node); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, "ok")
}
