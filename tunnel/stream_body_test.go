// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"

	"github.com/spokelet/spokelet/tunnel/bufconn"
)

// fed is a body that has been fed, and both ends of its source.
type fed struct {
	*requestBody

	near, far net.Conn
	ended     chan error
}

func newFed(t *testing.T) *fed {
	t.Helper()
	f := &fed{requestBody: &requestBody{written: bufconn.NewBuffer(1)}, ended: make(chan error, 2)}
	f.near, f.far = net.Pipe()
	t.Cleanup(func() { _, _ = f.near.Close(), f.far.Close() })
	if _, err := io.WriteString(f.written, "written "); err != nil {
		t.Fatal(err)
	}
	f.feed(f.near, func(err error) { f.ended <- err })
	f.written.CloseWrite(errFed)
	return f
}

func TestRequestBodySendsSourceAfterWrittenBytes(t *testing.T) {
	cases := map[string]struct {
		reason string
		end    func(f *fed)
		want   error // of the source
		clean  bool  // end of the body
	}{
		"an end":   {"the hub's direction has ended in order", func(f *fed) { _ = f.far.Close() }, nil, true},
		"an error": {"the agent is to see one too", func(f *fed) { _ = f.near.Close() }, io.ErrClosedPipe, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFed(t)
			go func() {
				_, _ = io.WriteString(f.far, "fed")
				tc.end(f)
			}()
			got, err := io.ReadAll(f)
			if string(got) != "written fed" || (err == nil) != tc.clean || !tc.clean && !errors.Is(err, ErrAborted) {
				t.Errorf("%s: read %q, %v", tc.reason, got, err)
			}
			_ = f.Close()
			if got := <-f.ended; !errors.Is(got, tc.want) {
				t.Errorf("%s: the source ended with %v, want %v", tc.reason, got, tc.want)
			}
			if len(f.ended) > 0 {
				t.Errorf("%s: it was told again: %v", tc.reason, <-f.ended)
			}
		})
	}
}

func TestClosedRequestBodyLeavesSourceReadable(t *testing.T) {
	cases := map[string]struct {
		reason string
		read   bool // the source is being read
	}{
		"while it is read": {"nobody else could end that", true},
		"at rest":          {"it is not read again", false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, read := newFed(t), make(chan error, 1)
				if tc.read {
					go func() {
						_, err := io.ReadAll(f)
						read <- err
					}()
					synctest.Wait()
				}
				_ = f.Close()
				if got := <-f.ended; !errors.Is(got, ErrAborted) {
					t.Errorf("%s: the source ended with %v", tc.reason, got)
				}
				if tc.read {
					if err := <-read; !errors.Is(err, ErrAborted) {
						t.Errorf("%s: the body ended with %v", tc.reason, err)
					}
				}
				go func() { _, _ = io.WriteString(f.far, "more") }()
				if _, err := io.ReadFull(f.near, make([]byte, 4)); err != nil {
					t.Errorf("%s: the source cannot be read on: %v", tc.reason, err)
				}
			})
		})
	}
}

func TestClosedRequestBodyRefusesSource(t *testing.T) {
	o, ended := &requestBody{written: bufconn.NewBuffer(1)}, make(chan error, 1)
	_ = o.Close()
	near, far := net.Pipe()
	defer func() { _, _ = near.Close(), far.Close() }()
	o.feed(near, func(err error) { ended <- err })
	if err := <-ended; !errors.Is(err, ErrAborted) {
		t.Errorf("the source ended with %v", err)
	}
}
