// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import "testing"

const hub = namespace + "/spokelet-hub"

// TestTheHubsSecretsAreInItsOwnNamespace: whoever may write Secrets in a
// cluster's namespace decides nothing about who becomes that cluster.
func TestTheHubsSecretsAreInItsOwnNamespace(t *testing.T) {
	found := false
	for _, g := range install(t, "spokelet-hub") {
		if !g.gives("", "secrets", "get", "list", "watch", "create", "update", "patch", "delete", "deletecollection") {
			continue
		}
		found = true
		if g.account != hub || g.namespace != namespace {
			t.Errorf("%s has %v on secrets in %q, want none outside %q", g.account, g.rule.Verbs, g.namespace, namespace)
		}
	}
	if !found {
		t.Error("the hub has no right on Secrets: it cannot keep its CA")
	}
}
