// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pipetest is the contract of package pipe as a test suite, and the
// certificates and broken networks that it takes. Every pipe runs it; tests of
// the layers above may use its parts.
package pipetest
