// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package deployer turns what a developer uploads into versions in the object store, and what
// he deploys into WorkerDeployments. All that it knows is in these two and in the Secrets
// that the WorkerDeployments name; it can be restarted at any moment, and what people write
// with kubectl counts as much as what they deploy through it.
//
// A version that is deployed is one whose template the WorkerDeployment has. Values of secrets
// are in Secrets alone, a new one for each set of values, so that going back to a version is to
// go back to its secrets, too. Who may do what is not decided here.
package deployer
