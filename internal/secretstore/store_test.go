// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package secretstore

import (
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
)

func TestOpenFindsWhatWasWritten(t *testing.T) {
	cases := map[string]struct {
		reason string
		do     func(t *testing.T, p *process)
		want   map[string]string
	}{
		"Nothing": {
			reason: "A store without records has no Secrets, and can be opened.",
			do:     func(*testing.T, *process) {},
			want:   map[string]string{},
		},
		"Values": {
			reason: "Every byte of a value comes back, also of an empty one.",
			do: func(t *testing.T, p *process) {
				p.put(t, "a", `{"a": "<\u0000>"}`)
				p.put(t, "b", "\x00\xff")
				p.put(t, "", "")
			},
			want: map[string]string{"a": `{"a": "<\u0000>"}`, "b": "\x00\xff", "": ""},
		},
		"Changed": {
			reason: "The last value counts.",
			do: func(t *testing.T, p *process) {
				p.put(t, "a", "1")
				p.put(t, "a", "2")
			},
			want: map[string]string{"a": "2"},
		},
		"Deleted": {
			reason: "A deletion is durable a second later, whether its segment is written again or not.",
			do: func(t *testing.T, p *process) {
				p.put(t, "big", strings.Repeat("b", 1000))
				p.put(t, "bigger", strings.Repeat("b", 2000))
				p.put(t, "small", "s")
				p.Delete("bigger")
				p.Delete("never")
				time.Sleep(time.Second)
				synctest.Wait()
			},
			want: map[string]string{"big": strings.Repeat("b", 1000), "small": "s"},
		},
		"DeletedBeforeItWasWritten": {
			reason: "What was never stored needs no tombstone.",
			do: func(t *testing.T, p *process) {
				durable := p.begin(t, "a", "1", false)
				p.Delete("a")
				p.Delete("a")
				<-durable
			},
			want: map[string]string{},
		},
		"PutAgain": {
			reason: "A key may come back after its deletion.",
			do: func(t *testing.T, p *process) {
				p.put(t, "a", "1")
				p.Delete("a")
				p.put(t, "a", "1")
			},
			want: map[string]string{"a": "1"},
		},
		"TwoPages": {
			reason: "All segments are read, not those of the first page alone.",
			do: func(t *testing.T, p *process) {
				for i := range 2 * pageSize {
					p.put(t, string(rune('a'+i)), strings.Repeat(strconv.Itoa(i), maxSegment/2))
				}
			},
			want: func() map[string]string {
				out := map[string]string{}
				for i := range 2 * pageSize {
					out[string(rune('a'+i))] = strings.Repeat(strconv.Itoa(i), maxSegment/2)
				}
				return out
			}(),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newAPIServer()
				p := start(t, server, nil)
				tc.do(t, p)
				if diff := cmp.Diff(tc.want, allOf(p.Store)); diff != "" {
					t.Errorf("%s\nin memory (-want +got):\n%s", tc.reason, diff)
				}
				wantStored(t, server, tc.want)
				calm()
				wantConsistent(t, p.Store, server)
			})
		})
	}
}

func TestUrgentPutIsWrittenAtOnceWithAllQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer()
		p := start(t, server, nil)
		lazy := p.begin(t, "lazy", "1", false)
		p.Delete("lazier")
		synctest.Wait()
		if closed(lazy) {
			t.Error("it was in a hurry")
		}
		urgent := p.begin(t, "urgent", "1", true)
		synctest.Wait()
		if !closed(urgent) || !closed(lazy) || server.writes() != 1 {
			t.Errorf("durable are urgent %t, lazy %t, after %d writes; want both after one", closed(urgent), closed(lazy), server.writes())
		}
	})
}

func TestDelayedPutsShareOneWriteWithinDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer()
		p := start(t, server, nil)
		first := p.begin(t, "0", "1", false)
		for i := range 9 {
			time.Sleep(100 * time.Millisecond)
			p.begin(t, strconv.Itoa(i+1), "1", false)
		}
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		if !closed(first) || server.writes() != 1 {
			t.Errorf("durable is %t, after %d writes; want true after one", closed(first), server.writes())
		}
	})
}

func TestDelayedValuePutAgainAsUrgentIsWrittenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, newAPIServer(), nil)
		p.begin(t, "a", "1", false)
		durable := p.begin(t, "a", "1", true)
		synctest.Wait()
		if !closed(durable) {
			t.Error("it waits")
		}
	})
}

func TestPutsDuringAWriteShareTheNextWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer()
		p := start(t, server, slowly)
		p.begin(t, "first", "1", true)
		synctest.Wait()
		for i := range 100 {
			p.begin(t, strconv.Itoa(i), "1", true)
		}
		durable := p.begin(t, "last", "1", true)
		<-durable
		if server.writes() != 2 {
			t.Errorf("%d writes, want 2", server.writes())
		}
	})
}

// slowly is a network without faults.
func slowly(string, string) outcome {
	time.Sleep(slow)
	return served
}

func TestDurableChannelClosesWithItsValueOrALaterState(t *testing.T) {
	cases := map[string]struct {
		reason string
		// during does something while the first value is being written, and returns a
		// channel that must not be closed with it.
		during func(t *testing.T, p *process) <-chan struct{}
	}{
		"Changed": {
			reason: "The second value is durable with the second write.",
			during: func(t *testing.T, p *process) <-chan struct{} { return p.begin(t, "a", "2", true) },
		},
		"DeletedAndPut": {
			reason: "The deletion between does not make the channel of the first value that of the second.",
			during: func(t *testing.T, p *process) <-chan struct{} {
				p.Delete("a")
				return p.begin(t, "a", "2", true)
			},
		},
		"ChangedAndBack": {
			reason: "The store forgets that it had the value before.",
			during: func(t *testing.T, p *process) <-chan struct{} {
				p.begin(t, "a", "2", true)
				return p.begin(t, "a", "1", true)
			},
		},
		"DeletedAfterwards": {
			reason: "The deletion of what was put is a later state of it.",
			during: func(t *testing.T, p *process) <-chan struct{} {
				durable := p.begin(t, "a", "2", true)
				p.Delete("a")
				return durable
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := start(t, newAPIServer(), slowly)
				first := p.begin(t, "a", "1", true)
				if same := p.begin(t, "a", "1", true); same != first {
					t.Error("two channels for one value")
				}
				synctest.Wait()
				second := tc.during(t, p)
				<-first
				synctest.Wait()
				if closed(second) {
					t.Error(tc.reason)
				}
				<-second
			})
		})
	}
}

// noise cannot be compressed.
func noise(n int) []byte {
	random := rand.New(rand.NewPCG(1, 1))
	out := make([]byte, n)
	for i := range out {
		out[i] = byte(random.Uint32())
	}
	return out
}

func TestPutRefusesRecordLargerThanASecret(t *testing.T) {
	cases := map[string]struct {
		reason string
		key    string
		value  []byte
		want   error
	}{
		"Text":      {reason: "What is compressed well may be larger than a Secret.", key: "a", value: make([]byte, 4<<20)},
		"Noise":     {reason: "There is room for a record of almost a Secret.", key: "a", value: noise(maxStored - 1<<10)},
		"MuchNoise": {reason: "No Secret has room for it.", key: "a", value: noise(maxStored), want: ErrTooLarge},
		"Huge":      {reason: "It could not be read back.", key: "a", value: make([]byte, maxContent), want: ErrTooLarge},
		"LongKey":   {reason: "Keys are names of objects.", key: strings.Repeat("k", maxKey+1), want: ErrTooLarge},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newAPIServer()
				p := start(t, server, nil)
				durable, err := p.Put(tc.key, tc.value, true)
				if !errors.Is(err, tc.want) {
					t.Fatalf("%s\nerror is %v, want %v", tc.reason, err, tc.want)
				}
				if err != nil {
					wantStored(t, server, allOf(p.Store))
					return
				}
				<-durable
				wantStored(t, server, map[string]string{tc.key: string(tc.value)})
			})
		})
	}
}

func TestLargeRecordGetsASegmentOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer()
		p := start(t, server, nil)
		p.put(t, "small", "1")
		large := string(noise(maxStored - 1<<10))
		p.put(t, "large", large)
		for i := range 5 {
			p.put(t, "large", large[i+1:])
			p.put(t, "small", strconv.Itoa(i))
		}
		if got := server.count("update"); got != 10 || len(server.names()) != 2 {
			t.Errorf("%d updates and Secrets %v, want 10 and two", got, server.names())
		}
		calm()
		wantConsistent(t, p.Store, server)
	})
}

func TestRunFlushesWhenItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer()
		p := start(t, server, slowly)
		p.begin(t, "a", "1", true)
		synctest.Wait() // it is being written
		p.begin(t, "b", "1", false)
		if err := p.end(); err != nil {
			t.Error(err)
		}
		wantStored(t, server, map[string]string{"a": "1", "b": "1"})
	})
}

func TestRunEndsWithoutAPIServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		p := start(t, newAPIServer(), func(verb, _ string) outcome {
			tries++
			return lostUnless(verb == "list")
		})
		p.begin(t, "a", "1", true)
		p.begin(t, "b", "1", false)
		calm()
		began := time.Now()
		tries = 0
		err := p.end()
		if took := time.Since(began); !errors.Is(err, errBoom) || took > 5*time.Second || tries < 5 {
			t.Errorf("it took %s and %d tries, error %v; want %v within 5 s after some tries", took, tries, err, errBoom)
		}
	})
}

func lostUnless(ok bool) outcome {
	if ok {
		return served
	}
	return lost
}

func TestRunCanBeCalledAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, broken := newAPIServer(), true
		p := start(t, server, func(verb, _ string) outcome { return lostUnless(verb == "list" || !broken) })
		durable := p.begin(t, "a", "1", true)
		if err := p.end(); !errors.Is(err, errBoom) {
			t.Errorf("error is %v, want %v", err, errBoom)
		}
		broken = false
		ended := make(chan error)
		ctx := t.Context()
		go func() { ended <- p.Run(ctx) }()
		<-durable
		wantStored(t, server, map[string]string{"a": "1"})
		if lastError(p) != nil {
			t.Errorf("error is %v, want none", lastError(p))
		}
		t.Cleanup(func() { <-ended })
	})
}

func TestRemoveDeletesOnlyTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer()
		p := start(t, server, nil)
		p.put(t, "a", strings.Repeat("1", 100))
		p.put(t, "b", "1")
		p.put(t, "c", strings.Repeat("1", 10))
		server.change("other", otherSecret)
		if err := Remove(t.Context(), server.client(nil), "test"); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"other"}, server.names()); diff != "" {
			t.Errorf("Secrets (-want +got):\n%s", diff)
		}
		if err := Remove(t.Context(), server.client(func(string, string) outcome { return lost }), "test"); !errors.Is(err, errBoom) {
			t.Errorf("error is %v, want %v", err, errBoom)
		}
	})
}

func TestOpenValidatesConfig(t *testing.T) {
	secrets := newAPIServer().client(nil)
	cases := map[string]struct {
		reason string
		config Config
		want   bool
	}{
		"Complete":  {reason: "All but the Secrets has a default.", config: Config{Name: "test", Secrets: secrets}, want: true},
		"NoSecrets": {reason: "There is nowhere to write.", config: Config{Logger: logr.Discard()}},
		"Negative":  {reason: "No time is negative.", config: Config{Name: "test", Secrets: secrets, Delay: -1}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if _, err := Open(t.Context(), tc.config); (err == nil) != tc.want {
				t.Errorf("%s\nerror is %v", tc.reason, err)
			}
		})
	}
}
