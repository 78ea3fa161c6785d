// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package base

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// Open reads what is stored. A Secret that cannot be read is left alone and counted, see
// [Store.Unreadable]; an error is one of the configuration or of the list.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	cfg.Default()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Store{cfg: cfg, wake: make(chan struct{}, 1), durable: make(chan struct{}), zip: newZip()}
	close(s.durable)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.load(ctx); err != nil {
		return nil, fmt.Errorf("shared state: cannot list: %w", err)
	}
	if s.unreadable > 0 {
		cfg.Logger.Error(fmt.Errorf("%d of %d secrets: %w", s.unreadable, s.unreadable+len(s.segments), errFormat), "Shared state is incomplete")
	}
	for _, r := range s.records {
		s.settle(r)
	}
	if s.empty() != nil {
		s.sweepWithin(cfg.Delay)
	}
	s.sequence += sequenceGap
	return s, nil
}

// Remove deletes all that is stored, once no process of the agent runs any more and none
// will.
func Remove(ctx context.Context, secrets typedcorev1.SecretInterface) error {
	if err := secrets.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: selector()}); err != nil {
		return fmt.Errorf("shared state: cannot delete: %w", err)
	}
	return nil
}

// load reads all segments, page by page. If that takes so long that the API server has
// forgotten the state of the first page, all are read at once. Guarded by mu.
func (s *Store) load(ctx context.Context) error {
	s.reset()
	opts := metav1.ListOptions{LabelSelector: selector(), Limit: pageSize}
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
	sequence, entries, err := decodeSecret(secret)
	if err != nil {
		s.cfg.Logger.Error(err, "Secret of the shared state cannot be read, and is left alone", "secret", secret.Name)
		s.unreadable++
		return
	}
	g := &segment{name: secret.Name, version: secret.ResourceVersion, sequence: sequence}
	s.segments = append(s.segments, g)
	s.sequence = max(s.sequence, sequence)
	g.records = make([]*record, 0, len(entries))
	for _, e := range entries {
		s.loadEntry(g, e)
	}
}

func (s *Store) loadEntry(g *segment, e entry) {
	r := s.records[e.key]
	if r == nil {
		r = &record{key: e.key}
		s.records[e.key] = r
	}
	r.copies++
	g.records = append(g.records, r)
	if r.holder != nil && r.holder.sequence > g.sequence {
		return
	}
	s.release(r)
	r.value, r.deleted = e.value, e.deleted
	g.hold(r, r.size())
}

var errForeign = errors.New("has not the type or the label of shared state")

func decodeSecret(secret *corev1.Secret) (sequence uint64, entries []entry, err error) {
	if secret.Type != Type || secret.Labels[Label] != "true" {
		return 0, nil, errForeign
	}
	return decode(secret.Data[dataKey])
}
