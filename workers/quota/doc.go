// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package quota limits the memory that requests of accounts take for what they read from the hub and
// from the object store. Bytes count from their arrival until the request ends, so that callers need
// not release anything. A read beyond a limit fails instead of waiting, because a waiting request
// would keep its memory.
package quota
