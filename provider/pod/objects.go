// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// objects follows the ConfigMaps and Secrets that pods refer to, each by a watch of
// its own, as a kubelet does: what else the hub keeps of them costs nothing. Several
// nodes share a watch. None of the methods calls back.
type objects struct {
	client kubernetes.Interface
	sync   Replicator
	logger logr.Logger

	mu sync.Mutex // guards what follows, and all audiences
	// spawn runs a watch until stop is called or run ends; nil while run does not
	// run.
	spawn func(watch func(context.Context)) (stop context.CancelFunc)
	held  map[wire.PodObjectKey]*object
}

// object is one that is referred to.
type object struct {
	key wire.PodObjectKey
	// users counts the pods of each audience that refer to it.
	users map[*audience]int
	// stop ends its watch; nil before that has begun.
	stop context.CancelFunc
	// answered: the hub has said what it has, which uid and body are.
	answered bool
	uid      types.UID
	body     []byte
}

// audience is a cluster that objects are published to.
type audience struct {
	cluster string
	// listed: the pods that refer to objects are known.
	listed bool
	// waiting are the objects that have not been answered.
	waiting map[wire.PodObjectKey]struct{}
	// muted: nothing is published to it any more.
	muted bool
}

func newAudience(cluster string) *audience {
	return &audience{cluster: cluster, waiting: map[wire.PodObjectKey]struct{}{}}
}

func newObjects(c Config) *objects {
	return &objects{client: c.Client, sync: c.Sync, logger: c.Logger, held: map[wire.PodObjectKey]*object{}}
}

// run watches until ctx ends, and waits for every watch.
func (o *objects) run(ctx context.Context) {
	var watches sync.WaitGroup
	o.mu.Lock()
	o.spawn = func(watch func(context.Context)) context.CancelFunc {
		inner, stop := context.WithCancel(ctx)
		watches.Go(func() { watch(inner) })
		return stop
	}
	for _, obj := range o.held {
		o.start(obj)
	}
	o.mu.Unlock()
	<-ctx.Done()
	o.mu.Lock()
	o.spawn = nil
	o.mu.Unlock()
	watches.Wait()
}

// start watches an object if watches run; o.mu is held.
func (o *objects) start(obj *object) {
	if o.spawn == nil || obj.stop != nil {
		return
	}
	obj.stop = o.spawn(o.reflector(obj).RunWithContext)
}

// use has an object published to a cluster, for one more pod.
func (o *objects) use(to *audience, key wire.PodObjectKey) {
	o.mu.Lock()
	defer o.mu.Unlock()
	obj, ok := o.held[key]
	if !ok {
		obj = &object{key: key, users: map[*audience]int{}}
		o.held[key] = obj
		o.start(obj)
	}
	obj.users[to]++
	if !obj.answered {
		to.waiting[key] = struct{}{}
		return
	}
	if obj.users[to] == 1 {
		o.put(to, obj)
	}
}

// release takes back one use. With the last the object is withdrawn from the
// cluster, and with the last of all clusters forgotten.
func (o *objects) release(to *audience, key wire.PodObjectKey) {
	o.mu.Lock()
	defer o.mu.Unlock()
	obj, ok := o.held[key]
	if !ok {
		return
	}
	obj.users[to]--
	if obj.users[to] > 0 {
		return
	}
	delete(obj.users, to)
	if !to.muted && obj.answered {
		o.sync.Source(to.cluster, wire.KindPodObject).Delete(key.String())
	}
	delete(to.waiting, key)
	o.conclude(to)
	if len(obj.users) > 0 {
		return
	}
	delete(o.held, key)
	if obj.stop != nil {
		obj.stop()
	}
}

// listed tells that all pods of a cluster refer to what they refer to.
func (o *objects) listed(to *audience) {
	o.mu.Lock()
	defer o.mu.Unlock()
	to.listed = true
	o.conclude(to)
}

// mute has nothing published to a cluster any more.
func (o *objects) mute(to *audience) {
	o.mu.Lock()
	defer o.mu.Unlock()
	to.muted = true
}

// conclude completes a cluster's objects once each was answered; o.mu is held.
func (o *objects) conclude(to *audience) {
	if to.listed && !to.muted && len(to.waiting) == 0 {
		o.sync.Source(to.cluster, wire.KindPodObject).Complete()
	}
}

// answer takes what the hub has of an object now.
func (o *objects) answer(obj *object, uid types.UID, body []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.held[obj.key] != obj {
		return // released meanwhile
	}
	obj.answered, obj.uid, obj.body = true, uid, body
	for to := range obj.users {
		o.put(to, obj)
		delete(to.waiting, obj.key)
		o.conclude(to)
	}
}

// put publishes an object to a cluster; o.mu is held.
func (o *objects) put(to *audience, obj *object) {
	if to.muted {
		return
	}
	err := o.sync.Source(to.cluster, wire.KindPodObject).Put(obj.resource())
	if err != nil {
		o.logger.Error(err, "cannot send an object to the pods of a cluster", "cluster", to.cluster, "object", obj.key.String())
	}
}

func (obj *object) resource() resource.Resource {
	return resource.Resource{Key: obj.key.String(), UID: string(obj.uid), Body: obj.body}
}

// load hands out a body at the moment it is sent, to clusters that have a pod that
// refers to the object.
func (o *objects) load(cluster, key string) (resource.Resource, bool) {
	parsed, err := wire.ParsePodObjectKey(key)
	if err != nil {
		return resource.Resource{}, false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	obj, ok := o.held[parsed]
	if !ok || !obj.answered {
		return resource.Resource{}, false
	}
	for to := range obj.users {
		if to.cluster == cluster {
			return obj.resource(), true
		}
	}
	return resource.Resource{}, false
}

// count returns how many objects are watched.
func (o *objects) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.held)
}
