// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/spokelet/spokelet/hub/mutation"
)

var (
	bare  = map[string]string{"spokelet.io/cluster": "store-17"}
	linux = map[string]string{"spokelet.io/cluster": "store-17", "kubernetes.io/os": "linux"}
)

// started are DaemonSets of a hub with some DaemonSets, and how often they told of a change.
type started struct {
	*DaemonSets
	client *fake.Clientset
	told   int
	stop   func()
}

func start(t *testing.T, sets ...*appsv1.DaemonSet) *started {
	t.Helper()
	s := &started{client: fake.NewSimpleClientset()}
	for _, d := range sets {
		if err := s.client.Tracker().Add(d); err != nil {
			t.Fatal(err)
		}
	}
	made, err := NewDaemonSets(s.client, nil, func() { s.told++ })
	if err != nil {
		t.Fatal(err)
	}
	s.DaemonSets = made
	if text, known := s.Objection(bare, linux); text != "" || known {
		t.Errorf("before Start: %q, known %t", text, known)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Start(ctx) }()
	s.stop = func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	synctest.Wait()
	return s
}

// objects reports whether somebody objects to the label of the operating system, and
// names a DaemonSet.
func (s *started) objects(t *testing.T, to string) bool {
	t.Helper()
	text, known := s.Objection(bare, linux)
	if !known {
		t.Error("the DaemonSets are not known")
	}
	return text != "" && strings.Contains(text, to)
}

func TestObjectionNamesDaemonSetsMatchingNewLabels(t *testing.T) {
	cases := map[string]struct {
		reason, spec string
		want         bool
	}{
		"it selects by it":       {reason: "its controller would count the node", spec: onLinux, want: true},
		"its affinity does":      {reason: "its controller would count the node", spec: "{tolerations: [{operator: Exists}], affinity: " + required + "[{matchExpressions: [{key: kubernetes.io/os, operator: In, values: [linux]}]}]}}}}", want: true},
		"it selects nothing":     {reason: "it counts the node in any case", spec: everything},
		"it selects another":     {reason: "it does not count the node", spec: "{tolerations: [{operator: Exists}], nodeSelector: {kubernetes.io/os: windows}}"},
		"it selects more":        {reason: "it does not count the node", spec: "{tolerations: [{operator: Exists}], nodeSelector: {kubernetes.io/os: linux, gpu: 'true'}}"},
		"it tolerates nothing":   {reason: "the taint keeps it off", spec: "{nodeSelector: {kubernetes.io/os: linux}}"},
		"it names the taint":     {reason: "it asks for the node", spec: "{tolerations: [{key: spokelet.io/virtual-node}], nodeSelector: {kubernetes.io/os: linux}}"},
		"it is kept off already": {reason: "by the policy", spec: "{tolerations: [{operator: Exists}], nodeSelector: {kubernetes.io/os: linux}, affinity: " + required + "[{matchExpressions: [" + elsewhere + "]}]}}}}"},
		"nothing can be read":    {reason: "its controller finds no node", spec: "{tolerations: [{operator: Exists}], affinity: " + required + "[{matchExpressions: [{key: kubernetes.io/os, operator: Odd}]}]}}}}"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := start(t, newDaemonSet(t, tc.spec))
				defer s.stop()
				if got := s.objects(t, "kube-system/everywhere"); got != tc.want {
					t.Errorf("%s: in the way %t", tc.reason, got)
				}
			})
		})
	}
}

func TestObjectionFollowsDaemonSetChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t)
		defer s.stop()
		sets := s.client.AppsV1().DaemonSets("kube-system")
		check := func(when string, want bool, told int, err error) {
			t.Helper()
			synctest.Wait()
			if got := s.objects(t, "kube-system/everywhere"); got != want || err != nil || s.told != told {
				t.Errorf("%s: in the way %t, told %d times, want %d, error %v", when, got, s.told, told, err)
			}
		}
		check("at first", false, 1, nil)
		d := newDaemonSet(t, onLinux)
		_, err := sets.Create(t.Context(), d, metav1.CreateOptions{})
		check("when it has come", true, 2, err)
		d.Labels = map[string]string{"a": "b"}
		_, err = sets.Update(t.Context(), d, metav1.UpdateOptions{})
		check("when its labels change", true, 2, err)
		d.Status.NumberReady = 1
		_, err = sets.UpdateStatus(t.Context(), d, metav1.UpdateOptions{})
		check("when its status changes", true, 2, err)
		d.Spec.Template.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{}}
		_, err = sets.Update(t.Context(), d, metav1.UpdateOptions{})
		check("when it avoids pods", true, 2, err)
		d.Spec.Template.Spec = newDaemonSet(t, "{}").Spec.Template.Spec
		_, err = sets.Update(t.Context(), d, metav1.UpdateOptions{})
		check("when it tolerates nothing any more", false, 3, err)
		d.Labels = map[string]string{"a": "c"}
		_, err = sets.Update(t.Context(), d, metav1.UpdateOptions{})
		check("when that changes of which nobody cares", false, 3, err)
		d.Spec.Template.Spec = newDaemonSet(t, onLinux).Spec.Template.Spec
		_, err = sets.Update(t.Context(), d, metav1.UpdateOptions{})
		check("when it does again", true, 4, err)
		check("when it has gone", false, 5, sets.Delete(t.Context(), d.Name, metav1.DeleteOptions{}))
	})
}

func TestObjectionNamesLimitedNumberOfDaemonSets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all []*appsv1.DaemonSet
		for i := range 5 {
			d := newDaemonSet(t, onLinux)
			d.Name = fmt.Sprintf("d%d", 4-i)
			all = append(all, d)
		}
		s := start(t, all...)
		defer s.stop()
		text, _ := s.Objection(bare, linux)
		if want := ": kube-system/d0, kube-system/d1, kube-system/d2 and 2 more"; !strings.HasSuffix(text, want) {
			t.Errorf("%q does not end %q", text, want)
		}
	})
}

func TestObjectionStandsWithoutPolicy(t *testing.T) {
	client := fake.NewSimpleClientset()
	s, err := NewDaemonSets(client, mutation.ErrNotServed, func() { t.Error("something has changed") })
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := s.Start(ctx); err != nil || ctx.Err() == nil {
			t.Errorf("Start returned %v, context %v", err, ctx.Err())
		}
	})
	if asked := client.Actions(); len(asked) > 0 {
		t.Errorf("the API server was asked: %v", asked)
	}
	if text, known := s.Objection(bare, linux); !strings.Contains(text, "serves no mutating admission policies") || !known {
		t.Errorf("%q, known %t: a DaemonSet may come at any time", text, known)
	}
}
