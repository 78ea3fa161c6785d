// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/spokelet/spokelet/e2e/env"
	"github.com/spokelet/spokelet/e2e/testbed"
)

// The secret of the document's script, before and after it changes.
const (
	firstSecret  = "a-first-secret"
	secondSecret = "a-second-secret"
)

// documents are the manifests of the document, with the URL of a version.
const documents = `
apiVersion: v1
kind: Secret
metadata: {name: hello-secrets, labels: {workers.spokelet.io/script: hello}}
stringData: {API_KEY: %s}
---
apiVersion: api.worker-account/v1alpha1
kind: WorkerAccount
metadata: {name: "1234"}
spec:
  workerBundleName: bundle-1234
  workerReleaseSelector: {}
---
apiVersion: api.worker-deployment/v1alpha1
kind: WorkerDeployment
metadata: {name: hello}
spec:
  releaseHistoryLimit: 3
  template:
    scriptName: hello
    secretRef: hello-secrets
    compatibilityDate: 01/15/2026
    scriptUrls: ["%s"]
    bindings:
    - {name: GREETING, type: plain_text, text: Hello}
`

// hello is a script that shows its version, its text and its secret.
func hello(version string) map[string]string {
	return map[string]string{"index.js": fmt.Sprintf(
		"export default { async fetch(request, env) { return new Response(`${env.GREETING} %s ${env.API_KEY}`); } };\n", version)}
}

func (s *tests) testExampleOfDocumentation(t *testing.T) {
	s.apply(t, fmt.Sprintf(documents, firstSecret, s.put(t, "hello", "1", hello("v1"))))
	start := time.Now()
	s.waitForBundle(t, 1, 2)
	s.waitForHello(t, "Hello v1 "+firstSecret)
	t.Logf("from kubectl apply to two clusters: %s", time.Since(start).Round(time.Millisecond))
	got := s.waitForReady(t, "hello")
	if s.first = got.Release; got.Revision != 1 || got.Served != got.Release || !strings.HasPrefix(got.Release, "hello-") {
		t.Errorf("status is %+v", got)
	}
	release := s.object(t, releasesResource, s.first)
	if date, _, _ := unstructured.NestedString(release.Object, "spec", "compatibilityDate"); date != "2026-01-15" {
		t.Errorf("the release has the date %q", date)
	}
	tags, err := s.images.Tags(t.Context(), s.repository())
	if err != nil || len(tags) != 1 {
		t.Errorf("images of the account: %q, %v", tags, err)
	}
	s.testKubectlOutput(t)
	s.checkSecretNotExposed(t, firstSecret)
}

// testKubectlOutput checks what a user sees without reading YAML.
func (s *tests) testKubectlOutput(t *testing.T) {
	t.Helper()
	// The name, the image, workers, ready clusters, clusters, a reason and the age.
	out := s.Hub.Kubectl(t, "get", "workerbundles", "-n", s.team, s.bundle(), "--no-headers")
	if fields := strings.Fields(out); len(fields) != 7 || !slices.Equal(fields[2:6], []string{"1", "2", "2", "Served"}) {
		t.Errorf("kubectl shows %q", out)
	}
	for _, spoke := range s.Spokes {
		s.Hub.Kubectl(t, "get", "manifestwork", "-n", spoke.Name, s.inSpoke())
		if got, err := s.Hub.As(carol).Run(t.Context(), "get", "--raw", s.path(spoke, "hello")); err != nil || got != s.hello {
			t.Errorf("%s: kubectl gets %q, %v", spoke.Name, got, err)
		}
	}
}

// checkSecretNotExposed checks that a value is in nothing that the operator makes on the hub, but
// for the copy in the release's Secret and the works of the clusters.
func (s *tests) checkSecretNotExposed(t *testing.T, value string) {
	t.Helper()
	for what, args := range map[string][]string{
		"log":                 {"logs", "-n", env.WorkersNamespace, "deployment/spokelet-workers", "--tail=-1"},
		"builds":              {"get", "configmaps,jobs,events", "-n", env.WorkersNamespace, "-o", "yaml"},
		"account's namespace": {"get", "workerdeployments,workerreleases,workerbundles,jobbuilders,workeraccounts,events", "-n", s.team, "-o", "yaml"},
	} {
		if strings.Contains(s.Hub.Kubectl(t, args...), value) {
			t.Errorf("the secret is in the %s", what)
		}
	}
}

func (s *tests) testSecondVersion(t *testing.T) {
	s.ask(t, "2", hello("v2"))
	s.waitForHello(t, "Hello v2 "+firstSecret)
	if got := s.waitForReady(t, "hello"); got.Revision != 2 || got.Release == s.first {
		t.Errorf("status is %+v", got)
	}
	if builds := s.names(t, buildersResource); len(builds) != 2 {
		t.Errorf("builds are %q", builds)
	}
}

// testRollback: the release and its image are still there.
func (s *tests) testRollback(t *testing.T) {
	before := s.names(t, buildersResource)
	s.ask(t, "1", nil)
	s.waitForHello(t, "Hello v1 "+firstSecret)
	if got := s.waitForReady(t, "hello"); got.Release != s.first || got.Revision != 3 {
		t.Errorf("status is %+v, want release %s as revision 3", got, s.first)
	}
	if diff := cmp.Diff(before, s.names(t, buildersResource)); diff != "" {
		t.Errorf("builds (-before +after):\n%s", diff)
	}
}

// testNoChange: neither by the same manifests, nor by an operator that starts anew.
func (s *tests) testNoChange(t *testing.T) {
	s.waitForBundle(t, 1, 2)
	before := s.picture(t)
	s.apply(t, fmt.Sprintf(documents, firstSecret, s.put(t, "hello", "1", nil)))
	s.checkNoPanic(t) // its log goes
	s.Hub.Kubectl(t, "rollout", "restart", "deployment/spokelet-workers", "-n", env.WorkersNamespace)
	s.Hub.Kubectl(t, "rollout", "status", "deployment/spokelet-workers", "-n", env.WorkersNamespace, "--timeout=180s")
	testbed.Wait(t, 3*time.Second)
	if diff := cmp.Diff(before, s.picture(t)); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
	s.checkStillHello(t)
}

// picture is what there is of the account: the specs by their generations.
func (s *tests) picture(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, gvr := range []struct{ resource, namespace string }{
		{"workerdeployments,workerreleases,workerbundles,jobbuilders,workeraccounts", s.team},
		{"manifestworks", "spoke1"}, {"manifestworks", "spoke2"}, {"jobs", env.WorkersNamespace},
	} {
		out := s.Hub.Kubectl(t, "get", gvr.resource, "-n", gvr.namespace, "-o", "go-template={{range .items}}{{.kind}} {{.metadata.name}} {{.metadata.generation}}{{\"\\n\"}}{{end}}")
		all = slices.AppendSeq(all, strings.Lines(out))
	}
	return all
}

func (s *tests) testSecretChange(t *testing.T) {
	builds := s.names(t, buildersResource)
	s.apply(t, "apiVersion: v1\nkind: Secret\nmetadata: {name: hello-secrets, labels: {workers.spokelet.io/script: hello}}\nstringData: {API_KEY: "+secondSecret+"}\n")
	s.waitForHello(t, "Hello v1 "+secondSecret)
	if got := s.waitForReady(t, "hello"); got.Release == s.first {
		t.Errorf("it is the same release: %+v", got)
	}
	if diff := cmp.Diff(builds, s.names(t, buildersResource)); diff != "" {
		t.Errorf("builds (-before +after):\n%s", diff)
	}
}
