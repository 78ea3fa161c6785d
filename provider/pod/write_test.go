// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	k8stesting "k8s.io/client-go/testing"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/quota"
	"github.com/spokelet/spokelet/internal/ratelimit"
	"github.com/spokelet/spokelet/tunnel/resource"
)

func TestChangingStatusIsWrittenAtALimitedRate(t *testing.T) {
	inBubble(t, Config{}, func(r *rig) {
		r.watch(spoke)
		defer r.connect(spoke)()
		r.requests()
		said := wire.PodStatus{Generation: 1, Status: running()}
		for i := range 1000 { // 10 s
			said.Status.ContainerStatuses[0].RestartCount = int32(i)
			r.says(spoke, podNamed("hot"), said)
			<-time.After(10 * time.Millisecond)
		}
		writes := r.requests()["patch pods"]
		if most := ratelimit.Burst + 10*ratelimit.PerSecond + 1; writes > most || writes < most/2 {
			t.Errorf("%d writes in 10 s, want at most %d", writes, most)
		}
		r.says(spoke, podNamed("calm"), wire.PodStatus{Generation: 1, Status: running()})
		if got := r.pod("calm").Status.Phase; got != corev1.PodRunning {
			t.Errorf("another pod waits: %s", got)
		}
		<-time.After(time.Second)
		synctest.Wait()
		if got := r.pod("hot").Status.ContainerStatuses[0].RestartCount; got != 999 {
			t.Errorf("the last status is %d", got)
		}
	}, podNamed("hot"), podNamed("calm"))
}

func TestLargeStatusesAreLimitedByBytes(t *testing.T) {
	const burst, rate, large = 1 << 20, 100 << 10, 25 << 10
	writes := quota.NewWrites(quota.Rate{PerSecond: rate, Burst: burst}, quota.Rate{PerSecond: 1 << 30, Burst: 1 << 30})
	inBubble(t, Config{Writes: writes}, func(r *rig) {
		r.watch(spoke)
		r.watch("spoke2")
		defer r.connect(spoke)()
		defer r.connect("spoke2")()
		r.requests()
		said := wire.PodStatus{Generation: 1, Status: running()}
		for i := range 200 { // 20 s
			said.Status.Message = strings.Repeat("m", large) + strconv.Itoa(i)
			r.says(spoke, podNamed("hot"), said)
			<-time.After(100 * time.Millisecond)
		}
		n := r.requests()["patch pods"]
		if most := (burst+20*rate)/large + 1; n > most || n < most*8/10 {
			t.Errorf("%d writes of %d bytes in 20 s, want at most %d", n, large, most)
		}
		r.says("spoke2", podNamed("calm", onNode("spoke2")), wire.PodStatus{Generation: 1, Status: running()})
		if got := r.pod("calm").Status.Phase; got != corev1.PodRunning {
			t.Errorf("a pod of another cluster waits: %s", got)
		}
		writes.Spend(spoke, 10*burst)
		r.handleEvent(spoke, resource.Resource{Key: "default/hot/e1", UID: "uid-of-hot", Body: encoded(t, pulled(1, early2000))})
		synctest.Wait()
		if n := r.requests()["create events"]; n != 0 {
			t.Errorf("%d events do not wait", n)
		}
		<-time.After(3 * time.Minute)
		synctest.Wait()
		if got := r.pod("hot").Status.Message; !strings.HasSuffix(got, "m199") {
			t.Error("the last status is not there")
		}
		if n := r.requests()["create events"]; n != 1 {
			t.Errorf("%d events are written, want one", n)
		}
	}, podNamed("hot"), podNamed("calm", onNode("spoke2")))
}

func TestHubStatusIgnoresTheWriteQuota(t *testing.T) {
	writes := quota.NewWrites(quota.Rate{PerSecond: 1, Burst: 1}, quota.Rate{PerSecond: 1 << 30, Burst: 1 << 30})
	inBubble(t, Config{Writes: writes}, func(r *rig) {
		writes.Spend(spoke, 1<<20)
		r.watch(spoke)
		<-time.After(2 * responseTimeout)
		synctest.Wait()
		if got := r.pod("a").Status.Reason; got != ReasonNotSent {
			t.Errorf("reason %q, want %q", got, ReasonNotSent)
		}
	}, podNamed("a"))
}

func TestStatusThatDecodesTooLargeIsDropped(t *testing.T) {
	inBubble(t, Config{}, func(r *rig) {
		r.watch(spoke)
		defer r.connect(spoke)()
		body := []byte(`{"generation":1,"status":{"phase":"Running","containerStatuses":[{}` + strings.Repeat(",{}", 60_000) + `]}}`)
		r.handleStatus(spoke, resource.Resource{Key: "default/a", UID: "uid-of-a", Body: body})
		r.updatePod(podRef{cluster: spoke, key: keyOf(podNamed("a"))}, func(h *podState) {
			if h.report != nil {
				t.Errorf("%d bytes that become megabytes are kept", len(h.report.body))
			}
		})
		r.says(spoke, podNamed("a"), wire.PodStatus{Generation: 1, Status: running()})
		if got := r.pod("a").Status.Phase; got != corev1.PodRunning {
			t.Errorf("the next status is not taken: %s", got)
		}
	}, podNamed("a"))
}

func TestAgentErrorsAreLoggedAtALimitedRate(t *testing.T) {
	inBubble(t, Config{}, func(r *rig) {
		r.watch(spoke)
		defer r.connect(spoke)()
		lines := 0
		r.agentErrors.logger = funcr.New(func(string, string) { lines++ }, funcr.Options{})
		for i := range 1000 {
			r.handleStatus(spoke, resource.Resource{Key: "default/a", UID: "uid-of-a", Body: []byte("{")})
			r.handleStatus(spoke, resource.Resource{Key: strconv.Itoa(i), UID: "uid-of-a"})
			r.handleEvent(spoke, resource.Resource{Key: strconv.Itoa(i), UID: "uid-of-a"})
			synctest.Wait()
		}
		if lines == 0 || lines > 20 {
			t.Errorf("3000 mistakes made %d lines", lines)
		}
	}, podNamed("a"))
}

func TestStatusWriteErrors(t *testing.T) {
	pods := corev1.Resource("pods")
	cases := map[string]struct {
		reason string
		err    error
		want   corev1.PodPhase
		writes int
		logged bool
	}{
		"an outage": {
			reason: "it heals", err: apierrors.NewServiceUnavailable("boom"), want: corev1.PodRunning, writes: 3,
		},
		"a conflict": {
			reason: "the pod is read and it is tried again", err: apierrors.NewConflict(pods, "a", errors.New("boom")), want: corev1.PodRunning, writes: 3,
		},
		"a status that is not valid": {
			reason: "it would be so again", err: apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Pod").GroupKind(), "a", nil), want: corev1.PodPending, writes: 1, logged: true,
		},
		"a status that is a bad request": {
			reason: "it would be so again", err: apierrors.NewBadRequest("boom"), want: corev1.PodPending, writes: 1, logged: true,
		},
		"a pod that is too large with it": {
			reason: "it would be so again", err: apierrors.NewRequestEntityTooLargeError("limit is 1"), want: corev1.PodPending, writes: 1, logged: true,
		},
		"a pod that is gone": {
			reason: "nothing is left to be said", err: apierrors.NewNotFound(pods, "a"), want: corev1.PodPending, writes: 1,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Config{}, func(r *rig) {
				fails := 2
				var lines []string
				r.agentErrors.logger = funcr.New(func(_, line string) {
					if strings.Contains(line, `"pod"="default/a"`) {
						lines = append(lines, line)
					}
				}, funcr.Options{})
				r.client.PrependReactor("patch", "pods", func(k8stesting.Action) (bool, runtime.Object, error) {
					fails--
					return fails >= 0, nil, tc.err
				})
				r.watch(spoke)
				defer r.connect(spoke)()
				<-time.After(2 * responseTimeout)
				r.requests()
				r.says(spoke, podNamed("a"), wire.PodStatus{Generation: 1, Status: running()})
				<-time.After(time.Hour)
				synctest.Wait()
				if got, writes := r.pod("a").Status.Phase, r.requests()["patch pods"]; got != tc.want || writes != tc.writes {
					t.Errorf("%s: phase %s after %d writes", tc.reason, got, writes)
				}
				if logged := len(lines) == 1; logged != tc.logged {
					t.Errorf("%s: logged %q", tc.reason, lines)
				}
			}, podNamed("a"))
		})
	}
}

func TestPodNeverCreatedFailsBeforeItsDeletion(t *testing.T) {
	refused := func(p *corev1.Pod) {
		p.Status = merge(p, wire.PodStatus{Generation: 1, Reason: "HostAccess", Message: "host namespaces"}, early2000)
	}
	fails := func(reason, message string) []string {
		return []string{fmt.Sprintf("patch status: Failed %q %q", reason, message), "delete"}
	}
	cases := map[string]struct {
		reason string
		pod    *corev1.Pod
		// said is the agent's report, nil of one that takes no pods.
		said *wire.PodStatus
		want []string
	}{
		"the spoke refused it": {
			reason: "as a kubelet rejects a pod, whose reason stays", pod: podNamed("a", refused, deleting(30)),
			said: &wire.PodStatus{Generation: 1, Gone: true}, want: fails("", ""),
		},
		"it was refused and deleted at once": {
			reason: "its end says why", pod: podNamed("a", deleting(30)),
			said: &wire.PodStatus{Generation: 1, Gone: true, Reason: "HostAccess", Message: "host namespaces"},
			want: fails("HostAccess", "host namespaces"),
		},
		"it was deleted before the spoke had seen it": {
			reason: "a kubelet fails a pod that it never began", pod: podNamed("a", deleting(30)),
			said: &wire.PodStatus{Generation: 1, Gone: true}, want: fails("", ""),
		},
		"the hub refused it": {
			reason: "nobody else is asked", pod: podNamed("a", ofADaemonSet, deleting(30)), want: fails(ReasonDaemonSetPod, daemonSetPod),
		},
		"the agent takes no pods": {
			reason: "nobody will ever say more", pod: podNamed("a", deleting(30)), want: fails(ReasonNotSent, notTaken),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Config{}, func(r *rig) {
				var writes []string
				r.client.PrependReactor("patch", "pods", func(a k8stesting.Action) (bool, runtime.Object, error) {
					var change corev1.Pod
					err := json.Unmarshal(a.(k8stesting.PatchAction).GetPatch(), &change)
					writes = append(writes, fmt.Sprintf("patch %s: %s %q %q", a.GetSubresource(), change.Status.Phase, change.Status.Reason, change.Status.Message))
					return false, nil, err
				})
				r.client.PrependReactor("delete", "pods", func(k8stesting.Action) (bool, runtime.Object, error) {
					writes = append(writes, "delete")
					return false, nil, nil
				})
				r.watch(spoke)
				defer r.Open(spoke)()
				if tc.said != nil {
					r.says(spoke, tc.pod, *tc.said)
				}
				<-time.After(2 * responseTimeout)
				synctest.Wait()
				// The fake has no versions: what comes late of the pod is written once more.
				writes = writes[:min(len(writes), slices.Index(writes, "delete")+1)]
				if diff := cmp.Diff(tc.want, writes); diff != "" {
					t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
				}
			}, tc.pod)
		})
	}
}

func TestConflictWithAnotherUIDIsNotRetried(t *testing.T) {
	inBubble(t, Config{}, func(r *rig) {
		r.watch(spoke)
		defer r.connect(spoke)()
		r.client.PrependReactor("patch", "pods", func(k8stesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewConflict(corev1.Resource("pods"), "a", errors.New("uid"))
		})
		r.client.PrependReactor("get", "pods", func(k8stesting.Action) (bool, runtime.Object, error) {
			return true, podNamed("a", func(p *corev1.Pod) { p.UID = "another" }), nil
		})
		<-time.After(2 * responseTimeout)
		r.requests()
		r.says(spoke, podNamed("a"), wire.PodStatus{Generation: 1, Status: running()})
		<-time.After(time.Hour)
		synctest.Wait()
		if diff := cmp.Diff(map[string]int{"patch pods": 1}, r.requests()); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
	}, podNamed("a"))
}

func TestOwnWriteIsNewerThanALaggingWatch(t *testing.T) {
	version := func(v string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.ResourceVersion = v } }
	h := &podState{pod: podNamed("a", version("5")), written: podNamed("a", version("9"))}
	if got := h.latest().ResourceVersion; got != "9" {
		t.Errorf("version %s, want our own", got)
	}
	h.pod = podNamed("a", version("10"))
	if got := h.latest().ResourceVersion; got != "10" || h.written != nil {
		t.Errorf("version %s, want the watch's, and ours forgotten", got)
	}
}
