// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"errors"
	"fmt"

	"helm.sh/helm/v4/pkg/action"
	releaser "helm.sh/helm/v4/pkg/release"
	releasecommon "helm.sh/helm/v4/pkg/release/common"
	releasev1 "helm.sh/helm/v4/pkg/release/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/agent/helm/message"
	"github.com/spokelet/spokelet/helm/chart"
)

func (o *operation) install(ctx context.Context, loaded *chart.Chart, values map[string]any) (*message.Release, error) {
	last, err := o.latest()
	if err != nil {
		return nil, err
	}
	if last != nil {
		return nil, o.existsError(last)
	}
	o.report("rendering chart " + loaded.Name())
	i := action.NewInstall(o.helm)
	i.ReleaseName, i.Namespace = o.request.Name, o.request.Namespace
	i.CreateNamespace = o.isNamespaceMissing(ctx)
	i.Timeout, i.WaitStrategy, i.WaitForJobs = o.request.Timeout, o.waitStrategy(), o.request.Wait
	i.Labels = map[string]string{message.Label: o.request.ActionLabel}
	done, err := i.RunWithContext(ctx, loaded, values)
	return o.newResult(done, err)
}

// isNamespaceMissing reports whether the namespace does not exist. If the requester may not read it, it is
// assumed to exist, because the requester may not be allowed to create it either.
func (o *operation) isNamespaceMissing(ctx context.Context) bool {
	_, err := o.kube.CoreV1().Namespaces().Get(ctx, o.request.Namespace, metav1.GetOptions{})
	return apierrors.IsNotFound(err)
}

func (o *operation) upgrade(ctx context.Context, loaded *chart.Chart, values map[string]any) (*message.Release, error) {
	last, err := o.latest()
	switch {
	case err != nil:
		return nil, err
	case last == nil:
		return nil, o.notFoundError(ctx)
	case last.Info.Status.IsPending() || last.Info.Status == releasecommon.StatusUninstalling:
		return nil, o.pendingError(last)
	case last.Info.Status == releasecommon.StatusUninstalled:
		return nil, o.existsError(last)
	}
	o.report("rendering chart " + loaded.Name())
	u := action.NewUpgrade(o.helm)
	u.Namespace, u.MaxHistory = o.request.Namespace, maxHistory
	u.Timeout, u.WaitStrategy, u.WaitForJobs = o.request.Timeout, o.waitStrategy(), o.request.Wait
	u.Labels = map[string]string{message.Label: o.request.ActionLabel}
	done, err := u.RunWithContext(ctx, o.request.Name, loaded, values)
	return o.newResult(done, err)
}

func (o *operation) uninstall(ctx context.Context) (*message.Release, error) {
	last, err := o.latest()
	if err != nil {
		return nil, err
	}
	if last == nil {
		return nil, o.notFoundError(ctx)
	}
	return o.remove()
}

// remove uninstalls an existing release.
func (o *operation) remove() (*message.Release, error) {
	u := action.NewUninstall(o.helm)
	u.Timeout, u.WaitStrategy = o.request.Timeout, o.waitStrategy()
	response, err := u.Run(o.request.Name)
	if err != nil {
		// Helm does not report why something was not deleted.
		return nil, fmt.Errorf("%s: %w", o.subject(), errors.Join(append([]error{err}, o.client.deleteErrors...)...))
	}
	gone, err := o.newResult(response.Release, nil)
	if err != nil {
		return nil, err
	}
	gone.Removed = true
	if response.Info != "" { // objects that were kept, and why
		gone.Description += ". " + response.Info
	}
	return gone, nil
}

func (o *operation) newResult(done releaser.Releaser, err error) (*message.Release, error) {
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.subject(), err)
	}
	r, ok := done.(*releasev1.Release)
	if !ok {
		return nil, fmt.Errorf("%s: it is a %T", o.subject(), done)
	}
	return o.newRelease(r), nil
}

// newRelease converts a revision for the agent.
func (o *operation) newRelease(r *releasev1.Release) *message.Release {
	d := &message.Release{
		Name: r.Name, Namespace: r.Namespace, Revision: r.Version, Status: r.Info.Status.String(), Description: r.Info.Description,
		FirstDeployed: r.Info.FirstDeployed, LastDeployed: r.Info.LastDeployed, Manifest: message.Masked,
	}
	if o.request.Manifest {
		d.Manifest = r.Manifest
	}
	if r.Chart != nil && r.Chart.Metadata != nil {
		d.ChartName, d.ChartVersion = r.Chart.Metadata.Name, r.Chart.Metadata.Version
	}
	return d
}
