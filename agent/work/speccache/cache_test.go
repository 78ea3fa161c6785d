// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package speccache

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/spokelet/spokelet/tunnel/resource"
)

// incompressible is a body that stays as large as it is.
func incompressible(n int) []byte {
	r := rand.NewChaCha8([32]byte{})
	out := make([]byte, n)
	_, _ = r.Read(out) // never fails
	return out
}

func TestSpecCacheRestoresWorks(t *testing.T) {
	secrets := fake.NewClientset().CoreV1().Secrets("spokelet-agent")
	k := &Cache{secrets: secrets, changed: make(chan struct{}, 1)}
	var want []resource.Resource
	for i := range 50 {
		r := resource.Resource{Key: fmt.Sprintf("multicluster/c/w-%d", i), UID: "u", Generation: int64(i), Body: []byte(fmt.Sprintf(`{"n":%d}`, i))}
		if i == 7 {
			r.Body = incompressible(1 << 20)
		}
		k.Put(r)
		want = append(want, r)
	}
	if err := k.flush(t.Context(), logr.Discard()); err != nil {
		t.Fatal(err)
	}
	list, err := secrets.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list.Items {
		if n := len(s.Data[partKey]); n > maxPart {
			t.Errorf("%s has %d bytes", s.Name, n)
		}
	}
	again := &Cache{secrets: secrets, changed: make(chan struct{}, 1)}
	got, err := again.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	byKey := cmpopts.SortSlices(func(a, b resource.Resource) bool { return a.Key < b.Key })
	// One by one, a megabyte takes a minute under the race detector.
	bytesAtOnce := cmp.Comparer(bytes.Equal)
	if diff := cmp.Diff(want, got, byKey, bytesAtOnce); diff != "" {
		t.Errorf("copy (-want +got):\n%.2000s", diff)
	}

	before := len(list.Items)
	again.Delete("multicluster/c/w-7")
	if err := again.flush(t.Context(), logr.Discard()); err != nil {
		t.Fatal(err)
	}
	if list, err = secrets.List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) >= before {
		t.Errorf("%d Secrets before, %d after the large work went", before, len(list.Items))
	}
	if got, err = (&Cache{secrets: secrets}).Load(t.Context()); err != nil || len(got) != 49 {
		t.Errorf("%d works, %v", len(got), err)
	}
}

func TestSpecCacheRejectsIncompleteWrite(t *testing.T) {
	secrets := fake.NewClientset().CoreV1().Secrets("spokelet-agent")
	k := &Cache{secrets: secrets, changed: make(chan struct{}, 1)}
	k.Put(resource.Resource{Key: "multicluster/c/large", Body: incompressible(1 << 20)})
	k.Put(resource.Resource{Key: "multicluster/c/other", Body: []byte("{}")})
	if err := k.flush(t.Context(), logr.Discard()); err != nil {
		t.Fatal(err)
	}
	if err := secrets.Delete(t.Context(), secretName(shardOf("multicluster/c/large"), 1), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	got, err := (&Cache{secrets: secrets}).Load(t.Context())
	if !errors.Is(err, errIncomplete) || len(got) != 1 || got[0].Key != "multicluster/c/other" {
		t.Errorf("load = %d works, %v", len(got), err)
	}
}

func TestDecompressIsBounded(t *testing.T) {
	bomb, err := compress(gzip.NewWriter(nil), make([]byte, resource.MaxBody+1))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := decompress(bomb); !errors.Is(err, resource.ErrTooLarge) {
		t.Errorf("expand = %v", err)
	}
}
