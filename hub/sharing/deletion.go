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

// deletionVerifier verifies deletions that watches report.
type deletionVerifier struct{ *registry }

// verifyDeletions finds out whether deleted objects were deleted one by one or went with their
// namespace or definition: it reads these after the deletions, once for all of them.
func (c *deletionVerifier) verifyDeletions(ctx context.Context, key watchKey) error {
	missing := c.listUnverified(key)
	if len(missing) == 0 {
		return nil
	}
	problem, err := c.checkDefinition(ctx, key)
	if err != nil {
		return err
	}
	if problem != nil {
		c.stopWatch(key, problem)
		return nil
	}
	for in, names := range missing {
		problem, failed := c.checkNamespace(ctx, in)
		if failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		c.publishDeletions(in, names, problem)
	}
	return err
}

// listUnverified returns the objects of a watch whose deletion is not verified.
func (c *deletionVerifier) listUnverified(key watchKey) map[*scope]map[string]tombstone {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[*scope]map[string]tombstone{}
	f := c.watches[key]
	if f == nil {
		return nil
	}
	for _, in := range f.scopes {
		if len(in.unverified) > 0 {
			out[in] = maps.Clone(in.unverified)
		}
	}
	return out
}

// checkDefinition returns a problem if a definition is being deleted, or is gone.
func (c *deletionVerifier) checkDefinition(ctx context.Context, key watchKey) (*wire.ShareProblem, error) {
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

// checkNamespace returns a problem if the namespace of a scope is being deleted, or is gone.
func (c *deletionVerifier) checkNamespace(ctx context.Context, in *scope) (*wire.ShareProblem, error) {
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
	return namespaceTermination(in.namespace), nil
}

// stopWatch ends the sharing of a definition that is being deleted.
func (c *deletionVerifier) stopWatch(key watchKey, problem *wire.ShareProblem) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.watches[key]
	if f == nil {
		return
	}
	f.problem, f.isTerminating = problem, true
	for _, in := range f.scopes {
		clear(in.unverified)
	}
	c.publishShares(f)
}

// publishDeletions publishes verified deletions, or ends the sharing of a namespace that is
// being deleted.
func (c *deletionVerifier) publishDeletions(in *scope, names map[string]tombstone, problem *wire.ShareProblem) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if problem != nil {
		in.problem = problem
		clear(in.unverified)
		for s := range in.shares {
			s.publishShare()
		}
		return
	}
	for name, t := range names {
		if in.unverified[name] != t {
			continue // it is there again
		}
		delete(in.unverified, name)
		if in.findProblem() != nil {
			continue // there may be others that nobody saw: all is read anew
		}
		for s := range in.shares {
			s.publishDeletion(name, t)
			if rec := s.requests[name]; rec != nil {
				s.deleteIfWithdrawn(name, rec)
			}
		}
	}
}
