// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	actionv1beta1 "github.com/spokelet/spokelet/api/action/v1beta1"
	mcmv1alpha1 "github.com/spokelet/spokelet/api/mcm/v1alpha1"
	viewv1beta1 "github.com/spokelet/spokelet/api/view/v1beta1"
	"github.com/spokelet/spokelet/hub/requester"
	"github.com/spokelet/spokelet/internal/quota"
	"github.com/spokelet/spokelet/internal/rbacwatch"
)

// RequestersPath is where it is recorded who asks for views and actions.
const RequestersPath = "/mutate-authors"

// maxReference is how many bytes the cluster of a spec may have, of which the name of a
// namespace is read, and what names a parent, to be repeated.
const maxReference = 1 << 10

// encodedCopies is how often the groups of a user are held in an answer: joined, encoded, in the
// patch, in the review around it, which encodes it again, and in what is sent.
const encodedCopies = 8

// worksOfMCM are the resource whose objects may be of a WorkSet or a ResourceView, which the
// hub makes.
var worksOfMCM = metav1.GroupResource{Group: mcmv1alpha1.GroupVersion.Group, Resource: "works"}

// recordedResources are the resources whose authors are recorded, and where.
var recordedResources = map[metav1.GroupResource]requester.AnnotationKeys{
	worksOfMCM: requester.MCM,
	{Group: mcmv1alpha1.GroupVersion.Group, Resource: "worksets"}:                requester.MCM,
	{Group: mcmv1alpha1.GroupVersion.Group, Resource: "resourceviews"}:           requester.MCM,
	{Group: viewv1beta1.GroupVersion.Group, Resource: "managedclusterviews"}:     requester.ACM,
	{Group: actionv1beta1.GroupVersion.Group, Resource: "managedclusteractions"}: requester.ACM,
}

// patch is one operation of a JSON patch (RFC 6902).
type patch struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// requesterRecorder records on an object who requested what its spec asks for.
type requesterRecorder struct {
	access rbacwatch.AccessReviewer
	// self is the hub's own account, which makes objects for others.
	self         string
	registration *requester.Registration
	usage        Stored
	limits       Limits
}

// recordedObject is what is read of an object.
type recordedObject struct {
	Metadata struct {
		Annotations rawJSON `json:"annotations"`
	} `json:"metadata"`
	Spec rawJSON `json:"spec"`
}

// mutate returns what is to be changed of an object. Whoever creates it or changes its
// spec is its author; all others leave the one who was. Where that one was not recorded
// since the webhook is registered as it is, nobody is known to have asked, and whoever
// changes what is protected asks now. Of a Work that has an owner the hub alone says who
// that is, what is asked and for whom.
func (c *requesterRecorder) mutate(ctx context.Context, r *reviewRequest) ([]patch, error) {
	resource := groupResource(r)
	keys, ok := recordedResources[resource]
	if !ok || r.Operation != admissionv1.Create && r.Operation != admissionv1.Update {
		return nil, fmt.Errorf("%w: %s of %s is not what this webhook records authors of", errInternal, r.Operation, r.Resource.Resource)
	}
	var next, last recordedObject
	if r.Object.isAbsent() || !r.Object.decode(&next) {
		return nil, fmt.Errorf("%w: the object cannot be read", errInternal)
	}
	if r.Operation == admissionv1.Update && (r.OldObject.isAbsent() || !r.OldObject.decode(&last)) {
		return nil, fmt.Errorf("%w: the old object cannot be read", errInternal)
	}
	asks := r.Operation == admissionv1.Create || !bytes.Equal(next.Spec, last.Spec)
	if asks {
		if err := c.checkLimits(ctx, r, next.Spec, last.Spec); err != nil {
			return nil, err
		}
	}
	if r.UserInfo.Username == c.self { // also of the same spec, for another
		return nil, nil
	}
	registration := c.registration.UID()
	if registration == "" { // of which whoever registers it learns in a moment
		return nil, fmt.Errorf("%w: the registration of this webhook is not known, or may fail without stopping a write", errInternal)
	}
	has, err := next.decodeAnnotations(r.memory)
	if err != nil {
		return nil, err
	}
	had, err := last.decodeAnnotations(r.memory)
	if err != nil {
		return nil, err
	}
	names := protectedAnnotations(resource, keys)
	want := keepAnnotations(had, names)
	switch owners := want[mcmv1alpha1.AnnotationOwners]; {
	case owners != "" && asks:
		return nil, newOwnedError(r, owners)
	case owners != "" || !asks && had[requester.AnnotationRegistration] == registration:
		return diffAnnotations(has, names, want), nil
	}
	if err := c.checkWorkRight(ctx, r, next.Spec); err != nil {
		return nil, err
	}
	by, err := requesterAnnotations(r, keys, registration)
	if err != nil {
		return nil, err
	}
	maps.Copy(want, by)
	return diffAnnotations(has, names, want), nil
}

// newOwnedError refuses a change of what a Work asks that a WorkSet or a ResourceView has made:
// the hub would change it back, and what it asks would be done again as the parent's author.
func newOwnedError(r *reviewRequest, owners string) error {
	parent := "another object"
	if parts := strings.SplitN(owners, ".", 3); len(parts) == 3 && len(owners) <= maxReference {
		parent = parts[0] + " " + parts[1] + "/" + parts[2]
	}
	return apierrors.NewForbidden(schema.GroupResource(groupResource(r)), r.Name, fmt.Errorf("the Work is one of %s: change that", parent))
}

// requesterAnnotations returns the annotations of an object whose author is the user of a request.
func requesterAnnotations(r *reviewRequest, keys requester.AnnotationKeys, registration string) (map[string]string, error) {
	user := r.UserInfo
	size := len(user.Username) + len(registration)
	for _, group := range user.Groups {
		size += len(group) + 1
	}
	for key, values := range user.Extra {
		size += len(key) + len(strings.Join(values, ","))
	}
	if err := r.memory.spend(int64(encodedCopies * size)); err != nil {
		return nil, err
	}
	extra := make(map[string][]string, len(user.Extra))
	for key, values := range user.Extra {
		extra[key] = values
	}
	by, err := requester.NewUser(user.Username, user.Groups, extra)
	if err != nil {
		return nil, apierrors.NewForbidden(schema.GroupResource(groupResource(r)), r.Name, err)
	}
	return by.Annotations(keys, registration), nil
}

// decodeAnnotations decodes those of an object; nil if it has none.
func (a *recordedObject) decodeAnnotations(m *memoryReservation) (map[string]string, error) {
	if a.Metadata.Annotations.isAbsent() {
		return nil, nil
	}
	if err := m.spend(quota.DecodedJSON(a.Metadata.Annotations)); err != nil {
		return nil, err
	}
	out := map[string]string{}
	if !a.Metadata.Annotations.decode(&out) {
		return nil, fmt.Errorf("%w: the annotations cannot be read", errInternal)
	}
	return out, nil
}

// protectedAnnotations are the annotations of a resource that nobody but the hub's own account writes.
func protectedAnnotations(resource metav1.GroupResource, keys requester.AnnotationKeys) []string {
	all := keys.All()
	if resource == worksOfMCM {
		all = append(all, mcmv1alpha1.AnnotationOwners, mcmv1alpha1.AnnotationOwnerUID)
	}
	return all
}

// keepAnnotations are those of the annotations that there were.
func keepAnnotations(had map[string]string, keys []string) map[string]string {
	want := map[string]string{}
	for _, key := range keys {
		if value, ok := had[key]; ok {
			want[key] = value
		}
	}
	return want
}

// diffAnnotations makes the annotations of keys what they are to be; those that are not wanted go.
func diffAnnotations(has map[string]string, keys []string, want map[string]string) (patches []patch) {
	if has == nil && len(want) > 0 {
		return []patch{{Op: "add", Path: "/metadata/annotations", Value: want}}
	}
	for _, key := range slices.Sorted(slices.Values(keys)) {
		is, there := has[key]
		value, wanted := want[key]
		switch {
		case there && !wanted:
			patches = append(patches, patch{Op: "remove", Path: annotationPath(key)})
		case wanted && (!there || is != value):
			// Of a member that is there, add replaces the value. An empty one is a value.
			patches = append(patches, patch{Op: "add", Path: annotationPath(key), Value: &value})
		}
	}
	return patches
}

// annotationPath is a JSON pointer (RFC 6901).
func annotationPath(annotation string) string {
	return "/metadata/annotations/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(annotation)
}

// checkWorkRight refuses a Work for a cluster in whose namespace its author may create none. Of a
// new Work in that namespace the API server has asked; of a change it asks for the right to
// update, which does not make an author.
func (c *requesterRecorder) checkWorkRight(ctx context.Context, r *reviewRequest, spec rawJSON) error {
	if groupResource(r) != worksOfMCM {
		return nil
	}
	cluster, err := decodeCluster(spec)
	if err != nil {
		return err
	}
	if cluster == "" || cluster == r.Namespace && r.Operation == admissionv1.Create {
		return nil // the definition's rules refuse a Work without a cluster
	}
	may, err := rbacwatch.IsAllowed(ctx, c.access, r.UserInfo, authorizationv1.ResourceAttributes{
		Verb: "create", Namespace: cluster,
		Group: r.Resource.Group, Version: r.Resource.Version, Resource: r.Resource.Resource,
	})
	if err != nil {
		return fmt.Errorf("%w: rights of user %q: %w", errInternal, r.UserInfo.Username, err)
	}
	if !may {
		return apierrors.NewForbidden(schema.GroupResource(groupResource(r)), "",
			fmt.Errorf("User %q cannot create resource %q in API group %q in the namespace %q", //nolint:staticcheck // the API server begins so
				r.UserInfo.Username, r.Resource.Resource, r.Resource.Group, cluster))
	}
	return nil
}

func groupResource(r *reviewRequest) metav1.GroupResource {
	return metav1.GroupResource{Group: r.Resource.Group, Resource: r.Resource.Resource}
}

// decodeCluster returns the cluster that the spec of a Work names.
func decodeCluster(spec rawJSON) (string, error) {
	var parts struct {
		Cluster rawJSON `json:"cluster"`
	}
	var cluster corev1.LocalObjectReference
	if !spec.decode(&parts) || len(parts.Cluster) > maxReference || !parts.Cluster.decode(&cluster) {
		return "", fmt.Errorf("%w: the cluster cannot be read", errInternal)
	}
	return cluster.Name, nil
}
