// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/spokelet/spokelet/agent/action"
	"github.com/spokelet/spokelet/agent/join"
	"github.com/spokelet/spokelet/agent/pod"
	"github.com/spokelet/spokelet/agent/sharing"
	"github.com/spokelet/spokelet/agent/work"
	"github.com/spokelet/spokelet/api/crds"
	"github.com/spokelet/spokelet/internal/secretstore"
)

// deployment is the name that the chart gives the agent, and podSelector what
// its pods bear.
const (
	deployment  = "spokelet-agent"
	podSelector = "app.kubernetes.io/name=spokelet-agent"
)

// Uninstall takes back what the agent has made in its cluster, before its chart
// goes: it stops the agent, lets go of the objects of works (they stay, without
// owner), ends the pods of the hub's node, whose controllers on the hub make others
// elsewhere, and removes the anchors with their definition, the ledger of actions, what
// is remembered of shared objects, which stay, and the agent's identity.
// It may be repeated.
func Uninstall(ctx context.Context, opts Options) error {
	kube, err := kubernetes.NewForConfig(opts.Client)
	if err != nil {
		return fmt.Errorf("client of the cluster: %w", err)
	}
	// A running agent would repair what is undone here.
	if err := stop(ctx, kube, opts.Config.Namespace); err != nil {
		return err
	}
	if *opts.Config.Work.Enabled {
		if err := letGo(ctx, opts); err != nil {
			return err
		}
	}
	if *opts.Config.Pods.Enabled {
		if err := pod.Remove(ctx, opts.Client, opts.Logger, opts.Config.PodAccount(), ""); err != nil {
			return err
		}
	}
	if err := action.RemoveLog(ctx, kube.CoreV1().ConfigMaps(opts.Config.Namespace)); err != nil {
		return err
	}
	if err := secretstore.Remove(ctx, kube.CoreV1().Secrets(opts.Config.Namespace), sharing.StoreName); err != nil {
		return err
	}
	err = kube.CoordinationV1().Leases(opts.Config.Namespace).Delete(ctx, leaseName, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("lease %s: cannot delete: %w", leaseName, err)
	}
	err = kube.CoreV1().Secrets(opts.Config.Namespace).Delete(ctx, join.DefaultSecretName, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("identity secret %s: cannot delete: %w", join.DefaultSecretName, err)
	}
	opts.Logger.Info("agent is uninstalled", "cluster", opts.Config.Cluster)
	return nil
}

// letGo orphans the objects of works and removes what describes them.
func letGo(ctx context.Context, opts Options) error {
	if err := work.Orphan(ctx, opts.Client, opts.Config.Work.ServiceAccount.Username()); err != nil {
		return err
	}
	dyn, err := dynamic.NewForConfig(opts.Client)
	if err != nil {
		return fmt.Errorf("client of the cluster: %w", err)
	}
	return crds.Remove(ctx, dyn, crds.Agent())
}

// stop scales the agent to nothing and waits until its pods are gone.
func stop(ctx context.Context, kube kubernetes.Interface, namespace string) error {
	_, err := kube.AppsV1().Deployments(namespace).Patch(ctx, deployment, types.MergePatchType,
		[]byte(`{"spec":{"replicas":0}}`), metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("deployment %s: cannot scale: %w", deployment, err)
	}
	pods := kube.CoreV1().Pods(namespace)
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = podSelector
			return pods.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = podSelector
			return pods.Watch(ctx, o)
		},
	}
	left := map[string]bool{}
	_, err = watchtools.UntilWithSync(ctx, source, &corev1.Pod{}, func(store cache.Store) (bool, error) {
		for _, key := range store.ListKeys() {
			left[key] = true
		}
		return len(left) == 0, nil
	}, func(e watch.Event) (bool, error) {
		ended, ok := e.Object.(*corev1.Pod)
		if !ok {
			return false, nil
		}
		key := ended.Namespace + "/" + ended.Name
		if left[key] = e.Type != watch.Deleted; !left[key] {
			delete(left, key)
		}
		return len(left) == 0, nil
	})
	if err != nil {
		return fmt.Errorf("pods of %s: did not end: %w", deployment, err)
	}
	return nil
}
