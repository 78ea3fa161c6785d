// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudflare

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/spokelet/spokelet/workers/upload"
)

func TestATokenHasARate(t *testing.T) {
	w := serve(t, func(c *Config) { c.Rate, c.Burst = 0.001, 3 })
	for range 3 {
		if got := w.ask(t, "jane", http.MethodGet, "/user", nil); !got.Success {
			t.Fatalf("it is answered %s", got.raw)
		}
	}
	w.ask(t, "jane", http.MethodGet, "/user", nil).refused(t, "the fourth at once", http.StatusTooManyRequests, 10429, "with this token")
	if got := w.ask(t, "joe", http.MethodGet, "/user", nil); !got.Success {
		t.Errorf("another token is answered %s", got.raw)
	}
}

// TestInventedTokensAreNotAllReviewed: the hub is asked about few of them, and about those of
// users nevertheless.
func TestInventedTokensAreNotAllReviewed(t *testing.T) {
	w := serve(t)
	w.ask(t, "jane", http.MethodGet, "/user", nil)
	w.api.limits.strangers.SetLimit(0) // it would be filled again while a slow machine asks
	refused := 0
	for i := range 3 * strangersBurst {
		if w.ask(t, fmt.Sprintf("invented-%d", i), http.MethodGet, "/user", nil).status == http.StatusTooManyRequests {
			refused++
		}
	}
	if refused == 0 || w.reviewer.reviews > 3*strangersBurst-refused+1 {
		t.Errorf("%d are refused at once, and the hub has reviewed %d", refused, w.reviewer.reviews)
	}
	if got := w.ask(t, "jane", http.MethodGet, "/user", nil); !got.Success {
		t.Errorf("a user is answered %s", got.raw)
	}
}

// held starts an upload whose body does not come, and returns what ends it.
func (w *world) held(t *testing.T) (end func()) {
	t.Helper()
	w.reviewer.seen = make(chan struct{}, 1)
	body, writer := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, w.url+"/client/v4"+hello, body)
		if err != nil {
			return
		}
		r.Header.Set("Authorization", "Bearer jane")
		r.Header.Set("Content-Type", "multipart/form-data; boundary=b")
		if resp, err := w.client.Do(r); err == nil {
			resp.Body.Close()
		}
	}()
	if _, err := io.WriteString(writer, "--b\r\n"); err != nil {
		t.Fatal(err)
	}
	<-w.reviewer.seen
	w.reviewer.seen = nil
	return func() {
		_ = writer.CloseWithError(io.ErrUnexpectedEOF)
		<-done
	}
}

func TestRequestsAtATimeAreBounded(t *testing.T) {
	w := serve(t, func(c *Config) { c.Requests = 1 })
	end := w.held(t)
	w.ask(t, "jane", http.MethodGet, "/user", nil).refused(t, "a second one", http.StatusTooManyRequests, 10429, "at a time")
	end()
	for range 100 { // the server sees a moment later that the client is gone
		if w.ask(t, "jane", http.MethodGet, "/user", nil).Success {
			return
		}
	}
	t.Error("the place of a client that is gone is not free")
}

func TestATokenHasRequestsAtATime(t *testing.T) {
	w := serve(t)
	for range tokenRequests {
		t.Cleanup(w.held(t))
	}
	w.ask(t, "jane", http.MethodGet, "/user", nil).refused(t, "one more", http.StatusTooManyRequests, 10429, "at a time with this token")
	if got := w.ask(t, "joe", http.MethodGet, "/user", nil); !got.Success {
		t.Errorf("another token is answered %s", got.raw)
	}
}

// TestWhatTakesLongIsWaitedFor, longer than its request may take to arrive.
func TestWhatTakesLongIsWaitedFor(t *testing.T) {
	w := serve(t)
	w.api.bodyTime, w.reviewer.slow = 20*time.Millisecond, 200*time.Millisecond
	for request, body := range map[string]string{
		"GET " + hello + "/secrets": "", "DELETE " + hello + "/secrets/NONE": "", "POST " + hello + "/subdomain": "{}",
	} {
		method, path, _ := strings.Cut(request, " ")
		if got := w.ask(t, "jane", method, path, strings.NewReader(body)); got.status == http.StatusServiceUnavailable {
			t.Errorf("%s is answered %s", request, got.raw)
		}
	}
}

func TestABodyThatDoesNotComeIsNotWaitedFor(t *testing.T) {
	w := serve(t)
	w.api.bodyTime = 50 * time.Millisecond
	got := w.raw(t, "PUT /client/v4"+hello+"/secrets HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer jane\r\nContent-Length: 100\r\n\r\n{")
	if !strings.Contains(got, "400 Bad Request") {
		t.Errorf("it is answered %q", got)
	}
}

func TestTheServerIsSpokenToByTLSAndHTTP1Alone(t *testing.T) {
	w := serve(t)
	if got := w.raw(t, "GET / HTTP/1.1\r\nHost: x\r\nX-Long: "+strings.Repeat("x", 2*maxHeader)+"\r\n\r\n"); !strings.Contains(got, "431") {
		t.Errorf("a long header is answered %.100s", got)
	}
	resp, err := http.Get(strings.Replace(w.url, "https", "http", 1) + "/client/v4/user")
	if err == nil {
		resp.Body.Close()
		if resp.StatusCode != http.StatusBadRequest {
			t.Errorf("without TLS it is answered %d", resp.StatusCode)
		}
	}
}

func TestLimitsAreChecked(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"nobody to ask":           {func(c *Config) { c.Reviewer = nil }, "one is missing"},
		"no modules":              {func(c *Config) { c.Limits = upload.Limits{MaxModules: -1, MaxBytes: 1} }, "-1 modules"},
		"no requests":             {func(c *Config) { c.Requests = -1 }, "-1 requests"},
		"less than one upload":    {func(c *Config) { c.UploadBytes = 1 }, "1 bytes for uploads"},
		"a rate that is negative": {func(c *Config) { c.Rate = -1 }, "-1 per second"},
	} {
		t.Run(name, func(t *testing.T) {
			config := Config{Reviewer: &reviewer{}, Accounts: accounts{}}
			test.change(&config)
			if _, err := New(config); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}
