// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/api/multicluster/v1alpha1"
	"github.com/spokelet/spokelet/api/wire"
)

// anchorForm is how the anchors of a dialect are written.
type anchorForm interface {
	// decode decodes an anchor's own fields; what it lists in its annotation is
	// read elsewhere.
	decode(u *unstructured.Unstructured) (*anchor, error)
	// newObject is a new anchor for a work that lists nothing yet.
	newObject(e *Engine, w *work) runtime.Object
	// split parts a list in what the status has room for and what it has not.
	split(list []v1alpha1.AppliedResourceMeta) (recorded, pending []v1alpha1.AppliedResourceMeta)
	// status is recorded in the words of the API.
	status(recorded []v1alpha1.AppliedResourceMeta) any
	// isOurs tells whether an agent may take an anchor for its own; named, that a work
	// of its hub has the anchor's name.
	isOurs(e *Engine, u *unstructured.Unstructured, named bool) bool
}

// appliedWorkForm is AppliedWork of multicluster.x-k8s.io/v1alpha1.
type appliedWorkForm struct{}

func (appliedWorkForm) decode(u *unstructured.Unstructured) (*anchor, error) {
	var obj v1alpha1.AppliedWork
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &obj); err != nil {
		return nil, fmt.Errorf("anchor %s: %w", u.GetName(), err)
	}
	a := newAnchor()
	a.workKey = wire.WorkKey{Dialect: wire.DialectMulticluster, Namespace: obj.Spec.WorkNamespace, Name: obj.Spec.WorkName}
	a.recorded = obj.Status.AppliedResources
	return a, nil
}

func (appliedWorkForm) newObject(e *Engine, w *work) runtime.Object {
	return &v1alpha1.AppliedWork{
		TypeMeta:   w.policy.Anchor.typeMeta(),
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{HubLabel: e.cfg.HubID}},
		Spec:       v1alpha1.AppliedWorkSpec{WorkName: w.key.Name, WorkNamespace: w.key.Namespace},
	}
}

func (appliedWorkForm) split(list []v1alpha1.AppliedResourceMeta) (recorded, pending []v1alpha1.AppliedResourceMeta) {
	return list, nil
}

func (appliedWorkForm) status(recorded []v1alpha1.AppliedResourceMeta) any {
	return v1alpha1.AppliedWorkStatus{AppliedResources: recorded}
}

// isOurs: one that nobody marked was made by hand, for the work of its name.
func (appliedWorkForm) isOurs(e *Engine, u *unstructured.Unstructured, named bool) bool {
	mark := u.GetLabels()[HubLabel]
	return mark == e.cfg.HubID || named && mark == ""
}

// appliedManifestWorkForm is AppliedManifestWork of work.open-cluster-management.io/v1.
// Its status lists what exists, and exactly that, for others rely on it: what is
// about to be applied is listed in an annotation.
type appliedManifestWorkForm struct{}

func (appliedManifestWorkForm) decode(u *unstructured.Unstructured) (*anchor, error) {
	var obj workv1.AppliedManifestWork
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &obj); err != nil {
		return nil, fmt.Errorf("anchor %s: %w", u.GetName(), err)
	}
	a := newAnchor()
	a.workKey = wire.WorkKey{Dialect: wire.DialectManifestWork, Name: obj.Spec.ManifestWorkName}
	if t := obj.Status.EvictionStartTime; t != nil {
		a.evictionStart = t.Time
	}
	for _, r := range obj.Status.AppliedResources {
		a.recorded = append(a.recorded, v1alpha1.AppliedResourceMeta{
			ResourceIdentifier: v1alpha1.ResourceIdentifier{Group: r.Group, Version: r.Version, Resource: r.Resource, Namespace: r.Namespace, Name: r.Name},
			UID:                types.UID(r.UID),
		})
	}
	return a, nil
}

func (appliedManifestWorkForm) newObject(e *Engine, w *work) runtime.Object {
	d := w.currentSpec()
	return &workv1.AppliedManifestWork{
		TypeMeta:   w.policy.Anchor.typeMeta(),
		ObjectMeta: metav1.ObjectMeta{Labels: d.labels, Annotations: map[string]string{HubLabel: e.cfg.HubID}},
		Spec:       workv1.AppliedManifestWorkSpec{HubHash: d.hubHash, AgentID: e.agentID(d.hubHash), ManifestWorkName: w.key.Name},
	}
}

func (appliedManifestWorkForm) split(list []v1alpha1.AppliedResourceMeta) (recorded, pending []v1alpha1.AppliedResourceMeta) {
	for _, r := range list {
		if r.UID == "" {
			pending = append(pending, r)
			continue
		}
		recorded = append(recorded, r)
	}
	return withoutUnstored(recorded), pending
}

// withoutUnstored leaves out what an AppliedManifestWork does not say.
func withoutUnstored(list []v1alpha1.AppliedResourceMeta) []v1alpha1.AppliedResourceMeta {
	out := slices.Clone(list)
	for i := range out {
		out[i].Ordinal, out[i].Kind, out[i].Adopted = 0, "", false
	}
	return out
}

func (appliedManifestWorkForm) status(recorded []v1alpha1.AppliedResourceMeta) any {
	list := make([]workv1.AppliedManifestResourceMeta, 0, len(recorded))
	for _, r := range recorded {
		list = append(list, workv1.AppliedManifestResourceMeta{
			ResourceIdentifier: workv1.ResourceIdentifier{Group: r.Group, Resource: r.Resource, Namespace: r.Namespace, Name: r.Name},
			Version:            r.Version, UID: string(r.UID),
		})
	}
	return map[string]any{"appliedResources": list}
}

// isOurs: an anchor that bears our mark, or the id that the spoke's owner gave this
// agent, whoever wrote it. That of a work is taken over from another agent of the
// same hub, too.
func (appliedManifestWorkForm) isOurs(e *Engine, u *unstructured.Unstructured, named bool) bool {
	if u.GetAnnotations()[HubLabel] == e.cfg.HubID {
		return true
	}
	id, _, _ := unstructured.NestedString(u.Object, "spec", "agentID")
	return id != "" && id == e.agentID(e.cfg.HubHash) || named && e.isOfSameHub(u)
}

// isOfSameHub tells whether an AppliedManifestWork was made for the hub of which this
// agent knows the hash by itself. A hash that the hub says of itself proves nothing:
// a hub that lies must not get at what was applied for another.
func (e *Engine) isOfSameHub(u *unstructured.Unstructured) bool {
	hash, _, _ := unstructured.NestedString(u.Object, "spec", "hubHash")
	return hash != "" && hash == e.cfg.HubHash && strings.HasPrefix(u.GetName(), hash+"-")
}

// agentID is the agent's own, or else the hash of its hub.
func (e *Engine) agentID(hubHash string) string {
	if e.cfg.AgentID != "" {
		return e.cfg.AgentID
	}
	return hubHash
}

func (k AnchorKind) typeMeta() metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: k.Resource.GroupVersion().String(), Kind: k.Kind}
}

// isRecorded tells whether the API server has all that the anchor lists.
func (a *anchor) isRecorded(f anchorForm) bool {
	recorded, pending := f.split(a.appliedResources())
	return slices.Equal(recorded, a.recorded) && !slices.ContainsFunc(pending, a.isUnlisted)
}

// isUnlisted tells whether something that is pending is listed nowhere yet.
func (a *anchor) isUnlisted(r v1alpha1.AppliedResourceMeta) bool {
	if slices.Contains(a.recorded, withoutUnstored([]v1alpha1.AppliedResourceMeta{r})[0]) {
		return false
	}
	return !slices.ContainsFunc(a.pending, func(p v1alpha1.AppliedResourceMeta) bool {
		p.Ordinal = r.Ordinal
		return p == r
	})
}
