// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import "encoding/pem"

func pemKey(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}
