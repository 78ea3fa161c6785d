// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"bytes"
	"net/http"
	"strconv"
)

// Paths of the handler.
const (
	smallPath   = "/small"   // answers 1 KiB
	bulkPath    = "/bulk"    // answers ?size= bytes
	endlessPath = "/endless" // answers until the client goes
	stuckPath   = "/stuck"   // does not read its request
)

// newHandler is what is behind every path that is measured.
func newHandler() http.Handler {
	kibibyte := bytes.Repeat([]byte("x"), 1<<10)
	mux := http.NewServeMux()
	mux.HandleFunc(smallPath, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(kibibyte)
	})
	mux.HandleFunc(bulkPath, func(w http.ResponseWriter, r *http.Request) {
		size, err := strconv.ParseInt(r.URL.Query().Get("size"), 10, 64)
		if err != nil {
			http.Error(w, "size is not a number", http.StatusBadRequest)
			return
		}
		pour(w, size)
	})
	mux.HandleFunc(endlessPath, func(w http.ResponseWriter, _ *http.Request) {
		pour(w, 1<<62)
	})
	mux.HandleFunc(stuckPath, func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
	})
	return mux
}

// pour writes size bytes, or as many as are taken.
func pour(w http.ResponseWriter, size int64) {
	chunk := make([]byte, 32<<10)
	for size > 0 {
		n, err := w.Write(chunk[:min(int64(len(chunk)), size)])
		if err != nil {
			return
		}
		size -= int64(n)
	}
}
