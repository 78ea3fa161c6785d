// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"context"
	"fmt"
	"maps"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/api/sync/v1alpha1"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/managedcluster"
)

// planController decides which objects are shared with which cluster, each time that its input
// has changed: SharedResources, clusters, namespaces and definitions.
type planController struct {
	*registry

	// sentDefinitions are the definitions that are sent to clusters; of the plan worker alone.
	sentDefinitions map[string]sentDefinition
	// specs are those that were planned, or will be; guarded by registry.mu.
	specs map[string]spec
}

func newPlanController(r *registry) *planController {
	return &planController{registry: r, sentDefinitions: map[string]sentDefinition{}, specs: map[string]spec{}}
}

// startWatches watches the input of plans; it returns when all existing objects were handled.
func (c *planController) startWatches(ctx context.Context) error {
	system := &corev1.Namespace{}
	if err := c.cfg.Live.Get(ctx, types.NamespacedName{Name: metav1.NamespaceSystem}, system); err != nil {
		return fmt.Errorf("namespace %s: %w", metav1.NamespaceSystem, err)
	}
	c.state.hubUID = string(system.UID)
	for of, f := range map[client.Object]func(obj client.Object, gone bool){
		&v1alpha1.SharedResource{}: c.handleSharedResource, &clusterv1.ManagedCluster{}: c.handleCluster, &corev1.Namespace{}: c.handleNamespace,
	} {
		if err := c.watchKind(ctx, of, f); err != nil {
			return err
		}
	}
	return nil
}

// watchKind calls f with every change of the objects of a kind; it returns when f has been
// called with all existing objects.
func (c *planController) watchKind(ctx context.Context, of client.Object, f func(obj client.Object, gone bool)) error {
	informer, err := c.cfg.Informers.GetInformer(ctx, of)
	if err != nil {
		return fmt.Errorf("watch %T: %w", of, err)
	}
	each := func(obj any, gone bool) {
		if unknown, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
			obj = unknown.Obj
		}
		if o, ok := obj.(client.Object); ok {
			f(o, gone)
		}
	}
	handler, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { each(obj, false) },
		UpdateFunc: func(_, obj any) { each(obj, false) },
		DeleteFunc: func(obj any) { each(obj, true) },
	})
	if err != nil {
		return fmt.Errorf("watch %T: %w", of, err)
	}
	if !toolscache.WaitForCacheSync(ctx.Done(), handler.HasSynced) {
		return context.Cause(ctx)
	}
	return nil
}

// handleSharedResource enqueues a new plan when a spec has changed, and the status in any
// case.
func (c *planController) handleSharedResource(obj client.Object, gone bool) {
	r, ok := obj.(*v1alpha1.SharedResource)
	if !ok {
		return
	}
	c.statusQueue.Add(r.Name)
	now := spec{
		uid: r.UID, generation: r.Generation, confirm: r.Annotations[v1alpha1.AnnotationConfirm], isDeleting: gone || r.DeletionTimestamp != nil,
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.specs[r.Name] == now {
		return
	}
	if gone {
		delete(c.specs, r.Name)
	} else {
		c.specs[r.Name] = now
	}
	c.planQueue.Add(planKey)
}

// spec is the part of a SharedResource that plans depend on.
type spec struct {
	uid        types.UID
	generation int64
	confirm    string
	isDeleting bool
}

func (c *planController) handleCluster(obj client.Object, gone bool) {
	record, ok := obj.(*clusterv1.ManagedCluster)
	if !ok {
		return
	}
	serves := !gone && managedcluster.IsSelectable(record)
	c.mu.Lock()
	defer c.mu.Unlock()
	last, was := c.state.clusters[record.Name]
	if serves == was && (!was || maps.Equal(last.labels, record.Labels)) {
		return
	}
	if serves {
		c.state.clusters[record.Name] = cluster{labels: record.Labels}
	} else {
		delete(c.state.clusters, record.Name)
	}
	c.planQueue.Add(planKey)
}

func (c *planController) handleNamespace(obj client.Object, gone bool) {
	ns := namespace{uid: obj.GetUID(), terminating: obj.GetDeletionTimestamp() != nil}
	c.mu.Lock()
	defer c.mu.Unlock()
	last, was := c.state.namespaces[obj.GetName()]
	if gone == !was && last == ns {
		return
	}
	if gone {
		delete(c.state.namespaces, obj.GetName())
	} else {
		c.state.namespaces[obj.GetName()] = ns
	}
	c.planQueue.Add(planKey)
}

// updatePlans plans anew which objects are shared with which cluster.
func (c *planController) updatePlans(ctx context.Context) error {
	list := &v1alpha1.SharedResourceList{}
	if err := c.cfg.Client.List(ctx, list); err != nil {
		return fmt.Errorf("list SharedResources: %w", err)
	}
	c.mu.Lock()
	known, brought := c.state.isKnown(), c.state.definitionsToSend(list.Items)
	c.mu.Unlock()
	if !known {
		return nil
	}
	if err := c.readDefinitions(ctx, brought); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	published := map[string][]string{}
	for key := range c.shares {
		published[key.name] = append(published[key.name], key.cluster)
	}
	p := planner{state: &c.state, published: published, sentDefinitions: c.sentDefinitions}
	c.applyPlans(p.plan(list.Items))
	return nil
}

// applyPlans adds, changes and removes shares as planned; c.mu is held.
func (c *planController) applyPlans(plans map[string]resourcePlan) {
	for name := range c.plans {
		if _, ok := plans[name]; !ok {
			c.statusQueue.Add(name) // which forgets it
		}
	}
	c.plans = plans
	for key, s := range c.shares {
		if next, ok := plans[key.name].targets[key.cluster]; !ok || next.uid != s.target.uid {
			c.removeShare(s)
		}
	}
	for name, p := range plans {
		for cluster, next := range p.targets {
			c.setTarget(shareKey{cluster: cluster, name: name}, next)
		}
		c.statusQueue.Add(name)
	}
	c.isPlanned = true
	c.checkComplete()
	c.completeClusters()
}

// setTarget sets the target of a cluster's share, which it creates if needed; c.mu is held.
func (c *planController) setTarget(key shareKey, next target) {
	s := c.shares[key]
	if s == nil {
		s = &share{
			registry: c.registry, name: key.name, cluster: key.cluster,
			entries: map[string]entry{}, tombstones: map[string]tombstone{}, requests: map[string]*writeRequest{}, large: map[string]int{},
			use: memoryUse{account: c.cfg.Memory.Account(key.cluster), objects: map[string]objectUse{}}, beyondQuota: map[string]wire.SharedSize{},
		}
		c.shares[key] = s
		if c.byCluster[key.cluster] == nil {
			c.byCluster[key.cluster] = map[string]*share{}
		}
		c.byCluster[key.cluster][key.name] = s
	}
	if !reflect.DeepEqual(s.target, next) {
		s.setTarget(next)
	}
}

// removeShare withdraws and deletes a share; c.mu is held.
func (c *planController) removeShare(s *share) {
	s.withdraw()
	delete(c.shares, s.key())
	delete(c.byCluster[s.cluster], s.name)
	if len(c.byCluster[s.cluster]) == 0 {
		delete(c.byCluster, s.cluster)
	}
}

// readDefinitions reads the definitions that are sent to clusters, and drops those that no
// longer are. The hub may list definitions, but not get them.
func (c *planController) readDefinitions(ctx context.Context, want map[string]definition) error {
	for name := range c.sentDefinitions {
		if _, ok := want[name]; !ok {
			delete(c.sentDefinitions, name)
		}
	}
	for name, d := range want {
		of := string(d.uid) + "/" + d.version
		if c.sentDefinitions[name].source == of {
			continue
		}
		list, err := c.cfg.Dynamic.Resource(definitionsResource()).List(ctx, metav1.ListOptions{FieldSelector: byName(name)})
		if err != nil {
			return fmt.Errorf("definition %s: %w", name, err)
		}
		delete(c.sentDefinitions, name)
		for i := range list.Items {
			raw, err := portableDefinition(&list.Items[i])
			if err != nil {
				return fmt.Errorf("definition %s: %w", name, err)
			}
			c.sentDefinitions[name] = sentDefinition{source: of, raw: raw}
		}
	}
	return nil
}
