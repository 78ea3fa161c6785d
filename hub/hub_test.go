// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/spokelet/spokelet/api/config/v1alpha1"
)

func TestClientHasNoRateLimit(t *testing.T) {
	// As the command makes it. Leases, nodes and pods are written through one client.
	h := &hub{opts: Options{Client: &rest.Config{Host: "http://127.0.0.1:1", QPS: -1}}}
	if err := h.addClients(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, client := range map[string]rest.Interface{"core": h.kube.CoreV1().RESTClient(), "leases": h.kube.CoordinationV1().RESTClient()} {
		if limiter := client.GetRateLimiter(); limiter != nil {
			t.Errorf("%s: %v requests a second: pods would hold up leases", name, limiter.QPS())
		}
	}
}

func TestInstallTolerationsFollowsConfiguration(t *testing.T) {
	cases := map[string]struct {
		reason  string
		seconds *int64
		answer  error
		want    []string
	}{
		"asked for":     {reason: "pods stay as long as configured", seconds: new(int64(600)), want: []string{"apply", "apply"}},
		"not asked for": {reason: "what was there goes", want: []string{"delete", "delete"}},
		"not served": {
			reason: "a hub of an earlier Kubernetes works, and says so", seconds: new(int64(600)),
			answer: &meta.NoKindMatchError{GroupKind: schema.GroupKind{Kind: "MutatingAdmissionPolicy"}}, want: []string{"apply"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var did []string
			c := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
				Apply: func(context.Context, client.WithWatch, runtime.ApplyConfiguration, ...client.ApplyOption) error {
					did = append(did, "apply")
					return tc.answer
				},
				Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error {
					did = append(did, "delete")
					return tc.answer
				},
			})
			h := &hub{opts: Options{Config: &v1alpha1.HubConfiguration{}}}
			h.opts.Config.Pods.UnreachableTolerationSeconds = tc.seconds
			if err := h.installTolerations(t.Context(), c); err != nil {
				t.Errorf("%s: %v", tc.reason, err)
			}
			if diff := cmp.Diff(tc.want, did); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
