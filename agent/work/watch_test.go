// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestPermanentWatchErrors(t *testing.T) {
	gr := schema.GroupResource{Resource: "x"}
	tests := map[string]struct {
		reason string
		err    error
		want   bool
	}{
		"no right":      {reason: "somebody has to give it", err: apierrors.NewForbidden(gr, "", errBoom), want: true},
		"no identity":   {reason: "the same", err: apierrors.NewUnauthorized("who"), want: true},
		"no such watch": {reason: "some kinds have none", err: apierrors.NewMethodNotSupported(gr, "watch"), want: true},
		"no such kind":  {reason: "its definition was removed", err: apierrors.NewNotFound(gr, ""), want: true},
		"busy":          {reason: "it passes", err: apierrors.NewTooManyRequestsError("later")},
		"ended":         {reason: "every watch does"},
		"cut off":       {reason: "it passes", err: errBoom},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := isPermanentWatchError(tc.err); got != tc.want {
				t.Errorf("%s: refusal %t, want %t", tc.reason, got, tc.want)
			}
		})
	}
}
