// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	rpcv1 "github.com/spokelet/spokelet/api/rpc/v1"
	"github.com/spokelet/spokelet/internal/quota"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var rewrite = flag.Bool("rewrite", false, "rewrite the stories with what happens")

// TestStories replays testdata/*.txt: a line is a step, the lines beneath it that
// begin with a space are what it brings about.
//
//	put KEY BODY, delete KEY, complete   at the source
//	hold KEY BODY                        the mirror has it from a copy of its own
//	connect                              a new stream; the mirror speaks
//	inventory                            the source hears what the mirror said
//	send [N]                             N messages (all) travel from source to mirror
func TestStories(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no stories: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := replay(t.Context(), string(want))
			if *rewrite {
				if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("the story goes otherwise (-told +happened):\n%s", diff)
			}
		})
	}
}

// stage is one source, one mirror and the stream between them.
type stage struct {
	ctx    context.Context
	source *Source
	mirror *Mirror
	feed   *sourceStream
	intake *mirrorStream
	said   []*rpcv1.SyncMessage
	events []string
}

func newStage(ctx context.Context) *stage {
	s := &stage{ctx: ctx, source: NewSource("k")}
	s.mirror = NewMirror("k", Receiver{
		Put:    func(r Resource) { s.notef("mirror puts %s %s", r.Key, r.Body) },
		Delete: func(key string) { s.notef("mirror deletes %s", key) },
		Synced: func() { s.notef("mirror is synced") },
	})
	return s
}

func (s *stage) notef(format string, args ...any) {
	s.events = append(s.events, " "+fmt.Sprintf(format, args...))
}

func replay(ctx context.Context, text string) string {
	s := newStage(ctx)
	var out []string
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, " ") {
			continue
		}
		out = append(out, line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		s.events = nil
		s.step(strings.Fields(line))
		out = append(out, s.events...)
	}
	return strings.Join(out, "\n") + "\n"
}

func (s *stage) step(words []string) {
	switch words[0] {
	case "put":
		s.check(s.source.Put(Resource{Key: words[1], Body: []byte(words[2])}))
	case "delete":
		s.source.Delete(words[1])
	case "complete":
		s.source.Complete()
	case "hold":
		s.mirror.Hold(RefOf(Resource{Key: words[1], Body: []byte(words[2])}))
	case "connect":
		s.connect()
	case "inventory":
		for _, m := range s.said {
			s.notef("mirror says it holds %d, more %t", len(m.GetInventory().GetRefs()), m.GetInventory().GetMore())
			s.check(s.feed.handleInventory(m.GetInventory()))
		}
	case "send":
		limit := 1 << 30
		if len(words) > 1 {
			limit, _ = strconv.Atoi(words[1])
		}
		for range limit {
			m := s.feed.next(time.Time{})
			if m == nil {
				return
			}
			s.check(s.deliver(m))
		}
	default:
		s.notef("unknown step")
	}
}

func (s *stage) connect() {
	if s.feed != nil {
		s.feed.close()
		s.intake.close()
	}
	s.feed, s.intake = s.source.open(nil, func() {}), s.mirror.open()
	s.said = s.intake.inventory()
}

func (s *stage) deliver(m *rpcv1.SyncMessage) error {
	one := &stream{mirrors: map[string]*mirrorStream{"k": s.intake}, sources: map[string]*sourceStream{}}
	return one.handleMessage(s.ctx, m)
}

func (s *stage) check(err error) {
	if err != nil {
		s.notef("error: %v", err)
	}
}

// FuzzPeer feeds a stream's ends arbitrary messages: nothing a peer says may
// panic, be kept beyond the bounds, or be believed after it broke the protocol.
func FuzzPeer(f *testing.F) {
	f.Add([]byte("\x00k\x01key\x02"))
	f.Add([]byte("\x01k\x00\x00"))
	f.Add([]byte("\x02k\x03\x03k"))
	f.Fuzz(func(t *testing.T, script []byte) {
		// There is nobody to wait for: what does not fit is the end.
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		memory := quota.NewMemory(4<<10, 4<<10)
		s := newStage(ctx)
		s.check(s.source.Put(Resource{Key: "a", Body: []byte("1")}))
		s.connect()
		st := newStream(nil, &limits{memory: memory, owner: "c", maxBody: 6, onRefused: func(string, string, error) {}})
		s.feed.account = st.limits.account()
		st.mirrors["k"], st.sources["k"] = s.intake, s.feed
		defer func() {
			if st.close(); memory.Held() != 0 {
				t.Errorf("%d bytes are held for a stream that has ended", memory.Held())
			}
		}()
		for len(script) > 0 {
			var m *rpcv1.SyncMessage
			m, script = message(script)
			if err := st.handleMessage(ctx, m); err != nil {
				return
			}
			for s.feed.next(time.Time{}) != nil {
			}
		}
		if len(s.mirror.held) > MaxResources {
			t.Errorf("the mirror holds %d", len(s.mirror.held))
		}
		for key, ref := range s.mirror.held {
			if key == "" || key != ref.Key || len(key) > MaxKey {
				t.Errorf("the mirror holds %q under %q", ref.Key, key)
			}
		}
	})
}

// message reads one message from the bytes of a fuzzer.
func message(in []byte) (*rpcv1.SyncMessage, []byte) {
	take := func() string {
		if len(in) == 0 {
			return ""
		}
		n := min(int(in[0]%8), len(in)-1)
		out := string(in[1 : 1+n])
		in = in[1+n:]
		return out
	}
	what := in[0] % 5
	in = in[1:]
	kind, key, body := take(), take(), take()
	ref := encodeRef(kind, RefOf(Resource{Key: key, UID: take(), Body: []byte(body)}))
	if strings.HasPrefix(body, "!") {
		ref.Hash = []byte(body)
	}
	switch what {
	case 0:
		return &rpcv1.SyncMessage{Message: &rpcv1.SyncMessage_Inventory{Inventory: &rpcv1.Inventory{Kind: kind, Refs: []*rpcv1.ResourceRef{ref}, More: body == "more"}}}, in
	case 1:
		return &rpcv1.SyncMessage{Message: &rpcv1.SyncMessage_Put{Put: &rpcv1.Resource{Ref: ref, Body: []byte(body)}}}, in
	case 2:
		return deletion(kind, key), in
	case 3:
		return synced(kind), in
	default:
		return &rpcv1.SyncMessage{}, in
	}
}
