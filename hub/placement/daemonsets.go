// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	informersappsv1 "k8s.io/client-go/informers/apps/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/spokelet/spokelet/provider"
)

// DaemonSets are the DaemonSets of the hub that tolerate every taint and target no nodes:
// those that were there before the policy. It is a provider.DaemonSets.
type DaemonSets struct {
	informer cache.SharedIndexInformer
	changed  func()

	mu sync.Mutex // guards what follows
	// synced: those that were there at Start are known. refused is why no label is given
	// whatever there is.
	synced     bool
	objection  string
	untargeted map[cache.ObjectName]nodeaffinity.RequiredNodeAffinity
}

var _ provider.DaemonSets = (*DaemonSets)(nil)

// NewDaemonSets returns DaemonSets that knows nothing before Start. It calls changed whenever an
// objection may have come or gone. policy is what Install returned: without the policy
// DaemonSets that are not there yet have to be reckoned with.
func NewDaemonSets(client kubernetes.Interface, policy error, changed func()) (*DaemonSets, error) {
	s := &DaemonSets{
		informer: informersappsv1.NewDaemonSetInformer(client, metav1.NamespaceAll, 0, nil),
		changed:  changed, untargeted: map[cache.ObjectName]nodeaffinity.RequiredNodeAffinity{},
	}
	if err := s.informer.SetTransform(trimDaemonSet); err != nil {
		return nil, fmt.Errorf("daemonset cache cannot be trimmed: %w", err)
	}
	if policy != nil {
		s.objection = fmt.Sprintf("nothing keeps DaemonSets off the node: %v", policy)
	}
	return s, nil
}

// trimDaemonSet keeps of a DaemonSet what decides where its pods run.
func trimDaemonSet(obj any) (any, error) {
	d, ok := obj.(*appsv1.DaemonSet)
	if !ok {
		return obj, nil
	}
	spec := &d.Spec.Template.Spec
	return &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: d.Name, UID: d.UID, ResourceVersion: d.ResourceVersion},
		Spec: appsv1.DaemonSetSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			NodeName: spec.NodeName, NodeSelector: spec.NodeSelector, Affinity: onlyNodeAffinity(spec.Affinity), Tolerations: spec.Tolerations,
		}}},
	}, nil
}

func onlyNodeAffinity(affinity *corev1.Affinity) *corev1.Affinity {
	if affinity == nil || affinity.NodeAffinity == nil {
		return nil
	}
	return &corev1.Affinity{NodeAffinity: affinity.NodeAffinity}
}

// Start follows the DaemonSets until ctx ends. Without the policy it does nothing: the
// objection is the same whatever there is.
func (s *DaemonSets) Start(ctx context.Context) error {
	if s.objection != "" {
		<-ctx.Done()
		return nil
	}
	registration, err := s.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { s.observe(obj, false) },
		UpdateFunc: s.update,
		DeleteFunc: func(obj any) { s.observe(obj, true) },
	})
	if err != nil {
		return fmt.Errorf("daemonsets cannot be watched: %w", err)
	}
	var background sync.WaitGroup
	defer background.Wait()
	background.Go(func() { s.informer.RunWithContext(ctx) })
	if !cache.WaitFor(ctx, "", registration.HasSyncedChecker()) {
		return nil
	}
	s.mu.Lock()
	s.synced = true
	s.mu.Unlock()
	s.changed()
	<-ctx.Done()
	return nil
}

// update ignores a change of what trim leaves out: each status of a DaemonSet would have
// the labels of all nodes considered again.
func (s *DaemonSets) update(before, now any) {
	old, wasOne := before.(*appsv1.DaemonSet)
	d, isOne := now.(*appsv1.DaemonSet)
	if wasOne && isOne && equality.Semantic.DeepEqual(old.Spec, d.Spec) {
		return
	}
	s.observe(now, false)
}

// observe takes a DaemonSet as it is now, or that it is gone.
func (s *DaemonSets) observe(obj any, gone bool) {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	d, ok := obj.(*appsv1.DaemonSet)
	if !ok {
		return
	}
	name := cache.MetaObjectToName(d)
	s.mu.Lock()
	_, before := s.untargeted[name]
	now := !gone && toleratesAllUntargeted(d)
	if now {
		spec := &d.Spec.Template.Spec
		s.untargeted[name] = nodeaffinity.NewRequiredNodeAffinity(spec.NodeSelector, spec.Affinity)
	} else {
		delete(s.untargeted, name)
	}
	tell := s.synced && (before || now)
	s.mu.Unlock()
	if tell {
		s.changed()
	}
}

// maxNamed bounds the DaemonSets that an objection names.
const maxNamed = 3

// Objection says why a node that has some labels shall not have more: there are
// DaemonSets that would take it for theirs because of them.
func (s *DaemonSets) Objection(have, more map[string]string) (text string, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.objection != "":
		return s.objection, true
	case !s.synced:
		return "", false
	}
	before := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: have}}
	after := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: more}}
	var newlyMatching []string
	for name, affinity := range s.untargeted {
		// An affinity that cannot be read fits no node, as for the DaemonSets' controller.
		fitted, _ := affinity.Match(before)
		fits, _ := affinity.Match(after)
		if fits && !fitted {
			newlyMatching = append(newlyMatching, name.String())
		}
	}
	if len(newlyMatching) == 0 {
		return "", true
	}
	slices.Sort(newlyMatching)
	named := strings.Join(newlyMatching[:min(len(newlyMatching), maxNamed)], ", ")
	if rest := len(newlyMatching) - maxNamed; rest > 0 {
		named += fmt.Sprintf(" and %d more", rest)
	}
	return "these DaemonSets of the hub would wait for a pod on the node until their pods are restarted (kubectl rollout restart): " + named, true
}
