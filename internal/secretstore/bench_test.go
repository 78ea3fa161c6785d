// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package secretstore

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/go-logr/logr"
)

// benchmarkStore is a store with many records that runs.
func benchmarkStore(b *testing.B, server *apiServer) *process {
	b.Helper()
	p := start(b, server, nil)
	for _, durable := range fill(b, p, many, false) {
		<-durable
	}
	return p
}

// One record of 10,000 changes: what is written for each byte that did.
func BenchmarkRandomSingleChange(b *testing.B) {
	server := newAPIServer()
	p := benchmarkStore(b, server)
	random := rand.New(rand.NewPCG(3, 1))
	bytes, writes, changed := server.bytes, server.writes(), 0
	for b.Loop() {
		value := usualValue(random)
		changed += len(value)
		p.put(b, keyOf(random.IntN(many)), string(value))
	}
	b.ReportMetric(float64(server.bytes-bytes)/float64(changed), "stored-bytes/changed-byte")
	b.ReportMetric(float64(server.writes()-writes)/float64(b.N), "requests/op")
	b.ReportMetric(float64(len(server.names())), "Secrets")
}

// The same record changes.
func BenchmarkLoneChange(b *testing.B) {
	server := newAPIServer()
	p := benchmarkStore(b, server)
	random := rand.New(rand.NewPCG(3, 1))
	bytes, changed := server.bytes, 0
	for b.Loop() {
		value := usualValue(random)
		changed += len(value)
		p.put(b, keyOf(7), string(value))
	}
	b.ReportMetric(float64(server.bytes-bytes)/float64(changed), "stored-bytes/changed-byte")
}

// All 10,000 records are read.
func BenchmarkOpen(b *testing.B) {
	server := newAPIServer()
	_ = benchmarkStore(b, server).end()
	ctx := context.WithoutCancel(b.Context())
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Open(ctx, Config{Name: "test", Secrets: server.client(nil), Logger: logr.Discard()}); err != nil {
			b.Fatal(err)
		}
	}
}
