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
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/spokelet/spokelet/e2e/env"
	"github.com/spokelet/spokelet/e2e/testbed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	// account is that of the developer, whose namespace is team.
	account = "9f3c"
	team    = "team-w"
	// other is an account that is not his.
	other     = "5a1e"
	otherTeam = "team-x"

	// asker reaches scripts through the hub, as a user of it.
	asker = "erin"
)

// tests are those of one developer.
type tests struct {
	*testbed.Testbed

	program string // wrangler
	home    string // below it are the folders of those who run it
	homes   int
	store   *env.Store
	images  *env.ImageRegistry
	asker   *http.Client

	developer env.Command // wrangler, as who may deploy
	first     string      // the version that was deployed first
}

func TestWrangler(t *testing.T) {
	program := needs(t)
	s := &tests{Testbed: testbed.Open(t), program: program, home: t.TempDir()}
	s.store, s.images = s.Servers(t)
	s.asker = s.HTTPAs(t, asker)
	testbed.InOrder(t, 4,
		testbed.Step{Name: "helm installs the operator and the API", Run: s.install},
		testbed.Step{Name: "an account is opened to wrangler", Run: s.open},
		testbed.Step{Name: "wrangler whoami", Run: s.whoami},
		testbed.Step{Name: "wrangler deploy of a new script", Run: s.deploy},
		testbed.Step{Name: "wrangler deploy of a script that is there", Run: s.deployAgain},
		testbed.Step{Name: "wrangler secret put, list, bulk and delete", Run: s.secrets},
		testbed.Step{Name: "wrangler versions upload, list and deploy", Run: s.versions},
		testbed.Step{Name: "wrangler deployments list and status", Run: s.deployments},
		testbed.Step{Name: "wrangler rollback", Run: s.rollback},
		testbed.Step{Name: "wrangler deploy of a script in the format of service workers", Run: s.serviceWorker},
		testbed.Step{Name: "wrangler tail", Run: s.tail},
		testbed.Step{Name: "what workerd rejects is said in the terminal, and not served", Run: s.rejected},
		testbed.Step{Name: "what is not supported is refused by name", Run: s.notSupported},
		testbed.Step{Name: "who may not is refused", Run: s.refused},
		testbed.Step{Name: "of two deploys at once one is served", Run: s.twoAtOnce},
		testbed.Step{Name: "wrangler delete", Run: s.delete},
		testbed.Step{Name: "nothing was refused to the API and the operator", Run: s.noErrors},
		testbed.Step{Name: "no race was seen", Run: s.NoRace},
		testbed.Step{Name: "all of it is removed", Run: s.remove},
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

// accounts are two, with a developer each. Both are opened to the API.
const accounts = `
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

func (s *tests) open(t *testing.T) {
	s.Hub.Kubectl(t, "label", "managedcluster", "spoke1", "spoke2", "workers.spokelet.io/clusters=true", "--overwrite")
	s.Hub.Apply(t, fmt.Sprintf(accounts, team, account))
	s.Hub.Apply(t, fmt.Sprintf(accounts, otherTeam, other))
	s.Hub.Apply(t, fmt.Sprintf(askers, asker))
	for _, spoke := range s.Spokes {
		spoke.Apply(t, fmt.Sprintf(askers, "hub:"+asker))
	}
	s.developer = s.as(t, "developer")
}

// as is wrangler as a ServiceAccount of the namespace, in a folder of its own.
func (s *tests) as(t *testing.T, name string) env.Command {
	t.Helper()
	return s.with(t, account, s.token(t, name, "--audience=spokelet-workers"))
}

// token is a new one of a ServiceAccount.
func (s *tests) token(t *testing.T, name string, args ...string) string {
	t.Helper()
	return strings.TrimSpace(s.Hub.Kubectl(t, append([]string{"create", "token", "-n", team, name}, args...)...))
}

// with is wrangler with a token and an account.
func (s *tests) with(t *testing.T, id, token string) env.Command {
	t.Helper()
	s.homes++
	dir := filepath.Join(s.home, strconv.Itoa(s.homes))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return s.Env.WranglerCommand(s.program, dir, id, token)
}

func (s *tests) whoami(t *testing.T) {
	testbed.Until(t, "the developer's rights are known", testbed.Settle, func(ctx context.Context) error {
		out, err := s.developer.Run(ctx, "whoami")
		if err == nil && (!strings.Contains(out, account) || !strings.Contains(out, "system:serviceaccount:team-w:developer") || strings.Contains(out, other)) {
			err = fmt.Errorf("it says %q", out)
		}
		return err
	})
}
