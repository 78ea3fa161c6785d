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

// deletionPredicate lets only deletions through.
func deletionPredicate() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		UpdateFunc:  func(e event.UpdateEvent) bool { return isDeleting(e.ObjectNew) },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

// fieldChangedPredicate lets updates through that change what a field of an object is.
func fieldChangedPredicate[T client.Object](field func(T) string) predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, was := e.ObjectOld.(T)
		after, is := e.ObjectNew.(T)
		return was && is && field(before) != field(after)
	}}
}

// podResultPredicate lets pods through in which a step has ended with something to say.
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

// requestsFor returns requests for all objects of a kind that are wanted.
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

// hostChangedPredicate lets updates of WorkerAccounts through that give one a host, or take it away.
func hostChangedPredicate() predicate.Predicate {
	return fieldChangedPredicate(func(a *accountv1alpha1.WorkerAccount) string { return a.Status.Host })
}

// accountsWaitingForHost are the namespaces of the WorkerAccounts beside one whose host was taken: it
// may be free now. One that has the same host is told, too, that it is not alone.
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

// matchAll is for lists of which nothing is left out.
func matchAll(client.Object) bool { return true }

// deploymentsWithTakenName are the WorkerDeployments beside one whose name was taken: it may be free now.
func (s setup) deploymentsWithTakenName(ctx context.Context, o client.Object) []reconcile.Request {
	return s.requestsFor(&deploymentv1alpha1.WorkerDeploymentList{}, func(other client.Object) bool {
		wd, ok := other.(*deploymentv1alpha1.WorkerDeployment)
		return ok && wd.Name != o.GetName() && hasReason(wd.Status.Conditions, api.ConditionAccepted, api.ReasonNameTaken)
	})(ctx, o.GetNamespace())
}

// bundlesForWork are those of the account of a work: the one that it is of, and those that wait
// for it to be gone.
func (s setup) bundlesForWork(ctx context.Context, o client.Object) []reconcile.Request {
	return s.requestsFor(&bundlev1alpha1.WorkerBundleList{}, func(user client.Object) bool {
		b, ok := user.(*bundlev1alpha1.WorkerBundle)
		return ok && placement.Name(b.Spec.Account) == o.GetName()
	})(ctx, "")
}

// deploymentsForSecret are the WorkerDeployments that name a Secret.
func (s setup) deploymentsForSecret(ctx context.Context, o client.Object) []reconcile.Request {
	return s.requestsFor(&deploymentv1alpha1.WorkerDeploymentList{}, func(user client.Object) bool {
		wd, ok := user.(*deploymentv1alpha1.WorkerDeployment)
		return ok && wd.Spec.Template.SecretRef == o.GetName()
	})(ctx, o.GetNamespace())
}

// bundlesForSecret are the WorkerBundles that a Secret is sent with.
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
