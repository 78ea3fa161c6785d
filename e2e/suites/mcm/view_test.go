// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package mcm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/spokelet/spokelet/e2e/env"
	"github.com/spokelet/spokelet/e2e/testbed"
)

var getOptions = metav1.GetOptions{}

func gvrOf(group, version, resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: version, Resource: resource}
}

// pod is one that never runs: no image is needed to look at it.
func pod(name, app string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: bob, labels: {app: %s}}, "+
		"spec: {nodeSelector: {none: none}, containers: [{name: c, image: none}]}}\n", name, app)
}

// viewIsLive: with an interval of an hour a pod is on the hub within a second, by one
// watch.
func (s *tests) viewIsLive(t *testing.T) {
	offset := testbed.AuditSize(t, s.Spoke())
	for _, name := range []string{"live-1", "live-2"} {
		s.apply(t, work(name, "spoke1", `type: Resource, scope: {resourceType: pods, namespace: bob, labelSelector: {matchLabels: {app: live}}, mode: Periodic, updateIntervalSeconds: 3600}`))
		s.until(t, works, "bob", name, "an empty view", func(w object) error { return w.is("Processing") })
	}
	var took time.Duration
	for _, name := range []string{"live-a", "live-b", "live-c"} {
		began := time.Now()
		s.Spoke().Apply(t, pod(name, "live"))
		s.until(t, works, "bob", "live-1", "the pod is shown", func(w object) error {
			if !slices.Contains(w.names(), name) {
				return fmt.Errorf("it shows %q", w.names())
			}
			return nil
		})
		took = time.Since(began)
		if took < time.Second {
			break // the best of three: other tests share the processors
		}
	}
	if took >= time.Second {
		t.Errorf("a pod is shown after %s, want less than a second", took)
	}
	t.Logf("a pod that is created is in the hub's status after %s, kubectl included", took)
	s.apply(t, work("live-table", "spoke1", `type: Resource, scope: {resourceType: po, namespace: bob, labelSelector: {app: live}, serverPrint: true}`))
	w := s.until(t, works, "bob", "live-table", "a table", func(w object) error { return w.is("Completed") })
	if w.field("status", "result", "kind") != "Table" || !strings.Contains(w.field("status", "result", "columnDefinitions"), "Ready") {
		t.Errorf("serverPrint gives %.300s", w.field("status", "result"))
	}
	watches, lists := s.bobsRequests(t, offset, "pods")
	if watches != 2 || lists != 0 {
		t.Errorf("%d watches and %d lists of pods by bob, want one watch for two works, one for the table, and no list", watches, lists)
	}
	s.Hub.Kubectl(t, "delete", works, "-n", "bob", "live-1", "live-2", "live-table")
}

// secretsAreMasked: keys are shown, and values nowhere.
func (s *tests) secretsAreMasked(t *testing.T) {
	s.Spoke().Apply(t, `{apiVersion: v1, kind: Secret, metadata: {name: seen, namespace: bob}, stringData: {password: hunter2}}`)
	for name, scope := range map[string]string{
		"secret-list":  "{resourceType: secrets, namespace: bob, fieldSelector: metadata.name=seen}",
		"secret-one":   "{resourceType: secret, namespace: bob, name: seen}",
		"secret-table": "{resourceType: secrets, namespace: bob, fieldSelector: metadata.name=seen, serverPrint: true}",
	} {
		s.apply(t, work(name, "spoke1", "type: Resource, scope: "+scope))
		w := s.until(t, works, "bob", name, "a view of a Secret", func(w object) error { return w.is("Completed") })
		masked(t, w, name != "secret-table")
	}
	s.apply(t, work("secret-made", "spoke1", `type: Action, actionType: Create, kube: {template: {apiVersion: v1, kind: Secret, metadata: {name: hidden, namespace: bob}, stringData: {password: hunter2}}}`))
	masked(t, s.until(t, works, "bob", "secret-made", "a Secret is created", func(w object) error { return w.is("Completed") }), true)
}

// masked fails if the status of a Work has the value of a Secret, or not its key where
// that is to be seen.
func masked(t *testing.T, w object, key bool) {
	t.Helper()
	text := w.field("status")
	for _, value := range []string{"hunter2", "aHVudGVyMg"} {
		if strings.Contains(text, value) {
			t.Errorf("work %s shows the value of a Secret: %s", w.GetName(), text)
		}
	}
	if key != strings.Contains(text, "password") {
		t.Errorf("work %s: the key of a Secret is shown: %t, want %t: %s", w.GetName(), !key, key, text)
	}
}

// bobsRequests counts what bob asked of the spoke.
func (s *tests) bobsRequests(t *testing.T, offset int64, resource string) (watches, lists int) {
	t.Helper()
	requests, err := env.AuditSince(s.Spoke().Cluster, offset)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range requests {
		if r.Impersonated == nil || r.Impersonated.Username != "hub:"+bob || r.ObjectRef.Resource != resource {
			continue
		}
		switch r.Verb {
		case "watch":
			watches++
		case "list":
			lists++
		}
	}
	return watches, lists
}

// largeNamespace keeps the many from the views of other tests.
const largeNamespace = "large"

// largeView is of more than a result may have.
func (s *tests) largeView(t *testing.T) {
	ctx, maps := t.Context(), s.Spoke().Kube.CoreV1().ConfigMaps(largeNamespace)
	const many = 5000
	s.Spoke().Apply(t, "{apiVersion: v1, kind: Namespace, metadata: {name: "+largeNamespace+"}}")
	defer func() {
		_ = maps.DeleteCollection(context.WithoutCancel(ctx), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "size=large"})
	}()
	var group sync.WaitGroup
	failed := make(chan error, many)
	for writer := range 8 {
		group.Go(func() {
			for i := writer; i < many; i += 8 {
				_, err := maps.Create(ctx, &corev1.ConfigMap{
					ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("large-%04d", i), Labels: map[string]string{"size": "large"}},
				}, metav1.CreateOptions{})
				if err != nil {
					failed <- err
					return
				}
			}
		})
	}
	group.Wait()
	close(failed)
	if err := errors.Join(<-failed); err != nil {
		t.Fatal(err)
	}
	s.apply(t, work("large", "spoke1", `type: Resource, scope: {resourceType: configmaps, namespace: large, labelSelector: {size: large}}`))
	w := s.until(t, works, "bob", "large", "a view of many", func(w object) error { return w.is("Completed", "left out", "kind", "ViewWork") })
	shown, size := w.names(), len(w.field("status", "result"))
	left := w.field("status", "result", "metadata", "remainingItemCount")
	if strconv.Itoa(many-len(shown)) != left || size > 512<<10 || size < 400<<10 {
		t.Errorf("%d of %d items in %d bytes, %s are said to remain", len(shown), many, size, left)
	}
	_, question, _ := strings.Cut(w.field("status", "reason"), "{")
	out, err := s.Hub.As(bob).RunInput(ctx, strings.NewReader("{"+question), "create", "-f", "-", "-o", "jsonpath={.status.summary}")
	if err == nil && !strings.Contains(out, `"clusters":1`) {
		err = fmt.Errorf("it answers %s", out)
	}
	if err != nil {
		t.Errorf("the ViewWork that the reason names: %v", err)
	}
	s.Hub.Kubectl(t, "delete", works, "-n", "bob", "large")
}
