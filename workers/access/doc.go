// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package access authenticates bearer tokens, authorizes their users, and maps accounts to
// namespaces. It asks the hub each time (TokenReview and SubjectAccessReview) and caches no answer,
// so that a withdrawn token or permission ends at once. An error is a refusal.
package access
