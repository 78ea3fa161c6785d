// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"errors"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/spokelet/spokelet/internal/quota"
)

// maxHeadBytes is how many bytes a review may have beside its objects: a user's groups
// come in a header of the API server, which takes 1 MiB of them.
const maxHeadBytes = 1 << 20

var (
	// errReview is the error of bodies that are no review.
	errReview = errors.New("review: not a request of AdmissionReview in version v1")
	// errHeadTooLarge is the error of reviews that are large without their objects.
	errHeadTooLarge = fmt.Errorf("review: more than %d bytes beside its objects: %w", maxHeadBytes, quota.ErrTooLarge)
)

// rawJSON is JSON within the body of a review, which nobody changes: it shares the body's
// bytes, because a copy of each part at each level would cost several times the body.
type rawJSON []byte

// UnmarshalJSON keeps data, which is a part of what was given to the decoder.
func (r *rawJSON) UnmarshalJSON(data []byte) error {
	*r = slices.Clip(data)
	return nil
}

// isAbsent reports whether a field was left out, or is null.
func (r rawJSON) isAbsent() bool { return len(r) == 0 || string(r) == "null" }

// decode reads r into what is small. Of JSON that does not fit only that is told: the
// decoder's own errors quote numbers of any length.
func (r rawJSON) decode(into any) bool { return r.isAbsent() || utiljson.Unmarshal(r, into) == nil }

// reviewRequest is what is read of a review's request.
type reviewRequest struct {
	UID       types.UID
	Resource  metav1.GroupVersionResource
	Operation admissionv1.Operation
	Namespace string
	Name      string
	UserInfo  authenticationv1.UserInfo
	Object    rawJSON
	OldObject rawJSON

	memory *memoryReservation
}

// readReview reads the request of a review of version v1. The request shares the
// body's bytes.
func readReview(body []byte, m *memoryReservation) (*reviewRequest, error) {
	var review struct {
		APIVersion rawJSON `json:"apiVersion"`
		Kind       rawJSON `json:"kind"`
		Request    struct {
			UID       rawJSON `json:"uid"`
			Resource  rawJSON `json:"resource"`
			Operation rawJSON `json:"operation"`
			Namespace rawJSON `json:"namespace"`
			Name      rawJSON `json:"name"`
			UserInfo  rawJSON `json:"userInfo"`
			Object    rawJSON `json:"object"`
			OldObject rawJSON `json:"oldObject"`
		} `json:"request"`
	}
	if err := utiljson.Unmarshal(body, &review); err != nil {
		return nil, errReview
	}
	q := review.Request
	out, kind := &reviewRequest{Object: q.Object, OldObject: q.OldObject, memory: m}, metav1.TypeMeta{}
	parts := []struct {
		from rawJSON
		into any
	}{
		{review.APIVersion, &kind.APIVersion},
		{review.Kind, &kind.Kind},
		{q.UID, &out.UID},
		{q.Resource, &out.Resource},
		{q.Operation, &out.Operation},
		{q.Namespace, &out.Namespace},
		{q.Name, &out.Name},
		{q.UserInfo, &out.UserInfo},
	}
	size, cost := 0, int64(0)
	for _, part := range parts {
		size += len(part.from)
		// Twice: once decoded, and once in the question to the API server.
		cost += 2 * quota.DecodedJSON(part.from)
	}
	if size > maxHeadBytes {
		return nil, errHeadTooLarge
	}
	if err := m.spend(cost); err != nil {
		return nil, err
	}
	for _, part := range parts {
		if !part.from.decode(part.into) {
			return nil, errReview
		}
	}
	if kind != reviewType() || out.UID == "" {
		return nil, errReview
	}
	return out, nil
}

func reviewType() metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"}
}
