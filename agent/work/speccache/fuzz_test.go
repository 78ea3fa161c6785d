// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package speccache

import (
	"bytes"
	"compress/gzip"
	"testing"

	"github.com/spokelet/spokelet/tunnel/resource"
)

// FuzzDecompress reads compressed bodies from Secrets that others may have written.
func FuzzDecompress(f *testing.F) {
	for _, body := range [][]byte{nil, []byte("{}"), bytes.Repeat([]byte("0"), 1<<20)} {
		packed, err := compress(gzip.NewWriter(nil), body)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(packed)
		f.Add(packed[:len(packed)/2])
	}
	f.Fuzz(func(t *testing.T, packed []byte) {
		body, err := decompress(packed)
		if len(body) > resource.MaxBody {
			t.Fatalf("%d bytes came out, want at most %d", len(body), resource.MaxBody)
		}
		if err != nil {
			if body != nil {
				t.Fatal("bytes beside an error")
			}
			return
		}
		again, err := compress(gzip.NewWriter(nil), body)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := decompress(again); err != nil || !bytes.Equal(back, body) {
			t.Fatalf("%d bytes came back as %d, %v", len(body), len(back), err)
		}
	})
}
