// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/podrefs"
)

// AllNamespaces, among the Namespaces of [ObjectPolicy], stands for every namespace.
const AllNamespaces = "*"

// ObjectPolicy says whose ConfigMaps and Secrets pods may have. Whoever controls the
// cluster that a pod runs in has what the pod refers to.
type ObjectPolicy struct {
	// Namespaces are the only ones whose objects are sent to clusters; none when empty.
	Namespaces []string
}

func (p ObjectPolicy) allows(namespace string) bool {
	return slices.Contains(p.Namespaces, namespace) || slices.Contains(p.Namespaces, AllNamespaces)
}

// canRead tells whether the hub may ask its API server for an object: what is sent with
// tokens of the hub is its authority, which every namespace has.
func (c *Controller) canRead(ref wire.PodObjectKey, issued bool) bool {
	authority := ref.Kind == wire.PodObjectConfigMap && ref.Name == podrefs.RootCA
	return c.config.Objects.allows(ref.Namespace) || issued && authority
}

// reflector follows one object by its name.
func (o *objectPublisher) reflector(obj *object) *cache.Reflector {
	configMaps := o.client.CoreV1().ConfigMaps(obj.key.Namespace)
	named := listWatch{
		kind: &corev1.ConfigMap{}, watch: configMaps.Watch,
		list: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return configMaps.List(ctx, consistent(options))
		},
		where: metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, obj.key.Name).String()},
	}
	if obj.key.Kind == wire.PodObjectSecret {
		secrets := o.client.CoreV1().Secrets(obj.key.Namespace)
		named.kind, named.watch = &corev1.Secret{}, secrets.Watch
		named.list = func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return secrets.List(ctx, consistent(options))
		}
	}
	return named.reflector(o.client, objectStore{objects: o, object: obj}, "an object of a pod")
}

// objectStore is what a reflector writes one object into.
type objectStore struct {
	objects *objectPublisher
	object  *object
}

var _ cache.ReflectorStore = objectStore{}

// Add takes the object.
func (s objectStore) Add(obj any) error {
	meta, ok := obj.(metav1.Object)
	if !ok || meta.GetName() != s.object.key.Name {
		return nil
	}
	return s.take(meta.GetUID(), objectContent(obj))
}

// Update takes the changed object.
func (s objectStore) Update(obj any) error { return s.Add(obj) }

// Delete takes that there is no such object any more.
func (s objectStore) Delete(obj any) error {
	if meta, ok := obj.(metav1.Object); !ok || meta.GetName() != s.object.key.Name {
		return nil
	}
	return s.take("", wire.PodObject{Missing: true})
}

// Replace takes the object, or that there is none.
func (s objectStore) Replace(objs []any, _ string) error {
	for _, obj := range objs {
		if meta, ok := obj.(metav1.Object); ok && meta.GetName() == s.object.key.Name {
			return s.Add(obj)
		}
	}
	return s.take("", wire.PodObject{Missing: true})
}

// Resync does nothing.
func (s objectStore) Resync() error { return nil }

func (s objectStore) take(uid types.UID, content wire.PodObject) error {
	body, err := json.Marshal(content)
	if err != nil {
		return fmt.Errorf("encode %s: %w", s.object.key, err)
	}
	s.objects.setContent(s.object, uid, body)
	return nil
}

// objectContent returns what pods see of an object.
func objectContent(obj any) wire.PodObject {
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
