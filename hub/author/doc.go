// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package author reads and writes who asked for an object, in annotations that a webhook
// of the hub keeps (package admission): views and actions are done as that user. Names and
// encodings are those of the original APIs.
package author
