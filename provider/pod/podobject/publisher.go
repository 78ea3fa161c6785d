// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package podobject

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// Sources are those of Sync.
type Sources interface {
	Source(cluster, kind string) *resource.Source
}

// Publisher follows the ConfigMaps and Secrets that pods refer to, each by a watch of
// its own, as a kubelet does: what else the hub keeps of them costs nothing. Several
// nodes share a watch. None of the methods calls back.
type Publisher struct {
	client  kubernetes.Interface
	sources Sources
	logger  logr.Logger

	mu sync.Mutex // guards what follows, and all audiences
	// spawn runs a watch until stop is called or run ends; nil while Run does not
	// run.
	spawn   func(watch func(context.Context)) (stop context.CancelFunc)
	objects map[wire.PodObjectKey]*object
}

// object is one that is referred to.
type object struct {
	key wire.PodObjectKey
	// references counts the pods of each audience that refer to it.
	references map[*Subscriber]int
	// stop ends its watch; nil before that has begun.
	stop context.CancelFunc
	// known: the hub has said what it has, which uid and body are.
	known bool
	uid   types.UID
	body  []byte
}

// Subscriber is a cluster that objects are published to.
type Subscriber struct {
	cluster string
	// listed: the pods that refer to objects are known.
	listed bool
	// unknown are the objects that have not been answered.
	unknown map[wire.PodObjectKey]struct{}
	// forgotten: nothing is published to it any more.
	forgotten bool
}

// NewSubscriber returns a cluster to which nothing is published yet.
func NewSubscriber(cluster string) *Subscriber {
	return &Subscriber{cluster: cluster, unknown: map[wire.PodObjectKey]struct{}{}}
}

// NewPublisher returns a publisher; Run watches.
func NewPublisher(client kubernetes.Interface, sources Sources, logger logr.Logger) *Publisher {
	return &Publisher{client: client, sources: sources, logger: logger, objects: map[wire.PodObjectKey]*object{}}
}

// Run watches until ctx ends, and waits for every watch.
func (p *Publisher) Run(ctx context.Context) {
	var watches sync.WaitGroup
	p.mu.Lock()
	p.spawn = func(watch func(context.Context)) context.CancelFunc {
		inner, stop := context.WithCancel(ctx)
		watches.Go(func() { watch(inner) })
		return stop
	}
	for _, obj := range p.objects {
		p.start(obj)
	}
	p.mu.Unlock()
	<-ctx.Done()
	p.mu.Lock()
	p.spawn = nil
	p.mu.Unlock()
	watches.Wait()
}

// start watches an object if watches run; p.mu is held.
func (p *Publisher) start(obj *object) {
	if p.spawn == nil || obj.stop != nil {
		return
	}
	obj.stop = p.spawn(func(ctx context.Context) { p.watch(ctx, obj) })
}

// AddReference has an object published to a cluster, for one more pod.
func (p *Publisher) AddReference(to *Subscriber, key wire.PodObjectKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	obj, ok := p.objects[key]
	if !ok {
		obj = &object{key: key, references: map[*Subscriber]int{}}
		p.objects[key] = obj
		p.start(obj)
	}
	obj.references[to]++
	if !obj.known {
		to.unknown[key] = struct{}{}
		return
	}
	if obj.references[to] == 1 {
		p.publish(to, obj)
	}
}

// RemoveReference takes back one use. With the last the object is withdrawn from the
// cluster, and with the last of all clusters forgotten.
func (p *Publisher) RemoveReference(to *Subscriber, key wire.PodObjectKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	obj, ok := p.objects[key]
	if !ok {
		return
	}
	obj.references[to]--
	if obj.references[to] > 0 {
		return
	}
	delete(obj.references, to)
	if !to.forgotten && obj.known {
		p.sources.Source(to.cluster, wire.KindPodObject).Delete(key.String())
	}
	delete(to.unknown, key)
	p.completeIfKnown(to)
	if len(obj.references) > 0 {
		return
	}
	delete(p.objects, key)
	if obj.stop != nil {
		obj.stop()
	}
}

// MarkListed tells that all pods of a cluster refer to what they refer to.
func (p *Publisher) MarkListed(to *Subscriber) {
	p.mu.Lock()
	defer p.mu.Unlock()
	to.listed = true
	p.completeIfKnown(to)
}

// RemoveSubscriber has nothing published to a cluster any more.
func (p *Publisher) RemoveSubscriber(to *Subscriber) {
	p.mu.Lock()
	defer p.mu.Unlock()
	to.forgotten = true
}

// completeIfKnown completes a cluster's objects once each was answered; p.mu is held.
func (p *Publisher) completeIfKnown(to *Subscriber) {
	if to.listed && !to.forgotten && len(to.unknown) == 0 {
		p.sources.Source(to.cluster, wire.KindPodObject).Complete()
	}
}

// setContent takes what the hub has of an object now.
func (p *Publisher) setContent(obj *object, uid types.UID, content wire.PodObject) {
	body, err := json.Marshal(content)
	if err != nil {
		p.logger.Error(err, "cannot encode an object that pods refer to", "object", obj.key.String())
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.objects[obj.key] != obj {
		return // released meanwhile
	}
	obj.known, obj.uid, obj.body = true, uid, body
	for to := range obj.references {
		p.publish(to, obj)
		delete(to.unknown, obj.key)
		p.completeIfKnown(to)
	}
}

// publish publishes an object to a cluster; p.mu is held.
func (p *Publisher) publish(to *Subscriber, obj *object) {
	if to.forgotten {
		return
	}
	err := p.sources.Source(to.cluster, wire.KindPodObject).Put(obj.resource())
	if err != nil {
		p.logger.Error(err, "cannot send an object to the pods of a cluster", "cluster", to.cluster, "object", obj.key.String())
	}
}

func (obj *object) resource() resource.Resource {
	return resource.Resource{Key: obj.key.String(), UID: string(obj.uid), Body: obj.body}
}

// Load hands out a body at the moment it is sent, to clusters that have a pod that
// refers to the object.
func (p *Publisher) Load(cluster, key string) (resource.Resource, bool) {
	parsed, err := wire.ParsePodObjectKey(key)
	if err != nil {
		return resource.Resource{}, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	obj, ok := p.objects[parsed]
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

// Count returns how many objects are watched.
func (p *Publisher) Count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.objects)
}
