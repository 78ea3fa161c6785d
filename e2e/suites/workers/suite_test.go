// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package workers tests worker bundles: scripts that a store holds are served by workerd in
// all clusters, with a real operator, store, registry and workerd. Manifests are written as
// users write them, and kubectl applies them.
//
// It is skipped where workerd cannot be had.
package workers

import (
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/spokelet/spokelet/e2e/env"
	"github.com/spokelet/spokelet/e2e/testbed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tests are those of an account, in its namespace.
type tests struct {
	*testbed.Testbed

	account, team string
	owner         env.Command // kubectl, as who owns the namespace

	store   *env.Store
	images  *env.ImageRegistry
	workerd string       // the program
	carol   *http.Client // as whom scripts are reached

	first string // the release that was served first
	hello string // what the document's script answers by now
}

func TestWorkers(t *testing.T) {
	workerd := needsWorkerd(t)
	s := &tests{Testbed: testbed.Open(t), account: "1234", team: "team-a", workerd: workerd}
	s.owner = s.Hub.Command
	s.store, s.images = s.Servers(t)
	s.carol = s.HTTPAs(t, carol)
	second := s.other("5678", "team-b", dave)
	testbed.InOrder(t, 4,
		testbed.Step{Name: "helm installs the operator", Run: s.install},
		testbed.Step{Name: "carol may reach scripts", Run: s.grantCarol},
		testbed.Step{Name: "an account gets clusters and a namespace", Run: s.offer},
		testbed.Step{Name: "the document's script is served in both clusters", Run: s.testExampleOfDocumentation},
		testbed.Step{Name: "a second version replaces the first", Run: s.testSecondVersion},
		testbed.Step{Name: "going back builds nothing", Run: s.testRollback},
		testbed.Step{Name: "nothing changes when nothing is changed", Run: s.testNoChange},
		testbed.Step{Name: "beside each other", Run: func(t *testing.T) {
			testbed.Parallel(t, map[string]func(*testing.T){
				"the first account": func(t *testing.T) {
					testbed.InOrder(t, 0,
						testbed.Step{Name: "a secret changes without a build", Run: s.testSecretChange},
						testbed.Step{Name: "a second script is in the same bundle", Run: s.testSecondScript},
						testbed.Step{Name: "clusters answer as workerd alone does", Run: s.testSameAsWorkerd},
						testbed.Step{Name: "what workerd rejects is not served", Run: s.testRejectedScripts},
						testbed.Step{Name: "of two changes at once the later one is served", Run: s.testConcurrentChanges},
						testbed.Step{Name: "bad input is refused by name", Run: s.testInvalidInput},
					)
				},
				"a second account": second.testSecondAccount,
			})
		}},
		testbed.Step{Name: "a registry that is away is waited for", Run: s.testRegistryUnavailable},
		testbed.Step{Name: "a tunnel that is cut is caught up with, and its image is kept until then", Run: s.testTunnelCut},
		testbed.Step{Name: "a cluster that is offered no more is left", Run: s.testClusterLeaves},
		testbed.Step{Name: "a script that is deleted is gone", Run: s.testDeleteScript},
		testbed.Step{Name: "an account that is deleted leaves nothing", Run: s.testDeleteAccount},
		testbed.Step{Name: "a namespace that is deleted takes its account along", Run: second.testNamespaceDeleted},
		testbed.Step{Name: "the operator had no panic, and all rights that it needs", Run: s.checkNoPanic},
		testbed.Step{Name: "no race was seen", Run: s.NoRace},
		testbed.Step{Name: "all of it is removed", Run: s.deleteObject},
	)
}

// needsWorkerd returns the program, and skips a test where it cannot be had.
func needsWorkerd(t *testing.T) string {
	t.Helper()
	root, err := env.Root()
	if err != nil {
		t.Fatal(err)
	}
	image, err := env.Build{Root: root}.Workerd(t.Context())
	if errors.Is(err, env.ErrNoWorkerd) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(image, "usr", "bin", "workerd")
}

// other are the tests of another account, whose namespace somebody else owns.
func (s *tests) other(account, team, owner string) *tests {
	return &tests{
		Testbed: s.Testbed, account: account, team: team, owner: s.Hub.As(owner),
		store: s.store, images: s.images, workerd: s.workerd, carol: s.carol,
	}
}

// inSpoke is the namespace of the account in the clusters, and its work.
func (s *tests) inSpoke() string { return "workers-" + s.account }

func (s *tests) bundle() string { return "bundle-" + s.account }

// repository is where the images of the account are.
func (s *tests) repository() string { return "workers/" + s.account }

// hostSuffix is what the own names of accounts end in.
const hostSuffix = "workers.example.com"

// install has routes be Ingresses. No cluster here has a controller for them.
func (s *tests) install(t *testing.T) {
	if err := s.Env.InstallWorkers(t.Context(), s.store, s.images, append(testbed.ScriptsEndSoon(), "--set", "route.kind=Ingress", "--set", "route.hostSuffix="+hostSuffix)...); err != nil {
		t.Fatal(err)
	}
}

// tenant is the namespace of an account; of none if that is empty.
func tenant(namespace, account string) string {
	labels := ""
	if account != "" {
		labels = fmt.Sprintf(", labels: {workers.spokelet.io/account: %q}", account)
	}
	return "{apiVersion: v1, kind: Namespace, metadata: {name: " + namespace + labels + "}}\n"
}

func (s *tests) offer(t *testing.T) {
	s.Hub.Kubectl(t, "label", "managedcluster", "spoke1", "spoke2", "workers.spokelet.io/clusters=true", "--overwrite")
	s.Hub.Apply(t, tenant(s.team, s.account))
}

// put stores the modules of a version of a script, by their names, and returns the URL.
func (s *tests) put(t *testing.T, script, version string, modules map[string]string) string {
	t.Helper()
	prefix := s.account + "/" + script + "/" + version
	for name, content := range modules {
		if err := s.store.Put(t.Context(), prefix+"/"+name, content); err != nil {
			t.Fatal(err)
		}
	}
	return "s3://" + s.store.Bucket + "/" + prefix
}

// bare is the other form of a URL, without the bucket.
func (s *tests) bare(url string) string { return strings.TrimPrefix(url, "s3://"+s.store.Bucket+"/") }

// apply applies a manifest in the namespace of the account.
func (s *tests) apply(t *testing.T, manifest string) {
	t.Helper()
	if _, err := s.owner.RunInput(t.Context(), strings.NewReader(manifest), "apply", "-n", s.team, "-f", "-"); err != nil {
		t.Fatal(err)
	}
}

// change patches an object in the namespace of the account.
func (s *tests) change(t *testing.T, kind, name, patch string) {
	t.Helper()
	if _, err := s.owner.Run(t.Context(), "patch", kind, "-n", s.team, name, "--type=merge", "-p", patch); err != nil {
		t.Fatal(err)
	}
}

// use is a patch of a WorkerDeployment to the code at a URL.
func use(url string) string { return fmt.Sprintf(`{"spec":{"template":{"scriptUrls":[%q]}}}`, url) }

// ask has the script of the document be another version, which answers so once it is served.
func (s *tests) ask(t *testing.T, version string, modules map[string]string) {
	t.Helper()
	s.change(t, "workerdeployment", "hello", use(s.put(t, "hello", version, modules)))
}
