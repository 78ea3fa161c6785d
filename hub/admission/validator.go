// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/api/multicluster/v1alpha1"
	"github.com/spokelet/spokelet/internal/rbacwatch"
)

// errInternal is the error of requests that the judge could not come to a verdict about.
// Others are refusals, with the message of Open Cluster Management.
var errInternal = errors.New("cannot decide")

// maxExecutor is how many bytes an executor may have: two names of 253 characters.
const maxExecutor = 4 << 10

// The resources that are judged. Where works of multicluster.x-k8s.io are, executing as
// the default account is all that is asked for.
var (
	manifestWorks       = metav1.GroupVersionResource{Group: workv1.GroupName, Version: workv1.GroupVersion.Version, Resource: "manifestworks"}
	worksOfMulticluster = metav1.GroupVersionResource{Group: v1alpha1.GroupVersion.Group, Version: v1alpha1.GroupVersion.Version, Resource: "works"}
)

// validator decides about requests.
type validator struct {
	access      rbacwatch.AccessReviewer
	clusters    Clusters
	limit       int
	nilExecutor bool
}

// work is what is read of a ManifestWork, or of a Work.
type work struct {
	Spec rawJSON `json:"spec"`
}

// spec is what is read of a ManifestWork's spec.
type spec struct {
	Workload struct {
		Manifests rawJSON `json:"manifests"`
	} `json:"workload"`
	Executor rawJSON `json:"executor"`
}

// validateAdopted judges as every does, unless the namespace is that of a cluster of another
// controller.
func (j *validator) validateAdopted(ctx context.Context, r *reviewRequest) error {
	foreign, err := j.clusters.Foreign(ctx, r.Namespace)
	if err != nil {
		return fmt.Errorf("%w: whose cluster namespace %s is: %w", errInternal, r.Namespace, err)
	}
	if foreign {
		return nil
	}
	return j.validate(ctx, r)
}

// validate returns nil for a request that may pass. Errors that wrap errInternal
// are failures of the hub; the user who sent the work sees the text of each.
//
// Any change of a spec needs the right to execute as the work's executor, not only one
// of the executor itself: the manifests are what is executed, and the other fields
// decide how.
func (j *validator) validate(ctx context.Context, r *reviewRequest) error {
	if err := checkSupported(r); err != nil {
		return err
	}
	before, after, err := decodeSpecs(r)
	if err != nil {
		return err
	}
	if r.Operation == admissionv1.Update && bytes.Equal(before, after) {
		return nil
	}
	if r.Resource == worksOfMulticluster {
		// A Work names no executor; what its manifests have to be is its agent's.
		return j.checkExecutor(ctx, r, nil)
	}
	next := spec{}
	if !after.decode(&next) {
		return fmt.Errorf("%w: the spec cannot be read", errInternal)
	}
	if err := validateManifests(next.Workload.Manifests, j.limit, r.memory); err != nil {
		return err
	}
	executor, err := next.decodeExecutor()
	if err != nil {
		return err
	}
	return j.checkExecutor(ctx, r, executor)
}

// checkSupported refuses what the webhook is not registered for.
func checkSupported(r *reviewRequest) error {
	if r.Resource != manifestWorks && r.Resource != worksOfMulticluster || r.Operation != admissionv1.Create && r.Operation != admissionv1.Update {
		return fmt.Errorf("%w: %s of %s in version %s is not what this webhook judges", errInternal, r.Operation, r.Resource.Resource, r.Resource.Version)
	}
	if r.Namespace == "" {
		return fmt.Errorf("%w: it has no namespace", errInternal)
	}
	return nil
}

// decodeSpecs returns the specs before and after, as the API server writes them: keys
// in order, so that equal ones are equal bytes.
func decodeSpecs(r *reviewRequest) (before, after rawJSON, err error) {
	var object, old work
	if r.Object.isAbsent() || !r.Object.decode(&object) {
		return nil, nil, fmt.Errorf("%w: the object cannot be read", errInternal)
	}
	if r.Operation == admissionv1.Update && (r.OldObject.isAbsent() || !r.OldObject.decode(&old)) {
		return nil, nil, fmt.Errorf("%w: the old object cannot be read", errInternal)
	}
	return old.Spec, object.Spec, nil
}

// decodeExecutor returns the executor of a spec, or nil.
func (s *spec) decodeExecutor() (*workv1.ManifestWorkExecutor, error) {
	if s.Executor.isAbsent() {
		return nil, nil
	}
	executor := &workv1.ManifestWorkExecutor{}
	if len(s.Executor) > maxExecutor || !s.Executor.decode(executor) {
		return nil, fmt.Errorf("%w: the executor cannot be read", errInternal)
	}
	return executor, nil
}

// newStatus is how the API server hands an error on.
func newStatus(err error) *metav1.Status {
	status := &metav1.Status{Status: metav1.StatusFailure, Message: err.Error(), Reason: metav1.StatusReasonBadRequest, Code: http.StatusBadRequest}
	switch {
	case errors.Is(err, errInternal):
		status.Reason, status.Code = metav1.StatusReasonInternalError, http.StatusInternalServerError
	case apierrors.IsForbidden(err):
		status.Reason, status.Code = metav1.StatusReasonForbidden, http.StatusForbidden
	}
	return status
}
