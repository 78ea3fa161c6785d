// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package wrangler tests that the real wrangler deploys to the hub: each command that
// docs/workers.md names, against a hub with two spokes, with a real operator, store, registry
// and workerd.
//
// It is skipped where wrangler or workerd cannot be had.
package wrangler

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/spokelet/spokelet/e2e/env"
	"github.com/spokelet/spokelet/e2e/testbed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// asker reaches scripts through the hub, as a user of it.
const asker = "erin"

// tests are those of one account, in its namespace.
type tests struct {
	*testbed.Testbed

	account, team string

	program string // wrangler
	home    string // of the developer
	store   *env.Store
	images  *env.ImageRegistry
	asker   *http.Client

	developer env.Command // wrangler, as who may deploy
	first     string      // the version that was deployed first
}

func TestWrangler(t *testing.T) {
	program := needs(t)
	s := &tests{Testbed: testbed.Open(t), account: "9f3c", team: "team-w", program: program, home: t.TempDir()}
	s.store, s.images = s.Servers(t)
	s.asker = s.HTTPAs(t, asker)
	second := *s
	second.account, second.team, second.home = "5a1e", "team-x", t.TempDir()
	testbed.InOrder(t, 3,
		testbed.Step{Name: "helm installs the operator and the API", Run: s.install},
		testbed.Step{Name: "two accounts are opened to wrangler", Run: func(t *testing.T) { s.open(t, s, &second) }},
		testbed.Step{Name: "wrangler whoami", Run: func(t *testing.T) {
			s.testWhoami(t, second.account)
			second.testWhoami(t, s.account)
		}},
		testbed.Step{Name: "beside each other", Run: func(t *testing.T) {
			testbed.Parallel(t, map[string]func(*testing.T){"versions": s.testVersionsOfScript, "scripts": second.testSeveralScripts})
		}},
		testbed.Step{Name: "nothing was refused to the API and the operator", Run: s.checkNoErrors},
		testbed.Step{Name: "no race was seen", Run: s.NoRace},
		testbed.Step{Name: "all of it is removed", Run: func(t *testing.T) { s.remove(t, s, &second) }},
	)
}

// testVersionsOfScript are the steps of an account with one script.
func (s *tests) testVersionsOfScript(t *testing.T) {
	testbed.InOrder(t, 1,
		testbed.Step{Name: "wrangler deploy of a new script", Run: s.testDeploy},
		testbed.Step{Name: "wrangler deploy of a script that is there", Run: s.testDeployAgain},
		testbed.Step{Name: "wrangler secret put, list, bulk and delete", Run: s.testSecrets},
		testbed.Step{Name: "wrangler versions upload, list and deploy", Run: s.testVersions},
		testbed.Step{Name: "wrangler deployments list and status", Run: s.testDeployments},
		testbed.Step{Name: "wrangler rollback", Run: s.testRollback},
		testbed.Step{Name: "wrangler delete", Run: func(t *testing.T) { s.testDelete(t, s.shop(t, "v4"), "--force") }},
	)
}

// testSeveralScripts are the steps of an account with more than one.
func (s *tests) testSeveralScripts(t *testing.T) {
	testbed.InOrder(t, 1,
		testbed.Step{Name: "what workerd rejects is said in the terminal, and not served", Run: s.testRejected},
		testbed.Step{Name: "wrangler deploy of a script in the format of service workers", Run: s.testServiceWorker},
		testbed.Step{Name: "wrangler tail", Run: s.testTail},
		testbed.Step{Name: "what is not supported is refused by name", Run: s.testUnsupported},
		testbed.Step{Name: "who may not is refused", Run: s.testRefused},
		testbed.Step{Name: "of two deploys at once one is served", Run: s.testConcurrentDeploys},
		testbed.Step{Name: "wrangler delete of one of them", Run: s.testDeleteOne},
	)
}

// needs returns wrangler, and skips a test where it cannot be had.
func needs(t *testing.T) string {
	t.Helper()
	root, err := env.Root()
	if err != nil {
		t.Fatal(err)
	}
	build := env.Build{Root: root}
	program, err := build.Wrangler(t.Context())
	if err == nil {
		_, err = build.Workerd(t.Context())
	}
	if errors.Is(err, env.ErrNoWrangler) || errors.Is(err, env.ErrNoWorkerd) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return program
}

func (s *tests) install(t *testing.T) {
	if err := s.Env.InstallWorkers(t.Context(), s.store, s.images, testbed.ScriptsEndSoon()...); err != nil {
		t.Fatal(err)
	}
}

// opened is an account with a developer, which is opened to the API.
const opened = `
{apiVersion: v1, kind: Namespace, metadata: {name: %[1]s, labels: {workers.spokelet.io/account: %[2]q}}}
---
apiVersion: api.worker-account/v1alpha1
kind: WorkerAccount
metadata: {name: %[2]q, namespace: %[1]s}
spec: {workerBundleName: bundle-%[2]s, workerReleaseSelector: {}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: developer, namespace: %[1]s}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: viewer, namespace: %[1]s}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: developer, namespace: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}
subjects: [{kind: ServiceAccount, name: developer, namespace: %[1]s}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: viewer, namespace: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects: [{kind: ServiceAccount, name: viewer, namespace: %[1]s}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: wrangler, namespace: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "spokelet-workers:account"}
subjects: [{kind: ServiceAccount, name: spokelet-workers-api, namespace: spokelet-workers}]
`

// askers are the rights of who reaches scripts, on the hub and in the clusters.
const askers = `
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: erin}, rules: [
  {apiGroups: [live.spokelet.io], resources: [clusters/proxy], verbs: [get]},
  {apiGroups: [""], resources: [services/proxy], verbs: [get]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: erin},
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: erin},
  subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: "%s"}]}
`

func (s *tests) open(t *testing.T, accounts ...*tests) {
	t.Helper()
	s.Hub.Kubectl(t, "label", "managedcluster", "spoke1", "spoke2", "workers.spokelet.io/clusters=true", "--overwrite")
	s.Hub.Apply(t, fmt.Sprintf(askers, asker))
	for _, spoke := range s.Spokes {
		spoke.Apply(t, fmt.Sprintf(askers, "hub:"+asker))
	}
	for _, a := range accounts {
		s.Hub.Apply(t, fmt.Sprintf(opened, a.team, a.account))
		a.developer = a.with(a.home, a.token(t, "developer", forAPI))
	}
}

// forAPI has a token be accepted by the API, and by nobody else.
const forAPI = "--audience=spokelet-workers"

// token is a new one of a ServiceAccount.
func (s *tests) token(t *testing.T, name string, args ...string) string {
	t.Helper()
	return strings.TrimSpace(s.Hub.Kubectl(t, append([]string{"create", "token", "-n", s.team, name}, args...)...))
}

// username is the developer's on the hub.
func (s *tests) username() string { return "system:serviceaccount:" + s.team + ":developer" }

// with is wrangler with a token, for who has this home.
func (s *tests) with(home, token string) env.Command {
	return s.Env.WranglerCommand(s.program, home, s.account, token)
}

// testWhoami: of the other account the developer learns nothing.
func (s *tests) testWhoami(t *testing.T, other string) {
	t.Helper()
	testbed.Until(t, "the developer's rights are known", testbed.Settle, func(ctx context.Context) error {
		out, err := s.developer.Run(ctx, "whoami")
		if err == nil && (!strings.Contains(out, s.account) || !strings.Contains(out, s.username()) || strings.Contains(out, other)) {
			err = fmt.Errorf("it says %q", out)
		}
		return err
	})
}
