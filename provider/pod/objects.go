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

// objectPublisher follows the ConfigMaps and Secrets that pods refer to, each by a watch of
// its own, as a kubelet does: what else the hub keeps of them costs nothing. Several
// nodes share a watch. None of the methods calls back.
type objectPublisher struct {
	client kubernetes.Interface
	sync   Replicator
	logger logr.Logger

	mu sync.Mutex // guards what follows, and all audiences
	// spawn runs a watch until stop is called or run ends; nil while run does not
	// run.
	spawn   func(watch func(context.Context)) (stop context.CancelFunc)
	objects map[wire.PodObjectKey]*object
}

// object is one that is referred to.
type object struct {
	key wire.PodObjectKey
	// references counts the pods of each audience that refer to it.
	references map[*subscriber]int
	// stop ends its watch; nil before that has begun.
	stop context.CancelFunc
	// known: the hub has said what it has, which uid and body are.
	known bool
	uid   types.UID
	body  []byte
}

// subscriber is a cluster that objects are published to.
type subscriber struct {
	cluster string
	// listed: the pods that refer to objects are known.
	listed bool
	// unknown are the objects that have not been answered.
	unknown map[wire.PodObjectKey]struct{}
	// forgotten: nothing is published to it any more.
	forgotten bool
}

func newSubscriber(cluster string) *subscriber {
	return &subscriber{cluster: cluster, unknown: map[wire.PodObjectKey]struct{}{}}
}

func newObjectPublisher(c Config) *objectPublisher {
	return &objectPublisher{client: c.Client, sync: c.Sync, logger: c.Logger, objects: map[wire.PodObjectKey]*object{}}
}

// run watches until ctx ends, and waits for every watch.
func (o *objectPublisher) run(ctx context.Context) {
	var watches sync.WaitGroup
	o.mu.Lock()
	o.spawn = func(watch func(context.Context)) context.CancelFunc {
		inner, stop := context.WithCancel(ctx)
		watches.Go(func() { watch(inner) })
		return stop
	}
	for _, obj := range o.objects {
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
func (o *objectPublisher) start(obj *object) {
	if o.spawn == nil || obj.stop != nil {
		return
	}
	obj.stop = o.spawn(o.reflector(obj).RunWithContext)
}

// addReference has an object published to a cluster, for one more pod.
func (o *objectPublisher) addReference(to *subscriber, key wire.PodObjectKey) {
	o.mu.Lock()
	defer o.mu.Unlock()
	obj, ok := o.objects[key]
	if !ok {
		obj = &object{key: key, references: map[*subscriber]int{}}
		o.objects[key] = obj
		o.start(obj)
	}
	obj.references[to]++
	if !obj.known {
		to.unknown[key] = struct{}{}
		return
	}
	if obj.references[to] == 1 {
		o.publish(to, obj)
	}
}

// removeReference takes back one use. With the last the object is withdrawn from the
// cluster, and with the last of all clusters forgotten.
func (o *objectPublisher) removeReference(to *subscriber, key wire.PodObjectKey) {
	o.mu.Lock()
	defer o.mu.Unlock()
	obj, ok := o.objects[key]
	if !ok {
		return
	}
	obj.references[to]--
	if obj.references[to] > 0 {
		return
	}
	delete(obj.references, to)
	if !to.forgotten && obj.known {
		o.sync.Source(to.cluster, wire.KindPodObject).Delete(key.String())
	}
	delete(to.unknown, key)
	o.completeIfKnown(to)
	if len(obj.references) > 0 {
		return
	}
	delete(o.objects, key)
	if obj.stop != nil {
		obj.stop()
	}
}

// markListed tells that all pods of a cluster refer to what they refer to.
func (o *objectPublisher) markListed(to *subscriber) {
	o.mu.Lock()
	defer o.mu.Unlock()
	to.listed = true
	o.completeIfKnown(to)
}

// forget has nothing published to a cluster any more.
func (o *objectPublisher) forget(to *subscriber) {
	o.mu.Lock()
	defer o.mu.Unlock()
	to.forgotten = true
}

// completeIfKnown completes a cluster's objects once each was answered; o.mu is held.
func (o *objectPublisher) completeIfKnown(to *subscriber) {
	if to.listed && !to.forgotten && len(to.unknown) == 0 {
		o.sync.Source(to.cluster, wire.KindPodObject).Complete()
	}
}

// setContent takes what the hub has of an object now.
func (o *objectPublisher) setContent(obj *object, uid types.UID, body []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.objects[obj.key] != obj {
		return // released meanwhile
	}
	obj.known, obj.uid, obj.body = true, uid, body
	for to := range obj.references {
		o.publish(to, obj)
		delete(to.unknown, obj.key)
		o.completeIfKnown(to)
	}
}

// publish publishes an object to a cluster; o.mu is held.
func (o *objectPublisher) publish(to *subscriber, obj *object) {
	if to.forgotten {
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
func (o *objectPublisher) load(cluster, key string) (resource.Resource, bool) {
	parsed, err := wire.ParsePodObjectKey(key)
	if err != nil {
		return resource.Resource{}, false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	obj, ok := o.objects[parsed]
	if !ok || !obj.known {
		return resource.Resource{}, false
	}
	for to := range obj.references {
		if to.cluster == cluster {
			return obj.resource(), true
		}
	}
	return resource.Resource{}, false
}

// count returns how many objects are watched.
func (o *objectPublisher) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.objects)
}
