// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

func TestDiscoveryIsAllowedForAuthenticatedOnly(t *testing.T) {
	known := &user.DefaultInfo{Name: "alice", Groups: []string{user.AllAuthenticated}}
	cases := map[string]struct {
		reason string
		attrs  authorizer.AttributesRecord
		want   authorizer.Decision
	}{
		"group":      {reason: "what kubectl reads first", attrs: authorizer.AttributesRecord{User: known, Verb: "get", Path: "/apis/live.spokelet.io/v1alpha1"}, want: authorizer.DecisionAllow},
		"openapi":    {reason: "what kubectl validates with", attrs: authorizer.AttributesRecord{User: known, Verb: "get", Path: "/openapi/v3/apis/live.spokelet.io/v1alpha1"}, want: authorizer.DecisionAllow},
		"nobody":     {reason: "an anonymous caller is for the API server to judge", attrs: authorizer.AttributesRecord{User: &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}}, Verb: "get", Path: "/apis"}, want: authorizer.DecisionNoOpinion},
		"no user":    {reason: "a request without a caller is nobody's", attrs: authorizer.AttributesRecord{Verb: "get", Path: "/apis"}, want: authorizer.DecisionNoOpinion},
		"write":      {reason: "discovery is read", attrs: authorizer.AttributesRecord{User: known, Verb: "post", Path: "/apis"}, want: authorizer.DecisionNoOpinion},
		"resource":   {reason: "a cluster is not discovery", attrs: authorizer.AttributesRecord{User: known, Verb: "get", Path: "/apis/live.spokelet.io/v1alpha1", ResourceRequest: true}, want: authorizer.DecisionNoOpinion},
		"other path": {reason: "metrics are not discovery", attrs: authorizer.AttributesRecord{User: known, Verb: "get", Path: "/metrics"}, want: authorizer.DecisionNoOpinion},
		"below":      {reason: "a longer path may be a resource", attrs: authorizer.AttributesRecord{User: known, Verb: "get", Path: "/apis/live.spokelet.io/v1alpha1/clusters"}, want: authorizer.DecisionNoOpinion},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, _, err := allowDiscovery(t.Context(), tc.attrs)
			if err != nil || got != tc.want {
				t.Errorf("%s: got %v, %v, want %v", tc.reason, got, err, tc.want)
			}
		})
	}
}
