// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/spokelet/spokelet/agent/helm/message"
	"github.com/spokelet/spokelet/helm/release"
)

var (
	errOneConnection = errors.New("there is only one connection to the cluster")
	errAgentGone     = errors.New("the agent is gone")
)

// Run reads a request and answers it. After an error, of a request that cannot be read or that
// the agent does not wait for any more, the process must end.
func Run(ctx context.Context, in io.Reader, out io.Writer) error {
	discardLogs()
	if err := restrictProcess(); err != nil {
		return fmt.Errorf("confine this process: %w", err)
	}
	return handleRequest(ctx, in, out, os.NewFile(message.Cluster, "cluster"))
}

// handleRequest reads a request and answers it. The agent keeps the input open as long as it waits.
func handleRequest(ctx context.Context, in io.Reader, out io.Writer, way *os.File) error {
	var request message.Request
	requests := json.NewDecoder(io.LimitReader(in, message.MaxRequest))
	if err := requests.Decode(&request); err != nil {
		return fmt.Errorf("read request: %w", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		_, _ = io.Copy(io.Discard, in) // until it is closed
		cancel(errAgentGone)
	}()
	config, hangUp, err := connect(ctx, way)
	if err != nil {
		return err
	}
	defer hangUp()
	say := &answerWriter{out: out}
	answer := release.Run(ctx, request, config, func(progress string) {
		if err := say.send(message.Answer{Progress: progress}); err != nil {
			cancel(err)
		}
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return say.send(answer)
}

// discardLogs discards the logs of libraries: the agent reports the answer.
func discardLogs() {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	log.SetOutput(io.Discard)
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
}

// answerWriter writes one answer at a time.
type answerWriter struct {
	mu  sync.Mutex
	out io.Writer // guarded by mu
}

// send writes an answer, without a manifest that exceeds the agent's limit.
func (a *answerWriter) send(answer message.Answer) error {
	line, err := encodeAnswer(answer)
	if err == nil && len(line) > message.MaxAnswer && answer.Release != nil {
		short := *answer.Release
		short.Manifest = message.Omitted
		answer.Release = &short
		line, err = encodeAnswer(answer)
	}
	if err != nil {
		return fmt.Errorf("write answer: %w", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, err := a.out.Write(line); err != nil {
		return fmt.Errorf("write answer: %w", err)
	}
	return nil
}

func encodeAnswer(answer message.Answer) ([]byte, error) {
	var line bytes.Buffer
	encoder := json.NewEncoder(&line)
	encoder.SetEscapeHTML(false) // manifests have many characters that it would escape
	err := encoder.Encode(answer)
	return line.Bytes(), err
}

// connect returns a configuration that uses the only connection, until hangUp closes it.
func connect(ctx context.Context, file *os.File) (config *rest.Config, hangUp func(), err error) {
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, nil, fmt.Errorf("connection to the cluster: %w", err)
	}
	_ = file.Close() // FileConn has one of its own
	var once sync.Once
	transport := &http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			var only net.Conn
			once.Do(func() { only = conn })
			if only == nil {
				return nil, errOneConnection
			}
			return only, nil
		},
		Protocols:          &http.Protocols{},
		DisableCompression: true,
	}
	transport.Protocols.SetUnencryptedHTTP2(true)
	// Requests wait while the connection has its maximum of streams. The transport itself would
	// dial again.
	client, err := transport.NewClientConn(ctx, "http", "cluster:80")
	if err != nil {
		_ = conn.Close()
		return nil, nil, fmt.Errorf("connection to the cluster: %w", err)
	}
	config = &rest.Config{Host: "http://cluster", Transport: client, QPS: -1, WarningHandler: rest.NoWarnings{}}
	return config, func() { _ = client.Close() }, nil
}
