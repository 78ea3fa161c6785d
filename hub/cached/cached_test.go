// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package cached

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestStripMetadata(t *testing.T) {
	large := strings.Repeat("x", maxMetadata)
	cases := map[string]struct {
		reason  string
		has     metav1.ObjectMeta
		want    metav1.ObjectMeta
		dropped int
		keep    []string
	}{
		"what is small": {
			reason: "it may be read",
			has:    metav1.ObjectMeta{Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"}},
			want:   metav1.ObjectMeta{Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"}},
		},
		"owners and finalizers": {
			reason: "nobody reads them, and there may be thousands",
			has:    metav1.ObjectMeta{Finalizers: []string{"a"}, OwnerReferences: []metav1.OwnerReference{{Name: "b"}}},
		},
		"large annotations": {
			reason: "those that the hub reads are kept", keep: []string{"ours"},
			has:     metav1.ObjectMeta{Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"ours": large, "theirs": large}},
			want:    metav1.ObjectMeta{Annotations: map[string]string{"ours": large, AnnotationDropped: "10248"}},
			dropped: 10248,
		},
		"large labels": {
			reason: "an API server bounds each of them, and not their number",
			has:    metav1.ObjectMeta{Labels: map[string]string{"a": large}}, dropped: 10241,
			want: metav1.ObjectMeta{Annotations: map[string]string{AnnotationDropped: "10241"}},
		},
		"a size that somebody else says": {
			reason: "it does not count", has: metav1.ObjectMeta{Annotations: map[string]string{AnnotationDropped: "1000000"}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := &corev1.Pod{ObjectMeta: tc.has}
			Metadata(got, tc.keep)
			if diff := cmp.Diff(tc.want, got.ObjectMeta, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if n := Dropped(got); n != tc.dropped {
				t.Errorf("%d bytes are dropped, want %d", n, tc.dropped)
			}
		})
	}
}

func TestMarkSeenReportsSecondCall(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}}}
	if Seen(pod) || len(pod.ManagedFields) > 0 {
		t.Error("it has been seen, or keeps its managed fields")
	}
	if !Seen(pod) {
		t.Error("it is new again")
	}
}
