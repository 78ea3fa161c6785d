// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/agent/pod/translate"
	"github.com/spokelet/spokelet/api/wire"
)

// copyStore reads and writes the copies of one kind.
type copyStore interface {
	get(ctx context.Context, at namespacedName) (*objectCopy, error)
	create(ctx context.Context, at namespacedName, r *objectCopy) error
	// update replaces the version that r names.
	update(ctx context.Context, at namespacedName, r *objectCopy) error
	// delete deletes the object with the UID that r names, and no other of its name.
	delete(ctx context.Context, at namespacedName, r *objectCopy) error
}

func (s *spokeClient) copyStore(kind string) copyStore {
	if kind == wire.PodObjectSecret || kind == kindToken {
		return typedStore[*corev1.Secret]{
			client: func(namespace string) typedClient[*corev1.Secret] { return s.core.Secrets(namespace) },
			encode: func(meta metav1.ObjectMeta, o *wire.PodObject) *corev1.Secret {
				return &corev1.Secret{ObjectMeta: meta, Type: o.Type, Data: o.Data, Immutable: &o.Immutable}
			},
			decode: func(found *corev1.Secret) wire.PodObject {
				return wire.PodObject{Type: found.Type, Data: found.Data, Immutable: isTrue(found.Immutable)}
			},
		}
	}
	return typedStore[*corev1.ConfigMap]{
		client: func(namespace string) typedClient[*corev1.ConfigMap] { return s.core.ConfigMaps(namespace) },
		encode: func(meta metav1.ObjectMeta, o *wire.PodObject) *corev1.ConfigMap {
			return &corev1.ConfigMap{ObjectMeta: meta, Data: o.Text, BinaryData: o.Data, Immutable: &o.Immutable}
		},
		decode: func(found *corev1.ConfigMap) wire.PodObject {
			return wire.PodObject{Text: found.Data, Data: found.BinaryData, Immutable: isTrue(found.Immutable)}
		},
	}
}

func isTrue(b *bool) bool { return b != nil && *b }

// typedClient is what copies need of a client of client-go.
type typedClient[T metav1.Object] interface {
	Get(ctx context.Context, name string, o metav1.GetOptions) (T, error)
	Create(ctx context.Context, object T, o metav1.CreateOptions) (T, error)
	Update(ctx context.Context, object T, o metav1.UpdateOptions) (T, error)
	Delete(ctx context.Context, name string, o metav1.DeleteOptions) error
}

// typedStore is the copyStore of one type.
type typedStore[T metav1.Object] struct {
	client func(namespace string) typedClient[T]
	encode func(metav1.ObjectMeta, *wire.PodObject) T
	decode func(T) wire.PodObject
}

func (s typedStore[T]) get(ctx context.Context, at namespacedName) (*objectCopy, error) {
	found, err := s.client(at.Namespace).Get(ctx, at.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return &objectCopy{
		uid: found.GetUID(), version: found.GetResourceVersion(),
		hubID: found.GetLabels()[translate.LabelHub], source: found.GetAnnotations()[AnnotationHubObject],
		object: s.decode(found),
	}, nil
}

func (s typedStore[T]) create(ctx context.Context, at namespacedName, r *objectCopy) error {
	_, err := s.client(at.Namespace).Create(ctx, s.encode(r.meta(at), &r.object), metav1.CreateOptions{})
	return err
}

func (s typedStore[T]) update(ctx context.Context, at namespacedName, r *objectCopy) error {
	_, err := s.client(at.Namespace).Update(ctx, s.encode(r.meta(at), &r.object), metav1.UpdateOptions{})
	return err
}

func (s typedStore[T]) delete(ctx context.Context, at namespacedName, r *objectCopy) error {
	return s.client(at.Namespace).Delete(ctx, at.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &r.uid}})
}

func (r *objectCopy) meta(at namespacedName) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: at.Name, Namespace: at.Namespace, ResourceVersion: r.version,
		Labels:      map[string]string{translate.LabelHub: r.hubID},
		Annotations: map[string]string{AnnotationHubObject: r.source},
	}
}
