// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"

	"github.com/spokelet/spokelet/hub/requester"
	"github.com/spokelet/spokelet/internal/rbacwatch"
	"github.com/spokelet/spokelet/internal/testing/testscale"
)

func reviewOf(t *testing.T, r *reviewRequest) []byte {
	t.Helper()
	data, err := json.Marshal(admissionv1.AdmissionReview{TypeMeta: reviewType(), Request: &admissionv1.AdmissionRequest{
		UID: r.UID, Resource: r.Resource, Operation: r.Operation, Namespace: r.Namespace, Name: r.Name, UserInfo: r.UserInfo,
		Object: apiruntime.RawExtension{Raw: r.Object}, OldObject: apiruntime.RawExtension{Raw: r.OldObject},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func newServer(t *testing.T, access rbacwatch.AccessReviewer) *Server {
	t.Helper()
	registration := &requester.Registration{}
	registration.Set("uid")
	s, err := New(Config{
		Listener: noListener{}, Certificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, errBoom },
		Self: self, Registration: registration, Access: access, Clusters: ClustersFunc(owned), Stored: StoredFunc(empty), Limits: roomy,
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

type noListener struct{ net.Listener }

// TestConnectionsAreLimited: those who do nothing lose theirs, and not the API
// server, which has had a review answered.
func TestConnectionsAreLimited(t *testing.T) {
	certificate, bundle := newCertificate(t, net.IPv4(127, 0, 0, 1))
	address, _ := start(t, "127.0.0.1:0", certificate, Config{Self: self, Access: &rights{}, Clusters: ClustersFunc(owned), Stored: StoredFunc(empty), Limits: roomy})
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(bundle)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}}
	defer client.CloseIdleConnections()
	review := func() (reused bool) {
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) { reused = info.Reused }})
		body := bytes.NewReader(reviewOf(t, requestOf("", object("", configMap))))
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+address.String()+Path, body)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("a review is answered %d, %v", resp.StatusCode, err)
		}
		return reused
	}
	review()
	const more = 5
	var conns []net.Conn
	for range connectionLimits().Unauthorized + more {
		conn, err := net.Dial("tcp", address.String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		conns = append(conns, conn)
	}
	for i, conn := range conns[:more] {
		_ = conn.SetReadDeadline(time.Now().Add(headerTimeout / 2)) // the server gives up soon after
		if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("connection %d of %d is open", i, len(conns))
		}
	}
	if !review() {
		t.Error("the connection of the API server is gone")
	}
}

func TestServerAnswersReviews(t *testing.T) {
	ip := net.IPv4(127, 0, 0, 1)
	certificate, bundle := newCertificate(t, ip)
	address, _ := start(t, "127.0.0.1:0", certificate, Config{Self: self, Access: &rights{}, Clusters: ClustersFunc(owned), Stored: StoredFunc(empty), Limits: roomy})
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
		"one that is large":  {reason: "memory is bounded", path: Path, body: bytes.Repeat([]byte{' '}, maxBodyBytes+1), code: http.StatusRequestEntityTooLarge},
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

func TestBodyWithoutLengthIsRefused(t *testing.T) {
	answer := send(t, newServer(t, &rights{}), "192.0.2.1", iotest.ErrReader(errBoom), -1)
	if answer.Code != http.StatusLengthRequired {
		t.Errorf("got %d %s, want that the length is demanded", answer.Code, answer.Body)
	}
}

// send has a server answer a review of a host.
func send(t *testing.T, s *Server, host string, body io.Reader, size int64) *httptest.ResponseRecorder {
	t.Helper()
	return post(t, s, Path, host, body, size)
}

func post(t *testing.T, s *Server, path, host string, body io.Reader, size int64) *httptest.ResponseRecorder {
	t.Helper()
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, body)
	request.ContentLength, request.RemoteAddr = size, host+":50000"
	answer := httptest.NewRecorder()
	s.newHTTPServer().Handler.ServeHTTP(answer, request)
	return answer
}

// padding is how long a review is made: as long as it may be, or, as each byte is slow with the
// race detector, a sixth of that: it is still more than a head may have.
var padding = testscale.Of(maxBodyBytes/6, maxBodyBytes)

// padded is a review that repeats text as often as there is room for.
func padded(before, text, after string) []byte {
	n := (padding - len(before) - len(after)) / len(text)
	return []byte(before + strings.TrimSuffix(strings.Repeat(text, n), ",") + after)
}

// mayTake is how many bytes a review may take: all that reviews may hold, or as large a part of
// it as the review is of the largest.
func mayTake(body []byte) int64 {
	if len(body) < padding-1000 { // it is not padded
		return maxReviewMemory
	}
	return maxReviewMemory * int64(len(body)) / maxBodyBytes
}

// A body of 8 MiB became up to some hundred MiB of groups, values or manifests. What is
// counted here is more than what is held at any moment: also what is garbage at once.
func TestReviewStaysWithinMemoryLimit(t *testing.T) {
	const (
		head   = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","namespace":"store-1","operation":"CREATE",` + `"resource":{"group":"work.open-cluster-management.io","version":"v1","resource":"manifestworks"},`
		spec   = head + `"object":{"spec":{"workload":{"manifests":[`
		closed = `]}}}}}`
	)
	for name, body := range map[string][]byte{
		"groups":                        padded(head+`"userInfo":{"groups":[`, `"",`, `]}}}`),
		"groups, as large as they may":  []byte(head + `"userInfo":{"groups":[` + strings.Repeat(`"",`, maxHeadBytes/3-30) + `""]},"object":{"spec":{}}}}`),
		"extra values":                  padded(head+`"userInfo":{"extra":{"a":[`, `"",`, `]}}}}`),
		"keys of extra values":          padded(head+`"userInfo":{"extra":{`, `"a":[],`, `}}}}`),
		"a namespace":                   padded(head+`"namespace":"`, `a`, `"}}`),
		"a namespace of escapes":        padded(head+`"namespace":"`, `\ud800`, `"}}`),
		"bytes that are no UTF-8":       padded(head+`"namespace":"`, "\xff", `"}}`),
		"a number for a text":           padded(head+`"namespace":`, `1`, `}}`),
		"manifests of nothing":          padded(spec, `{},`, closed),
		"manifests that are numbers":    padded(spec, `1,`, closed),
		"manifests with the least name": padded(spec, `{"kind":"a","metadata":{"name":"b"}},`, closed),
		"a manifest of small values":    padded(spec+`{"kind":"a","metadata":{"name":"b"},"data":[`, `{},`, `]}`+closed),
		"a manifest within the limit":   []byte(spec + `{"kind":"a","metadata":{"name":"b"},"data":[` + strings.Repeat(`[],`, 160_000) + `[]]}` + closed),
		"a number for a spec":           padded(head+`"object":{"spec":`, `1`, `}}}`),
		"a number for a list":           padded(head+`"object":{"spec":{"workload":{"manifests":`, `1`, `}}}}}`),
		"an executor":                   padded(spec+`{"kind":"a","metadata":{"name":"b"}}]},"executor":{"subject":{"type":"`, `a`, `"}}}}}}`),
		"labels":                        padded(head+`"object":{"metadata":{"labels":{`, `"a":"b",`, `}}}}}`),
		"an old object":                 padded(head+`"oldObject":{"spec":{"a":[`, `{},`, `]}}}}`),
		"keys with escapes":             padded(head+`"object":{`, `"\n":1,`, `}}}`),
		"what is no review":             padded(`[`, `{},`, `]`),
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, &rights{})
			reader, before, after := bytes.NewReader(body), runtime.MemStats{}, runtime.MemStats{}
			runtime.GC()
			runtime.ReadMemStats(&before)
			answer := send(t, s, "192.0.2.1", reader, int64(len(body)))
			runtime.ReadMemStats(&after)
			if got := int64(after.TotalAlloc - before.TotalAlloc); got > mayTake(body) {
				t.Errorf("a review of %d bytes took %d, the limit is %d (%d %.100s)", len(body), got, mayTake(body), answer.Code, answer.Body)
			}
			if held := s.memory.Held(); held != 0 {
				t.Errorf("%d bytes are held of a review that was answered", held)
			}
		})
	}
}

// largest is the review of the largest work that may be: its old object and its new
// one, each with manifests to the highest limit, and its status.
func largest(t *testing.T) []byte {
	t.Helper()
	filled := func(c string) string { return strings.Replace(sized(t, 1<<20), "x", c, 1) }
	work := func(c string) string {
		return strings.TrimSuffix(object("", filled(c)), "}") + `,"status":{"conditions":[` + strings.Repeat(`{"type":"Applied","status":"True"},`, 15_000) + `{}]}}`
	}
	return reviewOf(t, requestOf(work("x"), work("y")))
}

func TestLargestReviewFitsBesideBusyHost(t *testing.T) {
	s := newServer(t, &rights{})
	s.validator.limit = 1 << 20
	greedy := s.memory.Account("192.0.2.1")
	defer greedy.Close()
	if err := greedy.Grow(maxHostMemory); err != nil {
		t.Fatal(err)
	}
	body := largest(t)
	answer := send(t, s, "192.0.2.2", bytes.NewReader(body), int64(len(body)))
	if answer.Code != http.StatusOK || !strings.Contains(answer.Body.String(), `"allowed":true`) {
		t.Errorf("a review of %d bytes: got %d %s", len(body), answer.Code, answer.Body)
	}
}

// The API server's failure policy decides about a review that finds no memory.
func TestReviewsWaitForMemoryThenFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, &rights{})
		slow := map[string]*io.PipeWriter{}
		var sending sync.WaitGroup
		for _, host := range []string{"192.0.2.1", "192.0.2.2"} {
			reader, writer := io.Pipe()
			slow[host] = writer
			sending.Go(func() { send(t, s, host, reader, maxBodyBytes) })
		}
		synctest.Wait()
		small := reviewOf(t, requestOf("", object("", configMap)))
		// Two hosts hold what they may, but for a little.
		waiting := s.memory.Account("192.0.2.3")
		if err := waiting.Grow(maxReviewMemory - s.memory.Held()); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		answer := send(t, s, "192.0.2.4", bytes.NewReader(small), int64(len(small)))
		if answer.Code != http.StatusTooManyRequests || answer.Header().Get("Retry-After") == "" || !strings.Contains(answer.Body.String(), "too many reviews at once") {
			t.Errorf("got %d %v %s, want to be told to come again", answer.Code, answer.Header(), answer.Body)
		}
		if waited := time.Since(began); waited != verdictTimeout {
			t.Errorf("it waited %s, want %s", waited, verdictTimeout)
		}
		time.AfterFunc(time.Second, waiting.Close)
		answer = send(t, s, "192.0.2.4", bytes.NewReader(small), int64(len(small)))
		if answer.Code != http.StatusOK {
			t.Errorf("there was memory after a second: got %d %s", answer.Code, answer.Body)
		}
		for _, writer := range slow {
			_ = writer.CloseWithError(errBoom)
		}
		sending.Wait()
		if held := s.memory.Held(); held != 0 {
			t.Errorf("%d bytes are held of reviews that ended", held)
		}
	})
}

// Anybody may send large reviews: they must not take all processors.
func TestLargeReviewsAreDecodedSequentially(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, &rights{})
		s.validator.limit = 1 << 20
		small, large := reviewOf(t, requestOf("", object("", configMap))), largest(t)
		s.largeReviews <- struct{}{} // one is being decoded
		if answer := send(t, s, "192.0.2.1", bytes.NewReader(small), int64(len(small))); answer.Code != http.StatusOK {
			t.Errorf("a small one: got %d %s, want an answer at once", answer.Code, answer.Body)
		}
		if answer := send(t, s, "192.0.2.1", bytes.NewReader(large), int64(len(large))); answer.Code != http.StatusTooManyRequests {
			t.Errorf("a large one: got %d %s, want to be told to come again", answer.Code, answer.Body)
		}
		time.AfterFunc(time.Second, func() { <-s.largeReviews })
		for range 2 {
			if answer := send(t, s, "192.0.2.1", bytes.NewReader(large), int64(len(large))); answer.Code != http.StatusOK {
				t.Errorf("when its turn has come: got %d %s", answer.Code, answer.Body)
			}
		}
	})
}

// What decoding takes beyond the rule is not waited for, and is no verdict.
func TestReviewBeyondMemoryGetsTooManyRequests(t *testing.T) {
	s := newServer(t, &rights{})
	manifests := make([]string, 9_000)
	for i := range manifests {
		manifests[i] = fmt.Sprintf(`{"kind":"a","metadata":{"name":"%d"}}`, i)
	}
	body := reviewOf(t, requestOf("", object("", manifests...)))
	account := s.memory.Account("192.0.2.1")
	defer account.Close()
	if err := account.Grow(maxHostMemory - int64(2*len(body))); err != nil {
		t.Fatal(err)
	}
	answer := send(t, s, "192.0.2.1", bytes.NewReader(body), int64(len(body)))
	if answer.Code != http.StatusTooManyRequests {
		t.Errorf("got %d %s, want to be told to come again", answer.Code, answer.Body)
	}
	account.Close()
	if answer = send(t, s, "192.0.2.1", bytes.NewReader(body), int64(len(body))); answer.Code != http.StatusOK {
		t.Errorf("there is memory: got %d %s", answer.Code, answer.Body)
	}
}
