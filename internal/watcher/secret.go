// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package watcher

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// WatchSecret watches one Secret, by its name, until ctx ends. It calls changed with the
// Secret at the start and after each change, and deleted when it was deleted.
func WatchSecret(ctx context.Context, secrets typedcorev1.SecretInterface, name string, changed func(*corev1.Secret), deleted func()) {
	selector := fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	(&Watcher{
		ListWatch: NewListWatch(secrets, func(o *metav1.ListOptions) { o.FieldSelector = selector }),
		Handler:   secretHandler{name: name, changed: changed, deleted: deleted},
	}).Run(ctx)
}

// secretHandler passes the events of one Secret on.
type secretHandler struct {
	name    string
	changed func(*corev1.Secret)
	deleted func()
}

// HandleEvent compares the name again: a client that ignores the selector must not pass off
// another Secret as this one.
func (s secretHandler) HandleEvent(obj metav1.Object, deleted bool) {
	secret, ok := obj.(*corev1.Secret)
	switch {
	case !ok || secret.Name != s.name:
	case deleted:
		s.deleted()
	default:
		s.changed(secret)
	}
}

func (secretHandler) StartSync()         {}
func (secretHandler) FinishSync(string)  {}
func (secretHandler) HandleDenied(error) {}
