// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package quota bounds what the requests of accounts have in memory of what they read from the
// hub and from the object store. Bytes count as they arrive and until the request ends, so that
// nothing that is read for a request has to be given back by hand. What is beyond a bound is not
// waited for, but fails: who waits holds what he has already.
package quota
