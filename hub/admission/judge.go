// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	workv1 "open-cluster-management.io/api/work/v1"
)

// errUndecided is of requests that the judge could not come to a verdict about.
// Others are refusals, with the message of Open Cluster Management.
var errUndecided = errors.New("cannot judge the manifestwork")

// judge decides about requests.
type judge struct {
	access      Access
	clusters    Clusters
	limit       int
	nilExecutor bool
}

// work is what is read of a ManifestWork.
type work struct {
	Spec json.RawMessage `json:"spec"`
}

// spec is what is read of a ManifestWork's spec.
type spec struct {
	Workload struct {
		Manifests manifests `json:"manifests"`
	} `json:"workload"`
	Executor *workv1.ManifestWorkExecutor `json:"executor"`
}

// adopted judges as every does, unless the namespace is that of a cluster of another
// controller.
func (j *judge) adopted(ctx context.Context, r *admissionv1.AdmissionRequest) error {
	foreign, err := j.clusters.Foreign(ctx, r.Namespace)
	if err != nil {
		return fmt.Errorf("%w: whose cluster namespace %s is: %w", errUndecided, r.Namespace, err)
	}
	if foreign {
		return nil
	}
	return j.every(ctx, r)
}

// every returns nil for a request that may pass. Errors that wrap errUndecided
// are faults; the texts of all are for whoever sent the work.
func (j *judge) every(ctx context.Context, r *admissionv1.AdmissionRequest) error {
	if err := supported(r); err != nil {
		return err
	}
	before, after, err := specs(r)
	if err != nil {
		return err
	}
	if r.Operation == admissionv1.Update && bytes.Equal(before, after) {
		return nil
	}
	next, err := decodeSpec(after, j.limit)
	if err != nil {
		return err
	}
	if err := next.Workload.Manifests.check(j.limit); err != nil {
		return err
	}
	if r.Operation == admissionv1.Update && sameExecutor(before, next) {
		return nil
	}
	return j.mayExecute(ctx, r, next.Executor)
}

// supported refuses what the webhook is not registered for.
func supported(r *admissionv1.AdmissionRequest) error {
	known := metav1.GroupVersionResource{Group: workv1.GroupName, Version: workv1.GroupVersion.Version, Resource: "manifestworks"}
	if r.Resource != known || r.Operation != admissionv1.Create && r.Operation != admissionv1.Update {
		return fmt.Errorf("%w: %s of %s in version %s is not what this webhook judges", errUndecided, r.Operation, r.Resource.Resource, r.Resource.Version)
	}
	if r.Namespace == "" {
		return fmt.Errorf("%w: it has no namespace", errUndecided)
	}
	return nil
}

// specs returns the specs before and after, as the API server writes them: keys
// in order, so that equal ones are equal bytes.
func specs(r *admissionv1.AdmissionRequest) (before, after json.RawMessage, err error) {
	var object, old work
	if err := utiljson.Unmarshal(r.Object.Raw, &object); err != nil {
		return nil, nil, fmt.Errorf("%w: object: %w", errUndecided, err)
	}
	if r.Operation == admissionv1.Update {
		if err := utiljson.Unmarshal(r.OldObject.Raw, &old); err != nil {
			return nil, nil, fmt.Errorf("%w: old object: %w", errUndecided, err)
		}
	}
	return old.Spec, object.Spec, nil
}

// decodeSpec reads a spec, and of its manifests no more than may pass.
func decodeSpec(raw json.RawMessage, limit int) (spec, error) {
	s := spec{}
	s.Workload.Manifests.most = limit
	if len(raw) == 0 {
		return s, nil
	}
	if err := utiljson.Unmarshal(raw, &s); err != nil {
		return s, fmt.Errorf("%w: spec: %w", errUndecided, err)
	}
	return s, nil
}

// sameExecutor tells whether the spec before had the executor of next. One that
// cannot be read is none that is the same.
func sameExecutor(before json.RawMessage, next spec) bool {
	old, err := decodeSpec(before, 0)
	return err == nil && reflect.DeepEqual(old.Executor, next.Executor)
}

// statusOf is how the API server hands an error on.
func statusOf(err error) *metav1.Status {
	status := &metav1.Status{Status: metav1.StatusFailure, Message: err.Error(), Reason: metav1.StatusReasonBadRequest, Code: http.StatusBadRequest}
	if errors.Is(err, errUndecided) {
		status.Reason, status.Code = metav1.StatusReasonInternalError, http.StatusInternalServerError
	}
	return status
}
