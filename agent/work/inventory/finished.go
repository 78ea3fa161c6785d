// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"encoding/hex"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/spokelet/spokelet/agent/work/manifest"
)

// hasEnded tells whether an object has done what it is for, and is of those that
// Kubernetes deletes then: Jobs with a time to live, pods that do not run again, and
// requests for certificates. That it is gone is no drift: made anew, it would do it again.
func hasEnded(u *unstructured.Unstructured) bool {
	gvk := u.GroupVersionKind()
	switch {
	case gvk.Group == batchv1.GroupName && gvk.Kind == "Job":
		_, limited, _ := unstructured.NestedFieldNoCopy(u.Object, "spec", "ttlSecondsAfterFinished")
		return limited && hasCondition(u, string(batchv1.JobComplete), string(batchv1.JobFailed))
	case gvk.Group == corev1.GroupName && gvk.Kind == "Pod":
		phase, _, _ := unstructured.NestedString(u.Object, "status", "phase")
		restart, _, _ := unstructured.NestedString(u.Object, "spec", "restartPolicy")
		return phase == string(corev1.PodSucceeded) || phase == string(corev1.PodFailed) && restart != string(corev1.RestartPolicyAlways)
	case gvk.Group == certificatesv1.GroupName && gvk.Kind == "CertificateSigningRequest":
		issued, _, _ := unstructured.NestedString(u.Object, "status", "certificate")
		return issued != "" || hasCondition(u, string(certificatesv1.CertificateDenied), string(certificatesv1.CertificateFailed))
	default:
		return false
	}
}

// hasCondition tells whether one of the conditions is true of an object.
func hasCondition(u *unstructured.Unstructured, kinds ...string) bool {
	list, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	return slices.ContainsFunc(list, func(c any) bool {
		m, _ := c.(map[string]any)
		kind, _ := m["type"].(string)
		return slices.Contains(kinds, kind) && m["status"] == string(corev1.ConditionTrue)
	})
}

// hasEnded tells whether the object has, and is gone or will be. Events always have.
func (o *managedObject) hasEnded() bool {
	return o.Resource == "events" || o.live != nil && o.live.HasEnded || o.live == nil && o.hadEnded
}

// HasEnded tells whether an object is gone that had ended before.
func (inv *Inventory) HasEnded(id manifest.ObjectID) bool {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	o, ok := inv.objects[id]
	return ok && o.live == nil && o.isKnown && o.hasEnded()
}

// endedContent returns what a work applied of an object that has ended; a restart must not
// apply it again.
func (inv *Inventory) endedContent(id manifest.ObjectID, work string) (content [32]byte, ok bool) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	o, known := inv.objects[id]
	if !known || !o.hasEnded() {
		return content, false
	}
	c := o.claimOf(work)
	if c == nil || c.applied == content {
		return content, false
	}
	return c.applied, true
}

// markEnded records of a time before this process that an object had ended.
func (inv *Inventory) markEnded(id manifest.ObjectID) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	if o, ok := inv.objects[id]; ok {
		o.hadEnded = true
	}
}

// endedPrefix marks, in the annotation of an anchor, the content of an object that has
// ended.
const endedPrefix = "ended:"

// SettledContent is what the anchor of a work records of an object that is not written
// again until its manifest changes, because another work superseded it or because it has
// ended; empty for nothing.
func (inv *Inventory) SettledContent(id manifest.ObjectID, work string) string {
	if content, ok := inv.endedContent(id, work); ok {
		return endedPrefix + hex.EncodeToString(content[:])
	}
	if content, ok := inv.supersededContent(id, work); ok {
		return hex.EncodeToString(content[:])
	}
	return ""
}

// RestoreSettled restores what an anchor recorded of an object.
func (inv *Inventory) RestoreSettled(id manifest.ObjectID, work, text string) {
	text, ended := strings.CutPrefix(text, endedPrefix)
	var content [32]byte
	if n, err := hex.Decode(content[:], []byte(text)); err != nil || n != len(content) {
		return
	}
	inv.markSuperseded(id, work, content)
	if ended {
		inv.markEnded(id)
	}
}
