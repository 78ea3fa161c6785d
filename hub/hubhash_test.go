// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"errors"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

func TestHubHashIsKeptFromFirstStart(t *testing.T) {
	const url = "https://hub.example.com:6443"
	const hash = "badbd4de19b639898c31f168ba913abc5d9e2bbcf25d70e3ee016190492578ae" // sha256sum of it
	first := strings.Repeat("ab", 32)
	cases := map[string]struct {
		reason string
		page   map[string]string
		want   string
		err    error
	}{
		"no page":             {reason: "this is the first start", want: hash},
		"a page of before":    {reason: "hubs without a hash left no anchors", page: map[string]string{keyHubID: "x"}, want: hash},
		"a page with another": {reason: "anchors in the spokes bear it", page: map[string]string{keyHubHash: first}, want: first},
		"a page with none":    {reason: "a new one would orphan every anchor", page: map[string]string{keyHubHash: "x"}, err: errInvalidHubHash},
		"a page with half":    {reason: "a new one would orphan every anchor", page: map[string]string{keyHubHash: first[:60]}, err: errInvalidHubHash},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			client := fake.NewSimpleClientset()
			if tc.page != nil {
				client = fake.NewSimpleClientset(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "spokelet-system", Name: joinConfigMap}, Data: tc.page})
			}
			got, err := resolveHubHash(t.Context(), client.CoreV1().ConfigMaps("spokelet-system"), url, logr.Discard())
			if got != tc.want || !errors.Is(err, tc.err) {
				t.Errorf("hashOf() = %q, %v, want %q, %v: %s", got, err, tc.want, tc.err, tc.reason)
			}
		})
	}
}
