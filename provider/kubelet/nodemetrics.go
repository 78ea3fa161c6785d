// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	corev1 "k8s.io/api/core/v1"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/quota"
)

const (
	// maxAnswer bounds what a cluster may answer, as it costs time to parse: agents
	// answer with 10,000 pods of some 2 KiB in /metrics/resource, and with 4,000 of
	// some 5 KiB in /stats/summary. None of it is held but a part at a time.
	maxAnswer = 24 << 20

	// answerBase is what of that is for the node, and for pods that the hub has just
	// lost, and answerPerPod is for each pod that is bound to the node: a container
	// has some 2 KiB.
	answerBase   = 1 << 20
	answerPerPod = 32 << 10

	// answerBuffer is held back of an answer before it begins: until then, what is
	// wrong is told by a status code.
	answerBuffer = 64 << 10

	// answerCost is what one answer holds whatever is in it: the buffer, a line, and
	// what parses it.
	answerCost = answerBuffer + 64<<10

	// seenCost is what one entry of a set of pods or containers takes at most.
	seenCost = 160
)

var (
	errAnswer = errors.New("the cluster's answer is too large")

	// errFigures is wrapped by what is wrong with an answer's form.
	errFigures = errors.New("figures cannot be read")
)

// summaryFilter copies an answer from a cluster to out, without what is not of the
// scope.
type summaryFilter func(in *limitedReader, out *bufio.Writer, s nodeScope) error

// nodeScope is what a cluster may state figures of: a node, and the pods that are
// bound to it on the hub. Autoscalers follow figures, so that those of any other pod
// would let a cluster scale what is not its own.
type nodeScope struct {
	node string
	pods Pods           // nil has none
	held *quota.Account // of the cluster, what the answer holds
}

// pod returns the hub's pod of the node.
func (s nodeScope) pod(namespace, name string) (*corev1.Pod, bool) {
	if s.pods == nil {
		return nil, false
	}
	return s.pods.Pod(s.node, namespace, name)
}

// limitedReader reads an answer. Whoever parses it in parts that are held whole sets
// part before each.
type limitedReader struct {
	from io.Reader
	left int64 // of the answer
	part int64 // of the part
}

func (a *limitedReader) Read(p []byte) (int, error) {
	left := min(a.left, a.part)
	if left <= 0 {
		return 0, errAnswer
	}
	n, err := a.from.Read(p[:min(int64(len(p)), left)])
	a.left -= int64(n)
	a.part -= int64(n)
	return n, err
}

// limitedWriter notes that something has gone out.
type limitedWriter struct {
	io.Writer
	begun bool
}

func (a *limitedWriter) Write(p []byte) (int, error) {
	a.begun = true
	return a.Writer.Write(p)
}

// metrics answers with what the cluster says now of what is its own. An answer that
// cannot be finished is aborted: half of one would be read as all.
func (e *endpoint) metrics(contentType string, filter summaryFilter) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
		defer cancel()
		cluster, _ := wire.ParseNodeName(e.node)
		held := e.config.Memory.Account(cluster)
		defer held.Close()
		if err := held.Grow(answerCost); err != nil {
			e.refuseMetrics(w, err)
			return
		}
		leave, err := e.limits.acquireMetrics(e.node)
		if err != nil {
			refuse(w, r, err)
			return
		}
		defer leave()
		way, err := e.config.Door.RoundTripper(ctx, e.node)
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		body, err := getFrom(ctx, way, metricsPath(e.node, r.URL.Path))
		if err != nil {
			e.refuseMetrics(w, err)
			return
		}
		defer func() { _ = body.Close() }()
		w.Header().Set("Content-Type", contentType)
		w.Header().Set("X-Content-Type-Options", "nosniff")
		out := &limitedWriter{Writer: w}
		buffer := bufio.NewWriterSize(out, answerBuffer)
		in := &limitedReader{from: body, left: e.responseLimit(), part: maxAnswer}
		err = filter(in, buffer, nodeScope{node: e.node, pods: e.config.Pods, held: held})
		switch {
		case err == nil:
			_ = buffer.Flush() // a client that went away needs no answer
		case out.begun:
			panic(http.ErrAbortHandler)
		default:
			e.refuseMetrics(w, err)
		}
	}
}

// responseLimit is how many bytes the cluster may answer with.
func (e *endpoint) responseLimit() int64 {
	if e.config.Pods == nil {
		return answerBase
	}
	return min(maxAnswer, answerBase+answerPerPod*int64(len(e.config.Pods.Pods(e.node))))
}

// refuseMetrics says that a cluster gave no figures, and why.
func (e *endpoint) refuseMetrics(w http.ResponseWriter, err error) {
	code := http.StatusBadGateway
	if errors.Is(err, quota.ErrExhausted) {
		code = http.StatusServiceUnavailable
		w.Header().Set("Retry-After", "1")
	}
	http.Error(w, fmt.Sprintf("cluster %s: %v", e.node, err), code)
}

// metricsPath is where an agent serves the figures of a node.
func metricsPath(node, path string) string {
	if _, group := wire.ParseNodeName(node); group != "" {
		return wire.NodeGroupPath(group) + path
	}
	return path
}

// getFrom returns the body of the cluster's answer.
func getFrom(ctx context.Context, way http.RoundTripper, path string) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://node"+path, nil)
	if err != nil {
		return nil, fmt.Errorf("request cannot be made: %w", err)
	}
	response, err := way.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode == http.StatusOK {
		return response.Body, nil
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAgentRefusal))
	if err != nil {
		return nil, fmt.Errorf("answer was cut off: %w", err)
	}
	return nil, fmt.Errorf("agent answered %d: %q", response.StatusCode, text)
}

// maxAgentRefusal is how much is told of an agent's refusal, in bytes.
const maxAgentRefusal = 200
