// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package httpclient

import (
	"context"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTransportTrustsOnlyConfiguredCAs(t *testing.T) {
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // of clients that do not trust it
	server.StartTLS()
	defer server.Close()
	get := func(ca []byte) error {
		transport, err := NewTransport(ca, time.Minute, 1)
		if err != nil {
			t.Fatal(err)
		}
		defer transport.CloseIdleConnections()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := (&http.Client{Transport: transport}).Do(request)
		if err == nil {
			answer.Body.Close()
		}
		return err
	}
	if err := get(nil); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("an authority that is not configured: %v", err)
	}
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := get(ca); err != nil {
		t.Errorf("a configured authority: %v", err)
	}
	if ValidateCA(ca) != nil || ValidateCA(nil) != nil || ValidateCA([]byte("x")) == nil {
		t.Error("ValidateCA does not accept certificates alone")
	}
}

func TestStableErrorRemovesURL(t *testing.T) {
	err := &url.Error{Op: "Get", URL: "https://10.0.0.1/upload?id=1", Err: errors.New("connection refused")}
	if got := StableError(err).Error(); got != "connection refused" {
		t.Errorf("the error is %q", got)
	}
	if got := StableError(context.DeadlineExceeded).Error(); got != "it took too long to answer" {
		t.Errorf("a timeout is %q", got)
	}
}
