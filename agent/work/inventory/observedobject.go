// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"crypto/sha256"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	workv1 "open-cluster-management.io/api/work/v1"
)

// ObservedObject is all that is kept of an object: what one event, or the answer to
// one write, said of it.
type ObservedObject struct {
	UID             types.UID
	ResourceVersion string // resourceVersion
	Generation      int64
	// ownFields is a hash of the fields that our applies own; zero when we own none.
	// It moves when somebody else takes or removes one of them, our
	// ownerReference among them, and at no other time.
	ownFields fieldsHash
	// allFields is a hash of who wrote what last, the status aside.
	allFields fieldsHash
	// allWrites is a hash of who wrote what last, the status among it.
	allWrites fieldsHash
	// specHash is what a work says in an annotation that it applied.
	specHash   string
	IsDeleting bool
	// Owners are the UIDs of those that own the object, sorted.
	Owners []types.UID
	Health Health
	// HasEnded: it did what it is for, and goes by itself.
	HasEnded bool
}

type fieldsHash [16]byte

// Health is kstatus' opinion of an object.
type Health struct {
	Status  status.Status
	Message string
}

// NewObservedObject reads an object, complete or metadata alone.
func NewObservedObject(obj metav1.Object) *ObservedObject {
	s := &ObservedObject{
		UID:             obj.GetUID(),
		ResourceVersion: obj.GetResourceVersion(),
		Generation:      obj.GetGeneration(),
		Owners:          ownerUIDs(obj),
		specHash:        obj.GetAnnotations()[workv1.ManifestConfigSpecHashAnnotationKey],
		IsDeleting:      obj.GetDeletionTimestamp() != nil,
	}
	s.ownFields, s.allFields, s.allWrites = hashManagedFields(obj.GetManagedFields(), FieldManager)
	if u, ok := obj.(*unstructured.Unstructured); ok {
		s.Health, s.HasEnded = healthOf(u), hasEnded(u)
		return s
	}
	s.Health = Health{Status: status.CurrentStatus, Message: "Resource is current"}
	if s.IsDeleting {
		s.Health = Health{Status: status.TerminatingStatus, Message: "Resource scheduled for deletion"}
	}
	return s
}

func healthOf(u *unstructured.Unstructured) Health {
	r, err := status.Compute(u)
	if err != nil {
		return Health{Status: status.UnknownStatus, Message: "Resource status is malformed"}
	}
	return Health{Status: r.Status, Message: r.Message}
}

// hashManagedFields hashes what manager owns by server-side apply, zero when that is
// nothing, and all that anybody wrote, without the status and with it: edits change with
// every write but of the status, writes with every one. The bytes of a fieldset differ
// between encodings, so they are brought into one form first, but for the status, of
// which a difference too many does no harm. Times are in seconds: whoever writes the same
// fields twice in one leaves no trace but the object's version.
func hashManagedFields(entries []metav1.ManagedFieldsEntry, manager string) (own, edits, writes fieldsHash) {
	var owned, all, status []byte
	for _, e := range entries {
		if e.Subresource == "status" {
			status = append(status, e.Manager...)
			if e.Time != nil {
				status = strconv.AppendInt(status, e.Time.Unix(), 10)
			}
			if e.FieldsV1 != nil {
				status = append(status, e.FieldsV1.GetRawBytes()...)
			}
			continue
		}
		set := canonicalFields(e.FieldsV1)
		all = append(all, e.Manager+"/"+string(e.Operation)+"/"+e.Subresource...)
		if e.Time != nil {
			all = strconv.AppendInt(all, e.Time.Unix(), 10)
		}
		all = append(all, set...)
		// Works may apply as managers of their own, whose names begin with ours.
		if set != nil && e.Subresource == "" && e.Operation == metav1.ManagedFieldsOperationApply && strings.HasPrefix(e.Manager, manager) {
			owned = append(append(owned, e.Manager...), set...)
		}
	}
	if owned != nil {
		own = shortHash(owned)
	}
	return own, shortHash(all), shortHash(append(all, status...))
}

// canonicalFields is a fieldset in one of the forms that it may have.
func canonicalFields(f *metav1.FieldsV1) []byte {
	if f == nil {
		return nil
	}
	var set any
	if err := json.Unmarshal(f.GetRawBytes(), &set); err != nil {
		return nil
	}
	out, err := json.Marshal(set)
	if err != nil {
		return nil
	}
	return out
}

// ownerUIDs are the UIDs of who owns an object, sorted.
func ownerUIDs(obj metav1.Object) []types.UID {
	refs := obj.GetOwnerReferences()
	uids := make([]types.UID, 0, len(refs))
	for _, r := range refs {
		uids = append(uids, r.UID)
	}
	slices.Sort(uids)
	return uids
}

func shortHash(text []byte) fieldsHash {
	sum := sha256.Sum256(text)
	return fieldsHash(sum[:16])
}

// isNewer tells whether resourceVersion a is later than b. Versions that cannot be
// compared count as later: an event too many is judged again, one too few is lost.
func isNewer(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err != nil || order > 0
}

// IsMetadataOnly names the kinds whose status says nothing: they are applied and
// watched as metadata, in protobuf, so that a Secret's or a ConfigMap's content
// never comes back to the agent.
func IsMetadataOnly(group, resource string) bool {
	switch group {
	case "":
		switch resource {
		case "configmaps", "secrets", "serviceaccounts", "namespaces", "endpoints", "limitranges", "events", "podtemplates":
			return true
		}
	case "rbac.authorization.k8s.io", "scheduling.k8s.io", "node.k8s.io", "discovery.k8s.io", "coordination.k8s.io":
		return true
	case "networking.k8s.io":
		return resource == "networkpolicies" || resource == "ingressclasses"
	case "storage.k8s.io":
		return resource == "storageclasses" || resource == "csidrivers" || resource == "csinodes"
	case "admissionregistration.k8s.io":
		return true
	}
	return false
}

// FieldManager is the field manager of every write to an applied object.
const FieldManager = "work-agent"
