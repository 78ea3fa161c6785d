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

// published is an action in Sync.
type published struct {
	cluster    string
	uid        string
	generation int64
}

// publish brings an action into Sync.
func (c *Controller) publish(r ref, obj client.Object, in intent) error {
	c.views.remove(r)
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
	c.actions[r] = published{cluster: in.cluster, uid: version.UID, generation: version.Generation}
	if err := c.cfg.Sync.Source(in.cluster, wire.KindAction).Put(version); err != nil {
		return fmt.Errorf("publish action: %w", err)
	}
	return nil
}

func encodeAction(r ref, obj client.Object, in intent) (resource.Resource, error) {
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

// load makes the body of an action when it is sent: templates are kept in the cache alone.
// What the cache has since the action was published nobody has looked at yet: it is sent
// when it is published itself.
func (c *Controller) load(cluster, key string) (resource.Resource, bool) {
	r, err := wire.ParseWorkKey(key)
	d := c.dialects[r.Dialect]
	if err != nil || d == nil {
		return resource.Resource{}, false
	}
	obj := d.blank()
	if err := c.cfg.Client.Get(context.Background(), types.NamespacedName{Namespace: r.Namespace, Name: r.Name}, obj); err != nil {
		return resource.Resource{}, false
	}
	in := d.read(obj, c.options)
	if in.stripped() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		release, err := c.readWhole(ctx, d, obj, &in)
		if err != nil {
			c.again(r)
			return resource.Resource{}, false
		}
		defer release()
	}
	by, err := requester.Of(obj, d.keys, c.cfg.Authors.UID())
	if err != nil || in.action == nil || in.cluster != cluster {
		return resource.Resource{}, false
	}
	in.action.Requester = wire.Requester{User: by.User, Groups: by.Groups}
	version, err := encodeAction(r, obj, in)
	c.mu.Lock()
	defer c.mu.Unlock()
	same := c.actions[r] == published{cluster: cluster, uid: version.UID, generation: version.Generation}
	return version, err == nil && same
}

// again has an action published anew that could not be read when it was to be sent.
func (c *Controller) again(r ref) {
	c.mu.Lock()
	c.unsent[r] = struct{}{}
	c.mu.Unlock()
	c.queue.AddRateLimited(r)
}

// withdrawAction takes an action out of Sync.
func (c *Controller) withdrawAction(r ref) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.unsent, r)
	if p, ok := c.actions[r]; ok {
		delete(c.actions, r)
		delete(c.progress, r)
		c.cfg.Sync.Source(p.cluster, wire.KindAction).Delete(r.String())
	}
}

// unanswered are the objects whose actions are published to a cluster.
func (c *Controller) unanswered(cluster string) (all []ref) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for r, p := range c.actions {
		if p.cluster == cluster {
			all = append(all, r)
		}
	}
	return all
}
