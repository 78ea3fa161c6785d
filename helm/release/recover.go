// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"fmt"
	"slices"

	releasecommon "helm.sh/helm/v4/pkg/release/common"
	releasev1 "helm.sh/helm/v4/pkg/release/v1"

	"github.com/spokelet/spokelet/agent/helm/message"
)

// interruptedDescription is the description of a revision that an interrupted process left pending.
const interruptedDescription = "interrupted: the process that worked on it has ended"

// recoverRequest determines the outcome of an earlier request.
func (o *operation) recoverRequest() (*message.Release, error) {
	revisions, err := o.history()
	if err != nil {
		return nil, err
	}
	if o.request.OriginalVerb == message.Uninstall {
		return o.recoverUninstall(revisions)
	}
	at := slices.IndexFunc(revisions, func(r *releasev1.Release) bool { return r.Labels[message.Label] == o.request.ActionLabel })
	if at < 0 {
		return nil, fmt.Errorf("%w: %s has no revision of it", errUnknown, o.subject())
	}
	r := revisions[at]
	switch {
	case r.Info.Status == releasecommon.StatusDeployed || r.Info.Status == releasecommon.StatusSuperseded:
		return o.newRelease(r), nil
	case r.Info.Status == releasecommon.StatusFailed:
		return nil, fmt.Errorf("%s: revision %d failed: %s", o.subject(), r.Version, r.Info.Description)
	case r.Info.Status.IsPending():
		return nil, o.markFailed(r)
	default:
		return nil, fmt.Errorf("%w: revision %d of %s is %s", errUnknown, r.Version, o.subject(), r.Info.Status)
	}
}

// markFailed records a pending revision as failed, so that the release can be upgraded: no process
// works on it any more.
func (o *operation) markFailed(r *releasev1.Release) error {
	was := r.Info.Status
	r.SetStatus(releasecommon.StatusFailed, interruptedDescription)
	if err := o.helm.Releases.Update(r); err != nil {
		return fmt.Errorf("%s: revision %d cannot be recorded as failed: %w", o.subject(), r.Version, err)
	}
	return fmt.Errorf("%w: revision %d of %s was %s, and is recorded as failed now: update or delete it", errUnknown, r.Version, o.subject(), was)
}

// recoverUninstall continues an uninstall that was begun.
func (o *operation) recoverUninstall(revisions []*releasev1.Release) (*message.Release, error) {
	switch {
	case len(revisions) == 0:
		return &message.Release{Name: o.request.Name, Namespace: o.request.Namespace, Status: releasecommon.StatusUninstalled.String(), Removed: true}, nil
	case revisions[0].Info.Status == releasecommon.StatusUninstalling || revisions[0].Info.Status == releasecommon.StatusUninstalled:
		return o.remove()
	default:
		return nil, fmt.Errorf("%w: %s is %s at revision %d", errUnknown, o.subject(), revisions[0].Info.Status, revisions[0].Version)
	}
}
