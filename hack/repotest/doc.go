// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package repotest holds, as tests, the rules of this repository that no linter
// knows: which package may import which, what every file and package carries,
// how long things may get, and that documents speak of what exists.
//
// A rule names file, line and reason when it is broken. Exceptions live beside
// their rule with a reason of their own, and an exception that nothing needs
// any more is itself a failure. The package has no code outside its tests.
package repotest
