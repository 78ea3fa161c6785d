// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package ratelimit

import (
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/time/rate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestKeyedLimiterDelaysAfterBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p KeyedLimiter[string]
		began, writes := time.Now(), 0
		for time.Since(began) < 10*time.Second {
			if wait := p.Delay("a"); wait > 0 {
				<-time.After(wait)
				continue
			}
			p.Spend("a", 100)
			if writes++; writes <= Burst && time.Since(began) > 0 {
				t.Fatalf("write %d waits for %s", writes, time.Since(began))
			}
		}
		if most := Burst + 10*PerSecond; writes > most || writes < most-1 {
			t.Errorf("%d writes in 10 s, want %d", writes, most)
		}
		if wait := p.Delay("b"); wait != 0 {
			t.Errorf("another object waits for %s", wait)
		}
		p.Forget("a")
		if wait := p.Delay("a"); wait != 0 || len(p.buckets) != 0 {
			t.Errorf("a new object of the name waits for %s, %d are remembered", wait, len(p.buckets))
		}
	})
}

func TestKeyedLimiterNeverDelaysSlowChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p KeyedLimiter[string]
		for i := range 100 {
			if wait := p.Delay("a"); wait > 0 {
				t.Fatalf("change %d waits for %s", i, wait)
			}
			p.Spend("a", 100)
			<-time.After(time.Second / PerSecond)
		}
	})
}

func TestKeyedLimiterChargesBySize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const large = 1 << 20
		var p KeyedLimiter[string]
		began, writes := time.Now(), 0
		for time.Since(began) < time.Minute {
			if wait := p.Delay("a"); wait > 0 {
				<-time.After(wait)
				continue
			}
			p.Spend("a", large)
			if writes++; writes <= 5 && time.Since(began) > 0 {
				t.Fatalf("write %d waits for %s", writes, time.Since(began))
			}
		}
		if most := (Burst+60*PerSecond)*bytesPerToken/large + 1; writes > most || writes < most-2 {
			t.Errorf("%d writes of a megabyte in a minute, want %d", writes, most)
		}
	})
}

func TestLogLimiterBoundsLinesPerCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c LogLimiter
		lines := 0
		for range 10_000 { // 100 s
			if c.Allow("hostile") {
				lines++
			}
			time.Sleep(10 * time.Millisecond)
		}
		if want := logBurst + 10; lines > want || lines < want-1 {
			t.Errorf("%d lines in 100 s, want %d", lines, want)
		}
		if !c.Allow("honest") {
			t.Error("another cluster's mistake is not logged")
		}
	})
}

func TestTokenDelayIsExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, every := range []time.Duration{time.Millisecond, time.Second / PerSecond, 10 * time.Second} {
			bucket := rate.NewLimiter(rate.Every(every), 1)
			if wait := TokenDelay(bucket); wait != 0 {
				t.Errorf("a full bucket needs %s", wait)
			}
			bucket.Allow()
			wait := TokenDelay(bucket)
			if wait < every || wait > every+time.Microsecond {
				t.Errorf("an empty bucket needs %s, want %s", wait, every)
			}
			<-time.After(wait)
			if again := TokenDelay(bucket); again != 0 || !bucket.Allow() {
				t.Errorf("after %s it needs %s more", wait, again)
			}
		}
	})
}
