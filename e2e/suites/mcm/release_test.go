// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package mcm

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/e2e/env"
	"github.com/spokelet/spokelet/e2e/testbed"
)

// exampleRelease is the helm example of the document, with the host that serves charts
// here.
const exampleRelease = `
apiVersion: mcm.ibm.com/v1alpha1
kind: Work
metadata:
  name: nginx-install
  namespace: default
spec:
  cluster:
    name: spoke1
  type: Action
  actionType: create
  helm:
    releaseName: nginx-lego
    namespace: default
    chartURL: https://kubernetes-charts.storage.googleapis.com/nginx-lego-0.3.1.tgz
`

const exampleHost = "https://kubernetes-charts.storage.googleapis.com/"

// release has one installed in bob's namespace.
func (s *tests) release(name, chart string) string {
	return fmt.Sprintf("type: Action, actionType: Create, helm: {releaseName: %s, namespace: bob, chartURL: '%s'}", name, s.charts+chart)
}

func base64Of(values string) string { return base64.StdEncoding.EncodeToString([]byte(values)) }

// shows is nil for a view of releases that shows one: its revision, status and version of
// the chart.
func shows(name, want string) func(object) error {
	return func(w object) error {
		if err := w.is("Completed"); err != nil {
			return err
		}
		got := "none"
		for _, item := range w.items() {
			o := object{item}
			if o.GetName() == name {
				got = strings.Join([]string{o.field("spec", "version"), o.field("spec", "status"), o.field("spec", "chartVersion")}, " ")
			}
		}
		if got != want {
			return fmt.Errorf("it shows %q, want %q", got, want)
		}
		return nil
	}
}

// releases installs the document's example, upgrades and uninstalls it. A view follows.
func (s *tests) releases(t *testing.T) {
	const namespace = "default"
	remove := []string{"delete", works, "-n", namespace, "--ignore-not-found", "nginx-install", "nginx-upgrade", "nginx-uninstall", "nginx-releases"}
	s.Hub.Kubectl(t, remove...) // of an earlier run
	view := "apiVersion: mcm.ibm.com/v1alpha1\nkind: Work\nmetadata: {name: nginx-releases, namespace: default}\nspec: {cluster: {name: spoke1}, type: Resource, scope: {resourceType: releases, namespace: default}}\n"
	s.apply(t, view)
	s.until(t, works, namespace, "nginx-releases", "no release is there", shows("nginx-lego", "none"))
	s.apply(t, strings.ReplaceAll(exampleRelease, exampleHost, s.charts))
	w := s.until(t, works, namespace, "nginx-install", "the example of a release", func(w object) error { return w.is("Completed") })
	if kind, status := w.field("status", "result", "kind"), w.field("status", "result", "spec", "status"); kind != "HelmRelease" || status != "deployed" {
		t.Errorf("the result is %.300s", w.field("status", "result"))
	}
	s.until(t, works, namespace, "nginx-releases", "the view has it", shows("nginx-lego", "1 deployed 0.3.1"))
	s.untilServed(t, "none of 0.3.1")

	// Wait has the pods of the new version ready before it is said.
	upgrade := strings.NewReplacer(exampleHost, s.charts, "nginx-install", "nginx-upgrade", "create", "update", "0.3.1", "0.4.0").Replace(exampleRelease) +
		fmt.Sprintf("    valuesURL: %svalues.yaml\n    values: %s\n    wait: true\n", s.charts, base64Of("message: s3cret\n"))
	s.apply(t, upgrade)
	w = s.until(t, works, namespace, "nginx-upgrade", "an upgrade", func(w object) error { return w.is("Completed") })
	if ready := s.deployment(t, "nginx-lego").ready; ready != 2 {
		t.Errorf("%d pods are ready, want the 2 that the file of values asks for", ready)
	}
	s.untilServed(t, "s3cret of 0.4.0")
	if status := w.field("status"); strings.Contains(status, "s3cret") || w.field("status", "result", "spec", "manifest") != "***" {
		t.Errorf("values are shown: %.600s", status)
	}
	w = s.until(t, works, namespace, "nginx-releases", "the view has the new revision", shows("nginx-lego", "2 deployed 0.4.0"))
	if strings.Contains(w.field("status"), "s3cret") {
		t.Errorf("values are shown: %.600s", w.field("status"))
	}

	uninstall := strings.NewReplacer("nginx-install", "nginx-uninstall", "create", "delete", "    namespace: default\n    chartURL: "+exampleHost+"nginx-lego-0.3.1.tgz\n", "").Replace(exampleRelease)
	s.apply(t, uninstall)
	s.until(t, works, namespace, "nginx-uninstall", "a deinstallation", func(w object) error { return w.is("Completed") })
	s.until(t, works, namespace, "nginx-releases", "the view has it no more", shows("nginx-lego", "none"))
	s.untilNothingOf(t, namespace, "nginx-lego")
	s.Hub.Kubectl(t, remove...)
}

type deployment struct{ ready int32 }

func (s *tests) deployment(t *testing.T, name string) deployment {
	t.Helper()
	d, err := s.Spoke().Kube.AppsV1().Deployments("default").Get(t.Context(), name, getOptions)
	if err != nil {
		t.Fatal(err)
	}
	return deployment{ready: d.Status.ReadyReplicas}
}

// untilServed waits until a pod of the example serves a page.
func (s *tests) untilServed(t *testing.T, page string) {
	t.Helper()
	testbed.Until(t, "a page "+page, testbed.Settle, func(ctx context.Context) error {
		got, err := s.Spoke().Command.Run(ctx, "exec", "-n", "default", "deployment/nginx-lego", "--", "wget", "-q", "-O", "-", "http://127.0.0.1:8080/")
		if err == nil && strings.TrimSpace(got) != page {
			err = fmt.Errorf("it serves %q", got)
		}
		return err
	})
}

// untilNothingOf waits until a release has left nothing.
func (s *tests) untilNothingOf(t *testing.T, namespace, name string) {
	t.Helper()
	testbed.Until(t, "nothing of "+name, testbed.Settle, func(ctx context.Context) error {
		pods, err := s.Spoke().Kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + name})
		if err != nil {
			return err
		}
		secrets, err := s.records(ctx, namespace, name)
		if err != nil {
			return err
		}
		_, err = s.Spoke().Kube.CoreV1().ConfigMaps(namespace).Get(ctx, name, getOptions)
		switch {
		case err != nil && !apierrors.IsNotFound(err):
			return err
		case err == nil || len(pods.Items)+len(secrets) > 0:
			return errors.New("objects, pods or records are left")
		default:
			return nil
		}
	})
}

// records are Helm's of a release, a revision each.
func (s *tests) records(ctx context.Context, namespace, name string) ([]corev1.Secret, error) {
	list, err := s.Spoke().Kube.CoreV1().Secrets(namespace).List(ctx, metav1.ListOptions{LabelSelector: "owner=helm,name=" + name})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// failedReleases: what failed says why and what to do, and is gone by that.
func (s *tests) failedReleases(t *testing.T) {
	s.apply(t, work("h-elsewhere", "spoke1", "type: Action, actionType: Create, helm: {releaseName: bad, namespace: bob, chartURL: 'https://charts.example.com/a-1.0.0.tgz'}"))
	s.apply(t, work("h-closed", "spoke2", s.release("closed", "slow.tgz")))
	s.apply(t, work("h-hook", "spoke1", s.release("failing", "failing.tgz")))
	s.until(t, works, "bob", "h-elsewhere", "a chart that the cluster's owner does not name", func(w object) error {
		return w.is("Failed", "helm.charts in the values of the agent's chart")
	})
	s.until(t, works, "bob", "h-closed", "a cluster whose owner lets no charts in", func(w object) error {
		return w.is("Failed", "helm is not enabled", "helm.charts")
	})
	s.until(t, works, "bob", "h-hook", "a hook that fails", func(w object) error { return w.is("Failed", "failing-hook") })
	s.apply(t, work("h-again", "spoke1", s.release("failing", "failing.tgz")))
	s.until(t, works, "bob", "h-again", "a release that failed is in the way", func(w object) error {
		return w.is("Failed", "release failing in namespace bob exists", "is failed", "update it (actionType Update), or delete it first")
	})
	s.apply(t, work("h-removed", "spoke1", "type: Action, actionType: Delete, helm: {releaseName: failing}"))
	s.until(t, works, "bob", "h-removed", "a release that failed is deleted", func(w object) error { return w.is("Completed") })
	s.untilNothingOf(t, "bob", "failing")
}

// hungryProcess takes all the memory that a process of Helm may have. The agent goes on.
func (s *tests) hungryProcess(t *testing.T) {
	before := s.agentRestarts(t)
	s.apply(t, work("p-hungry", "spoke1", s.release("hungry", "hungry.tgz")))
	s.until(t, works, "bob", "p-hungry", "a chart that takes all memory", func(w object) error { return w.is("Failed", "the process of helm ended", "192 MiB") })
	if after := s.agentRestarts(t); after != before {
		t.Errorf("the agent restarted %d times, want %d", after, before)
	}
}

func (s *tests) agentRestarts(t *testing.T) (restarts int32) {
	t.Helper()
	pods, err := s.Spoke().Kube.CoreV1().Pods(env.AgentNamespace).List(t.Context(), metav1.ListOptions{LabelSelector: testbed.AgentPods})
	if err != nil || len(pods.Items) == 0 {
		t.Fatalf("%d pods of the agent, %v", len(pods.Items), err)
	}
	for i := range pods.Items {
		for _, c := range pods.Items[i].Status.ContainerStatuses {
			restarts += c.RestartCount
		}
	}
	return restarts
}

// installing applies a work whose release takes a while, and waits until it says what it
// waits for.
func (s *tests) installing(t *testing.T, name, chart string) {
	t.Helper()
	s.apply(t, work(name, "spoke1", s.release(name, chart)))
	s.until(t, works, "bob", name, "it tells what it does", func(w object) error { return w.is("Processing", "waiting for the hook Job "+name+"-hook") })
}

// agentIsKilledInstalling: the process of helm goes with it. The next agent says so, and
// does it no second time.
func (s *tests) agentIsKilledInstalling(t *testing.T) {
	s.NoRace(t) // the log of its pod goes
	s.installing(t, "slow-killed", "long.tgz")
	s.Spoke().Kubectl(t, "delete", "pod", "-n", env.AgentNamespace, "-l", testbed.AgentPods, "--grace-period=0", "--force")
	s.until(t, works, "bob", "slow-killed", "the agent was killed", func(w object) error {
		return w.is("Failed", "outcome unknown", "revision 1 of release slow-killed in namespace bob was pending-install", "update or delete it")
	})
	s.oneRecord(t, "slow-killed", "failed")
	s.uninstall(t, "slow-killed")
}

// oneRecord fails unless a release has one revision, of a status.
func (s *tests) oneRecord(t *testing.T, name, status string) {
	t.Helper()
	found, err := s.records(t.Context(), "bob", name)
	if err != nil || len(found) != 1 || found[0].Labels["status"] != status {
		t.Errorf("%d revisions of %s, %v; want one that is %s", len(found), name, err, status)
	}
}

func (s *tests) uninstall(t *testing.T, name string) {
	t.Helper()
	s.apply(t, work(name+"-off", "spoke1", "type: Action, actionType: Delete, helm: {releaseName: "+name+"}"))
	s.until(t, works, "bob", name+"-off", "it is deleted", func(w object) error { return w.is("Completed") })
	s.untilNothingOf(t, "bob", name)
}
