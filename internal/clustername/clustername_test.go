// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package clustername

import (
	"errors"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/spokelet/spokelet/tunnel/identity"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestCheckRefusesReservedNames(t *testing.T) {
	tests := map[string]struct {
		reason, name string
		want         error
	}{
		"a cluster's own":    {reason: "nobody else has the namespace", name: "store-1"},
		"the longest":        {reason: "a namespace may be as long", name: strings.Repeat("a", 63)},
		"like default":       {reason: "another namespace", name: "default-1"},
		"like the system's":  {reason: "the prefix is with a dash", name: "kubernetes"},
		"default":            {reason: "everybody works there", name: "default", want: ErrReserved},
		"the system's":       {reason: "Kubernetes keeps the prefix", name: "kube-system", want: ErrReserved},
		"the hub's":          {reason: "its Secrets are there", name: "hub-system", want: ErrReserved},
		"no label":           {reason: "no namespace has the name", name: "Store.1", want: identity.ErrName},
		"no label, reserved": {reason: "the form comes first", name: "kube-system-", want: identity.ErrName},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if err := Check(tc.name, "hub-system"); !errors.Is(err, tc.want) {
				t.Errorf("%s: Check(%q) = %v, want %v", tc.reason, tc.name, err, tc.want)
			}
		})
	}
}

func TestCheckNamesClusterInError(t *testing.T) {
	// The agent's chart says the same.
	const want = `cluster name "default": name is that of a namespace with a purpose of its own`
	if err := Check("default", "hub-system"); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
