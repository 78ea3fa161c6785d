// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"context"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/api/sync/v1alpha1"
	"github.com/spokelet/spokelet/api/wire"
)

// witness finds out whether objects that have vanished were deleted by somebody, or went
// with their namespace or definition: that is read after they had vanished, once for all
// of them.
func (c *Controller) witness(ctx context.Context, key feedKey) error {
	missing := c.missing(key)
	if len(missing) == 0 {
		return nil
	}
	problem, err := c.definitionGoes(ctx, key)
	if err != nil {
		return err
	}
	if problem != nil {
		c.condemn(key, problem)
		return nil
	}
	for in, names := range missing {
		problem, failed := c.namespaceGoes(ctx, in)
		if failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		c.conclude(in, names, problem)
	}
	return err
}

// missing are the objects of a feed that have vanished until now.
func (c *Controller) missing(key feedKey) map[*scope]map[string]tombstone {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[*scope]map[string]tombstone{}
	f := c.feeds[key]
	if f == nil {
		return nil
	}
	for _, in := range f.scopes {
		if len(in.vanished) > 0 {
			out[in] = maps.Clone(in.vanished)
		}
	}
	return out
}

// definitionGoes asks the API server whether a definition is being deleted, or is gone.
func (c *Controller) definitionGoes(ctx context.Context, key feedKey) (*wire.ShareProblem, error) {
	name := key.resource.Resource + "." + key.resource.Group
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(definitionsResource().GroupVersion().WithKind("CustomResourceDefinitionList"))
	// The hub may list definitions, and not get them.
	if err := c.cfg.Live.List(ctx, list, client.MatchingFields{metav1.ObjectNameField: name}); err != nil {
		return nil, fmt.Errorf("definition %s: %w", name, err)
	}
	for _, d := range list.Items {
		if d.UID == key.definition && d.DeletionTimestamp == nil {
			return nil, nil
		}
	}
	return wire.NewShareProblem(v1alpha1.ReasonDefinitionNotReady, "the CustomResourceDefinition is being deleted"), nil
}

// namespaceGoes asks the API server whether the namespace of a scope is being deleted, or
// is gone.
func (c *Controller) namespaceGoes(ctx context.Context, in *scope) (*wire.ShareProblem, error) {
	ns := &metav1.PartialObjectMetadata{}
	ns.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	err := c.cfg.Live.Get(ctx, types.NamespacedName{Name: in.namespace}, ns)
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return nil, fmt.Errorf("namespace %s: %w", in.namespace, err)
	case ns.UID == in.uid && ns.DeletionTimestamp == nil:
		return nil, nil
	}
	return terminating(in.namespace), nil
}

// condemn ends what is shared of a definition that goes.
func (c *Controller) condemn(key feedKey, problem *wire.ShareProblem) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.feeds[key]
	if f == nil {
		return
	}
	f.problem, f.ends = problem, true
	for _, in := range f.scopes {
		clear(in.vanished)
	}
	c.tell(f)
}

// conclude publishes deletions, or ends what is shared of a namespace that goes.
func (c *Controller) conclude(in *scope, names map[string]tombstone, problem *wire.ShareProblem) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if problem != nil {
		in.problem = problem
		clear(in.vanished)
		for s := range in.shares {
			s.publish()
		}
		return
	}
	for name, t := range names {
		if in.vanished[name] != t {
			continue // it is there again
		}
		delete(in.vanished, name)
		if in.trouble() != nil {
			continue // there may be others that nobody saw: all is read anew
		}
		for s := range in.shares {
			s.bury(name, t)
			if rec := s.records[name]; rec != nil {
				s.forget(name, rec)
			}
		}
	}
}
