// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package spoke

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/spokelet/spokelet/internal/quota"
)

type named struct {
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
}

// newHub serves a hub by TLS and HTTP/2, and returns a client of it.
func newHub(t *testing.T, handler http.HandlerFunc) *Client {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	client, err := New(&rest.Config{Host: server.URL, BearerToken: "of-the-hub", TLSClientConfig: rest.TLSClientConfig{CAData: authority}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func cluster(t *testing.T, c *Client, name string) API {
	t.Helper()
	a, err := c.Cluster(name)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// endless writes a beginning and then a text until nobody listens.
func endless(begin, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		chunk := bytes.Repeat([]byte(text), max(16<<10/len(text), 1))
		io.WriteString(w, begin)
		for {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	}
}

func TestClusterAnswersAreLimited(t *testing.T) {
	list := func(ctx context.Context, a API) error {
		_, err := List(ctx, a, Metadata, "/api/v1/pods", nil, func(named) {})
		return err
	}
	watch := func(ctx context.Context, a API) error {
		w, err := NewWatch[named](ctx, a, Metadata, "/api/v1/pods", url.Values{"watch": {"true"}})
		if err != nil {
			return err
		}
		defer w.Close()
		for {
			if _, err := w.Next(); err != nil {
				return err
			}
		}
	}
	stream := func(ctx context.Context, a API) error {
		body, err := a.Stream(ctx, http.MethodGet, "/version", nil)
		if err != nil {
			return err
		}
		defer body.Close()
		n, err := io.Copy(io.Discard, body)
		if n > MaxAnswer {
			t.Errorf("%d bytes of an answer were read", n)
		}
		return err
	}
	cases := map[string]struct {
		answer http.HandlerFunc
		read   func(context.Context, API) error
		reason string
	}{
		"a list of many objects": {answer: endless(`{"items":[{}`, `,{}`), read: list, reason: "the answer has a bound"},
		"a list of one object":   {answer: endless(`{"items":[{"metadata":{"name":"`, `a`), read: list, reason: "the object has a bound"},
		"members of a list":      {answer: endless(`{"x":1`, `,"x":1`), read: list, reason: "the answer has a bound"},
		"an event":               {answer: endless(`{"type":"ADDED","object":{"metadata":{"name":"`, `a`), read: watch, reason: "the event has a bound"},
		"an event of many parts": {answer: endless(`{"object":{"x":[{}`, ",\n{}"), read: watch, reason: "lines are no events"},
		"space between events":   {answer: endless(``, "\n"), read: watch, reason: "the decoder keeps it"},
		"any answer":             {answer: endless(``, `a`), read: stream, reason: "the answer has a bound"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			client := newHub(t, tc.answer)
			client.http.Transport.(*boundedTransport).rate = nil
			if err := tc.read(t.Context(), cluster(t, client, "spoke1")); !errors.Is(err, ErrTooLarge) {
				t.Errorf("%s: %v", tc.reason, err)
			}
			if held := client.memory.Held(); held != 0 {
				t.Errorf("%d bytes are held after that", held)
			}
		})
	}
}

func TestListAndWatch(t *testing.T) {
	client := newHub(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer of-the-hub" || r.ProtoMajor != 2 {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if r.URL.Path != "/apis/live.spokelet.io/v1alpha1/clusters/spoke1/proxy/api/v1/pods" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		if r.FormValue("watch") == "" {
			io.WriteString(w, `{"kind":"PartialObjectMetadataList","metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}]}`)
			return
		}
		io.WriteString(w, `{"type":"ADDED","object":{"metadata":{"name":"c"}}}`+"\n")
	})
	a := cluster(t, client, "spoke1")
	var got []string
	version, err := List(t.Context(), a, Metadata, "/api/v1/pods", nil, func(o named) { got = append(got, o.Metadata.Name) })
	if err != nil || version != "7" {
		t.Fatalf("version %q: %v", version, err)
	}
	w, err := NewWatch[named](t.Context(), a, Metadata, "/api/v1/pods", url.Values{"watch": {"true"}})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	event, err := w.Next()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a", "b", "ADDED c"}, append(got, event.Type+" "+event.Object.Metadata.Name)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := w.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("the watch ends with %v", err)
	}
}

func TestErrorStatusIsTruncated(t *testing.T) {
	cases := map[string]struct {
		code   int
		body   string
		want   string
		reason string
	}{
		"a Status":           {code: 403, body: `{"kind":"Status","reason":"Forbidden","message":"pods is forbidden"}`, want: "pods is forbidden", reason: "it says what is to be done"},
		"no Status":          {code: 502, body: `oh`, want: "the answer was 502 Bad Gateway", reason: "a text of anybody's is none"},
		"a long one":         {code: 500, body: `{"kind":"Status","message":"` + strings.Repeat("a", 2*maxErrorMessage) + `"}`, want: strings.Repeat("a", maxErrorMessage), reason: "it goes into an event"},
		"a longer one":       {code: 500, body: `{"kind":"Status","message":"` + strings.Repeat("a", MaxErrorBody) + `"}`, want: "the answer was 500 Internal Server Error", reason: "it is not read to its end"},
		"one that leads off": {code: 307, body: ``, want: "the answer was 307 Temporary Redirect", reason: "nobody is sent elsewhere"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			client := newHub(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/elsewhere" {
					t.Error("it was asked elsewhere")
				}
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(tc.code)
				io.WriteString(w, tc.body)
			})
			_, err := cluster(t, client, "spoke1").Stream(t.Context(), http.MethodGet, "/version", nil)
			status := apierrors.APIStatus(nil)
			if !errors.As(err, &status) || status.Status().Message != tc.want || int(status.Status().Code) != tc.code {
				t.Errorf("%s: %v", tc.reason, err)
			}
			if held := client.memory.Held(); held != 0 {
				t.Errorf("%d bytes are held after that", held)
			}
		})
	}
}

// Each of these decoders holds half an event, and there is memory for four of them.
func TestClusterReadsAreCounted(t *testing.T) {
	const half = MaxObject / 2
	const each = costPerByte * (half + 100)
	client := newHub(t, http.NotFound)
	client.memory = quota.NewGuaranteedMemory(4*each, 5*each, each)
	hostile := cluster(t, client, "hostile")
	var decoding sync.WaitGroup
	var open []io.Closer
	defer func() {
		for _, to := range open {
			to.Close()
		}
		decoding.Wait()
	}()
	// begin returns whether there was memory. The second write returns when the decoder, which
	// has counted what it holds by then, reads on.
	begin := func(a API) error {
		from, to := io.Pipe()
		open = append(open, to)
		decoding.Go(func() {
			dec, done := a.decoder(from)
			defer done()
			var event Event[named]
			from.CloseWithError(dec.Decode(&event))
		})
		_, err := io.WriteString(to, `{"type":"`+strings.Repeat("a", half))
		if err == nil {
			_, err = io.WriteString(to, "a")
		}
		return err
	}
	for i := range 8 {
		if err := begin(hostile); i < 4 && err != nil || i >= 4 && !errors.Is(err, ErrExhausted) {
			t.Errorf("decoder %d: %v", i, err)
		}
	}
	if held := client.memory.Held(); held > 4*each {
		t.Errorf("%d bytes are held", held)
	}
	if err := begin(cluster(t, client, "healthy")); err != nil {
		t.Errorf("another cluster finds no memory: %v", err)
	}
	if err := begin(client.Hub()); err != nil {
		t.Errorf("the hub has no bound: %v", err)
	}
}

// text is a body, of so many bytes at a time.
type text struct{}

func (text) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Request: r, Body: io.NopCloser(strings.NewReader(strings.Repeat("a", MaxAnswer)))}, nil
}

func TestClusterReadRateIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bounded := &boundedTransport{next: text{}, path: clusters, rate: quota.NewWrites(quota.Rate{PerSecond: 1 << 20, Burst: 2 << 20}, allRate)}
		read := func(ctx context.Context, path string) (time.Duration, error) {
			begin := time.Now()
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://hub.example"+path, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			res, err := bounded.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			_, err = io.CopyN(io.Discard, res.Body, MaxAnswer)
			return time.Since(begin).Round(time.Second), err
		}
		if took, err := read(t.Context(), clusters+"spoke1/proxy/version"); err != nil || took != 2*time.Second {
			t.Errorf("4 MiB take %s, at 1 MiB a second after 2 MiB: %v", took, err)
		}
		for _, path := range []string{clusters + "spoke2/proxy/version", "/version"} {
			if took, err := read(t.Context(), path); err != nil || took > 2*time.Second {
				t.Errorf("%s waits for another cluster, %s: %v", path, took, err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := read(ctx, clusters+"spoke1/proxy/version"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("who waits goes with the request: %v", err)
		}
	})
}

func TestUnreadBodyIsNotReceived(t *testing.T) {
	received := make(chan int, 1)
	client := newHub(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/healthy/") {
			return
		}
		control, total := http.NewResponseController(w), 0
		for control.SetWriteDeadline(time.Now().Add(300*time.Millisecond)) == nil {
			n, err := w.Write(make([]byte, 4<<10))
			if err != nil || control.Flush() != nil {
				break
			}
			total += n
		}
		received <- total
	})
	body, err := cluster(t, client, "hostile").Stream(t.Context(), http.MethodGet, "/version", url.Values{"follow": {"true"}})
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	if total := <-received; total > 128<<10 {
		t.Errorf("%d bytes were received of what nobody reads", total)
	}
	other, err := cluster(t, client, "healthy").Stream(t.Context(), http.MethodGet, "/version", nil)
	if err != nil {
		t.Fatalf("another request waits: %v", err)
	}
	other.Close()
}

func TestClusterNameCannotEscapePath(t *testing.T) {
	client := newHub(t, http.NotFound)
	for _, name := range []string{"", ".", "..", "a/b", "../../x", "a?b", "A", "a%2fb"} {
		if _, err := client.Cluster(name); err == nil {
			t.Errorf("%q is taken for a cluster", name)
		}
	}
}

func TestHubCAIsReloaded(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "ca.crt")
	write := func(content []byte) {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	raw := bytes.Clone(server.Certificate().Raw)
	raw[bytes.Index(raw, server.Certificate().RawSubjectPublicKeyInfo)+100] ^= 1 // another key
	write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}))
	client, err := New(&rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{CAFile: file, ServerName: "example.com"}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ask := func() error {
		body, err := client.Hub().Stream(t.Context(), http.MethodGet, "/version", nil)
		if err == nil {
			body.Close()
		}
		return err
	}
	if err := ask(); err == nil {
		t.Fatal("a certificate of nobody is taken")
	}
	write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	if err := ask(); err != nil {
		t.Errorf("the new authority is not known: %v", err)
	}
}
