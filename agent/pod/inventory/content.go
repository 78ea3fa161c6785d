// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"

	"github.com/spokelet/spokelet/api/wire"
)

const (
	// maxNamed bounds the objects, and the kinds, that are named.
	maxNamed = 8
	// pageSize bounds one list. Every pod's service account and copies may be among the
	// first objects of a kind, so that it is far above maxNamed; metadata is small.
	pageSize = 500
	// retryInterval is the pause between two lists while the right to list is on its way.
	retryInterval = 250 * time.Millisecond

	defaultAccount = "default"
	rootCA         = "kube-root-ca.crt"
)

var (
	// errTerminating is the error of a look that found nothing but what is on its way out.
	errTerminating = errors.New("all that was found is on its way out")
	// errIncomplete is the error of a look whose API server does not say that it serves
	// what every API server serves.
	errIncomplete = errors.New("discovery is incomplete")
)

// Content is what is in a namespace. Its parts are sorted.
type Content struct {
	// Objects names the first object of each kind that stays, "deployments.apps/web", or else
	// the first that is on its way out.
	Objects []string
	// Unlisted names the kinds that could not be listed, "secrets", and the versions of
	// APIs whose kinds are not known, "metrics.k8s.io/v1beta1".
	Unlisted []string
}

// IsEmpty tells that there is nothing, and that nothing was left out.
func (c Content) IsEmpty() bool { return len(c.Objects)+len(c.Unlisted) == 0 }

// String is one line that says why the namespace is not empty.
func (c Content) String() string {
	var parts []string
	if len(c.Objects) > 0 {
		parts = append(parts, "holds "+joinNames(c.Objects))
	}
	if len(c.Unlisted) > 0 {
		parts = append(parts, "cannot list "+joinNames(c.Unlisted))
	}
	return wire.Line(strings.Join(parts, "; "))
}

func joinNames(names []string) string {
	if len(names) > maxNamed {
		return strings.Join(names[:maxNamed], ", ") + " and more"
	}
	return strings.Join(names, ", ")
}

// Reader asks an API server.
type Reader struct {
	Discovery discovery.DiscoveryInterfaceWithContext
	Metadata  metadata.Interface
	// Ignore tells objects that do not count besides those that Kubernetes puts into each
	// namespace.
	Ignore func(schema.GroupResource, metav1.Object) bool
}

// Read returns what a namespace holds; it looks no further than at the first few kinds that
// are there. The right to list may be on its way for grace, which is 0 where none was given.
// What fails for now is Unseen, and in the error. An error is also returned when all that
// was found is on its way out.
func (r *Reader) Read(ctx context.Context, namespace string, grace time.Duration) (Content, error) {
	var c Content
	kinds, err := r.kinds(ctx, &c)
	errs := []error{err}
	until := time.Now().Add(grace)
	staying := 0
	for _, kind := range kinds {
		if staying > maxNamed {
			break
		}
		// The kinds that are left would be named as if each of them were at fault.
		if ctx.Err() != nil {
			errs = append(errs, ctx.Err())
			break
		}
		stays, err := r.listKind(ctx, namespace, kind, until, &c)
		if stays {
			staying++
		}
		// An API server may hear of a right that was given later than grace.
		if grace > 0 || !apierrors.IsForbidden(err) {
			errs = append(errs, err)
		}
	}
	if len(c.Objects) > 0 && staying+len(c.Unlisted) == 0 {
		errs = append(errs, errTerminating)
	}
	slices.Sort(c.Unlisted)
	return c, errors.Join(errs...)
}

// kinds returns those whose objects go with their namespace, sorted. Those that nobody
// can list are Unseen.
func (r *Reader) kinds(ctx context.Context, c *Content) ([]schema.GroupVersionResource, error) {
	lists, err := r.Discovery.ServerPreferredNamespacedResourcesWithContext(ctx)
	failed, partly := discovery.GroupDiscoveryFailedErrorGroups(err)
	if err != nil && !partly {
		return nil, fmt.Errorf("kinds of the cluster: %w", err)
	}
	for version := range failed {
		c.Unlisted = append(c.Unlisted, version.String())
	}
	var kinds []schema.GroupVersionResource
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, fmt.Errorf("kinds of the cluster: %w", err)
		}
		for i := range list.APIResources {
			kind := version.WithResource(list.APIResources[i].Name)
			switch verbs := list.APIResources[i].Verbs; {
			case !slices.Contains(verbs, "delete"), isEvent(kind.GroupResource()):
			case !slices.Contains(verbs, "list"):
				c.Unlisted = append(c.Unlisted, kind.GroupResource().String())
			default:
				kinds = append(kinds, kind)
			}
		}
	}
	if core := corev1.SchemeGroupVersion; !hasCoreKinds(kinds) && failed[core] == nil {
		c.Unlisted = append(c.Unlisted, core.String())
		err = errors.Join(err, errIncomplete)
	}
	slices.SortFunc(kinds, func(a, b schema.GroupVersionResource) int {
		return strings.Compare(a.GroupResource().String(), b.GroupResource().String())
	})
	if err != nil {
		err = fmt.Errorf("kinds of the cluster: %w", err)
	}
	return kinds, err
}

// hasCoreKinds reports whether those kinds are among them that every API server serves. Without
// them discovery has failed, also where it returned no error.
func hasCoreKinds(kinds []schema.GroupVersionResource) bool {
	for _, name := range []string{"configmaps", "secrets", "persistentvolumeclaims"} {
		if !slices.Contains(kinds, corev1.SchemeGroupVersion.WithResource(name)) {
			return false
		}
	}
	return true
}

// listKind adds the first object of a kind that counts to Holds, or the kind to Unseen, and
// reports whether an object stays. A kind that is not found is Unseen, too: the API server
// that was asked may not serve it yet, and its objects would be deleted with the namespace.
// Discovery says at the next look whether the kind is gone.
func (r *Reader) listKind(ctx context.Context, namespace string, kind schema.GroupVersionResource, until time.Time, c *Content) (stays bool, err error) {
	name := kind.GroupResource().String()
	found, err := List(ctx, r.Metadata.Resource(kind).Namespace(namespace), metav1.ListOptions{Limit: pageSize}, until)
	switch {
	case apierrors.IsMethodNotSupported(err), apierrors.IsNotAcceptable(err):
		c.Unlisted = append(c.Unlisted, name)
		return false, nil
	case err != nil:
		c.Unlisted = append(c.Unlisted, name)
		return false, fmt.Errorf("list %s of namespace %s: %w", name, namespace, err)
	}
	leaving := ""
	for i := range found.Items {
		object := &found.Items[i]
		switch {
		case isDefaultObject(kind.GroupResource(), object), r.Ignore(kind.GroupResource(), object):
		case !isTerminating(object):
			c.Objects = append(c.Objects, name+"/"+object.Name)
			return true, nil
		case leaving == "":
			leaving = name + "/" + object.Name
		}
	}
	switch {
	case leaving != "":
		c.Objects = append(c.Objects, leaving)
	case found.Continue != "":
		c.Objects = append(c.Objects, name)
		return true, nil
	}
	return false, nil
}

// isTerminating reports whether an object is being deleted, or belongs to pods alone and is
// deleted when these are: claims of ephemeral volumes, endpoints of networks, reports. A
// pod that does not go is found itself.
func isTerminating(object metav1.Object) bool {
	owners := object.GetOwnerReferences()
	other := func(o metav1.OwnerReference) bool { return o.Kind != "Pod" || o.APIVersion != "v1" }
	return object.GetDeletionTimestamp() != nil || len(owners) > 0 && !slices.ContainsFunc(owners, other)
}

// List lists metadata. A right that was given a moment ago may be on its way to the API
// server that is asked: until then it lists again when that forbids it.
func List(ctx context.Context, objects metadata.ResourceInterface, options metav1.ListOptions, until time.Time) (*metav1.PartialObjectMetadataList, error) {
	for {
		found, err := objects.List(ctx, options)
		if !apierrors.IsForbidden(err) || !time.Now().Before(until) {
			return found, err //nolint:wrapcheck // the caller says what it lists
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(retryInterval):
		}
	}
}

func isEvent(kind schema.GroupResource) bool {
	return kind.Resource == "events" && (kind.Group == corev1.GroupName || kind.Group == eventsv1.GroupName)
}

// isDefaultObject tells what Kubernetes puts into each namespace.
func isDefaultObject(kind schema.GroupResource, object metav1.Object) bool {
	switch kind {
	case corev1.Resource("serviceaccounts"):
		return object.GetName() == defaultAccount
	case corev1.Resource("configmaps"):
		return object.GetName() == rootCA
	default:
		return false
	}
}
