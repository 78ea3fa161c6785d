// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spokelet/spokelet/agent/pod/shape"
	"github.com/spokelet/spokelet/api/wire"
)

const (
	// roleContent is the ClusterRole, and the name of the bindings to it, that lets the
	// agent list all that is in a namespace that it made, while it looks.
	roleContent = "spokelet-agent:namespace-content"
	// withdrawWithin bounds taking that right back.
	withdrawWithin = 5 * time.Second

	keptUnseen  = "the agent cannot look into it"
	keptNoRight = "the agent may not delete it"
)

// collect removes a namespace if it is still the one that was seen, and nothing is in it;
// else that bears why it stays. No pod is made there meanwhile.
func (c *collector) collect(ctx context.Context, seen madeNamespace) error {
	ns, err := c.spoke.core.Namespaces().Get(ctx, seen.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("namespace %s: %w", seen.name, err)
	}
	if now := madeNamespaceOf(ns); now.uid != seen.uid || now.written != seen.written || now.deleting || !isMade(ns) {
		return nil // its event follows
	}
	why, err := c.look(ctx, ns)
	if why != "" {
		return errors.Join(err, c.keep(ctx, seen, why))
	}
	err = c.spoke.core.Namespaces().Delete(ctx, ns.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &ns.UID, ResourceVersion: &ns.ResourceVersion},
	})
	switch {
	case err == nil:
		c.depart(seen)
		c.log.Info("namespace of the hub is gone, and so is the one that was made for its pods", "namespace", ns.Name)
		return nil
	case isRefusal(err):
		return errors.Join(c.keep(ctx, seen, keptNoRight), c.withdraw(ctx, ns.Name))
	default:
		return errors.Join(ignoreNotFound(err), c.withdraw(ctx, ns.Name))
	}
}

// depart takes that a namespace goes, before its events say so.
func (c *collector) depart(seen madeNamespace) {
	c.engine.mu.Lock()
	defer c.engine.mu.Unlock()
	if now, ok := c.namespaces[seen.name]; ok && now.uid == seen.uid {
		now.deleting = true
		c.observe(now)
	}
}

// look says why a namespace stays, nothing if it need not: it is nobody's, and empty. With
// the error that may be otherwise soon. The right to look is given for as long as that
// takes, or the namespace goes.
func (c *collector) look(ctx context.Context, ns *corev1.Namespace) (why string, err error) {
	if len(ns.OwnerReferences) > 0 {
		return wire.Line("belongs to " + ns.OwnerReferences[0].Kind + " " + ns.OwnerReferences[0].Name), nil
	}
	grace, err := c.lend(ctx, ns.Name)
	if err != nil {
		return keptUnseen, err
	}
	found, err := c.reader.Of(ctx, ns.Name, grace)
	if found.Empty() && err == nil {
		return "", nil
	}
	if why = found.String(); why == "" {
		why = keptUnseen
	}
	return why, errors.Join(err, c.withdraw(ctx, ns.Name))
}

// lend gives the account the right to list all that is in a namespace, and tells how long
// that may be on its way; none where the account may not give it.
func (c *collector) lend(ctx context.Context, namespace string) (grace time.Duration, err error) {
	if c.cfg.Account == "" {
		return 0, nil
	}
	_, err = c.spoke.rbac.RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: roleContent, Labels: map[string]string{shape.LabelHub: c.cfg.HubID}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: roleContent},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: c.cfg.Account}},
	}, metav1.CreateOptions{})
	switch {
	case err == nil, apierrors.IsAlreadyExists(err):
		return rightTakes, nil
	case isRefusal(err):
		c.log.V(1).Info("the account may not look into namespaces that were made for pods", "namespace", namespace, "err", err.Error())
		return 0, nil
	default:
		return 0, fmt.Errorf("right to look into namespace %s: %w", namespace, err)
	}
}

// withdraw takes back what lend gave, also when ctx has ended.
func (c *collector) withdraw(ctx context.Context, namespace string) error {
	if c.cfg.Account == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), withdrawWithin)
	defer cancel()
	err := c.spoke.rbac.RoleBindings(namespace).Delete(ctx, roleContent, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) && !isRefusal(err) {
		return fmt.Errorf("right to look into namespace %s: %w", namespace, err)
	}
	return nil
}

// keep writes down why a namespace stays.
func (c *collector) keep(ctx context.Context, seen madeNamespace, why string) error {
	if why == seen.kept {
		return nil
	}
	return c.annotate(ctx, seen, map[string]any{AnnotationKeptBecause: why})
}

// annotate changes annotations of a namespace, and of no other of its name; nil removes.
func (c *collector) annotate(ctx context.Context, seen madeNamespace, changes map[string]any) error {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": seen.uid, "annotations": changes}})
	if err != nil {
		return fmt.Errorf("encode annotations: %w", err)
	}
	_, err = c.spoke.core.Namespaces().Patch(ctx, seen.name, types.MergePatchType, body, metav1.PatchOptions{})
	switch {
	case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return nil // its event follows
	case isRefusal(err):
		c.log.Error(err, "a namespace that was made for pods cannot be annotated", "namespace", seen.name)
		return nil
	default:
		return fmt.Errorf("annotate namespace %s: %w", seen.name, err)
	}
}

// spare tells what of ours may go with a namespace: copies that could not be removed
// with their pods, accounts that pods ran as, and the right to look.
func (c *collector) spare(kind schema.GroupResource, object metav1.Object) bool {
	if object.GetLabels()[shape.LabelHub] != c.cfg.HubID {
		return false
	}
	switch kind {
	case corev1.Resource("configmaps"), corev1.Resource("secrets"):
		return isCopy(object)
	case corev1.Resource("serviceaccounts"):
		return object.GetLabels()[LabelCreatedBy] == Creator
	case rbacv1.Resource("rolebindings"):
		return object.GetName() == roleContent
	default:
		return false
	}
}
