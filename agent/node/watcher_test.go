// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/spokelet/spokelet/api/wire"
)

type fixedVersion struct {
	version string
	err     error
	asked   int
}

func (v *fixedVersion) ServerVersionWithContext(context.Context) (*version.Info, error) {
	v.asked++
	return &version.Info{GitVersion: v.version}, v.err
}

// watching runs a Watcher; published holds what it published.
func watching(t *testing.T, client *fake.Clientset, v VersionGetter) (published *[]string, stop func()) {
	t.Helper()
	published = &[]string{}
	w, err := NewWatcher(WatcherConfig{
		Client: client, Version: v, Logger: testr.New(t), HubID: "hub1",
		Publisher: PublisherFunc(func(b []byte) { *published = append(*published, string(b)) }),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	synctest.Wait()
	return published, func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run(): %v", err)
		}
	}
}

func TestWatcherPublishesOnlyChanges(t *testing.T) {
	cases := map[string]struct {
		reason string
		change func(*corev1.Node)
		want   int // summaries after the first
	}{
		"a heartbeat": {
			reason: "that time has passed is no news",
			change: func(n *corev1.Node) { n.Status.Conditions[0].LastHeartbeatTime = metav1.NewTime(time.Unix(1e9, 0)) },
		},
		"images": {
			reason: "they are not in the summary",
			change: func(n *corev1.Node) { n.Status.Images = []corev1.ContainerImage{{Names: []string{"x"}}} },
		},
		"an annotation": {
			reason: "it is not in the summary",
			change: func(n *corev1.Node) { n.Annotations = map[string]string{"a": "b"} },
		},
		"a condition": {
			reason: "it is", change: with(corev1.NodeReady, corev1.ConditionFalse, "KubeletNotReady"), want: 1,
		},
		"a cordon": {
			reason: "allocatable changes", change: cordoned, want: 1,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := fake.NewSimpleClientset(testNode("a"))
				published, stop := watching(t, client, &fixedVersion{version: "v1.37.2"})
				defer stop()
				if len(*published) != 1 {
					t.Fatalf("published at the start: got %d summaries, want 1", len(*published))
				}
				node := testNode("a")
				tc.change(node)
				if _, err := client.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if got := len(*published) - 1; got != tc.want {
					t.Errorf("%s: got %d summaries, want %d", tc.reason, got, tc.want)
				}
			})
		})
	}
}

func TestWatcherPublishesAddedAndDeletedNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewSimpleClientset()
		published, stop := watching(t, client, &fixedVersion{version: "v1.37.2"})
		defer stop()
		if _, err := client.CoreV1().Nodes().Create(t.Context(), testNode("a"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := client.CoreV1().Nodes().Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		var totals []int
		for _, body := range *published {
			s, err := wire.DecodeNodeSummary([]byte(body))
			if err != nil {
				t.Fatal(err)
			}
			totals = append(totals, s.Nodes.Total)
		}
		if len(totals) != 3 || totals[0] != 0 || totals[1] != 1 || totals[2] != 0 {
			t.Errorf("nodes in the summaries: got %v, want 0, 1, 0", totals)
		}
	})
}

func TestWatcherKeepsLastServerVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewSimpleClientset(testNode("a"))
		v := &fixedVersion{version: "v1.37.2"}
		published, stop := watching(t, client, v)
		defer stop()
		v.err = errors.New("the API server is away")
		if _, err := client.CoreV1().Nodes().Update(t.Context(), testNode("a", cordoned), metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		s, err := wire.DecodeNodeSummary([]byte((*published)[len(*published)-1]))
		if err != nil || s.KubernetesVersion != "v1.37.2" || len(*published) != 2 {
			t.Errorf("last of %d summaries: %+v, %v", len(*published), s, err)
		}
	})
}

// cpus are the allocatable CPUs of summaries.
func cpus(t *testing.T, published []string) []string {
	t.Helper()
	var all []string
	for _, body := range published {
		s, err := wire.DecodeNodeSummary([]byte(body))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s.Allocatable["cpu"])
	}
	return all
}

func TestWatcherPublishesRequestsOfPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewSimpleClientset(testNode("a"), testPod("old"), testPod("ours", ofHub("hub1")))
		v := &fixedVersion{version: "v1.37.2"}
		published, stop := watching(t, client, v)
		defer stop()
		pods := client.CoreV1().Pods("default")
		for _, do := range []func() error{
			func() error { _, err := pods.Create(t.Context(), testPod("new"), metav1.CreateOptions{}); return err },
			func() error {
				_, err := pods.Create(t.Context(), testPod("more-of-ours", ofHub("hub1")), metav1.CreateOptions{})
				return err
			},
			func() error { return pods.Delete(t.Context(), "old", metav1.DeleteOptions{}) },
			func() error { return pods.Delete(t.Context(), "new", metav1.DeleteOptions{}) },
		} {
			if err := do(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(podSpacing)
			synctest.Wait()
		}
		if diff := cmp.Diff([]string{"3", "2500m", "3", "3500m"}, cpus(t, *published)); diff != "" {
			t.Errorf("allocatable CPUs (-want +got):\n%s", diff)
		}
		if v.asked != 1 {
			t.Errorf("the version was asked for %d times, want once: pods do not change it", v.asked)
		}
	})
}

func TestWatcherCoalescesBurstOfPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewSimpleClientset(testNode("a"))
		published, stop := watching(t, client, &fixedVersion{version: "v1.37.2"})
		defer stop()
		start := func(name string) {
			if _, err := client.CoreV1().Pods("default").Create(t.Context(), testPod(name), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		start("first")
		synctest.Wait()
		if diff := cmp.Diff([]string{"3500m", "3"}, cpus(t, *published)); diff != "" {
			t.Errorf("the first change is not held back (-want +got):\n%s", diff)
		}
		for _, name := range []string{"b", "c", "d", "e"} {
			time.Sleep(podSpacing / 10)
			start(name)
		}
		node := testNode("a", cordoned)
		if _, err := client.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if diff := cmp.Diff([]string{"3500m", "3", "0"}, cpus(t, *published)); diff != "" {
			t.Errorf("a node's change is not held back (-want +got):\n%s", diff)
		}
		if _, err := client.CoreV1().Nodes().Update(t.Context(), testNode("a"), metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if diff := cmp.Diff([]string{"3500m", "3", "0", "1"}, cpus(t, *published)); diff != "" {
			t.Errorf("the rest is one summary, and there is none at rest (-want +got):\n%s", diff)
		}
	})
}

func TestWatcherPublishesWithoutRightToPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewSimpleClientset(testNode("a"), testPod("old"))
		var shown atomic.Bool
		client.PrependReactor("list", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
			where := action.(clienttesting.ListAction).GetListRestrictions().Fields.String()
			if where != "spec.nodeName!=,status.phase!=Failed,status.phase!=Succeeded" {
				t.Errorf("pods are listed where %s", where)
			}
			return !shown.Load(), nil, apierrors.NewForbidden(corev1.Resource("pods"), "", errors.New("no rights"))
		})
		published, stop := watching(t, client, &fixedVersion{version: "v1.37.2"})
		defer stop()
		if diff := cmp.Diff([]string{"3500m"}, cpus(t, *published)); diff != "" {
			t.Errorf("without the right (-want +got):\n%s", diff)
		}
		shown.Store(true)
		// Where client-go writes errors it waits, when two are close to each other,
		// and takes the time outside the bubble for that of the first.
		time.Sleep(100 * 365 * 24 * time.Hour)
		synctest.Wait()
		if diff := cmp.Diff([]string{"3500m", "3"}, cpus(t, *published)); diff != "" {
			t.Errorf("once it has been given (-want +got):\n%s", diff)
		}
	})
}
