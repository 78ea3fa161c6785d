// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package fanout

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/spokelet/spokelet/api/mcm/v1alpha1"
	"github.com/spokelet/spokelet/hub/cached"
	"github.com/spokelet/spokelet/hub/mcm"
	"github.com/spokelet/spokelet/hub/requester"
)

// maxBase is how much of a parent's name is in that of a Work.
const maxBase = 48

// newWork is the Work of one cluster, as it is to be, of an author who is recorded under a
// registration.
func newWork(p parent, by requester.User, registration, cluster string) *v1alpha1.Work {
	w := &v1alpha1.Work{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: cluster, Name: workName(p, cluster), Labels: map[string]string{}, Annotations: map[string]string{},
		},
		Spec: p.specFor(cluster),
	}
	maps.Copy(w.Labels, p.labels)
	maps.Copy(w.Annotations, p.annotations)
	// The cache shows none of them, so that they could not be compared.
	delete(w.Annotations, corev1.LastAppliedConfigAnnotation)
	delete(w.Annotations, mcm.AnnotationDigest)
	delete(w.Annotations, cached.AnnotationDropped)
	w.Labels[v1alpha1.LabelCluster] = cluster
	w.Labels[p.label] = labelValue(p)
	// The template must not set the owner.
	maps.Copy(w.Annotations, by.Annotations(requester.MCM, registration))
	w.Annotations[v1alpha1.AnnotationOwners] = ownerReference(p)
	w.Annotations[v1alpha1.AnnotationOwnerUID] = string(p.object.GetUID())
	return w
}

// workName is a DNS-1035 label that another parent or cluster hardly leads to: it ends in
// 40 bits of a digest. Should two parents meet in one, the Work of the first is in the way of
// the second, which leaves it alone, is Failed for that cluster and names it (errForeign).
func workName(p parent, cluster string) string {
	base := strings.ReplaceAll(p.prefix+p.object.GetName(), ".", "-")
	if base[0] < 'a' || base[0] > 'z' {
		base = "w-" + base
	}
	base = strings.Trim(base[:min(len(base), maxBase)], "-")
	return base + "-" + digest(ownerReference(p) + "/" + cluster)[:10]
}

// labelValue is "<namespace>.<name>" as in the original, and a digest of it where that is
// no value of a label.
func labelValue(p parent) string {
	value := p.object.GetNamespace() + "." + p.object.GetName()
	if len(validation.IsValidLabelValue(value)) > 0 {
		return digest(value)[:40]
	}
	return value
}

// ownerReference names a parent, as "<kind>.<namespace>.<name>": a namespace has no dot.
func ownerReference(p parent) string {
	return p.kind + "." + p.object.GetNamespace() + "." + p.object.GetName()
}

// parseOwner is the inverse for one kind.
func parseOwner(w metav1.Object, kind string) (types.NamespacedName, bool) {
	parts := strings.SplitN(w.GetAnnotations()[v1alpha1.AnnotationOwners], ".", 3)
	if len(parts) != 3 || parts[0] != kind {
		return types.NamespacedName{}, false
	}
	return types.NamespacedName{Namespace: parts[1], Name: parts[2]}, true
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// operation is one of a JSON patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// diffPatch is the patch that makes a Work what it is to be; nil if it is. Labels and
// annotations that others gave it stay. Of a template that is not in the cache both have
// what stands for it.
func diffPatch(has, want *v1alpha1.Work) ([]byte, error) {
	patch := slices.Concat(
		addMembers("/metadata/labels", has.Labels, want.Labels),
		addMembers("/metadata/annotations", has.Annotations, want.Annotations),
	)
	if !equality.Semantic.DeepEqual(has.Spec, want.Spec) {
		patch = append(patch, operation{Op: "replace", Path: "/spec", Value: want.Spec})
	}
	if len(patch) == 0 {
		return nil, nil
	}
	raw, err := json.Marshal(append([]operation{{Op: "test", Path: "/metadata/uid", Value: has.UID}}, patch...))
	if err != nil {
		return nil, fmt.Errorf("encode work of %s: %w", want.Namespace, err)
	}
	return raw, nil
}

// addMembers adds the members that a map is to have.
func addMembers(path string, has, want map[string]string) (patch []operation) {
	for key, value := range want {
		if had, ok := has[key]; !ok || had != value {
			patch = append(patch, operation{Op: "add", Path: path + "/" + escapePointer(key), Value: value})
		}
	}
	if len(patch) > 0 && has == nil {
		return []operation{{Op: "add", Path: path, Value: want}}
	}
	slices.SortFunc(patch, func(a, b operation) int { return strings.Compare(a.Path, b.Path) })
	return patch
}

// escapePointer makes a part of a JSON pointer (RFC 6901).
func escapePointer(key string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(key) }
