// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package base

import (
	"bytes"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// try writes a batch once. It may be called again with the same batch, whatever came of
// it.
func (s *Store) try(ctx context.Context, b *batch) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.RequestTimeout)
	defer cancel()
	switch {
	case b.nothing():
		return nil
	case b.target == nil:
		return s.create(ctx, b)
	default:
		return s.update(ctx, b)
	}
}

func (s *Store) create(ctx context.Context, b *batch) error {
	stored, err := s.cfg.Secrets.Create(ctx, b.secret(), metav1.CreateOptions{})
	if err == nil {
		b.version = stored.ResourceVersion
		return nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("segment %s: cannot create: %w", b.name, err)
	}
	// An earlier try may have had no answer, and yet an effect.
	there, getErr := s.cfg.Secrets.Get(ctx, b.name, metav1.GetOptions{})
	if getErr != nil {
		return fmt.Errorf("segment %s: cannot read: %w", b.name, getErr)
	}
	if b.stored(there) {
		return nil
	}
	err = fmt.Errorf("segment %s: somebody else has created it: %w", b.name, err)
	b.name = newName()
	return err
}

// secret is what a batch writes.
func (b *batch) secret() *corev1.Secret {
	meta := metav1.ObjectMeta{Name: b.name, Labels: map[string]string{Label: "true"}}
	if b.target != nil {
		meta.Name, meta.ResourceVersion = b.target.name, b.target.version
	}
	return &corev1.Secret{ObjectMeta: meta, Type: Type, Data: map[string][]byte{dataKey: b.content}}
}

// stored tells whether a Secret is what the batch writes, and takes its version.
func (b *batch) stored(secret *corev1.Secret) bool {
	if secret.Type != Type || secret.Labels[Label] != "true" || !bytes.Equal(secret.Data[dataKey], b.content) {
		return false
	}
	b.version = secret.ResourceVersion
	return true
}

func (s *Store) update(ctx context.Context, b *batch) error {
	g := b.target
	stored, err := s.cfg.Secrets.Update(ctx, b.secret(), metav1.UpdateOptions{})
	if err == nil {
		b.version = stored.ResourceVersion
		return nil
	}
	if !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("segment %s: cannot update: %w", g.name, err)
	}
	there, getErr := s.review(ctx, g)
	switch {
	case getErr != nil:
		return getErr
	case there.secret != nil && b.stored(there.secret):
		return nil
	case there.finding == unchanged:
		return fmt.Errorf("segment %s: cannot update: %w", g.name, err)
	}
	s.redirect(b, there)
	return s.create(ctx, b)
}

// redirect has a batch written to a new segment: the target is not what it was. All that
// is needed of the target is in the batch.
func (s *Store) redirect(b *batch, found review) {
	g := b.target
	s.cfg.Logger.Info("Secret of the shared state was changed by somebody else, and is written anew under another name",
		"secret", g.name, "found", found.finding)
	s.mu.Lock()
	if found.finding == rewritten {
		g.doomed = true
		s.sweepWithin(0) // after this batch
	} else {
		s.drop(g)
	}
	b.target = nil
	s.render(b)
	s.mu.Unlock()
	b.content = b.encode(s)
}

// What a Secret is found to be that could not be written.
const (
	// unchanged: its records are as this process left them, and its version is known now.
	unchanged finding = "unchanged"
	// rewritten: it is a segment with other records.
	rewritten finding = "rewritten"
	// missing: there is none.
	missing finding = "missing"
	// foreign: it is no segment any more, and left alone.
	foreign finding = "foreign"
)

type finding string

// review is what was found, with the Secret unless it is missing.
type review struct {
	finding finding
	secret  *corev1.Secret
}

// review looks at a segment of which the API server has another version than this process,
// and takes that one for what is written or deleted next.
func (s *Store) review(ctx context.Context, g *segment) (review, error) {
	secret, err := s.cfg.Secrets.Get(ctx, g.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return review{finding: missing}, nil
	}
	if err != nil {
		return review{}, fmt.Errorf("segment %s: cannot read: %w", g.name, err)
	}
	sequence, _, err := decodeSecret(secret)
	if err != nil {
		s.cfg.Logger.Error(err, "Secret of the shared state cannot be read any more, and is left alone", "secret", g.name)
		return review{foreign, secret}, nil
	}
	g.version = secret.ResourceVersion
	s.mu.Lock()
	s.sequence = max(s.sequence, sequence)
	s.mu.Unlock()
	if sequence != g.sequence {
		return review{rewritten, secret}, nil
	}
	return review{unchanged, secret}, nil
}

// remove deletes the Secret of a segment of which nothing is needed. One that somebody
// else has changed is deleted by the next try.
func (s *Store) remove(ctx context.Context, g *segment) error {
	g.doomed = true
	err := s.cfg.Secrets.Delete(ctx, g.name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &g.version}})
	if err == nil || apierrors.IsNotFound(err) {
		return nil
	}
	if apierrors.IsConflict(err) {
		there, getErr := s.review(ctx, g)
		if getErr == nil && (there.finding == missing || there.finding == foreign) {
			return nil
		}
	}
	return fmt.Errorf("segment %s: cannot delete: %w", g.name, err)
}
