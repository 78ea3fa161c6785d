// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func encoded(t testing.TB, v any) []byte {
	t.Helper()
	body, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func podOf(namespace, name, uid string) Pod {
	var p Pod
	p.Pod.Namespace, p.Pod.Name = namespace, name
	p.Pod.UID = "u"
	if uid == "" {
		p.Pod.UID = ""
	}
	return p
}

func TestAPodIsTakenUnderItsOwnKeyAlone(t *testing.T) {
	tests := map[string]struct {
		reason string
		key    string
		pod    Pod
		err    error
	}{
		"its own":           {reason: "as the hub sends it", key: "ns/p", pod: podOf("ns", "p", "u")},
		"another name":      {reason: "a status would go to another pod", key: "ns/q", pod: podOf("ns", "p", "u"), err: ErrInvalidPod},
		"another namespace": {reason: "what may run there was asked for elsewhere", key: "kube-system/p", pod: podOf("ns", "p", "u"), err: ErrInvalidPod},
		"no uid":            {reason: "nobody could tell it from the next of its name", key: "ns/p", pod: podOf("ns", "p", ""), err: ErrInvalidPod},
		"no namespace":      {reason: "pods have one", key: "p", pod: podOf("", "p", "u"), err: ErrInvalidPod},
		"a path":            {reason: "names become parts of paths", key: "ns/../p", pod: podOf("ns", "../p", "u"), err: ErrInvalidPod},
		"a dot":             {reason: "names become parts of paths", key: "ns/..", pod: podOf("ns", "..", "u"), err: ErrInvalidPod},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := DecodePod(tt.key, encoded(t, tt.pod))
			if !errors.Is(err, tt.err) {
				t.Fatalf("reason: %s: error %v, want %v", tt.reason, err, tt.err)
			}
			if err == nil {
				if diff := cmp.Diff(tt.pod, got); diff != "" {
					t.Errorf("reason: %s\n-want +got\n%s", tt.reason, diff)
				}
			}
		})
	}
}

func TestKeysOfWhatPodsReferTo(t *testing.T) {
	tests := map[string]struct {
		reason string
		key    string
		want   PodObjectKey
		err    error
	}{
		"a ConfigMap":  {reason: "as the hub sends it", key: "configmap/ns/a.b", want: PodObjectKey{Kind: PodObjectConfigMap, Namespace: "ns", Name: "a.b"}},
		"a Secret":     {reason: "as the hub sends it", key: "secret/ns/a", want: PodObjectKey{Kind: PodObjectSecret, Namespace: "ns", Name: "a"}},
		"another kind": {reason: "nobody asked for it", key: "node/ns/a", err: ErrInvalidPod},
		"no name":      {reason: "it is part of a path", key: "secret/ns/", err: ErrInvalidPod},
		"too much":     {reason: "it is part of a path", key: "secret/ns/a/b", err: ErrInvalidPod},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := ParsePodObjectKey(tt.key)
			if !errors.Is(err, tt.err) || got != tt.want {
				t.Fatalf("reason: %s: got %v, %v, want %v, %v", tt.reason, got, err, tt.want, tt.err)
			}
			if err == nil && got.String() != tt.key {
				t.Errorf("reason: %s: String = %q, want %q", tt.reason, got.String(), tt.key)
			}
		})
	}
}

func TestAStatusThatNoAgentSendsIsRefused(t *testing.T) {
	tests := map[string]struct {
		reason string
		status PodStatus
		err    error
	}{
		"running":             {reason: "as agents send it", status: PodStatus{Generation: 1, Status: &corev1.PodStatus{Phase: corev1.PodRunning}}},
		"why it is not there": {reason: "as agents send it", status: PodStatus{Reason: "NameTaken", Message: "is not ours"}},
		"a reason in prose":   {reason: "clients switch on reasons", status: PodStatus{Reason: "no room"}, err: ErrInvalidPod},
		"too many containers": {
			reason: "the hub keeps what it is told",
			status: PodStatus{Status: &corev1.PodStatus{ContainerStatuses: make([]corev1.ContainerStatus, maxContainers+1)}}, err: ErrInvalidPod,
		},
		"too many conditions": {
			reason: "the hub keeps what it is told",
			status: PodStatus{Status: &corev1.PodStatus{Conditions: make([]corev1.PodCondition, maxPodConditions+1)}}, err: ErrInvalidPod,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := DecodePodStatus(encoded(t, tt.status)); !errors.Is(err, tt.err) {
				t.Errorf("reason: %s: error %v, want %v", tt.reason, err, tt.err)
			}
		})
	}
}

func TestAnErrorAboutASecretDoesNotQuoteIt(t *testing.T) {
	_, err := DecodePodObject([]byte(`{"data":{"password":"hunter2!"}}`))
	if !errors.Is(err, ErrInvalidPod) || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("error %v, want one of %v that quotes nothing", err, ErrInvalidPod)
	}
}

func TestEventsWithoutATypeThatTheHubTakesAreRefused(t *testing.T) {
	for body, want := range map[string]error{
		`{"type":"Normal","reason":"Pulled"}`:  nil,
		`{"type":"Warning","reason":"Failed"}`: nil,
		`{"type":"Loud","reason":"Pulled"}`:    ErrInvalidPod,
		`{"type":"Normal"}`:                    ErrInvalidPod,
		`[]`:                                   ErrInvalidPod,
	} {
		if _, err := DecodePodEvent([]byte(body)); !errors.Is(err, want) {
			t.Errorf("%s: error %v, want %v", body, err, want)
		}
	}
}

func FuzzPod(f *testing.F) {
	f.Add("ns/p", encoded(f, podOf("ns", "p", "u")))
	f.Add("ns/p", encoded(f, PodStatus{Reason: "NameTaken", Status: &corev1.PodStatus{Phase: corev1.PodPending}}))
	f.Add("secret/ns/p", encoded(f, PodObject{Type: corev1.SecretTypeOpaque, Data: map[string][]byte{"k": {0, 1}}}))
	f.Add("ns/p/e", encoded(f, PodEvent{Type: corev1.EventTypeNormal, Reason: "Pulled", First: metav1.Unix(1, 0)}))
	f.Fuzz(func(t *testing.T, key string, body []byte) {
		p, err := DecodePod(key, body)
		if err == nil && p.Pod.Namespace+"/"+p.Pod.Name != key {
			t.Errorf("pod %s/%s was taken under key %q", p.Pod.Namespace, p.Pod.Name, key)
		}
		if err == nil && (p.Grouped != nil || p.Group != "" && !IsNodeGroup(p.Group)) {
			t.Errorf("pod of group %q was taken", p.Group)
		}
		if k, err := ParsePodObjectKey(key); err == nil && k.String() != key {
			t.Errorf("key %q became %q", key, k.String())
		}
		if s, err := DecodePodStatus(body); err == nil && s.Reason != "" && !IsReason(s.Reason) {
			t.Errorf("reason %q was taken", s.Reason)
		}
		_, objectErr := DecodePodObject(body)
		_, eventErr := DecodePodEvent(body)
		for _, err := range []error{objectErr, eventErr} {
			if err != nil && !errors.Is(err, ErrInvalidPod) {
				t.Errorf("error %v is not classified", err)
			}
		}
	})
}
