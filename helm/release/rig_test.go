// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	releasecommon "helm.sh/helm/v4/pkg/release/common"
	releasev1 "helm.sh/helm/v4/pkg/release/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/spokelet/spokelet/agent/helm/message"
	"github.com/spokelet/spokelet/internal/testing/livetest"
)

// files are those of a chart, below its folder.
type files map[string]string

// configMap is a template that shows values.
const configMap = `apiVersion: v1
kind: ConfigMap
metadata: {name: "{{ .Release.Name }}"}
data: {color: "{{ .Values.color }}", size: "{{ .Values.size }}"}
`

// hook is a template of a Job that is a hook, which ends when a test says so: no scheduler
// gives its pod to a node.
const hook = `apiVersion: batch/v1
kind: Job
metadata: {name: "{{ .Release.Name }}-hook", annotations: {helm.sh/hook: pre-install}}
spec:
  backoffLimit: 0
  template: {spec: {restartPolicy: Never, schedulerName: nobody, containers: [{name: a, image: a}]}}
`

// oldVersions are templates of API versions that Kubernetes serves no more.
const oldVersions = `apiVersion: extensions/v1beta1
kind: Deployment
metadata: {name: web}
spec: {template: {metadata: {labels: {app: web}}, spec: {containers: [{name: a, image: a}]}}}
---
apiVersion: extensions/v1beta1
kind: Ingress
metadata: {name: web}
spec: {backend: {serviceName: web, servicePort: 80}}
`

// packChart packs a chart.
func packChart(t testing.TB, name, version string, content files) []byte {
	t.Helper()
	var out bytes.Buffer
	packed := gzip.NewWriter(&out)
	all := tar.NewWriter(packed)
	content["Chart.yaml"] = "apiVersion: v2\nname: " + name + "\nversion: " + version + "\n"
	for name, text := range content {
		if err := all.WriteHeader(&tar.Header{Name: "chart/" + name, Mode: 0o644, Size: int64(len(text)), Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(all, text); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(all.Close(), packed.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// serve serves charts, and files of values, by their names.
func serve(t testing.TB, content map[string][]byte) (url string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, ok := content[strings.TrimPrefix(r.URL.Path, "/")]
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(raw)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// rig is a namespace of a real API server, and a server of charts.
type rig struct {
	kube      kubernetes.Interface
	config    *rest.Config
	namespace string
	charts    map[string][]byte
	url       string
	progress  []string
}

func newRig(t *testing.T) *rig {
	t.Helper()
	cfg := livetest.Config(t, "SPOKELET_TEST_KUBECONFIG")
	kube, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{kube: kube, config: cfg, namespace: livetest.Namespace(t, kube, "helm-"), charts: map[string][]byte{}}
	r.charts["web-1.0.0.tgz"] = packChart(t, "web", "1.0.0", files{"templates/a.yaml": configMap, "values.yaml": "color: red\nsize: small\n"})
	r.charts["web-2.0.0.tgz"] = packChart(t, "web", "2.0.0", files{"templates/a.yaml": configMap, "values.yaml": "color: blue\nsize: small\n"})
	r.charts["hooked.tgz"] = packChart(t, "hooked", "1.0.0", files{"templates/a.yaml": configMap, "templates/hook.yaml": hook, "values.yaml": "color: red\n"})
	r.url = serve(t, r.charts)
	return r
}

// run does something with the release "web" as the administrator.
func (r *rig) run(t *testing.T, verb message.Verb, change func(*message.Request)) message.Answer {
	t.Helper()
	return r.runAs(t, r.config, verb, change)
}

func (r *rig) runAs(t *testing.T, config *rest.Config, verb message.Verb, change func(*message.Request)) message.Answer {
	t.Helper()
	request := message.Request{
		Verb: verb, Name: "web", Namespace: r.namespace, Chart: message.Chart{URL: r.url + "/web-1.0.0.tgz"},
		Allowed: []string{r.url}, ActionLabel: "uid.1", Timeout: livetest.Patience,
	}
	if change != nil {
		change(&request)
	}
	r.progress = nil
	return Run(t.Context(), request, config, func(progress string) { r.progress = append(r.progress, progress) })
}

// done does what has to succeed.
func (r *rig) done(t *testing.T, verb message.Verb, change func(*message.Request)) *message.Release {
	t.Helper()
	answer := r.run(t, verb, change)
	if answer.Failure != nil {
		t.Fatalf("%s: %+v", verb, *answer.Failure)
	}
	return answer.Release
}

// failed is what a failure has to be.
func failed(t *testing.T, answer message.Answer, cause message.Cause, texts ...string) {
	t.Helper()
	if answer.Failure == nil {
		t.Fatalf("it is done: %+v", answer.Release)
	}
	if answer.Failure.Cause != cause {
		t.Errorf("got cause %s, want %s: %s", answer.Failure.Cause, cause, answer.Failure.Message)
	}
	for _, text := range texts {
		if !strings.Contains(answer.Failure.Message, text) {
			t.Errorf("got %q, want it to say %q", answer.Failure.Message, text)
		}
	}
}

// data is that of a ConfigMap; nil if there is none.
func (r *rig) data(t *testing.T, name string) map[string]string {
	t.Helper()
	cm, err := r.kube.CoreV1().ConfigMaps(r.namespace).Get(t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return cm.Data
}

// manager is that of the fields of a ConfigMap.
func (r *rig) manager(t *testing.T, name string) string {
	t.Helper()
	cm, err := r.kube.CoreV1().ConfigMaps(r.namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil || len(cm.ManagedFields) != 1 {
		t.Fatalf("%d managers, %v", len(cm.ManagedFields), err)
	}
	return cm.ManagedFields[0].Manager
}

// records are those of revisions, with their status.
func (r *rig) records(t *testing.T) map[string]string {
	t.Helper()
	list, err := r.kube.CoreV1().Secrets(r.namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "owner=helm"})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for i := range list.Items {
		found[list.Items[i].Name] = list.Items[i].Labels["status"]
	}
	return found
}

// setStatus has a revision of "web" be in a status.
func (r *rig) setStatus(t *testing.T, version int, status releasecommon.Status) {
	t.Helper()
	r.record(t, version, func(revision *releasev1.Release) { revision.SetStatus(status, "the test says so") })
}

// record changes the record of a revision of "web".
func (r *rig) record(t *testing.T, version int, change func(*releasev1.Release)) {
	t.Helper()
	o := &operation{kube: r.kube, request: message.Request{Name: "web", Namespace: r.namespace}, end: time.Now().Add(livetest.Patience), report: func(string) {}}
	if err := o.initHelm(r.config); err != nil {
		t.Fatal(err)
	}
	found, err := o.helm.Releases.Get("web", version)
	if err != nil {
		t.Fatal(err)
	}
	revision := found.(*releasev1.Release)
	change(revision)
	if err := o.helm.Releases.Update(revision); err != nil {
		t.Fatal(err)
	}
}

// user is somebody who may do what rules say in the namespace.
func (r *rig) user(t *testing.T, name string, rules ...rbacv1.PolicyRule) *rest.Config {
	t.Helper()
	config := rest.CopyConfig(r.config)
	config.Impersonate.UserName = name + "-" + r.namespace
	if len(rules) == 0 {
		return config
	}
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}
	if _, err := r.kube.RbacV1().Roles(r.namespace).Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: config.Impersonate.UserName}},
	}
	if _, err := r.kube.RbacV1().RoleBindings(r.namespace).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	livetest.Eventually(t, name+" has rights", func() bool {
		_, err := kube.CoreV1().Secrets(r.namespace).List(t.Context(), metav1.ListOptions{Limit: 1})
		return err == nil
	})
	return config
}

// failPods has all pods of the namespace fail, which nothing runs.
func (r *rig) failPods(ctx context.Context) {
	pods := r.kube.CoreV1().Pods(r.namespace)
	list, err := pods.List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	for i := range list.Items {
		list.Items[i].Status.Phase = corev1.PodFailed
		_, _ = pods.UpdateStatus(ctx, &list.Items[i], metav1.UpdateOptions{})
	}
}
