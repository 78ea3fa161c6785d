// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package openapi holds the generated OpenAPI definitions of the live API and
// of the Kubernetes types it refers to. Only its server needs them, so that
// clients of the types are spared the import.
package openapi
