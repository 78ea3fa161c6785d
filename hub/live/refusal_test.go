// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	livev1alpha1 "github.com/spokelet/spokelet/api/live/v1alpha1"
)

// newRecordingLogger is a logger and the lines that it was told, those of detail aside.
func newRecordingLogger() (l logr.Logger, lines *[]string) {
	lines = &[]string{}
	return funcr.New(func(_, args string) { *lines = append(*lines, args) }, funcr.Options{}), lines
}

func TestDecisionsOtherThanAllowAreLogged(t *testing.T) {
	asked := authorizer.AttributesRecord{
		User: &user.DefaultInfo{Name: "mallory"}, Verb: "create", Resource: clustersResource, Subresource: proxySubresource, Name: "c1",
		ResourceRequest: true, Path: "/apis/live.spokelet.io/v1alpha1/clusters/c1/proxy/exec",
	}
	line := func(decision, why string) []string {
		return []string{`"level"=0 "msg"="Refused a request" "user"="mallory" "verb"="create" "path"="/apis/live.spokelet.io/v1alpha1/clusters/c1/proxy/exec" "cluster"="c1" "decision"="` +
			decision + `" "why"="` + why + `" "auditID"=""`}
	}
	errBoom := errors.New("boom")
	cases := map[string]struct {
		reason   string
		decision authorizer.Decision
		err      error
		want     []string
	}{
		"allowed":        {reason: "it is for the audit logs", decision: authorizer.DecisionAllow, want: []string{}},
		"denied":         {reason: "a refusal", decision: authorizer.DecisionDeny, want: line("Deny", "because")},
		"no opinion":     {reason: "nobody allows it: a refusal", decision: authorizer.DecisionNoOpinion, want: line("NoOpinion", "because")},
		"error":          {reason: "it fails closed", decision: authorizer.DecisionNoOpinion, err: errBoom, want: line("NoOpinion", "boom")},
		"allow in error": {reason: "an upgrade does not take it for a yes", decision: authorizer.DecisionAllow, err: errBoom, want: line("Allow", "boom")},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			l, lines := newRecordingLogger()
			next := authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
				return tc.decision, "because", tc.err
			})
			decision, _, err := logRefusals(next, l).Authorize(t.Context(), asked)
			if decision != tc.decision || !errors.Is(err, tc.err) {
				t.Errorf("%s: decided %v, %v", tc.reason, decision, err)
			}
			if diff := cmp.Diff(tc.want, *lines); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestLogRefusalLogsRefusalsOnly(t *testing.T) {
	cases := map[string]struct {
		reason string
		err    error
		want   int
	}{
		"path":          {reason: "a trick", err: apierrors.NewBadRequest("path is not canonical"), want: 1},
		"caller":        {reason: "an odd name", err: apierrors.NewForbidden(livev1alpha1.Resource(clustersResource), "c1", errors.New("no")), want: 1},
		"nobody":        {reason: "no caller", err: apierrors.NewUnauthorized("no"), want: 1},
		"not connected": {reason: "nothing was refused", err: newUnreachableError("c1", errors.New("gone"))},
		"unknown":       {reason: "nothing was refused", err: newClusterNotFound("c1")},
		"own fault":     {reason: "nothing was refused", err: errors.New("boom")},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			l, lines := newRecordingLogger()
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/a?token=secret", nil)
			ctx := request.WithUser(r.Context(), &user.DefaultInfo{Name: "alice"})
			logRefusal(l, r.WithContext(request.WithRequestInfo(ctx, &request.RequestInfo{Verb: "get", Name: "c1"})), tc.err)
			if len(*lines) != tc.want {
				t.Fatalf("%s: %q, want %d lines", tc.reason, *lines, tc.want)
			}
			want := `"level"=0 "msg"="Refused a request" "user"="alice" "verb"="get" "path"="/a" "cluster"="c1" "decision"="Deny"`
			if tc.want == 1 && (*lines)[0][:len(want)] != want {
				t.Errorf("%s: %s\nwant it to begin with %s", tc.reason, (*lines)[0], want)
			}
		})
	}
}
