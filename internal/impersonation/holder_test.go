// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package impersonation

import "testing"

func TestHolderGroupsServiceAccountsOfNamespace(t *testing.T) {
	for user, tc := range map[string]struct{ reason, want string }{
		"system:serviceaccount:team-a:ci":   {"who made it can make others", "system:serviceaccounts:team-a"},
		"system:serviceaccount:team-a:ci-2": {"another one that was made", "system:serviceaccounts:team-a"},
		"system:serviceaccount:team-b:ci":   {"another namespace", "system:serviceaccounts:team-b"},
		"system:serviceaccount:":            {"no service account", "system:serviceaccount:"},
		"system:serviceaccount:team-a":      {"no service account", "system:serviceaccount:team-a"},
		"jane":                              {"a user", "jane"},
		"":                                  {"nobody", ""},
	} {
		if got := Holder(user); got != tc.want {
			t.Errorf("%q: got %q, want %q: %s", user, got, tc.want, tc.reason)
		}
	}
}
