// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package build is what runs in the Job that makes the image of an account: three steps, each
// in a container of its own, which share a folder.
//
//	step   holds                      does
//	fetch  credentials of the store   writes the modules, the configuration and one probe for each script
//	check  nothing                    has workerd load each script alone
//	push   credentials of the registry  adds what was fetched to the runtime image
//
// The code of tenants runs in check alone, and there in a process that has no sockets but
// Unix ones, no files but its own and the system's libraries, and no other processes: see
// Confine. What a step has to say is a Result, in the termination message of its container.
//
// The folder holds config.capnp, probe-<n>.capnp for the script n, and the modules at the
// paths that bundle.Input gives them.
package build
