// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/httpproxy"
	"github.com/spokelet/spokelet/tunnel"
)

// maxRefusal bounds what is read of a cluster's refusal.
const maxRefusal = 64 << 10

// refusal is an answer other than the one that was asked for: a kubelet's code
// and text, as far as it has one for the case.
type refusal struct {
	code int
	text string
}

// Error is the text.
func (r *refusal) Error() string { return r.text }

// errNoPod: the node has no such pod.
var errNoPod = &refusal{http.StatusNotFound, "pod does not exist"}

// wasDeleted reports whether the hub knows that a pod of its is in its cluster no more.
func wasDeleted(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == wire.ConditionInCluster && c.Status == corev1.ConditionFalse
	})
}

// errDeleted says that a pod was deleted in the cluster of a node.
func errDeleted(code int, node string, pod *corev1.Pod) error {
	cluster, _ := wire.ParseNodeName(node)
	return &refusal{code, fmt.Sprintf("pod %q was deleted in cluster %q", pod.Name, cluster)}
}

// refuse answers with an error, in plain text.
func refuse(w http.ResponseWriter, r *http.Request, err error) {
	h := w.Header()
	if r.ProtoMajor == 1 && len(r.Header["Upgrade"])+len(r.Header["Connection"]) > 0 {
		// What follows a refused upgrade on its connection is not HTTP.
		h.Set("Connection", "close")
	}
	code := codeOf(err)
	if code == http.StatusTooManyRequests {
		h.Set("Retry-After", "1")
	}
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = io.WriteString(w, err.Error()) // a client that went away needs no answer
}

func codeOf(err error) int {
	if r := (*refusal)(nil); errors.As(err, &r) {
		return r.code
	}
	if errors.Is(err, httpproxy.ErrUpgrade) {
		return http.StatusBadRequest
	}
	return tunnel.StatusCode(err)
}

// checkStatus returns an error for answers of a cluster that would mislead the hub's
// callers.
func checkStatus(res *http.Response) error {
	switch code := res.StatusCode; {
	case code == http.StatusUnauthorized:
		// It is the agent whom the cluster does not know, not the caller.
		return errors.New("API server of the cluster does not accept the agent")
	case code >= http.StatusMultipleChoices && code < http.StatusBadRequest:
		return fmt.Errorf("cluster answered with a redirect, which is not passed on: %d", code)
	case code < http.StatusOK && code != http.StatusSwitchingProtocols, code > 599:
		return fmt.Errorf("cluster answered with no valid status code: %d", code)
	default:
		return nil
	}
}

// readRefusal is a cluster's refusal in the words of its kubelet, if it was
// that, or of its API server. The hub's API server takes a kubelet's answer for
// plain text. What is not there is told as gone.
func readRefusal(res *http.Response, gone string) error {
	if res.StatusCode == http.StatusNotFound {
		return &refusal{res.StatusCode, gone}
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, maxRefusal))
	if err != nil {
		return fmt.Errorf("answer was cut off: %w", err)
	}
	return &refusal{res.StatusCode, plainText(body)}
}

func plainText(body []byte) string {
	var status metav1.Status
	if json.Unmarshal(body, &status) != nil || status.Kind != "Status" || status.Message == "" {
		return string(body)
	}
	if status.Details != nil {
		for _, cause := range status.Details.Causes {
			if cause.Type == metav1.CauseTypeUnexpectedServerResponse && cause.Message != "" {
				return cause.Message
			}
		}
	}
	return status.Message
}
