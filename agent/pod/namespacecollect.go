// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	podsecurity "k8s.io/pod-security-admission/api"

	"github.com/spokelet/spokelet/agent/pod/translate"
	"github.com/spokelet/spokelet/api/wire"
)

const (
	// roleContent is the ClusterRole, and the name of the bindings to it, that lets the
	// agent list all that is in a namespace that it made, while it looks.
	roleContent = "spokelet-agent:namespace-content"
	// inspectTimeout bounds one look, and the deletion that follows: what somebody creates
	// after its kind was listed goes with the namespace. It is below patience, so that time
	// is left to revoke the right and to write down why the namespace stays.
	inspectTimeout = 15 * time.Second
	// revokeTimeout bounds revoking the right to look.
	revokeTimeout = 5 * time.Second

	keptUnlisted = "the agent cannot look into it"
	keptNoRight  = "the agent may not delete it"
)

// ignoredLabels are labels that say nothing of a namespace's owner: the agent or the API
// server sets them, and the modes of Pod Security that restrict nothing are set by
// distributions (OpenShift) on each namespace.
var ignoredLabels = []string{
	LabelCreatedBy, corev1.LabelMetadataName,
	podsecurity.AuditLevelLabel, podsecurity.AuditVersionLabel,
	podsecurity.WarnLevelLabel, podsecurity.WarnVersionLabel,
}

// collect deletes a namespace if it is still the one that was seen and nothing is in it;
// else it annotates the namespace with why it stays. No pod is made there meanwhile.
func (c *namespaceCollector) collect(ctx context.Context, seen createdNamespace) error {
	soon, cancel := context.WithTimeout(ctx, inspectTimeout)
	defer cancel()
	ns, err := c.spoke.core.Namespaces().Get(soon, seen.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("namespace %s: %w", seen.name, err)
	}
	if now := newCreatedNamespace(ns); now.uid != seen.uid || now.origin != seen.origin || now.deleting || !isCreatedByAgent(ns) {
		return nil // its event follows
	}
	why, err := c.inspect(soon, ns)
	if why != "" {
		return errors.Join(err, c.recordKept(ctx, seen, why))
	}
	err = c.spoke.core.Namespaces().Delete(soon, ns.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &ns.UID, ResourceVersion: &ns.ResourceVersion},
	})
	switch {
	case err == nil:
		c.markDeleting(seen)
		c.log.Info("namespace of the hub is gone, and so is the one that was made for its pods", "namespace", ns.Name)
		return nil
	case isRefused(err):
		return errors.Join(c.recordKept(ctx, seen, keptNoRight), c.revokeList(ctx, ns.Name))
	default:
		return errors.Join(ignoreNotFound(err), c.revokeList(ctx, ns.Name))
	}
}

// markDeleting records that a namespace is being deleted, before its event says so: a pod
// that the hub wants there by now would else have it claimed.
func (c *namespaceCollector) markDeleting(seen createdNamespace) {
	c.engine.mu.Lock()
	defer c.engine.mu.Unlock()
	if now, ok := c.namespaces[seen.name]; ok && now.uid == seen.uid {
		now.deleting = true
		c.observe(now)
	}
}

// inspect returns why a namespace stays, which is empty for one that is nobody's and holds
// nothing. An error says that another look may find otherwise. The right to list is
// granted for the look alone; in a namespace that may be deleted it goes with that.
func (c *namespaceCollector) inspect(ctx context.Context, ns *corev1.Namespace) (why string, err error) {
	if len(ns.OwnerReferences) > 0 {
		return wire.Line("belongs to " + ns.OwnerReferences[0].Kind + " " + ns.OwnerReferences[0].Name), nil
	}
	if labels := ownerLabels(ns); len(labels) > 0 {
		return wire.Line("labelled " + strings.Join(labels, ", ")), nil
	}
	grace, err := c.grantList(ctx, ns.Name)
	if err != nil {
		return keptUnlisted, err
	}
	found, err := c.reader.Read(ctx, ns.Name, grace)
	if found.IsEmpty() && err == nil {
		return "", nil
	}
	if why = found.String(); why == "" {
		why = keptUnlisted
	}
	return why, errors.Join(err, c.revokeList(ctx, ns.Name))
}

// ownerLabels returns the labels, sorted, by which somebody made a namespace theirs. What
// they restrict would be open in the namespace that the hub's next pod has made.
func ownerLabels(ns *corev1.Namespace) []string {
	labels := slices.Sorted(maps.Keys(ns.Labels))
	return slices.DeleteFunc(labels, func(label string) bool { return slices.Contains(ignoredLabels, label) })
}

// grantList binds the account to the role that lists everything in a namespace. It returns
// how long the right may take to be known everywhere: nothing where the account may not
// bind.
func (c *namespaceCollector) grantList(ctx context.Context, namespace string) (grace time.Duration, err error) {
	if c.cfg.Account == "" {
		return 0, nil
	}
	_, err = c.spoke.rbac.RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: roleContent, Labels: map[string]string{translate.LabelHub: c.cfg.HubID}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: roleContent},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: c.cfg.Account}},
	}, metav1.CreateOptions{})
	switch {
	case err == nil, apierrors.IsAlreadyExists(err):
		return rightPropagation, nil
	case isRefused(err):
		c.log.V(1).Info("the account may not look into namespaces that were made for pods", "namespace", namespace, "err", err.Error())
		return 0, nil
	default:
		return 0, fmt.Errorf("right to look into namespace %s: %w", namespace, err)
	}
}

// revokeList removes the binding that grantList made, also when ctx has ended.
func (c *namespaceCollector) revokeList(ctx context.Context, namespace string) error {
	if c.cfg.Account == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), revokeTimeout)
	defer cancel()
	err := c.spoke.rbac.RoleBindings(namespace).Delete(ctx, roleContent, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) && !isRefused(err) {
		return fmt.Errorf("right to look into namespace %s: %w", namespace, err)
	}
	return nil
}

// recordKept annotates a namespace with why it stays. What could not be written is remembered
// until the namespace changes.
func (c *namespaceCollector) recordKept(ctx context.Context, seen createdNamespace, why string) error {
	if why == seen.keptReason || why == seen.unrecordedReason {
		return nil
	}
	written, err := c.annotate(ctx, seen, map[string]any{AnnotationKeptBecause: why})
	if err == nil && !written {
		c.setUnrecordedReason(seen, why)
	}
	return err
}

// setUnrecordedReason records why a namespace stays that could not be annotated with it.
func (c *namespaceCollector) setUnrecordedReason(seen createdNamespace, why string) {
	c.engine.mu.Lock()
	defer c.engine.mu.Unlock()
	if now, ok := c.namespaces[seen.name]; ok && now.uid == seen.uid {
		now.unrecordedReason = why
		c.namespaces[seen.name] = now
	}
}

// annotate changes annotations of a namespace, and of no other of its name; nil removes. It
// returns false where the API server refuses that.
func (c *namespaceCollector) annotate(ctx context.Context, seen createdNamespace, changes map[string]any) (bool, error) {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": seen.uid, "annotations": changes}})
	if err != nil {
		return false, fmt.Errorf("encode annotations: %w", err)
	}
	_, err = c.spoke.core.Namespaces().Patch(ctx, seen.name, types.MergePatchType, body, metav1.PatchOptions{})
	switch {
	case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return true, nil // its event follows
	case isRefused(err):
		c.log.Error(err, "a namespace that was made for pods cannot be annotated", "namespace", seen.name)
		return false, nil
	default:
		return false, fmt.Errorf("annotate namespace %s: %w", seen.name, err)
	}
}

// isOwnObject reports whether this agent made an object for pods, so that it goes with
// the namespace: copies that could not be removed with their pods, accounts that pods ran
// as, and the right to look.
func (c *namespaceCollector) isOwnObject(kind schema.GroupResource, object metav1.Object) bool {
	if object.GetLabels()[translate.LabelHub] != c.cfg.HubID {
		return false
	}
	switch kind {
	case corev1.Resource("configmaps"), corev1.Resource("secrets"):
		key, ok := copySource(kind.Resource, object)
		return ok && object.GetNamespace() == c.cfg.Prefix+key.Namespace
	case corev1.Resource("serviceaccounts"):
		return object.GetLabels()[LabelCreatedBy] == Creator
	case rbacv1.Resource("rolebindings"):
		return object.GetName() == roleContent
	default:
		return false
	}
}
