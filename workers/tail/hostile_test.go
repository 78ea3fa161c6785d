// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tail

import (
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const (
	// withoutEnd is how much a hostile cluster writes of what has no end. It is what a process
	// would hold of it that had no bounds.
	withoutEnd = 32 << 20
	// mayHold is what a process may hold of a hostile cluster.
	mayHold = clusterBound + 16<<20
	// clusterBound is that of package spoke.
	clusterBound = 24 << 20
	// hostileTails follow the hostile cluster at a time.
	hostileTails = 4
)

// A hostile cluster answers as attack says, and notes what it was asked and how much the process
// held meanwhile.
type hostile struct {
	attack func(h *hostile, w http.ResponseWriter, r *http.Request)

	mu     sync.Mutex
	before uint64
	held   uint64 // at most
	sent   int    // since it was last looked
	paths  []string
}

func (h *hostile) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	h.paths = append(h.paths, r.Method+" "+r.URL.EscapedPath())
	h.mu.Unlock()
	h.attack(h, w, r)
}

// write writes a beginning and then a text without end, until nobody listens.
func (h *hostile) write(w http.ResponseWriter, begin, text string) {
	chunk := []byte(strings.Repeat(text, max(64<<10/len(text), 1)))
	if _, err := w.Write([]byte(begin)); err != nil {
		return
	}
	for sent := 0; sent < withoutEnd; sent += len(chunk) {
		if _, err := w.Write(chunk); err != nil {
			return
		}
		h.look(len(chunk))
	}
}

// look measures what is held, each 4 MiB.
func (h *hostile) look(sent int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.sent += sent; h.sent > 4<<20 {
		h.sent = 0
		h.held = max(h.held, live())
	}
}

// asked returns what it was asked for.
func (h *hostile) asked() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.paths)
}

// heldMost returns by how many bytes there was more than before, at most.
func (h *hostile) heldMost() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return int64(h.held) - int64(h.before)
}

func live() uint64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

func isList(r *http.Request) bool {
	return strings.HasSuffix(r.URL.Path, "/pods") && r.FormValue("watch") == ""
}

func isWatch(r *http.Request) bool { return r.FormValue("watch") != "" }

func isLog(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/log") }

// list answers with so many pods, whatever was asked for.
func list(w http.ResponseWriter, names ...string) {
	fmt.Fprint(w, `{"metadata":{"resourceVersion":"1"},"items":[`)
	for i, name := range names {
		fmt.Fprintf(w, `%.*s{"metadata":{"name":%q},"status":{"phase":"Running"}}`, min(i, 1), ",", name)
	}
	fmt.Fprint(w, `]}`)
}

// never answers only when nobody waits any more.
func never(w http.ResponseWriter, r *http.Request) {
	w.(http.Flusher).Flush()
	<-r.Context().Done()
}

func names(count int) []string {
	all := make([]string, count)
	for i := range all {
		all[i] = fmt.Sprintf("pod-%d", i)
	}
	return all
}

// until reads until all of these texts came, or what contains them, for a minute.
func (r *reader) until(reason string, wanted ...string) {
	r.Helper()
	var said []string
	for late := time.After(time.Minute); len(wanted) > 0; {
		select {
		case m := <-r.messages:
			if m.err != nil {
				r.Fatalf("no event came: %v", m.err)
			}
			text := r.parse(m.kind, m.data)
			if strings.HasPrefix(text, "spokelet: ") {
				said = append(said, text)
			}
			wanted = slices.DeleteFunc(wanted, func(want string) bool { return strings.Contains(text, want) })
		case <-late:
			r.Errorf("%s: the tail says %q and not %q", reason, said, wanted)
			return
		}
	}
}

// attacks are what a hostile cluster answers.
var attacks = map[string]struct {
	attack func(h *hostile, w http.ResponseWriter, r *http.Request)
	says   string // to who tails
	reason string
}{
	"a list without end": {
		attack: func(h *hostile, w http.ResponseWriter, _ *http.Request) {
			h.write(w, `{"metadata":{"resourceVersion":"1"},"items":[{}`, `,{"metadata":{"name":"a"}}`)
		},
		says: "cannot be read: it is larger than what is read of a cluster", reason: "an answer has a bound",
	},
	"a list of empty objects": {
		attack: func(h *hostile, w http.ResponseWriter, _ *http.Request) {
			h.write(w, `{"metadata":{"resourceVersion":"1"},"items":[{}`, `,{"metadata":{}}`)
		},
		says: "cannot be read: it is larger than what is read of a cluster", reason: "each becomes a hundred times as much",
	},
	"a pod without end": {
		attack: func(h *hostile, w http.ResponseWriter, _ *http.Request) {
			h.write(w, `{"metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"`, `a`)
		},
		says: "cannot be read: it is larger than what is read of a cluster", reason: "an object has a bound",
	},
	"an error without end": {
		attack: func(h *hostile, w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
			h.write(w, `{"kind":"Status","message":"`, `a`)
		},
		says: "cannot be read: the answer was 500 Internal Server Error", reason: "a refusal has a bound",
	},
	"a watch event without end": {
		attack: func(h *hostile, w http.ResponseWriter, r *http.Request) {
			if isList(r) {
				list(w)
				return
			}
			h.write(w, `{"type":"ADDED","object":{"metadata":{"name":"`, `a`)
		},
		says: "cannot be read: it is larger than what is read of a cluster", reason: "an event has a bound",
	},
	"space without end": {
		attack: func(h *hostile, w http.ResponseWriter, r *http.Request) {
			if isList(r) {
				list(w)
				return
			}
			h.write(w, ``, "\n")
		},
		says: "cannot be read: it is larger than what is read of a cluster", reason: "a decoder keeps it",
	},
	"events without end": {
		attack: logs(eventLine("hello", strings.Repeat("a", 1000)) + "\n"),
		says:   "events of cluster hostile were dropped", reason: "what waits for a client has a bound",
	},
	"events that are large once they are decoded": {
		attack: logs("\x1e" + `{"script":"hello","event":{"logs":[{"message":[` + strings.Repeat(`[],`, 80_000) + `[]]}]}}` + "\n"),
		says:   "of cluster hostile were dropped", reason: "decoding is on the account of the cluster",
	},
}

// logs is the attack of eight pods whose logs are one line without end.
func logs(line string) func(*hostile, http.ResponseWriter, *http.Request) {
	return func(h *hostile, w http.ResponseWriter, r *http.Request) {
		switch {
		case isList(r):
			list(w, names(8)...)
		case isWatch(r):
			never(w, r)
		case isLog(r):
			h.write(w, "", line)
		}
	}
}

func TestHostileClusterStaysWithinLimits(t *testing.T) {
	for name, tc := range attacks {
		t.Run(name, func(t *testing.T) {
			inWorldWith(t, Config{}, []string{"hostile", "well"}, func(w *world) {
				healthy := w.hub.start("well", "a", "1")
				h := &hostile{attack: tc.attack, before: live()}
				w.hub.spokes["hostile"].hostile = h.ServeHTTP
				var readers []*reader
				for i := range hostileTails {
					tail, err := w.tails.Create(hello, Holder{User: strconv.Itoa(i)}, Filters{})
					if err != nil {
						w.Fatal(err)
					}
					r, _ := w.dial(tail.Path)
					readers = append(readers, r)
				}
				time.Sleep(2 * time.Second)
				w.hub.call(healthy, "hello", "from the healthy one")
				for _, r := range readers {
					r.until(tc.reason, "from the healthy one", tc.says)
				}
				for _, r := range readers {
					r.leave()
				}
				if held := h.heldMost(); held > mayHold {
					w.Errorf("%s: %d MiB were held, at most %d are allowed", tc.reason, held>>20, mayHold>>20)
				}
			})
		})
	}
}

func TestFollowedPodsAreLimited(t *testing.T) {
	limits := Limits{MaxPods: 8, MaxFollowed: 128}
	inWorldWith(t, Config{Limits: limits}, []string{"hostile", "well"}, func(w *world) {
		healthy := w.hub.start("well", "a", "1")
		h := &hostile{attack: func(_ *hostile, w http.ResponseWriter, r *http.Request) {
			switch {
			case isList(r):
				list(w, names(3000)...)
			case isWatch(r):
				for _, name := range names(3000) {
					fmt.Fprintf(w, `{"type":"ADDED","object":{"metadata":{"name":"other-%s"}}}`, name)
				}
				never(w, r)
			default:
				never(w, r)
			}
		}}
		w.hub.spokes["hostile"].hostile = h.ServeHTTP
		before := runtime.NumGoroutine()
		var readers []*reader
		for i := range hostileTails {
			tail, err := w.tails.Create(hello, Holder{User: strconv.Itoa(i)}, Filters{})
			if err != nil {
				w.Fatal(err)
			}
			r, _ := w.dial(tail.Path)
			readers = append(readers, r)
			synctest.Wait()
		}
		// An eighth of 128 is the cluster's: a watch and 8 pods of the first tail, a watch and 6 pods of
		// the second. Of each pod there are two requests, for its log and for events.
		if open := w.hub.requests(); open > 2*16+4*hostileTails {
			w.Errorf("%d requests are open", open)
		}
		if more := runtime.NumGoroutine() - before; more > 16*30+hostileTails*60 {
			w.Errorf("there are %d goroutines more", more)
		}
		w.hub.call(healthy, "hello", "from the healthy one")
		const pods = "not all pods of cluster hostile are followed: a tail follows at most 8 of a cluster"
		const clusters = "not all clusters are followed: all tails follow at most 16 pods of a cluster"
		for i, want := range []string{pods, pods, clusters, clusters} {
			readers[i].until("places are bounded", "from the healthy one", want)
			readers[i].leave()
		}
	})
}

func TestPodNameCannotEscapePath(t *testing.T) {
	bad := []string{"../../../../../../api/v1/nodes", "a/b", "..", ".", "", "a?x=y", "a%2fb", "A", "a b", "a#b", "a:8079", strings.Repeat("a", 254)}
	inWorld(t, []string{"hostile"}, func(w *world) {
		h := &hostile{attack: func(_ *hostile, w http.ResponseWriter, r *http.Request) {
			switch {
			case isList(r):
				list(w, append(bad, "good")...)
			case isWatch(r):
				for _, name := range bad {
					fmt.Fprintf(w, `{"type":"ADDED","object":{"metadata":{"name":%q}}}`, name)
				}
				never(w, r)
			default:
				never(w, r)
			}
		}}
		w.hub.spokes["hostile"].hostile = h.ServeHTTP
		w.hub.otherwise = h
		r, _ := w.open(Filters{})
		r.expectEvent("spokelet: not all pods of cluster hostile are followed: it names pods as Kubernetes does not allow")
		r.leave()
		const pods = "/apis/live.spokelet.io/v1alpha1/clusters/hostile/proxy/api/v1/namespaces/workers-1234/pods"
		allowed := []string{"GET " + pods, "GET " + pods + "/good/log", "POST " + pods + "/good:8079/proxy/"}
		for _, path := range h.asked() {
			if !slices.Contains(allowed, path) {
				w.Errorf("it was asked for %s", path)
			}
		}
	})
}

func TestDeletedPodFreesSlot(t *testing.T) {
	inWorldWith(t, Config{Limits: Limits{MaxPods: 1}}, []string{"spoke1"}, func(w *world) {
		w.hub.start("spoke1", "a", "1")
		b := w.hub.start("spoke1", "b", "2")
		r, _ := w.open(Filters{})
		r.expectEvent("spokelet: not all pods of cluster spoke1 are followed: a tail follows at most 1 of a cluster")
		w.hub.stop("spoke1", "a", "1")
		synctest.Wait()
		w.hub.call(b, "hello", "in its place")
		r.expectEvent("in its place")
		c := w.hub.start("spoke1", "c", "3")
		r.expectEvent("spokelet: not all pods of cluster spoke1 are followed: a tail follows at most 1 of a cluster")
		w.hub.call(c, "hello", "nobody reads this")
		w.hub.call(b, "hello", "it stays")
		r.expectEvent("it stays")
		r.leave()
	})
}
