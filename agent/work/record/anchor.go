// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spokelet/spokelet/agent/work/manifest"
	"github.com/spokelet/spokelet/api/multicluster/v1alpha1"
	"github.com/spokelet/spokelet/api/wire"
)

const (
	// HubLabel on an anchor says which hub's agent made it; only those are evicted.
	HubLabel = "spokelet.io/hub-id"
	// pendingAnnotation lists, on a new anchor, what is about to be applied. It
	// saves the write of a status before the first apply; the status counts later.
	pendingAnnotation = "spokelet.io/applying"
	// maxPendingSize is the size in bytes up to which the annotation is used; all
	// annotations of an object may have 256 KiB.
	maxPendingSize = 128 << 10
)

var (
	// ErrLost: the anchor is gone, or another one has its name.
	ErrLost = errors.New("anchor was replaced by someone else")
	// ErrForeign: what the anchor lists was applied for another hub.
	ErrForeign = errors.New("anchor belongs to another hub, or to another agent")
)

// Anchor is the object in the spoke that stands for a work and lists what was
// applied for it. An object is listed before it is applied, so that whatever
// happens in between, nothing is ever applied that is not listed.
type Anchor struct {
	UID types.UID
	// Created is when the API server made the anchor.
	Created    time.Time
	IsDeleting bool
	// Objects is what may exist because of this work.
	Objects map[manifest.ObjectID]Object
	// Recorded is tracked as the status has it, pending as the annotation has it.
	Recorded, Pending []v1alpha1.AppliedResourceMeta
	// workKey is whom it stands for, as far as it says so itself.
	workKey wire.WorkKey
	// EvictionStart is since when the work of an AppliedManifestWork is missed.
	EvictionStart time.Time
	// Superseded is what the anchor says of objects that others wrote last.
	Superseded map[string]string
	// LacksFinalizer: nothing keeps the anchor when somebody deletes it.
	LacksFinalizer bool
	// IsUncertain: it may have been made, and the answer was lost.
	IsUncertain bool
}

// Object is one listed object; without a UID it was about to be applied.
type Object struct {
	manifest.Target
	Ordinal int
	UID     types.UID
	// IsAdopted: the object of that UID was there before us, and stays after us.
	IsAdopted bool
	// IsUncertain: an apply may have been done of which we do not know the answer.
	IsUncertain bool
	// DetachedUID is the UID of an object that is ours and bears no reference: that to an
	// anchor which somebody deleted was removed, and its successor's is not yet written.
	DetachedUID types.UID
}

// NewAnchor returns an anchor that lists nothing and is not yet written.
func NewAnchor() *Anchor { return &Anchor{Objects: map[manifest.ObjectID]Object{}} }

// appliedResources is tracked in the form of the API: sorted, exact.
func (a *Anchor) appliedResources() []v1alpha1.AppliedResourceMeta {
	out := make([]v1alpha1.AppliedResourceMeta, 0, len(a.Objects))
	for _, t := range a.Objects {
		out = append(out, v1alpha1.AppliedResourceMeta{
			ResourceIdentifier: v1alpha1.ResourceIdentifier{
				Ordinal: t.Ordinal, Group: t.Group, Version: t.Version, Kind: t.Kind,
				Resource: t.Resource, Namespace: t.Namespace, Name: t.Name,
			},
			UID: t.UID, Adopted: t.IsAdopted,
		})
	}
	slices.SortFunc(out, func(a, b v1alpha1.AppliedResourceMeta) int {
		return cmp.Or(
			strings.Compare(a.Group, b.Group), strings.Compare(a.Version, b.Version), strings.Compare(a.Resource, b.Resource),
			strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return out
}

// addListed reads a list. How the last applies before it was read ended, it does not say.
func (a *Anchor) addListed(list []v1alpha1.AppliedResourceMeta) {
	for _, r := range list {
		t := manifest.Target{ObjectID: manifest.ObjectID{Group: r.Group, Resource: r.Resource, Namespace: r.Namespace, Name: r.Name}, Version: r.Version, Kind: r.Kind}
		if t.Resource == "" || t.Name == "" || t.Version == "" {
			continue // nothing that can be addressed
		}
		old, ok := a.Objects[t.ObjectID]
		if ok && old.UID != "" && r.UID == "" {
			continue
		}
		if t.Kind == "" {
			t.Kind = old.Kind // an AppliedManifestWork's status does not say it
		}
		a.Objects[t.ObjectID] = Object{Target: t, Ordinal: r.Ordinal, UID: r.UID, IsAdopted: r.Adopted, IsUncertain: true}
	}
}

// Decode decodes an anchor and the name of its work.
func Decode(k Kind, u *unstructured.Unstructured) (wire.WorkKey, *Anchor, error) {
	a, err := k.form.decode(u)
	if err != nil {
		return wire.WorkKey{}, nil, err
	}
	a.UID, a.Created, a.IsDeleting = u.GetUID(), u.GetCreationTimestamp().Time, u.GetDeletionTimestamp() != nil
	a.LacksFinalizer = !slices.Contains(u.GetFinalizers(), k.Finalizer)
	if text := u.GetAnnotations()[pendingAnnotation]; text != "" {
		if err := json.Unmarshal([]byte(text), &a.Pending); err != nil {
			return wire.WorkKey{}, nil, fmt.Errorf("anchor %s: annotation %s: %w", u.GetName(), pendingAnnotation, err)
		}
	}
	a.Superseded = decodeSuperseded(u)
	a.addListed(a.Pending)
	a.addListed(a.Recorded)
	return a.workKey, a, nil
}

// SupersededAnnotation names, on an anchor, the objects that another work wrote after
// this one, or that have ended, and the hash of what this one had written. Of works that
// disagree the last one wins, and what has ended does not begin again, also after a
// restart: neither is written again until what the work wants changes.
const SupersededAnnotation = "spokelet.io/yielded"

// MaxSuperseded bounds the objects that are named; others may be written once more.
const MaxSuperseded = 256

// decodeSuperseded is lenient: at worst an object is written once more.
func decodeSuperseded(u *unstructured.Unstructured) map[string]string {
	var out map[string]string
	if err := json.Unmarshal([]byte(u.GetAnnotations()[SupersededAnnotation]), &out); err != nil {
		return nil
	}
	return out
}
