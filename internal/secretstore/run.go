// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package secretstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
)

// Run writes changes until ctx ends, and then what is still queued, for no longer than
// Config.FlushTimeout. It returns an error if some of that is not durable. Run may be called
// again, but not twice at a time.
func (s *Store) Run(ctx context.Context) error {
	flush, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(s.cfg.FlushTimeout, cancel) })()
	for s.waitForWork(ctx) {
		if b := s.nextBatch(); b != nil {
			s.writeWithRetry(ctx, flush, b)
			continue
		}
		s.deleteEmptySegment(flush)
	}
	s.mu.Lock()
	if !s.writeAt.IsZero() {
		s.writeAt = time.Now()
	}
	s.mu.Unlock()
	for b := s.nextBatch(); b != nil && flush.Err() == nil; b = s.nextBatch() {
		s.writeWithRetry(ctx, flush, b)
	}
	return s.checkDurable()
}

// waitForWork returns when there is something to do, or false at the end of ctx.
func (s *Store) waitForWork(ctx context.Context) bool {
	for ctx.Err() == nil {
		at := s.nextWork()
		d := time.Until(at)
		if !at.IsZero() && d <= 0 {
			return true
		}
		timer := time.NewTimer(d)
		if at.IsZero() {
			timer.Stop()
		}
		select {
		case <-s.wake:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
	return false
}

// nextWork returns when there is something to do; zero if nothing is.
func (s *Store) nextWork() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inFlight != nil {
		return time.Now()
	}
	return earliest(s.writeAt, s.deleteAt)
}

func newBackoff() wait.Backoff {
	return wait.Backoff{Duration: firstPause / 2, Factor: 2, Jitter: 1, Steps: 20, Cap: longestPause / 2}
}

// writeWithRetry returns when a batch is written, or flush ends. Once ctx has ended there is
// no time for long pauses any more.
func (s *Store) writeWithRetry(ctx, flush context.Context, b *batch) {
	backoff, interrupt := newBackoff(), ctx.Done()
	for failures := 1; ; failures++ {
		err := s.write(flush, b)
		if err == nil {
			s.commit(b)
			return
		}
		if flush.Err() != nil {
			return
		}
		s.mu.Lock()
		s.err = err
		s.mu.Unlock()
		s.cfg.Logger.Error(err, "Cannot write records, will retry", "records", len(b.changes), "failures", failures)
		if ctx.Err() != nil && interrupt != nil {
			backoff, interrupt = newBackoff(), nil
		}
		select {
		case <-time.After(backoff.Step()):
		case <-interrupt:
		case <-flush.Done():
		}
	}
}

// write writes a batch once.
func (s *Store) write(ctx context.Context, b *batch) error {
	if b.isNoop() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.RequestTimeout)
	defer cancel()
	g := b.target
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: g.name, ResourceVersion: g.version, Labels: map[string]string{Label: s.cfg.Name}},
		Type:       Type, Data: map[string][]byte{dataKey: b.content},
	}
	var stored *corev1.Secret
	var err error
	if g.version == "" {
		stored, err = s.cfg.Secrets.Create(ctx, secret, metav1.CreateOptions{})
	} else {
		stored, err = s.cfg.Secrets.Update(ctx, secret, metav1.UpdateOptions{})
	}
	if err == nil {
		g.version = stored.ResourceVersion
		return nil
	}
	err = fmt.Errorf("cannot write segment %s: %w", g.name, err)
	if apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		// An earlier try without an answer may have done this, or somebody else.
		return errors.Join(err, s.refresh(ctx, g))
	}
	return err
}

// refresh reads the version of a segment's Secret, so that the next write overwrites it. A
// Secret that is no segment any more is left alone: its records get another one.
func (s *Store) refresh(ctx context.Context, g *segment) error {
	secret, err := s.cfg.Secrets.Get(ctx, g.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		g.version = ""
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot read segment %s: %w", g.name, err)
	}
	if _, err := s.decodeSecret(secret); err != nil {
		s.cfg.Logger.Error(err, "Secret cannot be read any more and is left alone", "secret", g.name)
		g.name, g.version = s.newName(), ""
		return nil
	}
	g.version = secret.ResourceVersion
	return nil
}

// deleteEmptySegment deletes one segment without live records, if that is due.
func (s *Store) deleteEmptySegment(ctx context.Context) {
	s.mu.Lock()
	if s.deleteAt.IsZero() || time.Now().Before(s.deleteAt) {
		s.mu.Unlock()
		return
	}
	s.deleteAt = time.Time{}
	g := s.emptySegment()
	s.mu.Unlock()
	if g == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.RequestTimeout)
	defer cancel()
	err := s.deleteSecret(ctx, g)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.cfg.Logger.Error(err, "Cannot delete a Secret without records, will retry")
		// The other empty ones come first.
		s.segments = append(slices.DeleteFunc(s.segments, func(other *segment) bool { return other == g }), g)
		s.scheduleDeletion(longestPause)
		return
	}
	s.removeSegment(g)
	s.scheduleDeletion(0)
}

// deleteSecret deletes the Secret of a segment. One that somebody else has changed is
// deleted by the next try.
func (s *Store) deleteSecret(ctx context.Context, g *segment) error {
	err := s.cfg.Secrets.Delete(ctx, g.name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &g.version}})
	if err == nil || apierrors.IsNotFound(err) {
		return nil
	}
	err = fmt.Errorf("cannot delete segment %s: %w", g.name, err)
	if apierrors.IsConflict(err) && s.refresh(ctx, g) == nil && g.version == "" {
		return nil
	}
	return err
}

// checkDurable returns an error if there are records that are not durable.
func (s *Store) checkDurable() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, r := range s.records {
		if r.queued || r.inFlight {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	cause := s.err
	if cause == nil {
		cause = context.DeadlineExceeded
	}
	return fmt.Errorf("secret store %s: %d records are not durable: %w", s.cfg.Name, n, cause)
}
