// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	releasecommon "helm.sh/helm/v4/pkg/release/common"
	releasev1 "helm.sh/helm/v4/pkg/release/v1"
	"helm.sh/helm/v4/pkg/storage/driver"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/spokelet/spokelet/agent/helm/message"
)

// resolveNamespace sets the namespace of a request without one to that of the only release of the
// name. In Helm 2, for which the API was made, names were unique.
func (o *operation) resolveNamespace(ctx context.Context) error {
	if o.request.Namespace != "" {
		return nil
	}
	if o.request.Verb == message.Install || o.request.OriginalVerb == message.Install {
		o.request.Namespace = defaultNamespace
		return nil
	}
	found, err := o.namespaces(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("release %s cannot be found in all namespaces, and the request names none (helm.namespace): %w", o.request.Name, err)
	case len(found) > 1:
		return fmt.Errorf("%w: there are releases %s in the namespaces %s, and it names none (helm.namespace)", errRequest, o.request.Name, strings.Join(found, ", "))
	case len(found) == 0:
		o.request.Namespace = defaultNamespace
	default:
		o.request.Namespace = found[0]
	}
	return nil
}

// namespaces returns the namespaces with a release of the name.
func (o *operation) namespaces(ctx context.Context) ([]string, error) {
	list, err := o.kube.CoreV1().Secrets("").List(ctx, metav1.ListOptions{
		LabelSelector: labels.Set{"owner": "helm", "name": o.request.Name}.String(),
	})
	if err != nil {
		return nil, err
	}
	var found []string
	for i := range list.Items {
		found = append(found, list.Items[i].Namespace)
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}

// history returns the revisions, the latest first; none if there is no release.
func (o *operation) history() ([]*releasev1.Release, error) {
	all, err := o.helm.Releases.History(o.request.Name)
	if errors.Is(err, driver.ErrReleaseNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("history of %s: %w", o.subject(), err)
	}
	var revisions []*releasev1.Release
	for _, one := range all {
		if r, ok := one.(*releasev1.Release); ok && r.Info != nil {
			revisions = append(revisions, r)
		}
	}
	slices.SortFunc(revisions, func(a, b *releasev1.Release) int { return cmp.Compare(b.Version, a.Version) })
	return revisions, nil
}

// latest returns the last revision; nil if there is no release.
func (o *operation) latest() (*releasev1.Release, error) {
	revisions, err := o.history()
	if err != nil || len(revisions) == 0 {
		return nil, err
	}
	return revisions[0], nil
}

// notFoundError returns the error of a release that does not exist. It names the namespaces of
// releases of the same name that the requester may read.
func (o *operation) notFoundError(ctx context.Context) error {
	elsewhere := ""
	if found, err := o.namespaces(ctx); err == nil && len(found) > 0 {
		elsewhere = "; there is one in namespace " + strings.Join(found, ", ")
	}
	return fmt.Errorf("%s: %w%s", o.subject(), driver.ErrReleaseNotFound, elsewhere)
}

// existsError returns the error of an existing release that prevents an install.
func (o *operation) existsError(r *releasev1.Release) error {
	advice := "update it (actionType Update), or delete it first"
	switch {
	case r.Info.Status.IsPending() || r.Info.Status == releasecommon.StatusUninstalling:
		return o.pendingError(r)
	case r.Info.Status == releasecommon.StatusUninstalled:
		advice = "its history is kept: delete it (actionType Delete)"
	}
	return fmt.Errorf("%w: %s exists, its revision %d is %s (%s): %s", errReleaseState, o.subject(), r.Version, r.Info.Status, r.Info.Description, advice)
}

// pendingError returns the error of a release with a pending operation.
func (o *operation) pendingError(r *releasev1.Release) error {
	advice := "delete it (actionType Delete)"
	if r.Version > 1 {
		advice = "roll it back (helm rollback), or " + advice
	}
	return fmt.Errorf("%w: %s is %s at revision %d: if no Helm works on it any more, %s", errReleaseState, o.subject(), r.Info.Status, r.Version, advice)
}
