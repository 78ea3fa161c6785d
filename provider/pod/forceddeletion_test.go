// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spokelet/spokelet/api/wire"
)

// deleteWith does what an API server does for kubectl delete --force, where the grace is
// 0: it writes the grace, and removes the pod in the next moment.
func (r *rig) deleteWith(name string, grace int64) {
	r.t.Helper()
	pod := r.pod(name)
	deleting(grace)(pod)
	pods := r.client.CoreV1().Pods(pod.Namespace)
	if _, err := pods.Update(r.t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		r.t.Fatal(err)
	}
	if err := pods.Delete(r.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		r.t.Fatal(err)
	}
	synctest.Wait()
}

func TestForcedDeletionIsPublished(t *testing.T) {
	cases := map[string]struct {
		reason string
		// before is what the agent said of the pod, nil for nothing.
		before *wire.PodStatus
		grace  int64
		want   []string
	}{
		"runs": {
			reason: "nobody waits for its end, and its name may be another's before the agent hears",
			before: &wire.PodStatus{Generation: 1, Status: running()}, want: []string{"default/a/uid-of-a"},
		},
		"was not told of yet": {reason: "it may run", want: []string{"default/a/uid-of-a"}},
		"has ended": {
			reason: "nothing is left to be killed, and a Job's pods are many",
			before: &wire.PodStatus{Generation: 1, Status: succeeded()},
		},
		"is gone": {
			reason: "that is how a deletion is confirmed",
			before: &wire.PodStatus{Generation: 1, Gone: true},
		},
		"went with a grace": {reason: "it is not known who removed it", grace: 30},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Config{}, func(r *rig) {
				r.watch(spoke)
				defer r.connect(spoke)()
				if tc.before != nil {
					r.says(spoke, podNamed("a"), *tc.before)
				}
				r.deleteWith("a", tc.grace)
				r.create(podNamed("a", func(p *corev1.Pod) { p.UID = "uid-of-another" }))
				if diff := cmp.Diff(tc.want, r.published(spoke, wire.KindPodForced), cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("reason: %s (-want +got):\n%s", tc.reason, diff)
				}
			}, podNamed("a"))
		})
	}
}

func TestPodMissingFromAListIsNotPublishedAsForcedDeletion(t *testing.T) {
	inBubble(t, Config{}, func(r *rig) {
		r.watch(spoke)
		n := r.getCluster(spoke)
		r.replacePods(n, spoke, nil)
		if keys := r.published(spoke, wire.KindPodForced); len(keys) > 0 {
			t.Errorf("said to be: %v; a hub that was restored from a backup lacks pods, too", keys)
		}
	}, podNamed("a"))
}

func TestForcedDeletionsAreBounded(t *testing.T) {
	inBubble(t, Config{}, func(r *rig) {
		r.watch(spoke)
		n := r.getCluster(spoke)
		n.mu.Lock()
		for i := range wire.PodsForcedMax + 1 {
			gone := podNamed("a", deleting(0), func(p *corev1.Pod) { p.UID = types.UID(strconv.Itoa(i)) })
			r.publishForcedDeletion(n, &podState{pod: gone, published: true}, gone)
		}
		n.mu.Unlock()
		keys := r.published(spoke, wire.KindPodForced)
		if len(keys) != wire.PodsForcedMax || len(n.forcedKeys) != wire.PodsForcedMax || n.forcedKeys[0] != "default/a/1" {
			t.Errorf("%d are sent and %d known, from %s on; want the last %d", len(keys), len(n.forcedKeys), n.forcedKeys[0], wire.PodsForcedMax)
		}
	})
}
