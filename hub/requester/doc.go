// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package requester reads and writes who asked for an object, in annotations that a webhook
// of the hub keeps (package admission): views and actions are done as that user. Names and
// encodings are those of the original APIs. One annotation is ours: under which registration
// of the webhook the author was recorded. Under no other the author counts, because while
// the webhook is not registered whoever writes an object writes its annotations.
//
// A [Registration] is what is registered now; a [RegistrationWatcher] keeps it up to date.
package requester
