// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/agent/work/inventory"
	"github.com/spokelet/spokelet/api/multicluster/v1alpha1"
	"github.com/spokelet/spokelet/api/wire"
)

// Owner is the agent whose anchors these are.
type Owner struct {
	// HubID is the mark of the hub's agents on the anchors that they made.
	HubID string
	// AgentID is the agent's own id, empty for the hash of its hub.
	AgentID string
	// HubHash is the hash of the hub that the agent knows by itself, empty for none.
	HubHash string
}

// Work is the work that an anchor stands for, as far as the anchor names it.
type Work struct {
	Key wire.WorkKey
	// Name is that of the anchor.
	Name    string
	HubHash string
	Labels  map[string]string
}

// anchorForm is how the anchors of a dialect are written.
type anchorForm interface {
	// decode decodes an anchor's own fields; what it lists in its annotation is
	// read elsewhere.
	decode(u *unstructured.Unstructured) (*Anchor, error)
	// newObject is a new anchor for a work that lists nothing yet.
	newObject(k Kind, o Owner, w Work) runtime.Object
	// split parts a list in what the status has room for and what it has not.
	split(list []v1alpha1.AppliedResourceMeta) (recorded, pending []v1alpha1.AppliedResourceMeta)
	// status is recorded in the words of the API.
	status(recorded []v1alpha1.AppliedResourceMeta) any
	// isOurs tells whether an agent may take an anchor for its own; named, that a work
	// of its hub has the anchor's name.
	isOurs(o Owner, u *unstructured.Unstructured, named bool) bool
}

// appliedWorkForm is AppliedWork of multicluster.x-k8s.io/v1alpha1.
type appliedWorkForm struct{}

func (appliedWorkForm) decode(u *unstructured.Unstructured) (*Anchor, error) {
	var obj v1alpha1.AppliedWork
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &obj); err != nil {
		return nil, fmt.Errorf("anchor %s: %w", u.GetName(), err)
	}
	a := NewAnchor()
	a.workKey = wire.WorkKey{Dialect: wire.DialectMulticluster, Namespace: obj.Spec.WorkNamespace, Name: obj.Spec.WorkName}
	a.Recorded = obj.Status.AppliedResources
	return a, nil
}

func (appliedWorkForm) newObject(k Kind, o Owner, w Work) runtime.Object {
	return &v1alpha1.AppliedWork{
		TypeMeta:   k.typeMeta(),
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{HubLabel: o.HubID}},
		Spec:       v1alpha1.AppliedWorkSpec{WorkName: w.Key.Name, WorkNamespace: w.Key.Namespace},
	}
}

func (appliedWorkForm) split(list []v1alpha1.AppliedResourceMeta) (recorded, pending []v1alpha1.AppliedResourceMeta) {
	return list, nil
}

func (appliedWorkForm) status(recorded []v1alpha1.AppliedResourceMeta) any {
	return v1alpha1.AppliedWorkStatus{AppliedResources: recorded}
}

// isOurs: one that nobody marked was made by hand, for the work of its name.
func (appliedWorkForm) isOurs(o Owner, u *unstructured.Unstructured, named bool) bool {
	mark := u.GetLabels()[HubLabel]
	return mark == o.HubID || named && mark == ""
}

// appliedManifestWorkForm is AppliedManifestWork of work.open-cluster-management.io/v1.
// Its status lists what exists, and exactly that, for others rely on it: what is
// about to be applied is listed in an annotation.
type appliedManifestWorkForm struct{}

func (appliedManifestWorkForm) decode(u *unstructured.Unstructured) (*Anchor, error) {
	var obj workv1.AppliedManifestWork
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &obj); err != nil {
		return nil, fmt.Errorf("anchor %s: %w", u.GetName(), err)
	}
	a := NewAnchor()
	a.workKey = wire.WorkKey{Dialect: wire.DialectManifestWork, Name: obj.Spec.ManifestWorkName}
	if t := obj.Status.EvictionStartTime; t != nil {
		a.EvictionStart = t.Time
	}
	for _, r := range obj.Status.AppliedResources {
		a.Recorded = append(a.Recorded, v1alpha1.AppliedResourceMeta{
			ResourceIdentifier: v1alpha1.ResourceIdentifier{Group: r.Group, Version: r.Version, Resource: r.Resource, Namespace: r.Namespace, Name: r.Name},
			UID:                types.UID(r.UID),
		})
	}
	return a, nil
}

func (appliedManifestWorkForm) newObject(k Kind, o Owner, w Work) runtime.Object {
	return &workv1.AppliedManifestWork{
		TypeMeta:   k.typeMeta(),
		ObjectMeta: metav1.ObjectMeta{Labels: w.Labels, Annotations: map[string]string{HubLabel: o.HubID}},
		Spec:       workv1.AppliedManifestWorkSpec{HubHash: w.HubHash, AgentID: o.agentID(w.HubHash), ManifestWorkName: w.Key.Name},
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
func (appliedManifestWorkForm) isOurs(o Owner, u *unstructured.Unstructured, named bool) bool {
	if u.GetAnnotations()[HubLabel] == o.HubID {
		return true
	}
	id, _, _ := unstructured.NestedString(u.Object, "spec", "agentID")
	return id != "" && id == o.agentID(o.HubHash) || named && o.isOfSameHub(u)
}

// isOfSameHub tells whether an AppliedManifestWork was made for the hub of which this
// agent knows the hash by itself. A hash that the hub says of itself proves nothing:
// a hub that lies must not get at what was applied for another.
func (o Owner) isOfSameHub(u *unstructured.Unstructured) bool {
	hash, _, _ := unstructured.NestedString(u.Object, "spec", "hubHash")
	return hash != "" && hash == o.HubHash && strings.HasPrefix(u.GetName(), hash+"-")
}

// agentID is the agent's own, or else the hash of its hub.
func (o Owner) agentID(hubHash string) string {
	if o.AgentID != "" {
		return o.AgentID
	}
	return hubHash
}

func (k Kind) typeMeta() metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: k.Resource.GroupVersion().String(), Kind: k.Kind}
}

// IsRecorded tells whether the API server has all that the anchor lists.
func (a *Anchor) IsRecorded(k Kind) bool {
	f := k.form
	recorded, pending := f.split(a.appliedResources())
	return slices.Equal(recorded, a.Recorded) && !slices.ContainsFunc(pending, a.isUnlisted)
}

// isUnlisted tells whether something that is pending is listed nowhere yet.
func (a *Anchor) isUnlisted(r v1alpha1.AppliedResourceMeta) bool {
	if slices.Contains(a.Recorded, withoutUnstored([]v1alpha1.AppliedResourceMeta{r})[0]) {
		return false
	}
	return !slices.ContainsFunc(a.Pending, func(p v1alpha1.AppliedResourceMeta) bool {
		p.Ordinal = r.Ordinal
		return p == r
	})
}

// Kind says how anchors are stored.
type Kind struct {
	Resource schema.GroupVersionResource
	Kind     string
	// Finalizer keeps an anchor until everything it lists is gone.
	Finalizer string
	// form is how an anchor's content is written.
	form anchorForm
	// marksAnnotation: the hub's mark is an annotation, for the labels of an
	// AppliedManifestWork are those of its work; else it is a label.
	marksAnnotation bool
}

// Reference is the ownerReference of an applied object to its anchor: never a
// controller, never blocking.
func (k Kind) Reference(name string, o inventory.Owner) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: k.Resource.GroupVersion().String(), Kind: k.Kind, Name: name, UID: o.Anchor}
}

// IsAnchor recognises the anchors of every work agent that shares objects by
// ownerReference, ours or not.
func IsAnchor(o metav1.OwnerReference) bool {
	gv, err := schema.ParseGroupVersion(o.APIVersion)
	if err != nil {
		return false
	}
	return gv.Group == v1alpha1.GroupVersion.Group && o.Kind == "AppliedWork" ||
		gv.Group == "work.open-cluster-management.io" && o.Kind == "AppliedManifestWork"
}

// AnchorResource is where an owner for which IsAnchor holds is stored.
func AnchorResource(o metav1.OwnerReference) schema.GroupVersionResource {
	gv, _ := schema.ParseGroupVersion(o.APIVersion)
	if o.Kind == "AppliedWork" {
		return gv.WithResource("appliedworks")
	}
	return gv.WithResource("appliedmanifestworks")
}

// AppliedWorks are the anchors of multicluster.x-k8s.io/v1alpha1.
func AppliedWorks() Kind {
	return Kind{
		Resource:  v1alpha1.GroupVersion.WithResource("appliedworks"),
		Kind:      "AppliedWork",
		Finalizer: "spokelet.io/work-cleanup",
		form:      appliedWorkForm{},
	}
}

// AppliedManifestWorks are the anchors of work.open-cluster-management.io/v1.
func AppliedManifestWorks() Kind {
	return Kind{
		Resource:        schema.GroupVersion(workv1.GroupVersion).WithResource("appliedmanifestworks"),
		Kind:            "AppliedManifestWork",
		Finalizer:       workv1.AppliedManifestWorkFinalizer,
		form:            appliedManifestWorkForm{},
		marksAnnotation: true,
	}
}

// HubMark is the mark of the hub for which an anchor was made.
func (k Kind) HubMark(u *unstructured.Unstructured) string {
	if k.marksAnnotation {
		return u.GetAnnotations()[HubLabel]
	}
	return u.GetLabels()[HubLabel]
}

// MarkField is the part of the metadata that has the mark. The labels of an
// AppliedManifestWork are those of its work.
func (k Kind) MarkField() string {
	if k.marksAnnotation {
		return "annotations"
	}
	return "labels"
}
