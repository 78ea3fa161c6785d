// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudflare

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"golang.org/x/time/rate"
	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/spokelet/spokelet/internal/quota"
	"github.com/spokelet/spokelet/workers/access"
	"github.com/spokelet/spokelet/workers/tail"
	"github.com/spokelet/spokelet/workers/upload"
)

func TestTokenRateIsLimited(t *testing.T) {
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

// TestInvalidTokensDoNotBlockOthers: the hub is asked about few of them, and users are answered,
// those who were here before and those who come from elsewhere.
func TestInvalidTokensDoNotBlockOthers(t *testing.T) {
	w := serve(t)
	w.api.limits.hostReviews = newRates(maxHosts, 0, reviewBurst) // it would be filled again while a slow machine asks
	w.ask(t, "jane", http.MethodGet, "/user", nil)
	const invented = 2 * allReviewsBurst
	refused := 0
	for i := range invented {
		if w.ask(t, fmt.Sprintf("invented-%d", i), http.MethodGet, "/user", nil).status == http.StatusTooManyRequests {
			refused++
		}
	}
	if want := invented - reviewBurst + 1; refused != want || w.reviewer.reviews != reviewBurst {
		t.Errorf("%d are refused at once, want %d, and the hub has reviewed %d", refused, want, w.reviewer.reviews)
	}
	if got := w.ask(t, "jane", http.MethodGet, "/user", nil); !got.Success {
		t.Errorf("a user is answered %s", got.raw)
	}
	w.from(t, "127.0.0.2")
	if got := w.ask(t, "joe", http.MethodGet, "/user", nil); !got.Success {
		t.Errorf("a user who comes for the first time, from elsewhere, is answered %s", got.raw)
	}
	if known := len(w.api.limits.tokens.byDigest); known != 2 {
		t.Errorf("%d tokens are known", known)
	}
}

// TestNewTokensShareReviewRate, which those that are known have no part in.
func TestNewTokensShareReviewRate(t *testing.T) {
	w := serve(t)
	w.ask(t, "jane", http.MethodGet, "/user", nil)
	w.api.limits.allReviews = rate.NewLimiter(0, 3)
	for i := range 3 {
		w.from(t, fmt.Sprintf("127.0.0.%d", i+2))
		w.ask(t, "invented", http.MethodGet, "/user", nil).refused(t, "one of three", http.StatusUnauthorized, 9109, "Invalid access token")
	}
	w.from(t, "127.0.0.9")
	w.ask(t, "invented", http.MethodGet, "/user", nil).refused(t, "the fourth", http.StatusTooManyRequests, 10429, "new here")
	if got := w.ask(t, "jane", http.MethodGet, "/user", nil); !got.Success {
		t.Errorf("a user is answered %s", got.raw)
	}
}

// TestTokenForOtherAudienceIsNotReviewed, and takes no place of anybody.
func TestTokenForOtherAudienceIsNotReviewed(t *testing.T) {
	w := serve(t)
	w.api.limits.reviews = quota.NewSlots(0, 0)
	for _, bearer := range []string{"v1.0-cloudflare", strings.Replace(tokenOf("jane"), ".", "..", 1), "a.e30.c"} {
		got := w.raw(t, "GET /client/v4/user HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+bearer+"\r\n\r\n")
		if !strings.Contains(got, "401 Unauthorized") || !strings.Contains(got, "for the audience spokelet-workers") {
			t.Errorf("%q is answered %q", bearer, got)
		}
	}
	if w.reviewer.reviews > 0 {
		t.Errorf("the hub has reviewed %d", w.reviewer.reviews)
	}
}

// TestInvalidatedTokenFallsBackToHostRate, so that it uses up nothing of whose it was.
func TestInvalidatedTokenFallsBackToHostRate(t *testing.T) {
	w := serve(t)
	w.ask(t, "jane", http.MethodGet, "/user", nil)
	w.reviewer.err = access.ErrInvalidToken
	w.ask(t, "jane", http.MethodGet, "/user", nil).refused(t, "a token that is withdrawn", http.StatusUnauthorized, 9109, "Invalid")
	if known := len(w.api.limits.tokens.byDigest); known != 0 {
		t.Errorf("%d tokens are known", known)
	}
}

// TestManyTokensEvictOnlyTheirHolders: those of others stay known.
func TestManyTokensEvictOnlyTheirHolders(t *testing.T) {
	all := newTokens()
	user := func(name string) authenticationv1.UserInfo { return authenticationv1.UserInfo{Username: name} }
	all.add("jane", user("jane"), nil)
	for i := range 2 * maxTokens {
		// Service accounts of a namespace, as many as somebody has made.
		all.add(strconv.Itoa(i), user(fmt.Sprintf("system:serviceaccount:team-b:ci-%d", i)), nil)
	}
	if all.get("jane") == nil || all.get("0") != nil || len(all.byDigest) != 1+tokensPerHolder {
		t.Errorf("%d are known; that of jane: %v", len(all.byDigest), all.get("jane") != nil)
	}
	if again := all.add("jane", user("jane"), nil); again != all.get("jane") {
		t.Error("a token that is known is another one when it is added again")
	}
}

// from has the next requests come from an address of this machine.
func (w *world) from(t *testing.T, address string) {
	t.Helper()
	transport := w.client.Transport.(*http.Transport).Clone()
	transport.DialContext = (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}).DialContext
	t.Cleanup(transport.CloseIdleConnections)
	w.client = &http.Client{Transport: transport}
}

// held starts an upload with a token whose body does not come to its end, and returns what ends
// it. It returns when the bytes have been read that come first.
func (w *world) held(t *testing.T, token, path, first string) (end func()) {
	t.Helper()
	body, writer := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, w.url+"/client/v4"+path, body)
		if err != nil {
			return
		}
		r.Header.Set("Authorization", "Bearer "+tokenOf(token))
		r.Header.Set("Content-Type", "multipart/form-data; boundary=b")
		if resp, err := w.client.Do(r); err == nil {
			resp.Body.Close()
		}
	}()
	if _, err := io.WriteString(writer, "--b\r\n"+first); err != nil {
		t.Fatal(err)
	}
	return sync.OnceFunc(func() {
		_ = writer.CloseWithError(io.ErrUnexpectedEOF)
		<-done
	})
}

// eventually waits until something is so.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !is(); {
		if time.Now().After(end) {
			t.Fatal(what)
		}
		runtime.Gosched()
	}
}

// busy starts uploads with tokens, and returns when each has its place.
func (w *world) busy(t *testing.T, path, first string, names ...string) {
	t.Helper()
	for _, name := range names {
		before := w.api.limits.accounts.Used()
		t.Cleanup(w.held(t, name, path, first))
		eventually(t, "an upload has no place", func() bool { return w.api.limits.accounts.Used() > before })
	}
}

func numberedNames(format string, n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf(format, i))
	}
	return names
}

func TestConcurrentRequestsAreLimited(t *testing.T) {
	w := serve(t, func(c *Config) { c.Requests = 1 })
	end := w.held(t, "jane", hello, "")
	eventually(t, "it has no place", func() bool { return w.api.limits.accounts.Used() > 0 })
	w.ask(t, "joe", http.MethodGet, "/user", nil).refused(t, "a second one", http.StatusTooManyRequests, 10429, "at a time")
	end()
	eventually(t, "the place of a client that is gone is not free", func() bool { return w.ask(t, "joe", http.MethodGet, "/user", nil).Success })
}

// TestHolderWithManyTokensLeavesRoom, whatever it is that he has many of.
func TestHolderWithManyTokensLeavesRoom(t *testing.T) {
	for name, tc := range map[string]struct {
		reason  string
		busy    []string // tokens
		refused string
		words   string
		others  []string
	}{
		"requests with a token": {
			"others of the account have room", []string{"jane#1", "jane#1"},
			"jane#1", "with this token", []string{"jane#2", "joe", "bob"},
		},
		"tokens of a user": {
			"who has one may get more", []string{"jane#1", "jane#2", "jane#3"},
			"jane#4", "of this user", []string{"joe", "bob"},
		},
		"service accounts of a namespace": {
			"who may make one may make more",
			numberedNames("system:serviceaccount:team-a:ci-%d", 3),
			"system:serviceaccount:team-a:ci-4", "of this user", []string{"jane", "joe", "bob"},
		},
		"users of an account": {
			"other accounts have room", numberedNames("system:serviceaccount:team-%d:ci", 5),
			"jane", "for this account", []string{"bob"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := serve(t, func(c *Config) { c.Requests = 20 })
			for _, user := range slices.Concat(tc.busy, []string{tc.refused}) {
				user, _, _ := strings.Cut(user, "#")
				w.reviewer.rights[user] = "get list update delete"
			}
			w.busy(t, hello, "", tc.busy...)
			w.ask(t, tc.refused, http.MethodGet, hello+"/deployments", nil).refused(t, tc.reason, http.StatusTooManyRequests, 10429, tc.words)
			for _, other := range tc.others {
				path := map[bool]string{true: "/accounts/5678/workers/subdomain", false: hello + "/deployments"}[other == "bob"]
				if got := w.ask(t, other, http.MethodGet, path, nil); !got.Success {
					t.Errorf("%s is answered %s: %s", other, got.raw, tc.reason)
				}
			}
		})
	}
}

// TestStalledUploadsTakeNoMemory: one that was begun has what has arrived of it.
func TestStalledUploadsTakeNoMemory(t *testing.T) {
	w := serve(t)
	w.busy(t, hello, "Content-Disposition: form-data; name=\"a\"\r\n\r\nx", numberedNames("jane#%d", 12)...)
	body, kind := form(t, metadata, "export default {};")
	for name, account := range map[string]string{"jane": "1234", "bob": "5678"} {
		sent := bytes.NewReader(body.Bytes())
		if got := w.ask(t, name, http.MethodPut, "/accounts/"+account+"/workers/scripts/new", sent, "Content-Type", kind); !got.Success {
			t.Errorf("%s is answered %s", name, got.raw)
		}
	}
	if held := w.api.limits.memory.Held(); held > 12*64<<10 {
		t.Errorf("%d bytes are held for uploads that have not arrived", held)
	}
}

// TestUploadMemoryIsShared among accounts, users and tokens, who have 8, 6 and 4 MiB
// here. An upload takes twice its size while it is read.
func TestUploadMemoryIsShared(t *testing.T) {
	limits := upload.Limits{MaxModules: 2, MaxBytes: 1 << 20}
	begun := "Content-Disposition: form-data; name=\"a\"\r\n\r\n" + strings.Repeat("x", 1<<20-8)
	for name, tc := range map[string]struct {
		held    []string // tokens, each of which holds a MiB
		refused string
		others  []string
	}{
		"a token":    {[]string{"jane#1", "jane#1", "jane#1"}, "jane#1", []string{"jane#2", "amy", "bob"}},
		"a user":     {[]string{"jane#1", "jane#1", "jane#2", "jane#2", "jane#3"}, "jane#4", []string{"amy", "bob"}},
		"an account": {[]string{"jane#1", "jane#1", "jane#2", "jane#2", "amy#1", "amy#1", "amy#2"}, "ann", []string{"bob"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := serve(t, func(c *Config) { c.Limits, c.UploadBytes, c.Requests = limits, 4*limits.Peak(), 100 })
			w.api.limits.memoryTimeout = 50 * time.Millisecond
			w.reviewer.rights["amy"], w.reviewer.rights["ann"] = "get update", "get update"
			upload := func(name string) answer {
				body, kind := form(t, metadata, strings.Repeat("x", 900<<10))
				account := map[bool]string{true: "5678", false: "1234"}[name == "bob"]
				return w.ask(t, name, http.MethodPut, "/accounts/"+account+"/workers/scripts/new", body, "Content-Type", kind)
			}
			w.busy(t, hello, begun, tc.held...)
			eventually(t, "they do not have their memory", func() bool { return w.api.limits.memory.Held() == int64(len(tc.held))<<20 })
			upload(tc.refused).refused(t, name, http.StatusTooManyRequests, 10429, "too many uploads at a time")
			for _, other := range tc.others {
				if got := upload(other); !got.Success {
					t.Errorf("%s is answered %s", other, got.raw)
				}
			}
		})
	}
}

// TestListingAccountsIsRateLimitedByUser: it asks the hub about each of them.
func TestListingAccountsIsRateLimitedByUser(t *testing.T) {
	p := rateLimitedAuthorizer{&reviewer{rights: map[string]string{"jane": "list"}}, rate.NewLimiter(rate.Every(time.Hour), 2)}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for i, want := range []error{nil, nil, errTooManyAccounts} {
		if err := p.Authorize(ctx, authenticationv1.UserInfo{Username: "jane"}, "team-a", "list"); !errors.Is(err, want) {
			t.Errorf("review %d: got %v, want %v", i, err, want)
		}
	}
}

// TestLongRequestIsAwaited, longer than its request may take to arrive.
func TestLongRequestIsAwaited(t *testing.T) {
	w := serve(t)
	w.api.bodyTimeout, w.reviewer.slow = 20*time.Millisecond, 200*time.Millisecond
	for request, body := range map[string]string{
		"GET " + hello + "/secrets": "", "DELETE " + hello + "/secrets/NONE": "", "POST " + hello + "/subdomain": "{}",
	} {
		method, path, _ := strings.Cut(request, " ")
		if got := w.ask(t, "jane", method, path, strings.NewReader(body)); got.status == http.StatusServiceUnavailable {
			t.Errorf("%s is answered %s", request, got.raw)
		}
	}
}

func TestStalledBodyTimesOut(t *testing.T) {
	w := serve(t)
	w.api.bodyTimeout = 50 * time.Millisecond
	got := w.raw(t, "PUT /client/v4"+hello+"/secrets HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+tokenOf("jane")+"\r\nContent-Length: 100\r\n\r\n{")
	if !strings.Contains(got, "400 Bad Request") {
		t.Errorf("it is answered %q", got)
	}
}

// TestUnauthenticatedConnectionIsClosed: his connection ends with the answer.
func TestUnauthenticatedConnectionIsClosed(t *testing.T) {
	w := serve(t)
	const path = " /client/v4"
	head := func(bearer string) string {
		return " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + bearer + "\r\n\r\n"
	}
	for name, request := range map[string]string{
		"no token":             "GET" + path + "/user HTTP/1.1\r\nHost: x\r\n\r\n",
		"a token that is none": "GET" + path + "/user" + head(tokenOf("nobody")),
		"what is not served":   "GET" + path + "/zones" + head(tokenOf("jane")),
		"a tail that is none":  "GET /tails/1/2" + head(tokenOf("jane")),
	} {
		if got := w.raw(t, request+request); strings.Count(got, "HTTP/1.1") != 1 {
			t.Errorf("%s: two requests are answered %q", name, got)
		}
	}
	known := "GET" + path + "/user" + head(tokenOf("jane"))
	if got := w.raw(t, known+known+"GET"+path+"/user HTTP/1.1\r\nHost: x\r\n\r\n"); strings.Count(got, "200 OK") != 2 {
		t.Errorf("two requests of a user are answered %q", got)
	}
}

// TestConnectionsAreLimited: those who do nothing lose theirs, and nobody else.
func TestConnectionsAreLimited(t *testing.T) {
	w := serve(t)
	w.ask(t, "jane", http.MethodGet, "/user", nil)
	created := w.ask(t, "joe", http.MethodPost, hello+"/tails", strings.NewReader(`{"filters":[]}`))
	result, _ := created.Result.(map[string]any)
	url, _ := result["url"].(string)
	dialer := websocket.Dialer{Subprotocols: []string{tail.Subprotocol}, TLSClientConfig: w.client.Transport.(*http.Transport).TLSClientConfig}
	tailed, resp, err := dialer.DialContext(t.Context(), url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	t.Cleanup(func() { _ = tailed.Close() })
	var conns []net.Conn
	for range strangers + 10 {
		conn, err := net.Dial("tcp", strings.TrimPrefix(w.url, "https://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		conns = append(conns, conn)
	}
	for i, conn := range conns[:10] {
		_ = conn.SetReadDeadline(time.Now().Add(headerTimeout / 2)) // the server gives up soon after
		if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("connection %d of %d is open", i, len(conns))
		}
	}
	reused := false
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) { reused = info.Reused }})
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url+"/client/v4/user", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+tokenOf("jane"))
	resp, err = w.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK || !reused {
		t.Errorf("a user is answered %d; on the connection from before: %v", resp.StatusCode, reused)
	}
	if err := tailed.WriteControl(websocket.PingMessage, nil, time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	pong := make(chan struct{})
	tailed.SetPongHandler(func(string) error { close(pong); return nil })
	go func() {
		for {
			if _, _, err := tailed.ReadMessage(); err != nil {
				return
			}
		}
	}()
	select {
	case <-pong:
	case <-time.After(10 * time.Second):
		t.Error("a tail does not answer any more")
	}
}

func TestServerSpeaksOnlyTLSAndHTTP1(t *testing.T) {
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

func TestValidateRejectsInvalidLimits(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"nobody to ask":           {func(c *Config) { c.Reviewer = nil }, "one is missing"},
		"no modules":              {func(c *Config) { c.Limits = upload.Limits{MaxModules: -1, MaxBytes: 1} }, "-1 modules"},
		"no requests":             {func(c *Config) { c.Requests = -1 }, "-1 requests"},
		"less than one upload":    {func(c *Config) { c.UploadBytes = 1 }, "of 1 bytes for uploads"},
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
