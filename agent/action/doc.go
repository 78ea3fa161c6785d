// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package action does what users of the hub ask for once: it creates, updates or deletes
// an object of the cluster, as that user, through the kube door.
//
// Each action is done once for each UID and generation of its object on the hub, whatever
// is cut or restarted. A ledger of ConfigMaps in the agent's namespace says so: the
// creation of an entry, before the action, is the test of once; its outcome is written
// after it. An entry without an outcome, of a process that is no more, is settled by
// looking: what is created or updated bears a mark ([Mark]), and the entry has the UID
// and the version of what was there before. Where that cannot tell, the outcome is
// unknown, and said to be: nothing is ever done twice.
//
// An entry stays for a week after its end, also when the hub has withdrawn the action: the
// hub withdraws those of a cluster that is not accepted, and may send them again. 10,000
// stay at most, and those of actions that the hub still wants.
//
// In memory stay the results, for Sync, and no templates of what was answered. The objects
// of all results have 64 MiB together; one that finds no room is left out.
//
// engine.go receives and publishes, execute.go goes from request to outcome, plan.go finds
// out what is to be written, perform.go writes, settle.go looks, result.go makes errors
// refusals, ledger.go and collect.go keep the entries, legacy.go and ingress.go know the
// API versions that were.
package action
