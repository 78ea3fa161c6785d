// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package toleration

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/internal/testing/livetest"
	"github.com/spokelet/spokelet/provider"
)

// liveHub is a client of the hub's real API server.
func liveHub(t *testing.T) client.Client {
	t.Helper()
	cfg := livetest.Config(t, "SPOKELET_HUB_KUBECONFIG")
	c, err := client.New(cfg, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// lost is a toleration of a node that is lost; less than no seconds are no limit.
func lost(key string, seconds int64) corev1.Toleration {
	out := corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}
	if seconds >= 0 {
		out.TolerationSeconds = &seconds
	}
	return out
}

func both(seconds int64) []corev1.Toleration {
	return []corev1.Toleration{lost(corev1.TaintNodeNotReady, seconds), lost(corev1.TaintNodeUnreachable, seconds)}
}

// admitted are the tolerations that a pod gets beside its own ones before them.
func admitted(ctx context.Context, c client.Client, own []corev1.Toleration) ([]corev1.Toleration, error) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "toleration-", Namespace: metav1.NamespaceDefault},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "main", Image: "example.com/none"}}, Tolerations: own,
		},
	}
	// What is admitted is not kept.
	err := c.Create(ctx, pod, client.DryRunAll)
	return pod.Spec.Tolerations, err
}

// awaitPolicy waits until the API server, which takes a moment to learn of a
// policy, gives pods that ask for virtual nodes so many seconds.
func awaitPolicy(t *testing.T, c client.Client, seconds int64) {
	t.Helper()
	virtual := corev1.Toleration{Key: provider.TaintVirtualNode, Operator: corev1.TolerationOpExists}
	want := append([]corev1.Toleration{virtual}, both(seconds)...)
	var got []corev1.Toleration
	defer func() {
		if diff := cmp.Diff(want, got); diff != "" {
			t.Logf("tolerations (-want +got):\n%s", diff)
		}
	}()
	livetest.Eventually(t, "pods get the tolerations of the policy", func() bool {
		var err error
		if got, err = admitted(t.Context(), c, []corev1.Toleration{virtual}); err != nil {
			t.Fatal(err)
		}
		return cmp.Equal(want, got)
	})
}

func TestLivePolicySetsTolerations(t *testing.T) {
	c := liveHub(t)
	t.Cleanup(func() {
		if err := Install(context.WithoutCancel(t.Context()), c, nil); err != nil {
			t.Error(err)
		}
	})
	for _, seconds := range []int64{600, 0, maxSeconds, Forever} {
		if err := Install(t.Context(), c, &seconds); err != nil {
			t.Fatal(err)
		}
		awaitPolicy(t, c, seconds)
	}
	if err := Install(t.Context(), c, nil); err != nil {
		t.Fatal(err)
	}
	awaitPolicy(t, c, 300)
}

func TestLivePolicyKeepsExplicitTolerations(t *testing.T) {
	c := liveHub(t)
	t.Cleanup(func() {
		if err := Install(context.WithoutCancel(t.Context()), c, nil); err != nil {
			t.Error(err)
		}
	})
	if err := Install(t.Context(), c, new(int64(600))); err != nil {
		t.Fatal(err)
	}
	awaitPolicy(t, c, 600)

	taint := func(change func(*corev1.Toleration)) corev1.Toleration {
		out := corev1.Toleration{Key: provider.TaintVirtualNode, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}
		if change != nil {
			change(&out)
		}
		return out
	}
	other := corev1.Toleration{Key: "example.com/other", Operator: corev1.TolerationOpExists}
	noSchedule := corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}
	equal := corev1.Toleration{Key: provider.TaintVirtualNode}
	list := func(parts ...any) (out []corev1.Toleration) {
		for _, p := range parts {
			switch p := p.(type) {
			case corev1.Toleration:
				out = append(out, p)
			case []corev1.Toleration:
				out = append(out, p...)
			}
		}
		return out
	}
	tests := map[string]struct {
		reason    string
		own, want []corev1.Toleration
	}{
		"no tolerations":      {reason: "it never sees a virtual node", want: both(300)},
		"another toleration":  {reason: "neither does this one", own: list(other), want: list(other, both(300))},
		"tolerates all":       {reason: "it does not ask for virtual nodes, and may never see one", own: list(noSchedule), want: list(noSchedule, both(300))},
		"asks":                {reason: "the default is replaced", own: list(other, taint(nil)), want: list(other, taint(nil), both(600))},
		"asks without effect": {reason: "that is all effects", own: list(taint(func(t *corev1.Toleration) { t.Effect = "" })), want: list(taint(func(t *corev1.Toleration) { t.Effect = "" }), both(600))},
		"asks for no value":   {reason: "the taint has none", own: list(equal), want: list(equal, both(600))},
		"asks for a value": {
			reason: "the taint has none", own: list(taint(func(t *corev1.Toleration) { t.Operator, t.Value = corev1.TolerationOpEqual, "x" })),
			want: list(taint(func(t *corev1.Toleration) { t.Operator, t.Value = corev1.TolerationOpEqual, "x" }), both(300)),
		},
		"says so itself": {
			reason: "what its owner says stays", own: list(taint(nil), both(60)), want: list(taint(nil), both(60)),
		},
		"says one of them itself": {
			reason: "the other is the default", own: list(taint(nil), lost(corev1.TaintNodeUnreachable, 60)),
			want: list(taint(nil), lost(corev1.TaintNodeUnreachable, 60), lost(corev1.TaintNodeNotReady, 600)),
		},
		"stays for ever": {
			reason: "as the pods of DaemonSets", own: list(taint(nil), both(-1)), want: list(taint(nil), both(-1)),
		},
		"300 of another taint": {
			reason: "that is no default", own: list(taint(nil), lost("example.com/slow", 300)), want: list(taint(nil), lost("example.com/slow", 300), both(600)),
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := admitted(t.Context(), c, tc.own)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
