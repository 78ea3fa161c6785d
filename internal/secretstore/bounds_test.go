// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package secretstore

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/go-logr/logr"

	"github.com/spokelet/spokelet/internal/testing/testscale"
)

// usual is the size of most records.
const usual = 1536

// many is how many records there are where their number counts.
var many = testscale.Of(4000, 10_000)

func keyOf(i int) string {
	return fmt.Sprintf("apps/v1/deployments/namespace-%03d/name-%05d", i%100, i)
}

// fields are text like that of an object, of which a good part cannot be compressed.
var fields = sync.OnceValue(func() []byte {
	random, out := rand.New(rand.NewPCG(5, 1)), []byte{}
	for len(out) < 1<<20 {
		out = fmt.Appendf(out, `"field-%02d":"%08x",`, len(out)%100, random.Uint32())
	}
	return out
})

// usualValue is of the usual size, and never the same.
func usualValue(random *rand.Rand) []byte {
	head, all := fmt.Appendf(nil, `{"version":%d,`, random.Uint64()), fields()
	at := random.IntN(len(all) - usual)
	return slices.Concat(head, all[at:at+usual-len(head)])
}

func fill(t testing.TB, p *process, n int, urgent bool) (all []<-chan struct{}) {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 1))
	for i := range n {
		durable, err := p.Put(keyOf(i), usualValue(random), urgent)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, durable)
	}
	return all
}

// filled is a server on which one process has written many records.
var filled *apiServer

// newFilledServer returns a server that has many records, in a bubble. They are written once
// for all tests: to compress them takes longer than to read them.
func newFilledServer(t testing.TB) *apiServer {
	t.Helper()
	if filled == nil {
		server := newAPIServer()
		p := start(t, server, nil)
		fill(t, p, many, false)
		calm()
		if err := p.end(); err != nil {
			t.Fatal(err)
		}
		filled = server
	}
	return filled.clone()
}

func TestManyRecordsNeedFewWritesAndSegments(t *testing.T) {
	for _, urgent := range []bool{false, true} {
		t.Run(fmt.Sprintf("urgent %t", urgent), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newAPIServer()
				p := start(t, server, slowly)
				for _, durable := range fill(t, p, many, urgent) {
					<-durable
				}
				writes, segments := server.writes(), len(server.names())
				t.Logf("%d writes, %d Secrets, %d KiB", writes, segments, server.bytes>>10)
				if writes > many/125 || segments > many/250 {
					t.Errorf("%d writes and %d Secrets, want at most %d and %d", writes, segments, many/125, many/250)
				}
				calm()
				wantConsistent(t, p.Store, server)
			})
		})
	}
}

func TestChangeOfAllRecordsNeedsFewWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer()
		p := start(t, server, slowly)
		fill(t, p, many, false)
		calm()
		writes := server.writes()
		fill(t, p, many, false) // the same again
		calm()
		if got := server.writes() - writes; got != 0 {
			t.Errorf("%d writes, though nothing has changed", got)
		}
		random := rand.New(rand.NewPCG(2, 1))
		for i := range many {
			p.begin(t, keyOf(i), string(usualValue(random)), false)
		}
		calm()
		wantConsistent(t, p.Store, server)
		if got := server.writes() - writes; got > many/125 || len(server.names()) > many/250 {
			t.Errorf("%d writes and %d Secrets when all change, want at most %d and %d", got, len(server.names()), many/125, many/250)
		}
		writes = server.writes()
		for i := range many {
			p.Delete(keyOf(i))
		}
		calm()
		wantConsistent(t, p.Store, server)
		if got := server.writes() - writes; got > many/125 || len(server.names()) != 0 || len(p.records) != 0 {
			t.Errorf("%d writes when all are deleted, want at most %d; Secrets are %v, records %d, want none", got, many/125, server.names(), len(p.records))
		}
	})
}

func TestChangeOfOneKeyCostsOneSmallUpdate(t *testing.T) {
	cases := map[string]struct {
		reason string
		others bool
	}{
		"Alone":     {reason: "Nothing else is written."},
		"AmongMany": {reason: "The large segments stay as they are.", others: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newAPIServer()
				p := start(t, server, nil)
				if tc.others {
					fill(t, p, 2000, false)
					calm()
				}
				before, segments, written := server.writes(), len(server.names()), server.bytes
				for i := range 1000 {
					p.put(t, keyOf(7), fmt.Sprintf("%d %0*d", i, usual, i))
				}
				if got := server.writes() - before; got > 1000 {
					t.Errorf("%s\n%d writes, want 1000", tc.reason, got)
				}
				if got := len(server.names()) - segments; got > 3 {
					t.Errorf("%s\n%d more Secrets, want at most three", tc.reason, got)
				}
				if got := server.bytes - written; got > 1000*usual {
					t.Errorf("%s\n%d bytes, want at most %d", tc.reason, got, 1000*usual)
				}
			})
		})
	}
}

// Live objects change one by one for a long time.
func TestRandomChangesKeepSegmentsFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newFilledServer(t)
		p := start(t, server, nil)
		random := rand.New(rand.NewPCG(3, 1))
		written, writes, most := server.bytes, server.writes(), 0
		changes := testscale.Of(1000, 2000)
		for range changes {
			p.put(t, keyOf(random.IntN(many)), string(usualValue(random)))
			most = max(most, len(server.names()))
		}
		calm()
		wantConsistent(t, p.Store, server)
		perWrite := float64(server.writes()-writes) / float64(changes)
		t.Logf("%d Secrets at most, %.2f requests and %d bytes a change", most, perWrite, (server.bytes-written)/changes)
		if most > many/125 || perWrite > 1.5 {
			t.Errorf("%d Secrets at most and %.2f requests a change, want %d and 1.5", most, perWrite, many/125)
		}
	})
}

func TestRecordCostsLittleMemory(t *testing.T) {
	var server *apiServer
	synctest.Test(t, func(t *testing.T) { server = newFilledServer(t) })
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	s, err := Open(t.Context(), Config{Name: "test", Secrets: server.client(nil), Logger: logr.Discard()})
	if err != nil {
		t.Fatal(err)
	}
	after := heap()
	bytes := 0
	for _, key := range s.Keys() {
		value, _ := s.Get(key)
		bytes += len(key) + len(value)
	}
	each := (int(after) - int(before) - bytes) / many
	t.Logf("%d bytes of records, and %d bytes more for each", bytes, each)
	if each > 300 {
		t.Errorf("%d bytes for each record, want at most 300", each)
	}
	runtime.KeepAlive(server)
}
