// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package script validates the spec of a script and derives what its image needs.
//
//   - [New] makes a [Worker] of a spec, the modules that are stored for it and the keys of
//     its Secret, or says which field is wrong. It never sees the value of a secret.
//     A script is either one of modules ([Worker.Main]) or in the format of service workers
//     ([Worker.Body]), whose other modules are values of its bindings.
//   - [Prefix] is the only reader of the addresses that an account writes. Whatever an
//     address looks like, its key lies below the account in the one bucket, or is refused.
//   - [Date] reads both spellings of a date.
//   - [EnvPrefix], [ServiceName] and [PortName] are the names that a script has outside of
//     its account: in the environment of its pods, and in the cluster.
//
// The package has no client and no clock: the same script is the same Worker. All that is in
// a Worker is valid UTF-8 and survives JSON as it is, for its digest names images. What
// workerd alone can judge (flags, how late a date may be, the code) is left to workerd.
package script
