// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package mcm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/hub/requester"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// publishedAction is an action in Sync.
type publishedAction struct {
	cluster    string
	uid        string
	generation int64
}

// publishAction brings an action into Sync.
func (c *Controller) publishAction(r objectKey, obj client.Object, in request) error {
	c.views.delete(r)
	version, err := encodeAction(r, obj, in)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.unsent[r]; ok {
		delete(c.unsent, r)
		// What is published already is not sent again.
		c.cfg.Sync.Source(in.cluster, wire.KindAction).Delete(r.String())
	}
	if old, ok := c.actions[r]; ok && old.cluster != in.cluster {
		c.cfg.Sync.Source(old.cluster, wire.KindAction).Delete(r.String())
	}
	c.actions[r] = publishedAction{cluster: in.cluster, uid: version.UID, generation: version.Generation}
	if err := c.cfg.Sync.Source(in.cluster, wire.KindAction).Put(version); err != nil {
		return fmt.Errorf("publish action: %w", err)
	}
	return nil
}

func encodeAction(r objectKey, obj client.Object, in request) (resource.Resource, error) {
	if in.action == nil {
		return resource.Resource{}, errNoAction
	}
	body, err := json.Marshal(in.action)
	if err != nil {
		return resource.Resource{}, fmt.Errorf("encode action: %w", err)
	}
	return resource.Resource{Key: r.String(), UID: string(obj.GetUID()), Generation: obj.GetGeneration(), Body: body}, nil
}

var errNoAction = errors.New("the object is no action any more")

// loadAction makes the body of an action when it is sent: templates are kept in the cache alone.
// A version that the cache got after the action was published is not reconciled yet: it is sent
// when it is published itself.
func (c *Controller) loadAction(cluster, key string) (resource.Resource, bool) {
	r, err := wire.ParseWorkKey(key)
	d := c.dialects[r.Dialect]
	if err != nil || d == nil {
		return resource.Resource{}, false
	}
	obj := d.newObject()
	if err := c.cfg.Client.Get(context.Background(), types.NamespacedName{Namespace: r.Namespace, Name: r.Name}, obj); err != nil {
		return resource.Resource{}, false
	}
	in := d.parse(obj, c.options)
	if in.hasPlaceholder() {
		ctx, cancel := context.WithTimeout(context.Background(), templateTimeout)
		defer cancel()
		release, err := c.readUncached(ctx, d, obj, &in)
		if err != nil {
			c.retryAction(r)
			return resource.Resource{}, false
		}
		defer release()
	}
	by, err := requester.FromObject(obj, d.annotationKeys, c.cfg.Authors.UID())
	if err != nil || in.action == nil || in.cluster != cluster {
		return resource.Resource{}, false
	}
	in.action.Requester = wire.Requester{User: by.User, Groups: by.Groups}
	version, err := encodeAction(r, obj, in)
	c.mu.Lock()
	defer c.mu.Unlock()
	same := c.actions[r] == publishedAction{cluster: cluster, uid: version.UID, generation: version.Generation}
	return version, err == nil && same
}

// retryAction has an action published anew that could not be read when it was to be sent.
func (c *Controller) retryAction(r objectKey) {
	c.mu.Lock()
	c.unsent[r] = struct{}{}
	c.mu.Unlock()
	c.queue.AddRateLimited(r)
}

// withdrawAction takes an action out of Sync.
func (c *Controller) withdrawAction(r objectKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.unsent, r)
	if p, ok := c.actions[r]; ok {
		delete(c.actions, r)
		delete(c.progress, r)
		c.cfg.Sync.Source(p.cluster, wire.KindAction).Delete(r.String())
	}
}

// publishedTo are the objects whose actions are published to a cluster.
func (c *Controller) publishedTo(cluster string) (all []objectKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for r, p := range c.actions {
		if p.cluster == cluster {
			all = append(all, r)
		}
	}
	return all
}
