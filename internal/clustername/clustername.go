// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package clustername says which names a cluster may join under. The hub and those who
// prepare a join for it refuse the same names in the same words.
package clustername

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spokelet/spokelet/tunnel/identity"
)

// ErrReserved is of names whose namespace serves another purpose.
var ErrReserved = errors.New("name is that of a namespace with a purpose of its own")

// Check refuses names whose namespace is not the cluster's to have: works are kept in
// the namespace of that name.
func Check(name, hubNamespace string) error {
	if err := identity.ValidateName(name); err != nil {
		return err
	}
	if name == hubNamespace || name == "default" || strings.HasPrefix(name, "kube-") {
		return fmt.Errorf("cluster name %q: %w", name, ErrReserved)
	}
	return nil
}
