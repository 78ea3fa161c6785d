// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package authority

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// Start follows the Secret until ctx ends, so that a rotation needs no restart.
// One object is watched, by name; no other Secret is ever held in memory.
func (a *Authority) Start(ctx context.Context) error {
	_, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: a.listWatch(),
		ObjectType:    &corev1.Secret{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    a.handleSecret,
			UpdateFunc: func(_, obj any) { a.handleSecret(obj) },
			DeleteFunc: func(any) {
				a.config.Logger.Error(nil, "CA secret was deleted: the hub goes on with its copy and will not start again without it",
					"namespace", a.config.Namespace, "secret", a.config.SecretName)
			},
		},
	})
	controller.RunWithContext(ctx)
	return nil
}

// NeedLeaderElection is false: every replica signs.
func (*Authority) NeedLeaderElection() bool { return false }

func (a *Authority) listWatch() *cache.ListWatch {
	secrets := a.config.Secrets.Secrets(a.config.Namespace)
	only := fields.OneTermEqualSelector(metav1.ObjectNameField, a.config.SecretName).String()
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.FieldSelector = only
			return secrets.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.FieldSelector = only
			return secrets.Watch(ctx, options)
		},
	}
}

func (a *Authority) handleSecret(obj any) {
	secret, ok := obj.(*corev1.Secret)
	// The name is compared again: a client that ignores the selector must not
	// make another Secret the authority.
	if !ok || secret.Name != a.config.SecretName {
		return
	}
	if err := a.replace(secret.Data); err != nil {
		a.config.Logger.Error(err, "CA secret cannot be used: the hub goes on with the one before",
			"namespace", secret.Namespace, "secret", secret.Name)
	}
}
