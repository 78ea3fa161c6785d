// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestDescribeError(t *testing.T) {
	invalid := apierrors.NewInvalid(schema.GroupKind{Kind: "Secret"}, "s", nil)
	invalid.ErrStatus.Message = "data: Invalid value: hunter2"
	invalid.ErrStatus.Details.Causes = []metav1.StatusCause{{Field: "data.b", Message: "hunter2"}, {Field: "data.a", Message: "hunter2"}}
	tests := map[string]struct {
		reason string
		err    error
		secret bool
		want   string
	}{
		"uids go": {
			reason: "they change without telling anything",
			err:    errors.New("precondition 6f2c1c0e-54c1-4f0e-9d1c-5a4c8e0f1a2b failed"), want: "precondition  failed",
		},
		"ports of our side go": {
			reason: "each attempt has its own",
			err:    errors.New("read tcp 10.0.0.1:4711->10.0.0.2:6443: reset"), want: "read tcp 10.0.0.2:6443: reset",
		},
		"control characters go":      {reason: "a condition is read by people", err: errors.New("a\x1b[31m\nb"), want: "a [31m b"},
		"a Secret's content stays":   {reason: "validation quotes values", err: fmt.Errorf("apply: %w", invalid), secret: true, want: "Invalid: data.a, data.b"},
		"long texts are cut":         {reason: "conditions are bounded", err: errors.New(strings.Repeat("é", maxMessage)), want: strings.Repeat("é", maxMessage/2) + "..."},
		"other texts are left alone": {reason: "they tell what is wrong", err: errors.New("boom"), want: "boom"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, DescribeError(tc.err, tc.secret)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
