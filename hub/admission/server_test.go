// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func reviewOf(t *testing.T, request *admissionv1.AdmissionRequest) []byte {
	t.Helper()
	data, err := json.Marshal(admissionv1.AdmissionReview{TypeMeta: reviewType(), Request: request})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func newServer(t *testing.T, access Access) *Server {
	t.Helper()
	s, err := New(Config{
		Listener: noListener{}, Certificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, errBoom },
		Access: access, Clusters: ClustersFunc(owned),
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

type noListener struct{ net.Listener }

func TestAReviewIsAnswered(t *testing.T) {
	ip := net.IPv4(127, 0, 0, 1)
	certificate, bundle := newCertificate(t, ip)
	address, _ := start(t, "127.0.0.1:0", certificate, Config{Access: &rights{}, Clusters: ClustersFunc(owned)})
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(bundle)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true}}
	defer client.CloseIdleConnections()
	cases := map[string]struct {
		reason string
		path   string
		body   []byte
		code   int
		want   *admissionv1.AdmissionResponse
	}{
		"one that may pass": {
			reason: "nothing is wrong with it", path: Path, body: reviewOf(t, requestOf("", object("", configMap))),
			code: http.StatusOK, want: &admissionv1.AdmissionResponse{UID: "1", Allowed: true},
		},
		"one that is refused": {
			reason: "clients see a bad request", path: Path, body: reviewOf(t, requestOf("", object(""))),
			code: http.StatusOK, want: &admissionv1.AdmissionResponse{UID: "1", Result: &metav1.Status{
				Status: "Failure", Reason: metav1.StatusReasonBadRequest, Code: 400, Message: "manifests should not be empty",
			}},
		},
		"one in a namespace of others": {
			reason: "its cluster is ours", path: AdoptedPath, body: reviewOf(t, requestOf("", object("", configMap))),
			code: http.StatusOK, want: &admissionv1.AdmissionResponse{UID: "1", Allowed: true},
		},
		"one of no work":     {reason: "the API server takes it as a failure", path: Path, body: []byte("{}"), code: http.StatusBadRequest},
		"one that is cut":    {reason: "half a review is none", path: Path, body: reviewOf(t, requestOf("", object("")))[:100], code: http.StatusBadRequest},
		"one that is large":  {reason: "memory is bounded", path: Path, body: bytes.Repeat([]byte{' '}, maxBody+1), code: http.StatusRequestEntityTooLarge},
		"one that is deep":   {reason: "the stack is bounded", path: Path, body: deep(20_000), code: http.StatusBadRequest},
		"one of elsewhere":   {reason: "there is no other door", path: "/", body: []byte("{}"), code: http.StatusNotFound},
		"an answer, not one": {reason: "only requests are answered", path: Path, body: []byte(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"1"}}`), code: http.StatusBadRequest},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+address.String()+tc.path, bytes.NewReader(tc.body))
			if err != nil {
				t.Fatal(err)
			}
			answer, err := client.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = answer.Body.Close() }()
			body, err := io.ReadAll(answer.Body)
			if err != nil || answer.StatusCode != tc.code {
				t.Fatalf("%s: got %d, %v, want %d: %s", tc.reason, answer.StatusCode, err, tc.code, body)
			}
			if tc.want == nil {
				return
			}
			var review admissionv1.AdmissionReview
			if err := json.Unmarshal(body, &review); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(admissionv1.AdmissionReview{TypeMeta: reviewType(), Response: tc.want}, review); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// deep is a review whose object is nested so often.
func deep(levels int) []byte {
	return []byte(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","object":` +
		strings.Repeat(`{"a":`, levels) + "1" + strings.Repeat("}", levels) + `}}`)
}

func TestABodyWithoutLengthIsBoundedToo(t *testing.T) {
	s := newServer(t, &rights{})
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, Path, io.LimitReader(spaces{}, maxBody+1))
	request.ContentLength = -1
	answer := httptest.NewRecorder()
	s.server().Handler.ServeHTTP(answer, request)
	if answer.Code != http.StatusBadRequest || !strings.Contains(answer.Body.String(), "too large") {
		t.Errorf("got %d %s, want a refusal for the size", answer.Code, answer.Body)
	}
}

type spaces struct{}

func (spaces) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// A host that sends large bodies slowly waits for itself, and nobody for it.
func TestNoHostTakesTheRoomOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoom(100, 50)
		first, err := r.take(t.Context(), "a", 50)
		if err != nil {
			t.Fatal(err)
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := r.take(short, "a", 1); err == nil {
			t.Error("a host has more than its part")
		}
		second, err := r.take(t.Context(), "b", 50)
		if err != nil {
			t.Fatalf("another host found no room: %v", err)
		}
		short, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := r.take(short, "c", 1); err == nil {
			t.Error("there is more room than there is")
		}
		first()
		third, err := r.take(t.Context(), "c", 50)
		if err != nil {
			t.Fatalf("what was given back is not free: %v", err)
		}
		second()
		third()
		if len(r.hosts) != 0 {
			t.Errorf("%d hosts are remembered that want nothing", len(r.hosts))
		}
	})
}
