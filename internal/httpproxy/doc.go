// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package httpproxy holds what both ends of the kube door must agree on: which path
// a request is for, whether it is an upgrade, and how the bytes of an upgraded
// connection are carried.
//
// Path reads a path once; what is authorized and what is forwarded are both that result.
// Package spdy knows the frames of streams.
package httpproxy
