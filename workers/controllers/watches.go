// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/spokelet/spokelet/workers/api"
	accountv1alpha1 "github.com/spokelet/spokelet/workers/api/account/v1alpha1"
	bundlev1alpha1 "github.com/spokelet/spokelet/workers/api/bundle/v1alpha1"
	deploymentv1alpha1 "github.com/spokelet/spokelet/workers/api/deployment/v1alpha1"
	"github.com/spokelet/spokelet/workers/placement"
)

// deletionPredicate accepts only deletions.
func deletionPredicate() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		UpdateFunc:  func(e event.UpdateEvent) bool { return isDeleting(e.ObjectNew) },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

// fieldChangedPredicate accepts updates that change a field.
func fieldChangedPredicate[T client.Object](field func(T) string) predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, was := e.ObjectOld.(T)
		after, is := e.ObjectNew.(T)
		return was && is && field(before) != field(after)
	}}
}

// podResultPredicate accepts pods in which a step has reported a result.
func podResultPredicate() predicate.Predicate {
	return predicate.NewPredicateFuncs(func(o client.Object) bool {
		pod, is := o.(*corev1.Pod)
		if !is {
			return false
		}
		_, found := podResult(pod)
		return found
	})
}

// lister lists objects in the cache, of a namespace if one is given.
type lister func(ctx context.Context, namespace string) []reconcile.Request

// requestsFor returns a lister of requests for the wanted objects of a kind.
func (s setup) requestsFor(kind client.ObjectList, wanted func(client.Object) bool) lister {
	return func(ctx context.Context, namespace string) []reconcile.Request {
		list := kind.DeepCopyObject().(client.ObjectList) //nolint:forcetypeassert // a copy of the same type
		if err := s.client.List(ctx, list, client.InNamespace(namespace)); err != nil {
			log.FromContext(ctx).Error(err, "Cannot list what an event is about")
			return nil
		}
		var requests []reconcile.Request
		_ = meta.EachListItem(list, func(o runtime.Object) error {
			if object, ok := o.(client.Object); ok && wanted(object) {
				requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(object)})
			}
			return nil
		})
		return requests
	}
}

// hostChangedPredicate accepts updates of WorkerAccounts that change the host.
func hostChangedPredicate() predicate.Predicate {
	return fieldChangedPredicate(func(a *accountv1alpha1.WorkerAccount) string { return a.Status.Host })
}

// accountsWaitingForHost returns the namespaces of the WorkerAccounts whose host was taken, which may
// be free now, and of those with the same host.
func (s setup) accountsWaitingForHost(ctx context.Context, o client.Object) []reconcile.Request {
	account, ok := o.(*accountv1alpha1.WorkerAccount)
	if !ok {
		return nil
	}
	requests := s.requestsFor(&accountv1alpha1.WorkerAccountList{}, func(other client.Object) bool {
		a, ok := other.(*accountv1alpha1.WorkerAccount)
		taken := ok && hasReason(a.Status.Conditions, api.ConditionRouted, api.ReasonHostTaken)
		return taken || ok && a.Status.Host != "" && a.Status.Host == account.Status.Host
	})(ctx, "")
	for i, r := range requests {
		requests[i].NamespacedName = types.NamespacedName{Name: r.Namespace}
	}
	return requests
}

// matchAll accepts every object.
func matchAll(client.Object) bool { return true }

// deploymentsWithTakenName returns the WorkerDeployments whose name was taken: it may be free now.
func (s setup) deploymentsWithTakenName(ctx context.Context, o client.Object) []reconcile.Request {
	return s.requestsFor(&deploymentv1alpha1.WorkerDeploymentList{}, func(other client.Object) bool {
		wd, ok := other.(*deploymentv1alpha1.WorkerDeployment)
		return ok && wd.Name != o.GetName() && hasReason(wd.Status.Conditions, api.ConditionAccepted, api.ReasonNameTaken)
	})(ctx, o.GetNamespace())
}

// bundlesForWork returns the bundles of the account of a work: the owner, and those that wait for
// its deletion.
func (s setup) bundlesForWork(ctx context.Context, o client.Object) []reconcile.Request {
	return s.requestsFor(&bundlev1alpha1.WorkerBundleList{}, func(user client.Object) bool {
		b, ok := user.(*bundlev1alpha1.WorkerBundle)
		return ok && placement.Name(b.Spec.Account) == o.GetName()
	})(ctx, "")
}

// deploymentsForSecret returns the WorkerDeployments that name a Secret.
func (s setup) deploymentsForSecret(ctx context.Context, o client.Object) []reconcile.Request {
	return s.requestsFor(&deploymentv1alpha1.WorkerDeploymentList{}, func(user client.Object) bool {
		wd, ok := user.(*deploymentv1alpha1.WorkerDeployment)
		return ok && wd.Spec.Template.SecretRef == o.GetName()
	})(ctx, o.GetNamespace())
}

// bundlesForSecret returns the WorkerBundles whose works contain a Secret.
func (s setup) bundlesForSecret(ctx context.Context, o client.Object) []reconcile.Request {
	operators := o.GetNamespace() == s.Namespace && o.GetName() == s.Settings.Registry.PullSecret
	namespace := o.GetNamespace()
	if operators {
		namespace = ""
	}
	return s.requestsFor(&bundlev1alpha1.WorkerBundleList{}, func(user client.Object) bool {
		b, ok := user.(*bundlev1alpha1.WorkerBundle)
		if !ok || operators {
			return ok
		}
		for _, w := range b.Spec.Workers {
			if w.SecretRef == o.GetName() {
				return true
			}
		}
		return b.Spec.PodTemplate.ImagePullSecret == o.GetName()
	})(ctx, namespace)
}
