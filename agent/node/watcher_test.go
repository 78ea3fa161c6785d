// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/testr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/spokelet/spokelet/api/wire"
)

type fixedVersion struct {
	version string
	err     error
}

func (v *fixedVersion) ServerVersionWithContext(context.Context) (*version.Info, error) {
	return &version.Info{GitVersion: v.version}, v.err
}

// watching runs a Watcher; published holds what it published.
func watching(t *testing.T, client *fake.Clientset, v VersionGetter) (published *[]string, stop func()) {
	t.Helper()
	published = &[]string{}
	w, err := NewWatcher(WatcherConfig{
		Client: client, Version: v, Logger: testr.New(t),
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

func TestOnlyARealChangeIsPublished(t *testing.T) {
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
				client := fake.NewClientset(testNode("a"))
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

func TestNodesThatComeAndGoArePublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
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

func TestAVersionThatCannotBeReadStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(testNode("a"))
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
