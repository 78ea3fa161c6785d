// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/websocket"
	"k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// echo serves exec of a command that prints what it reads. It closes nothing by itself,
// and says when the client has.
func echo(left chan<- struct{}) http.Handler {
	return websocket.Server{
		Handshake: func(config *websocket.Config, _ *http.Request) error {
			config.Protocol = []string{remotecommand.StreamProtocolV5Name}
			return nil
		},
		Handler: func(conn *websocket.Conn) {
			for message := []byte(nil); websocket.Message.Receive(conn, &message) == nil; {
				if len(message) > 1 && message[0] == remotecommand.StreamStdIn {
					message[0] = remotecommand.StreamStdOut
					_ = websocket.Message.Send(conn, message) // what comes next notices
				}
			}
			left <- struct{}{}
		},
	}
}

// TestHeldStreamsEndWithoutAWord: a client that outlived the measurement would ping a
// connection that is dead, and say so, for the rest of the run. The last ping comes up to five
// seconds after a client has ended; it is waited for at SPOKELET_TEST_FULL alone.
func TestHeldStreamsEndWithoutAWord(t *testing.T) {
	const streams = 3
	left := make(chan struct{}, streams)
	server := httptest.NewServer(echo(left))
	defer server.Close()
	before := logged.Load()
	config := &rest.Config{Host: server.URL}
	s := &suite{hub: &site{rest: config, kube: kubernetes.NewForConfigOrDie(config)}}
	held, release := context.WithCancel(t.Context())
	defer release()
	var ended sync.WaitGroup
	for range streams {
		if err := s.hold(held, &ended, "streams"); err != nil {
			t.Fatal(err)
		}
	}
	release()
	deadline := time.After(patience)
	for range streams {
		select {
		case <-left:
		case <-deadline:
			t.Fatal("a client stays although nobody holds its stream")
		}
	}
	ended.Wait()
	server.Close()
	allowed := []goleak.Option{pings()}
	if os.Getenv("SPOKELET_TEST_FULL") != "" {
		allowed = nil
	}
	for err := goleak.Find(allowed...); err != nil; err = goleak.Find(allowed...) {
		select {
		case <-deadline:
			t.Fatal(err)
		default:
		}
	}
	if lines := logged.Load() - before; lines > 0 {
		t.Errorf("the clients wrote %d lines to the log of the run", lines)
	}
}
