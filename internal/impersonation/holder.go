// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package impersonation

import "strings"

// Holder returns who a user of the hub is where something is counted for each user: of a
// service account the group of all in its namespace, since who may make one there may make any
// number of them, and else the user.
func Holder(user string) string {
	rest, account := strings.CutPrefix(user, "system:serviceaccount:")
	if namespace, _, ok := strings.Cut(rest, ":"); account && ok {
		return "system:serviceaccounts:" + namespace
	}
	return user
}
