// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package podobject

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/watcher"
)

// watch follows one object by its name until ctx ends.
func (p *Publisher) watch(ctx context.Context, obj *object) {
	selector := fields.OneTermEqualSelector(metav1.ObjectNameField, obj.key.Name).String()
	byName := func(o *metav1.ListOptions) { o.FieldSelector = selector }
	feed := watcher.NewListWatch(p.client.CoreV1().ConfigMaps(obj.key.Namespace), byName)
	if obj.key.Kind == wire.PodObjectSecret {
		feed = watcher.NewListWatch(p.client.CoreV1().Secrets(obj.key.Namespace), byName)
	}
	(&watcher.Watcher{ListWatch: feed, Handler: p.handler(obj), Log: p.logger}).Run(ctx)
}

func (p *Publisher) handler(obj *object) watcher.Handler {
	set := func(_ string, found metav1.Object) { p.setContent(obj, found.GetUID(), contentOf(found)) }
	remove := func(string, metav1.Object) { p.setContent(obj, "", wire.PodObject{Missing: true}) }
	return &watcher.StoreHandler[string, metav1.Object]{
		Read: func(found metav1.Object) (string, metav1.Object, bool) {
			return found.GetName(), found, found.GetName() == obj.key.Name
		},
		Replace: func(all map[string]metav1.Object) {
			if found, ok := all[obj.key.Name]; ok {
				set(obj.key.Name, found)
				return
			}
			remove(obj.key.Name, nil)
		},
		Set: set, Delete: remove,
		Log: p.logger.WithValues("object", obj.key.String()), Name: "an object that pods refer to",
	}
}

// contentOf returns what pods see of an object.
func contentOf(obj metav1.Object) wire.PodObject {
	switch obj := obj.(type) {
	case *corev1.ConfigMap:
		return wire.PodObject{Text: obj.Data, Data: obj.BinaryData, Immutable: isTrue(obj.Immutable)}
	case *corev1.Secret:
		return wire.PodObject{Type: obj.Type, Data: obj.Data, Immutable: isTrue(obj.Immutable)}
	default:
		return wire.PodObject{Missing: true}
	}
}

func isTrue(b *bool) bool { return b != nil && *b }
