// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package workagent

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	workv1 "open-cluster-management.io/api/work/v1"
)

func TestRefusedStatusIsWrittenWithoutRefusedParts(t *testing.T) {
	invalid := func(path *field.Path) metav1.Status {
		status := apierrors.NewInvalid(schema.GroupKind{Group: workv1.GroupName, Kind: "ManifestWork"}, "w",
			field.ErrorList{field.Invalid(path, "boom", "should be another")}).Status()
		status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		return status
	}
	manifest := field.NewPath("status", "resourceStatus", "manifests").Index(0)
	cases := map[string]struct {
		reason, refuses string
		refusal         metav1.Status
		want            map[string]int64
		applied         bool
	}{
		"a value": {
			"the other is written", `"name":"b"`, invalid(manifest.Child("statusFeedback", "values").Index(1)), map[string]int64{"a": 1}, true,
		},
		"a manifest": {"the work's own conditions are written", `"manifests":[{`, invalid(manifest), map[string]int64{}, true},
		"everything": {"the next report may be better", `"status"`, invalid(field.NewPath("status")), map[string]int64{}, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, "w")
			r.acceptWork(t)
			r.server.refuses, r.server.refusal = c.refuses, c.refusal
			r.report(t, withFeedback(map[string]int64{"a": 1, "b": 2}))
			r.run(t)
			if diff := cmp.Diff(c.want, r.values()); diff != "" {
				t.Errorf("%s: values (-want +got):\n%s", c.reason, diff)
			}
			if got := meta.IsStatusConditionTrue(r.server.stored().Status.Conditions, workv1.WorkApplied); got != c.applied {
				t.Errorf("%s: Applied %t", c.reason, got)
			}
			if r.reports.PendingCount() > 0 {
				t.Errorf("%s: it waits for another try", c.reason)
			}
		})
	}
}
