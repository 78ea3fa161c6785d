// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package mcm

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/e2e/testbed"
)

// The kube examples of docs/work/work.md of multicloud-operators-foundation, as far as they
// are known: works in a namespace that is not their cluster's, a bare map as selector,
// types in lower case, a version that is no more, and a deletion that names its object in
// the template alone.
const (
	exampleView = `
apiVersion: mcm.ibm.com/v1alpha1
kind: Work
metadata:
  name: nginx-pods
  namespace: default
spec:
  cluster:
    name: spoke1
  type: Resource
  scope:
    resourceType: pods
    labelSelector:
      app: nginx
`
	exampleCreate = `
apiVersion: mcm.ibm.com/v1alpha1
kind: Work
metadata:
  name: nginx-create
  namespace: default
spec:
  cluster:
    name: spoke1
  type: Action
  actionType: create
  kube:
    resource: deployment
    template:
      apiVersion: extensions/v1beta1
      kind: Deployment
      metadata:
        name: nginx-deployment
        namespace: default
      spec:
        replicas: 1
        template:
          metadata:
            labels:
              app: nginx
          spec:
            containers:
            - name: nginx
              image: nginx:1.7.9
              ports:
              - containerPort: 80
`
	exampleDelete = `
apiVersion: mcm.ibm.com/v1alpha1
kind: Work
metadata:
  name: nginx-delete
  namespace: default
spec:
  cluster:
    name: spoke1
  type: Action
  actionType: delete
  kube:
    resource: deployment
    namespace: default
    template:
      apiVersion: extensions/v1beta1
      kind: Deployment
      metadata:
        name: nginx-deployment
        namespace: default
`
)

// exampleUpdate wants one pod more.
func exampleUpdate() string {
	return strings.NewReplacer("nginx-create", "nginx-update", "actionType: create", "actionType: update", "replicas: 1", "replicas: 2").Replace(exampleCreate)
}

func (s *tests) documentsExamples(t *testing.T) {
	const namespace = "default"
	names := []string{"nginx-pods", "nginx-create", "nginx-update", "nginx-delete"}
	remove := append([]string{"delete", works, "-n", namespace, "--ignore-not-found"}, names...)
	s.Hub.Kubectl(t, remove...) // of an earlier run
	s.Spoke().Kubectl(t, "delete", "deployment", "nginx-deployment", "-n", namespace, "--ignore-not-found")
	s.Spoke().Apply(t, pod("other", "other"))
	s.apply(t, exampleCreate)
	w := s.until(t, works, namespace, "nginx-create", "the example of a creation", func(w object) error { return w.is("Completed") })
	live, err := s.Spoke().Kube.AppsV1().Deployments(namespace).Get(t.Context(), "nginx-deployment", getOptions)
	if err != nil {
		t.Fatal(err)
	}
	if w.field("status", "result", "apiVersion") != "apps/v1" || w.field("status", "result", "metadata", "uid") != string(live.UID) {
		t.Errorf("the result is %.300s, want the object that is there", w.field("status", "result"))
	}
	s.untilWarned(t, namespace, "nginx-create", "apps/v1")
	s.apply(t, exampleView)
	w = s.until(t, works, namespace, "nginx-pods", "the example of a view", labelledPods(1))
	if kind := w.field("status", "result", "kind"); kind != "PodList" {
		t.Errorf("the result is a %q", kind)
	}
	s.apply(t, exampleUpdate())
	s.until(t, works, namespace, "nginx-update", "the example of an update", func(w object) error { return w.is("Completed") })
	s.until(t, works, namespace, "nginx-pods", "the view has the new pod", labelledPods(2))
	s.apply(t, exampleDelete)
	s.until(t, works, namespace, "nginx-delete", "the example of a deletion", func(w object) error { return w.is("Completed") })
	s.until(t, works, namespace, "nginx-pods", "the view has no pod any more", labelledPods(0))
	s.nothingLeft(t, namespace)
	s.Hub.Kubectl(t, remove...)
}

// labelledPods is nil for a view that is answered with so many pods, each with the label.
func labelledPods(want int) func(object) error {
	return func(w object) error {
		if err := w.is("Completed"); err != nil {
			return err
		}
		for _, item := range w.items() {
			if label := item.GetLabels()["app"]; label != "nginx" {
				return fmt.Errorf("pod %s has the label %q", item.GetName(), label)
			}
		}
		if got := w.names(); len(got) != want {
			return fmt.Errorf("it shows %q, want %d pods", got, want)
		}
		return nil
	}
}

// untilWarned waits for a warning event of a Work.
func (s *tests) untilWarned(t *testing.T, namespace, name, word string) {
	t.Helper()
	testbed.Until(t, "a warning about "+name, testbed.Settle, func(ctx context.Context) error {
		out, err := s.Hub.Command.Run(ctx, "get", "events", "-n", namespace, "--field-selector", "involvedObject.name="+name+",type=Warning", "-o", "jsonpath={.items[*].message}")
		if err == nil && !strings.Contains(out, word) {
			err = fmt.Errorf("events say %q", out)
		}
		return err
	})
}

// nothingLeft waits until what the deployment had in the spoke is gone, too.
func (s *tests) nothingLeft(t *testing.T, namespace string) {
	t.Helper()
	if _, err := s.Spoke().Kube.AppsV1().Deployments(namespace).Get(t.Context(), "nginx-deployment", getOptions); !apierrors.IsNotFound(err) {
		t.Errorf("after its deletion: %v", err)
	}
	testbed.Until(t, "a clean spoke", testbed.Settle, func(ctx context.Context) error {
		sets, err := s.Spoke().Kube.AppsV1().ReplicaSets(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=nginx"})
		if err != nil {
			return err
		}
		pods, err := s.Spoke().Kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=nginx"})
		if err == nil && len(sets.Items)+len(pods.Items) > 0 {
			err = errors.New("replica sets or pods are left")
		}
		return err
	})
}
