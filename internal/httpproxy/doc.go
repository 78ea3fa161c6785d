// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package httpproxy holds what both ends of the kube door must agree on: which path
// a request is for, whether it is an upgrade, and how the bytes of an upgraded
// connection are carried.
//
// A path is read once, by Path; what is authorized and what is forwarded are
// both that result. What is said on a stream is for package spdy to know. The package lives on the standard library alone.
package httpproxy
