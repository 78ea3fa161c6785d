// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

const (
	// LabelCreatedBy marks the namespaces and service accounts that were made for
	// pods; its value is Creator.
	LabelCreatedBy = "spokelet.io/created-by"
	// Creator is the value of LabelCreatedBy.
	Creator = "spokelet-agent"
	// LabelPods lets pods have a namespace, a service account or a persistent volume
	// claim that was not made for them; its value is PodsAllowed.
	LabelPods = "spokelet.io/pods"
	// PodsAllowed is the value of LabelPods.
	PodsAllowed = "allowed"
)

// namespaceEnsurer says which take pods, and makes those that are missing.
type namespaceEnsurer struct {
	client   typedcorev1.NamespaceInterface
	only     []string
	reserved []string
	cache    *answerCache[string, bool]
	// onCreated is told of every namespace that we made.
	onCreated func(name string)
}

func newNamespaceEnsurer(core typedcorev1.CoreV1Interface, cfg Config, made func(string)) *namespaceEnsurer {
	return &namespaceEnsurer{
		client:    core.Namespaces(),
		only:      cfg.Namespaces,
		reserved:  append([]string{cfg.Namespace}, cfg.Reserved...),
		cache:     newAnswerCache[string, bool](),
		onCreated: made,
	}
}

// ensure returns whether the namespace was made by us. One that is missing is made, with
// its origin as an annotation. The error is a [*RefusedError] when it takes no pods.
func (n *namespaceEnsurer) ensure(ctx context.Context, name string, from origin) (ours bool, err error) {
	if err := n.checkName(name); err != nil {
		return false, err
	}
	return n.cache.get(name, func() (bool, error) { return n.getOrCreate(ctx, name, from) })
}

func (n *namespaceEnsurer) invalidate(name string) { n.cache.delete(name) }

// checkName holds a name to the configuration.
func (n *namespaceEnsurer) checkName(name string) error {
	switch {
	case len(validation.IsDNS1123Label(name)) > 0:
		return notAllowed("namespace %q cannot be in the spoke: with the agent's prefix it is no valid name", name)
	case strings.HasPrefix(name, "kube-"), slices.Contains(n.reserved, name):
		return notAllowed("namespace %q of the spoke takes no pods of the hub", name)
	case len(n.only) > 0 && !slices.Contains(n.only, name):
		return notAllowed("namespace %q is not among those that the spoke's owner allows", name)
	default:
		return nil
	}
}

func notAllowed(format, name string) error {
	return &RefusedError{Reason: ReasonNamespaceNotAllowed, Message: fmt.Sprintf(format, name)}
}

// getOrCreate looks at a namespace, made if need be.
func (n *namespaceEnsurer) getOrCreate(ctx context.Context, name string, from origin) (bool, error) {
	ns, err := n.client.Get(ctx, name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return false, readError(fmt.Errorf("namespace of the pod: %w", err))
	}
	if err != nil {
		meta := metav1.ObjectMeta{Name: name, Labels: map[string]string{LabelCreatedBy: Creator}}
		if text := from.String(); text != "" {
			meta.Annotations = map[string]string{AnnotationHubNamespace: text}
		}
		ns, err = n.client.Create(ctx, &corev1.Namespace{ObjectMeta: meta}, metav1.CreateOptions{})
		n.onCreated(name)
	}
	if err != nil {
		return false, fmt.Errorf("namespace of the pod: %w", err)
	}
	return checkNamespace(ns)
}

func checkNamespace(ns *corev1.Namespace) (ours bool, err error) {
	ours = ns.Labels[LabelCreatedBy] == Creator
	switch {
	case ns.DeletionTimestamp != nil:
		return false, &RefusedError{Reason: ReasonNamespaceTerminating, Message: fmt.Sprintf("namespace %q is being deleted in the spoke", ns.Name), Retried: true}
	case ours:
		return true, nil
	default:
		return false, checkConsent(ReasonNamespaceNotAllowed, fmt.Sprintf("namespace %q", ns.Name), ns, nil)
	}
}
