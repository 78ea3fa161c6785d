// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tail sends the trace events of one script to a WebSocket, as `wrangler tail` reads
// them.
//
//   - [Tails.Create] makes a tail and returns its path, which holds 256 random bits: who has
//     the path may open it, once.
//   - [Tails.ServeHTTP] is where it is opened. Nothing is followed before, and nothing after
//     the connection ended.
//   - [Tails.Delete] ends it.
//
// # Where events come from
//
// The WorkerBundles of the account's namespace on the hub say in which clusters it has pods.
// In each of them, through the live API of the hub, the pods of the account are watched and
// their logs are followed. A pod runs all scripts of the account in one workerd. Its tail
// worker, on [bundle.TailPort], writes trace events into the log for 30 s after each POST:
// one line that begins with 0x1E (RS), then
//
//	{"script":"hello","event":{...}}
//
// Lines of another form are what the scripts themselves printed, and are skipped. Code of the
// account could print such a line, too: an event is as trustworthy as the account's scripts.
//
// # What a client gets
//
// Each text frame is one event as workerd wrote it, with scriptName set, and with logs and
// exceptions in any case. What is missing is said in the same form, as a warning of the log
// of an event of outcome "unknown" whose text begins with "spokelet: ": that a cluster cannot
// be read (once, until it can be read again), that not all of its pods, or not all clusters,
// are followed (once, until they are), or how many events the client was too slow for.
// Events between the end of a log's connection and the next are lost.
//
// # What a tail costs
//
// Clusters are read by package spoke, within its bounds: of pods their names, of logs the lines
// that are events. [Limits] bound the tails of accounts, users and tokens, and what they follow:
// a hostile cluster leaves places, memory and the client's attention to others.
//
// # How a tail ends
//
// wrangler ends with exit code 0 at close code 1000, and makes a new tail at any other. So
// Delete closes with 1000. The end of the server is 1012 (service restart), that of a tail's
// lifetime is 1013 (try again later): whoever goes on proves again that it has the right.
//
// Tails are in the memory of one process: what makes a tail, opens and deletes it has to
// reach the same one.
package tail
