// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestIsRejectedMeansNothingWritten(t *testing.T) {
	for label, tc := range map[string]struct {
		reason string
		err    error
		want   bool
	}{
		"forbidden":          {reason: "the API server did nothing", err: apierrors.NewForbidden(schema.GroupResource{}, "x", errors.New("boom")), want: true},
		"timeout":            {reason: "it may have been done", err: apierrors.NewTimeoutError("x", 1)},
		"connection is lost": {reason: "it may have been done", err: errors.New("EOF")},
	} {
		t.Run(label, func(t *testing.T) {
			if got := IsRejected(tc.err); got != tc.want {
				t.Errorf("refused = %t, want %t: %s", got, tc.want, tc.reason)
			}
		})
	}
}
