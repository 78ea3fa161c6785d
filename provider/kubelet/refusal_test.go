// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"io"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/spokelet/spokelet/api/wire"
)

func TestAPodThatWasDeletedInItsClusterIsSaidToBe(t *testing.T) {
	inCluster := func(status corev1.ConditionStatus) *corev1.Pod {
		pod := web()
		pod.Status.Conditions = []corev1.PodCondition{{Type: wire.ConditionInCluster, Status: status}}
		return pod
	}
	const deleted = `pod "web" was deleted in cluster "spoke1"`
	cases := map[string]struct {
		reason, method, path string
		pod                  *corev1.Pod
		code                 int
		text                 string
	}{
		"logs": {
			"the hub's API server drops the text of a 404, and kubectl would not know what was not found",
			http.MethodGet, logPath, inCluster(corev1.ConditionFalse), 400, deleted,
		},
		"exec":   {"what refuses an upgrade is told with its text", http.MethodPost, execPath + "&output=1", inCluster(corev1.ConditionFalse), 404, deleted},
		"attach": {"as exec", http.MethodPost, "/attach/team/web/main?output=1", inCluster(corev1.ConditionFalse), 404, deleted},
		"port-forward": {
			"as exec", http.MethodPost, "/portForward/team/web", inCluster(corev1.ConditionFalse), 404, deleted,
		},
		"logs of one that may be there": {
			"an agent that has just started has yet to find it", http.MethodGet, logPath, inCluster(corev1.ConditionTrue), 404, `pod "web" does not exist`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := newSpoke(t, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusNotFound)
				_, _ = io.WriteString(w, `{"kind":"Status","message":"pods \"web\" not found"}`)
			}, tc.pod)
			header := http.Header{}
			if tc.method == http.MethodPost {
				header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {protocolSPDY}, streamProtocolHeader: {"v4.channel.k8s.io"}}
			}
			if code, text := s.ask(tc.method, tc.path, "t", nil, header); code != tc.code || text != tc.text {
				t.Errorf("reason: %s: answered %d %q, want %d %q", tc.reason, code, text, tc.code, tc.text)
			}
		})
	}
}
