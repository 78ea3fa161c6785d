// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/spokelet/spokelet/internal/bufpool"
	"github.com/spokelet/spokelet/internal/connlimit"
)

// containerLogs answers with the log of a container, for as long as it is
// followed.
func (e *endpoint) containerLogs(w http.ResponseWriter, r *http.Request, t podTarget) {
	options, err := logOptions(r.URL.Query())
	if err != nil {
		refuse(w, r, err)
		return
	}
	pod, ok := e.config.Pods.Pod(e.node, t.namespace, t.pod)
	switch {
	case !ok:
		refuse(w, r, &refusal{http.StatusNotFound, fmt.Sprintf("pod %q does not exist", t.pod)})
		return
	case !hasContainer(pod, t.container):
		refuse(w, r, &refusal{http.StatusNotFound, fmt.Sprintf("container %q not found in pod %q", t.container, t.pod)})
		return
	case options.Stream != nil && *options.Stream != corev1.LogStreamAll:
		refuse(w, r, &refusal{http.StatusBadRequest, fmt.Sprintf(
			"unable to return the given log stream: %q. Please enable PodLogsQuerySplitStreams feature gate in kubelet", *options.Stream)})
		return
	}
	options.Container = t.container
	c := podRequest{pod: pod, subresource: "log", query: logQuery(options)}
	if options.LimitBytes != nil {
		c.limit = *options.LimitBytes
	}
	e.serveLog(w, r, c)
}

// serveLog passes a log on. A log that was cut ends in an aborted answer, which is
// not the end of a log. The hub's API server ends its own answer in peace all the
// same, so that people are told in the log's last line, as a kubelet tells them
// of a log that it cannot read on.
func (e *endpoint) serveLog(w http.ResponseWriter, r *http.Request, c podRequest) {
	way, err := e.config.Door.RoundTripper(r.Context(), e.node)
	if err != nil {
		refuse(w, r, err)
		return
	}
	leave, err := e.limits.acquirePod(e.node, c.pod, true)
	if err != nil {
		refuse(w, r, err)
		return
	}
	defer leave()
	// The cluster answers when there is something to read, which may be hours.
	defer connlimit.Hold(r.Context()).Release()
	if err := clearDeadlines(w); err != nil {
		refuse(w, r, err)
		return
	}
	res, err := way.RoundTrip(e.newRequest(r.Context(), http.MethodGet, c))
	if err != nil {
		e.handleError(w, r, err)
		return
	}
	defer func() { _ = res.Body.Close() }()
	if err := checkStatus(res); err != nil {
		refuse(w, r, err)
		return
	}
	if res.StatusCode == http.StatusNotFound && wasDeleted(c.pod) {
		// Of an answer of 404 the hub's API server drops the text (NewGenericServerResponse).
		refuse(w, r, errDeleted(http.StatusBadRequest, e.node, c.pod))
		return
	}
	if res.StatusCode >= http.StatusMultipleChoices {
		refuse(w, r, readRefusal(res, fmt.Sprintf("pod %q does not exist", c.pod.Name)))
		return
	}
	w.Header().Set("Content-Type", "text/plain")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(res.StatusCode)
	to := &logWriter{w: w, control: http.NewResponseController(w)}
	if err := copyLog(to, res.Body); err != nil {
		if !errors.Is(err, bufpool.ErrWrite) && r.Context().Err() == nil {
			to.writeReason(err, c.limit)
		}
		panic(http.ErrAbortHandler)
	}
}

// clearDeadlines removes the server's deadlines from an answer that may last.
func clearDeadlines(w http.ResponseWriter) error {
	control := http.NewResponseController(w)
	if err := errors.Join(control.SetReadDeadline(time.Time{}), control.SetWriteDeadline(time.Time{})); err != nil {
		return fmt.Errorf("connection has no deadlines: %w", err)
	}
	return nil
}

// copyLog passes the log on as it comes. What a reader does not take is not read
// either, and the session's window tells the cluster.
func copyLog(to *logWriter, body io.Reader) error {
	if err := to.control.Flush(); err != nil {
		return fmt.Errorf("%w: %w", bufpool.ErrWrite, err)
	}
	return bufpool.Copy(to, body)
}

// Texts of a kubelet.
const (
	textUndecodable = `{"message": "Unable to decode query."}`
	textInvalid     = `{"message": "Invalid request."}`
)

// logOptions reads a query as a kubelet does; errors are refusals.
func logOptions(query url.Values) (*corev1.PodLogOptions, error) {
	switch tail := query.Get("tail"); tail {
	case "":
	case "all":
		query.Del("tailLines")
	default:
		query.Set("tailLines", tail)
	}
	o, err := decodeLogOptions(query)
	if err != nil {
		return nil, &refusal{http.StatusBadRequest, textUndecodable}
	}
	if !validLogOptions(o) {
		return nil, &refusal{http.StatusUnprocessableEntity, textInvalid}
	}
	return o, nil
}

func decodeLogOptions(query url.Values) (*corev1.PodLogOptions, error) {
	o := &corev1.PodLogOptions{}
	var errs []error
	for name, into := range map[string]*bool{"follow": &o.Follow, "previous": &o.Previous, "timestamps": &o.Timestamps} {
		values := query[name]
		errs = append(errs, runtime.Convert_Slice_string_To_bool(&values, into, nil))
	}
	for name, into := range map[string]**int64{"sinceSeconds": &o.SinceSeconds, "tailLines": &o.TailLines, "limitBytes": &o.LimitBytes} {
		values := query[name]
		errs = append(errs, runtime.Convert_Slice_string_To_Pointer_int64(&values, into, nil))
	}
	if values := query["sinceTime"]; len(values) > 0 {
		errs = append(errs, metav1.Convert_Slice_string_To_Pointer_v1_Time(&values, &o.SinceTime, nil))
	}
	if values := query["stream"]; len(values) > 0 {
		o.Stream = &values[0]
	}
	return o, errors.Join(errs...)
}

// validLogOptions is what the validation of PodLogOptions comes to.
func validLogOptions(o *corev1.PodLogOptions) bool {
	if o.TailLines != nil && *o.TailLines < 0 || o.LimitBytes != nil && *o.LimitBytes < 1 {
		return false
	}
	if o.SinceSeconds != nil && (o.SinceTime != nil || *o.SinceSeconds < 1) {
		return false
	}
	if o.Stream == nil {
		return true
	}
	switch *o.Stream {
	case corev1.LogStreamAll:
		return true
	case corev1.LogStreamStdout, corev1.LogStreamStderr:
		return o.TailLines == nil
	default:
		return false
	}
}

// logQuery states options as the API has them.
func logQuery(o *corev1.PodLogOptions) url.Values {
	query := url.Values{"container": {o.Container}}
	for name, set := range map[string]bool{"follow": o.Follow, "previous": o.Previous, "timestamps": o.Timestamps} {
		if set {
			query.Set(name, "true")
		}
	}
	for name, value := range map[string]*int64{"sinceSeconds": o.SinceSeconds, "tailLines": o.TailLines, "limitBytes": o.LimitBytes} {
		if value != nil {
			query.Set(name, strconv.FormatInt(*value, 10))
		}
	}
	if o.SinceTime != nil && !o.SinceTime.IsZero() {
		query.Set("sinceTime", o.SinceTime.UTC().Format(time.RFC3339Nano))
	}
	return query
}
