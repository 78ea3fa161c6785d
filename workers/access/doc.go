// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package access says who a bearer token is of, what he may do, and which account is in which
// namespace. It asks the hub each time (TokenReview and SubjectAccessReview of Kubernetes) and
// keeps no answer, so that a token or a right that is withdrawn is gone at once. Any doubt is
// a refusal.
package access
