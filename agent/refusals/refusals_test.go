// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package refusals

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/spokelet/spokelet/agent/mapping"
	"github.com/spokelet/spokelet/api/wire"
)

func TestOf(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	cases := map[string]struct {
		reason string
		err    error
		want   *wire.Refusal
	}{
		"no error":            {reason: "nothing is refused"},
		"a transport error":   {reason: "it says nothing about the request", err: errors.New("broken pipe")},
		"an expired token":    {reason: "it is the agent's own", err: apierrors.NewUnauthorized("expired")},
		"a busy server":       {reason: "it passes", err: apierrors.NewTooManyRequestsError("busy")},
		"an expired version":  {reason: "the list is read again", err: apierrors.NewResourceExpired("old")},
		"a failed server":     {reason: "it passes", err: apierrors.NewInternalError(errors.New("etcd"))},
		"a refused requester": {"the door decides", fmt.Errorf("user: %w", &AccessError{Err: errors.New("no")}), wire.Refuse(wire.CauseRequest, metav1.StatusReasonForbidden, "user: no")},
		"a forbidden request": {
			"RBAC decides", apierrors.NewForbidden(pods, "a", errors.New("no")),
			wire.Refuse(wire.CauseRequest, metav1.StatusReasonForbidden, `pods "a" is forbidden: no`),
		},
		"an unknown resource": {"the target is wrong", mapping.ErrNoMatch, wire.Refuse(wire.CauseTarget, metav1.StatusReasonNotFound, mapping.ErrNoMatch.Error())},
		"an ambiguous resource": {
			"the target must name a group", fmt.Errorf("resource %q: %w", "backups", mapping.ErrAmbiguous),
			wire.Refuse(wire.CauseTarget, metav1.StatusReasonInvalid, `resource "backups": `+mapping.ErrAmbiguous.Error()),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Of(tc.err)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
