// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package secretstore

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// Open reads what is stored. A Secret that cannot be read is logged and left alone.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	cfg.Default()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Store{cfg: cfg, wake: make(chan struct{}, 1), closed: make(chan struct{}), zip: newZip()}
	close(s.closed)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.load(ctx); err != nil {
		return nil, fmt.Errorf("secret store %s: cannot list: %w", cfg.Name, err)
	}
	if s.unreadable > 0 {
		cfg.Logger.Error(errFormat, "Secret store is incomplete", "store", cfg.Name, "unreadable", s.unreadable, "readable", len(s.segments))
	}
	for _, r := range s.records {
		s.prune(r)
	}
	s.scheduleDeletion(cfg.Delay)
	s.sequence += sequenceGap
	return s, nil
}

// Remove deletes a store. No process may use it any more.
func Remove(ctx context.Context, secrets typedcorev1.SecretInterface, name string) error {
	if err := secrets.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: selector(name)}); err != nil {
		return fmt.Errorf("secret store %s: cannot delete: %w", name, err)
	}
	return nil
}

// load lists all segments, page by page. If that takes so long that the API server has
// forgotten the state of the first page, all are listed at once. s.mu is held.
func (s *Store) load(ctx context.Context) error {
	s.reset()
	opts := metav1.ListOptions{LabelSelector: selector(s.cfg.Name), Limit: pageSize}
	for {
		page, err := s.cfg.Secrets.List(ctx, opts)
		if apierrors.IsResourceExpired(err) && opts.Continue != "" {
			s.reset()
			opts.Limit, opts.Continue = 0, ""
			continue
		}
		if err != nil {
			return err
		}
		for i := range page.Items {
			s.loadSegment(&page.Items[i])
		}
		if opts.Continue = page.Continue; opts.Continue == "" {
			return nil
		}
	}
}

func (s *Store) reset() {
	s.records, s.segments, s.sequence, s.unreadable = map[string]*record{}, nil, 0, 0
}

func (s *Store) loadSegment(secret *corev1.Secret) {
	stored, err := s.decodeSecret(secret)
	if err != nil {
		s.cfg.Logger.Error(err, "Secret cannot be read and is left alone", "secret", secret.Name)
		s.unreadable++
		return
	}
	g := &segment{name: secret.Name, version: secret.ResourceVersion, sequence: stored.Sequence}
	s.segments = append(s.segments, g)
	s.sequence = max(s.sequence, g.sequence)
	g.records = make([]*record, 0, len(stored.Entries))
	for _, e := range stored.Entries {
		s.loadEntry(g, e)
	}
}

func (s *Store) loadEntry(g *segment, e entry) {
	r := s.records[e.Key]
	if r == nil {
		r = &record{key: e.Key}
		s.records[e.Key] = r
	}
	r.copies++
	g.records = append(g.records, r)
	if r.segment != nil && r.segment.sequence > g.sequence {
		return
	}
	s.detach(r)
	r.value, r.deleted = e.Value, e.Deleted
	g.attach(r, r.size())
}

var errForeign = errors.New("does not have the type and the label of the store")

func (s *Store) decodeSecret(secret *corev1.Secret) (content, error) {
	if secret.Type != Type || secret.Labels[Label] != s.cfg.Name {
		return content{}, errForeign
	}
	return decode(secret.Data[dataKey])
}
