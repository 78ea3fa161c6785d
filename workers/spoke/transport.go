// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package spoke

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/spokelet/spokelet/internal/quota"
)

// Bounds of what is read of one answer of a cluster, in bytes.
const (
	MaxAnswer    = 4 << 20
	MaxErrorBody = 64 << 10
)

// boundedTransport bounds what clusters answer: everything below the path of the clusters.
type boundedTransport struct {
	next http.RoundTripper
	path string
	rate *quota.Writes // of what is read
}

func (t *boundedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := t.next.RoundTrip(r)
	rest, ours := strings.CutPrefix(r.URL.Path, t.path)
	if err != nil || !ours {
		return res, err
	}
	cluster, _, _ := strings.Cut(rest, "/")
	b := &boundedBody{ReadCloser: res.Body, ctx: r.Context(), rate: t.rate, cluster: cluster, limit: bodyLimit(r, res)}
	b.left = b.limit
	res.Body = b
	return res, nil
}

// bodyLimit returns how much may be read of an answer.
func bodyLimit(r *http.Request, res *http.Response) int64 {
	query := r.URL.Query()
	switch {
	case res.StatusCode/100 != 2:
		return MaxErrorBody
	case query.Get("watch") == "true", query.Get("follow") == "true":
		return math.MaxInt64
	default:
		return MaxAnswer
	}
}

// WrappedRoundTripper is what client-go looks for.
func (t *boundedTransport) WrappedRoundTripper() http.RoundTripper { return t.next }

// boundedBody is that of an answer of a cluster.
type boundedBody struct {
	io.ReadCloser

	ctx         context.Context
	rate        *quota.Writes
	cluster     string
	limit, left int64
}

// Read implements io.Reader. It waits while the cluster has had more than its share.
func (b *boundedBody) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, fmt.Errorf("an answer of more than %d bytes: %w", b.limit, ErrTooLarge)
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	b.rate.Spend(b.cluster, int64(n))
	if wait := b.rate.Wait(b.cluster); wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-b.ctx.Done():
			return n, b.ctx.Err()
		}
	}
	return n, err
}
