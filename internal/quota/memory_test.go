// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	workv1 "open-cluster-management.io/api/work/v1"
)

func TestMemoryLimitsOwner(t *testing.T) {
	m := NewMemory(100, 150)
	a, b := m.Account("a"), m.Account("b")
	for _, step := range []struct {
		reason  string
		account *Account
		n       int64
		want    error
	}{
		{"within the bound", a, 80, nil},
		{"beyond the owner's bound", m.Account("a"), 30, ErrExhausted},
		{"another owner has room", b, 60, nil},
		{"beyond the bound of all", b, 20, ErrExhausted},
		{"more than an owner may ever hold", b, 101, ErrTooLarge},
		{"what was refused took nothing", a, 10, nil},
	} {
		if err := step.account.Grow(step.n); !errors.Is(err, step.want) {
			t.Fatalf("%s: Grow(%d): got %v, want %v", step.reason, step.n, err, step.want)
		}
	}
	a.Close()
	a.Close()
	b.Shrink(1000)
	if got := m.Held(); got != 0 {
		t.Errorf("all was given back: %d bytes are held", got)
	}
	if err := a.Grow(10); err != nil || m.Held() != 0 {
		t.Errorf("a closed account holds nothing: %v, %d bytes", err, m.Held())
	}
	if got := m.Refused(); got != 3 {
		t.Errorf("refusals: got %d, want 3", got)
	}
}

func TestMemoryGuaranteesBytesOfEachOwner(t *testing.T) {
	m := NewGuaranteedMemory(256<<10, 512<<10, 2<<10)
	for _, hostile := range []string{"a", "b"} {
		if err := m.Account(hostile).Grow(256 << 10); err != nil {
			t.Fatal(err)
		}
	}
	honest := m.Account("c")
	if err := honest.Grow(2 << 10); err != nil {
		t.Errorf("a 256th of all: %v", err)
	}
	if err := honest.Grow(1); !errors.Is(err, ErrExhausted) {
		t.Errorf("more than that: got %v, want %v", err, ErrExhausted)
	}
}

func TestNilMemoryHasNoBounds(t *testing.T) {
	var m *Memory
	for _, a := range []*Account{m.Account("a"), nil} {
		if err := a.Await(t.Context(), 1<<40); err != nil {
			t.Errorf("Await: %v", err)
		}
		a.Shrink(1)
		a.Close()
	}
}

func TestAwaitReturnsWhenThereIsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory(100, 100)
		first, second := m.Account("a"), m.Account("b")
		if err := first.Grow(60); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- second.Await(t.Context(), 60) }()
		synctest.Wait()
		select {
		case err := <-done:
			t.Fatalf("there was no room, and Await returned %v", err)
		default:
		}
		first.Close()
		if err := <-done; err != nil {
			t.Errorf("Await: %v", err)
		}
		second.Close()
	})
}

func TestAwaitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory(100, 100)
		a := m.Account("a")
		if err := a.Grow(100); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := a.Await(ctx, 1); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, ErrExhausted) {
			t.Errorf("Await: got %v, want both what it waited for and why it ended", err)
		}
		if err := a.Await(t.Context(), 101); !errors.Is(err, ErrTooLarge) {
			t.Errorf("Await of what never fits: %v", err)
		}
	})
}

// The bound of a work's status is what one can be made of in the worst case.
func TestDecodedJSONCoversAllocation(t *testing.T) {
	for name, doc := range map[string]string{
		"elements of nothing":       `{"manifests":[` + strings.Repeat(`{},`, 100_000) + `{}]}`,
		"elements within elements":  `{"manifests":[` + strings.Repeat(`{"conditions":[{},{},{},{}]},`, 20_000) + `{}]}`,
		"values of feedback":        `{"manifests":[{"statusFeedback":{"values":[` + strings.Repeat(`{},`, 100_000) + `{}]}}]}`,
		"strings with commas":       `{"conditions":[{"message":"` + strings.Repeat(`,{[\"`, 50_000) + `"}]}`,
		"names that nobody asked":   `{` + strings.Repeat(`"a":1,`, 100_000) + `"b":2}`,
		"a usual status, many fold": `{"manifests":[` + strings.Repeat(`{"resourceMeta":{"ordinal":1,"kind":"ConfigMap","version":"v1"},"conditions":[{"type":"Applied","status":"True","reason":"Done"}]},`, 10_000) + `{}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			var status workv1.ManifestResourceStatus
			if err := json.Unmarshal([]byte(doc), &status); err != nil {
				t.Fatal(err)
			}
			runtime.GC()
			runtime.ReadMemStats(&after)
			live := int64(after.HeapAlloc) - int64(before.HeapAlloc)
			if got := DecodedJSON([]byte(doc)); got < live {
				t.Errorf("%d bytes of text became %d, said were %d", len(doc), live, got)
			}
			runtime.KeepAlive(status)
		})
	}
}

func TestDecodedJSONIgnoresStrings(t *testing.T) {
	for doc, values := range map[string]int64{
		``:                  1,
		`{}`:                2,
		`[1,2,3]`:           4,
		`"{[,,,"`:           1,
		`"\"{[,"`:           1,
		`"\\",{`:            3,
		`{"a":"},{","b":1}`: 3,
	} {
		if got, want := DecodedJSON([]byte(doc)), int64(len(doc))+values*valueCost; got != want {
			t.Errorf("DecodedJSON(%s): got %d, want %d", doc, got, want)
		}
	}
}

func FuzzDecodedJSON(f *testing.F) {
	f.Add([]byte(`{"a":["b\"",{},null]}`))
	f.Fuzz(func(t *testing.T, doc []byte) {
		var decoded any
		if json.Unmarshal(doc, &decoded) != nil {
			return
		}
		if got, want := DecodedJSON(doc), int64(len(doc))+valueCost*int64(count(decoded)); got < want {
			t.Errorf("DecodedJSON(%q): got %d, want %d or more", doc, got, want)
		}
	})
}

// count is the number of values that the elements and members of v are, at least.
func count(v any) int {
	n := 1
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			n += count(e)
		}
	case map[string]any:
		for _, e := range v {
			n += count(e)
		}
	}
	return n
}

func TestWritesWaitBySize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := NewWrites(Rate{PerSecond: 100, Burst: 1000}, Rate{PerSecond: 1000, Burst: 10_000})
		wait := func(reason, owner string, want time.Duration) {
			t.Helper()
			if got := w.Wait(owner).Round(time.Millisecond); got != want {
				t.Errorf("%s: %s waits %s, want %s", reason, owner, got, want)
			}
		}
		wait("nothing was written", "a", 0)
		w.Spend("a", 999)
		wait("a byte of the burst is left", "a", 0)
		w.Spend("a", 501)
		wait("five seconds of debt", "a", 5*time.Second)
		wait("who wrote nothing pays nothing", "b", 0)
		time.Sleep(5*time.Second + time.Millisecond)
		wait("the debt is paid", "a", 0)
		time.Sleep(time.Hour)
		w.Spend("a", 1000)
		wait("an hour gives no more than the burst", "a", 0)
		w.Spend("a", 100)
		wait("and then the rate", "a", time.Second)
	})
}

func TestWritesAreDueAfterWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := NewWrites(Rate{PerSecond: 100 << 10, Burst: 1 << 20}, Rate{PerSecond: 1 << 30, Burst: 1 << 30})
		for range 1000 {
			w.Spend("a", 25_001)
			for waits := 0; w.Wait("a") > 0; waits++ {
				if waits > 2 {
					t.Fatalf("still %s", w.Wait("a"))
				}
				time.Sleep(w.Wait("a"))
			}
		}
	})
}

func TestWritesLimitAllOwners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := NewWrites(Rate{PerSecond: 100, Burst: 1000}, Rate{PerSecond: 150, Burst: 1500})
		var written int64
		begin := time.Now()
		for time.Since(begin) < 100*time.Second {
			for _, owner := range []string{"a", "b", "c"} {
				if w.Wait(owner) == 0 {
					w.Spend(owner, 50)
					written += 50
				}
			}
			time.Sleep(10 * time.Millisecond)
		}
		if limit := int64(1500 + 150*100 + 50); written > limit || written < limit*9/10 {
			t.Errorf("%d bytes in 100 s, want just below %d", written, limit)
		}
	})
}

func TestWritesForgetIdleOwners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := NewWrites(Rate{PerSecond: 100, Burst: 1000}, Rate{PerSecond: 1000, Burst: 10_000})
		for _, owner := range []string{"a", "b", "c"} {
			w.Spend(owner, 10)
		}
		time.Sleep(time.Minute)
		w.Spend("d", 10)
		if len(w.owners) != 1 {
			t.Errorf("%d owners are remembered, want the one that writes", len(w.owners))
		}
	})
}

func TestMemoryForgetsOwnerWithoutBytes(t *testing.T) {
	m := NewMemory(10, 20)
	a := m.Account("a")
	if err := a.Grow(5); err != nil {
		t.Fatal(err)
	}
	a.Close()
	if len(m.held) != 0 || m.Held() != 0 {
		t.Errorf("%d bytes of %d owners are held when all accounts are closed", m.Held(), len(m.held))
	}
}
