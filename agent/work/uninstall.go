// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/spokelet/spokelet/agent/work/record"
)

// Orphan lets go of everything that was applied here, whichever hub asked for
// it: objects lose their reference to their anchor and stay, anchors go. It is
// for the removal of the agent, which must not be running. impersonate is as in
// Config. What fails is left for another call, and named in the error.
func Orphan(ctx context.Context, cfg *rest.Config, impersonate string) error {
	s, err := newSpokeClient(cfg, impersonate)
	if err != nil {
		return fmt.Errorf("orphan works: %w", err)
	}
	defer s.close()
	e := &Engine{spoke: s}
	return errors.Join(e.orphanAll(ctx, Multicluster()), e.orphanAll(ctx, ManifestWork()))
}

// orphanAll lets go of what any hub had applied in one dialect. Anchors without a
// mark were made by other agents.
func (e *Engine) orphanAll(ctx context.Context, p Policy) error {
	var failed []error
	o := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := e.store(p).Client.List(ctx, o)
		if apierrors.IsNotFound(err) {
			return nil // there never was a work
		}
		if err != nil {
			return fmt.Errorf("orphan works: list anchors: %w", err)
		}
		for i := range page.Items {
			if p.Anchor.HubMark(&page.Items[i]) == "" {
				continue
			}
			if err := e.orphan(ctx, p, &page.Items[i]); err != nil {
				failed = append(failed, fmt.Errorf("orphan work %s: %w", page.Items[i].GetName(), err))
			}
		}
		if o.Continue = page.GetContinue(); o.Continue == "" {
			return errors.Join(failed...)
		}
	}
}

func (e *Engine) orphan(ctx context.Context, p Policy, u *unstructured.Unstructured) error {
	key, a, err := record.Decode(p.Anchor, u)
	if err != nil {
		return err
	}
	for _, t := range a.Objects {
		if _, err := e.removeOwnerReference(ctx, t.Target, a.UID); err != nil {
			return err
		}
	}
	w := &work{key: key, policy: p, anchor: a, boundAnchor: u.GetName()}
	if !a.IsDeleting {
		if err := e.store(w.policy).Delete(ctx, w.recordKey(), a); err != nil && !errors.Is(err, record.ErrLost) {
			return err
		}
	}
	return e.store(w.policy).RemoveFinalizer(ctx, w.recordKey(), a)
}
