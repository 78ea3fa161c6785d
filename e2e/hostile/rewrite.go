// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"context"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"

	"github.com/spokelet/spokelet/e2e/hostile/spoke"
)

const (
	// workBytes and feedbackBytes make a work of 1.19 MB, of which each version is all.
	workBytes     = 490 << 10
	feedbackBytes = spoke.FeedbackBytes
	versionBytes  = workBytes + feedbackBytes

	// What one cluster may have written to the hub's store: at first, and then each
	// second. They are those of the hub.
	writeBurst  = 64 << 20
	writeSecond = 256 << 10

	// rewriteTime is how long the attack takes. At the six MB a second that a hub without a
	// bound wrote the burst lasts for eleven.
	rewriteTime = 15 * time.Second
)

func filler(n int) string { return strings.Repeat("0123456789abcdef", n/16) }

// Written is what the hub wrote because of one cluster.
type Written struct {
	// Bytes in all, and After the burst that a cluster is allowed.
	Bytes, After int64
	// Took is the time of all, and Sustained that after the burst.
	Took, Sustained time.Duration
}

// Rate is that after the burst, in KiB a second; 0 if the burst was not used up.
func (w Written) Rate() float64 {
	if w.Sustained <= 0 {
		return 0
	}
	return float64(w.After) / 1024 / w.Sustained.Seconds()
}

// Problems are what must not be.
func (w Written) Problems() []string {
	// One more work, since what is written is known afterwards.
	allowed := int64(writeBurst+versionBytes) + int64(writeSecond*w.Took.Seconds())
	if w.Bytes > allowed*11/10 {
		return []string{fmt.Sprintf("the hub wrote %d bytes for one cluster in %s, allowed are %d", w.Bytes, w.Took.Round(time.Second), allowed)}
	}
	return nil
}

// String is one line for a log.
func (w Written) String() string {
	return fmt.Sprintf("%.1f MiB written in %s, %.0f KiB/s after the burst", float64(w.Bytes)/(1<<20), w.Took.Round(100*time.Millisecond), w.Rate())
}

// rewriting reports on a large work, another value of its feedback each time, and
// measures what the hub writes.
func (s *Site) rewriting(ctx context.Context) (Outcome, error) {
	written, err := s.rewrite(ctx)
	return Outcome{Text: written.String(), Written: written}, err
}

func (s *Site) rewrite(ctx context.Context) (Written, error) {
	ctx, cancel := context.WithTimeout(ctx, rewriteTime)
	defer cancel()
	client, err := metadata.NewForConfigAndClient(metadata.ConfigFor(s.rest), s.admin.http)
	if err != nil {
		return Written{}, fmt.Errorf("metadata: %w", err)
	}
	events, err := client.Resource(manifestWorks()).Namespace(cluster).
		Watch(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", s.work.name).String()})
	if err != nil {
		return Written{}, fmt.Errorf("watch of the work: %w", err)
	}
	begun := time.Now()
	written := make(chan Written, 1)
	go func() { written <- measure(events) }()
	_, err = s.spoke.Do(s.order(spoke.Rewrite, rewriteTime))
	events.Stop()
	w := <-written
	w.Took = min(time.Since(begun), rewriteTime) // after that nothing was counted
	return w, err
}

// measure counts versions of a work until its events end. How long that took is for the
// caller to say, who knows when the attack began.
func measure(events watch.Interface) Written {
	var w Written
	var spent time.Time // when the burst was used up
	for e := range events.ResultChan() {
		if e.Type != watch.Modified {
			continue
		}
		w.Bytes += versionBytes
		switch {
		case w.Bytes < writeBurst:
		case spent.IsZero():
			spent = time.Now()
		default:
			w.After += versionBytes
		}
	}
	if !spent.IsZero() {
		w.Sustained = time.Since(spent)
	}
	return w
}
