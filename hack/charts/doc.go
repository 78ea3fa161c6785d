// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package charts holds, as tests, what the Helm charts may grant: the rights of
// the accounts that they make, read from what helm renders.
//
// It runs helm, which hack/clusters builds, and needs no cluster. The package has
// no code outside its tests.
package charts
