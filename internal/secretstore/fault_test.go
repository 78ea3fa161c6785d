// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package secretstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	clienttesting "k8s.io/client-go/testing"
)

// otherSecret makes one that has nothing to do with the store.
func otherSecret(s *corev1.Secret) { s.Labels, s.Type = nil, corev1.SecretTypeOpaque }

// segmentOf makes what another process would have written.
func segmentOf(sequence uint64, entries ...entry) func(*corev1.Secret) {
	return func(s *corev1.Secret) {
		s.Data[dataKey] = encode(newZip(), content{Sequence: sequence, Entries: entries})
	}
}

func TestForeignChangeOfASegmentLosesNoRecord(t *testing.T) {
	cases := map[string]struct {
		reason string
		change func(*corev1.Secret)
		// left is how many Secrets there are in the end, unreadable how many of them.
		left, unreadable int
		// logged is how many messages there are.
		logged int
	}{
		"Deleted": {
			reason: "Memory is the truth: all that lay in it is written anew.",
			change: nil, left: 1, logged: 1,
		},
		"Annotated": {
			reason: "Who changes an annotation changes no records.",
			change: func(s *corev1.Secret) { s.Annotations = map[string]string{"theirs": "yes"} },
			left:   1, logged: 1, // that it is tried again
		},
		"RewrittenByAnotherProcess": {
			reason: "However new it claims to be, what it says is not taken for true, and is overwritten.",
			change: segmentOf(1<<40, entry{Key: "a", Value: []byte("theirs")}, entry{Key: "z", Value: []byte("theirs")}), left: 1, logged: 1,
		},
		"Garbled": {
			reason: "What cannot be read may be somebody else's, and is left alone.",
			change: func(s *corev1.Secret) { s.Data[dataKey] = []byte("?") }, left: 2, unreadable: 1, logged: 2,
		},
		"MadeAnotherKind": {
			reason: "Without its label it is no segment any more.",
			change: func(s *corev1.Secret) { s.Labels = nil }, left: 2, logged: 2,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server, log := newAPIServer(), &logged{}
				p := startWith(t, Config{Name: "test", Secrets: server.client(nil), Logger: log.logger()})
				p.begin(t, "a", "1", false)
				p.put(t, "b", "1")
				server.change(server.only(t), tc.change)
				p.put(t, "b", strings.Repeat("2", 100))
				time.Sleep(time.Millisecond) // if the agent is killed before, the other's keys come back
				want := map[string]string{"a": "1", "b": strings.Repeat("2", 100)}
				wantStored(t, server, want)
				calm()
				wantStored(t, server, want)
				if log.count() != tc.logged {
					t.Errorf("%s\n%d messages, want %d: %s", tc.reason, log.count(), tc.logged, log.messages)
				}
				names := server.names()
				if len(names) != tc.left || lastError(p) != nil {
					t.Errorf("%s\nSecrets are %v, want %d; error %v", tc.reason, names, tc.left, lastError(p))
				}
				next := start(t, server, nil)
				if next.unreadable != tc.unreadable {
					t.Errorf("%s\n%d are unreadable, want %d", tc.reason, next.unreadable, tc.unreadable)
				}
			})
		})
	}
}

func TestDeletedKeyDoesNotReturnWithAChangedSegment(t *testing.T) {
	cases := map[string]func(*corev1.Secret){
		"Rewritten": segmentOf(1<<40, entry{Key: "a", Value: []byte("theirs")}),
		"Deleted":   nil,
	}
	for name, change := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newAPIServer()
				p := start(t, server, func(verb, _ string) outcome { return lostUnless(verb != "delete") })
				p.put(t, "a", "1")
				server.change(server.only(t), change)
				p.Delete("a")
				p.put(t, "b", strings.Repeat("2", 100))
				calm() // but nothing can be deleted
				wantStored(t, server, map[string]string{"b": strings.Repeat("2", 100)})
			})
		})
	}
}

func TestRequestWithoutAnswerIsRetriedSafely(t *testing.T) {
	for _, what := range []outcome{lost, answerless, delayed} {
		for _, verb := range []string{"create", "update", "delete"} {
			t.Run(fmt.Sprint(verb, what), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					server, failed := newAPIServer(), false
					p := start(t, server, func(v, _ string) outcome {
						if v == verb && !failed {
							failed = true
							return what
						}
						return served
					})
					p.put(t, "a", "1")
					p.put(t, "a", "2")
					wantStored(t, server, map[string]string{"a": "2"})
					p.Delete("a")
					calm()
					wantConsistent(t, p.Store, server)
					if len(server.names()) != 0 || !failed || server.count("create") != 1 {
						t.Errorf("Secrets are %v, want none; %d were created, want one", server.names(), server.count("create"))
					}
				})
			})
		}
	}
}

func TestForeignSecretOfTheSameNameIsNotOverwritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, taken := newAPIServer(), ""
		p := start(t, server, func(verb, name string) outcome {
			if verb == "create" && taken == "" {
				taken = name
				server.change(name, func(s *corev1.Secret) { s.Data["theirs"] = []byte("yes") })
			}
			return served
		})
		p.put(t, "a", "1")
		wantStored(t, server, map[string]string{"a": "1"})
		if names := server.names(); len(names) != 2 || string(server.secrets[taken].Data["theirs"]) != "yes" {
			t.Errorf("Secrets are %v, want two; theirs is %v", names, server.secrets[taken])
		}
	})
}

func TestFailedWriteIsRetriedWithBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, began, tries := newAPIServer(), time.Now(), []time.Duration{}
		p := start(t, server, func(verb, _ string) outcome {
			if verb == "list" {
				return served
			}
			tries = append(tries, time.Since(began))
			return lostUnless(time.Since(began) > time.Hour)
		})
		durable := p.begin(t, "a", "1", true)
		time.Sleep(time.Minute)
		if err := lastError(p); !errors.Is(err, errBoom) {
			t.Errorf("error is %v, want %v", err, errBoom)
		}
		for i := range 1000 {
			p.begin(t, "a", strconv.Itoa(i), true)
		}
		<-durable
		synctest.Wait()
		if lastError(p) != nil || server.writes() != 2 {
			t.Errorf("error is %v, %d writes; want none, and two", lastError(p), server.writes())
		}
		if tries[1] > 20*time.Millisecond || len(tries) < 120 || len(tries) > 260 {
			t.Errorf("%d tries in an hour, the second after %s", len(tries), tries[1])
		}
		wantStored(t, server, map[string]string{"a": "999"})
	})
}

// A killed process may have sent a deletion that takes effect after the next process has
// written the same segment.
func TestLateDeletionConflictsWithANewerWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer()
		p := start(t, server, nil)
		p.put(t, "a", "1")
		killed, err := Open(t.Context(), p.cfg)
		if err != nil {
			t.Fatal(err)
		}
		p.put(t, "a", "2")
		if err := killed.deleteSecret(t.Context(), killed.segments[0]); !apierrors.IsConflict(err) {
			t.Errorf("error is %v, want a conflict", err)
		}
		wantStored(t, server, map[string]string{"a": "2"})
	})
}

// hanging has no answer to the first creation.
type hanging struct {
	typedcorev1.SecretInterface

	hung bool
}

func (h *hanging) Create(ctx context.Context, secret *corev1.Secret, opts metav1.CreateOptions) (*corev1.Secret, error) {
	if h.hung {
		return h.SecretInterface.Create(ctx, secret, opts)
	}
	h.hung = true
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestHangingRequestTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, began := newAPIServer(), time.Now()
		p := startWith(t, Config{Name: "test", Secrets: &hanging{SecretInterface: server.client(nil)}, Logger: logr.Discard(), RequestTimeout: time.Minute})
		p.put(t, "a", "1")
		if took := time.Since(began); took < time.Minute || took > time.Minute+time.Second {
			t.Errorf("it took %s, want a minute", took)
		}
		wantStored(t, server, map[string]string{"a": "1"})
	})
}

func TestRunCancelsHangingRequestAfterFlushTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startWith(t, Config{Name: "test", Secrets: &hanging{SecretInterface: newAPIServer().client(nil)}, Logger: logr.Discard()})
		p.begin(t, "a", "1", true)
		synctest.Wait()
		began := time.Now()
		if err := p.end(); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 5*time.Second {
			t.Errorf("it took %s, error %v; want 5 s and %v", time.Since(began), err, context.DeadlineExceeded)
		}
	})
}

func TestOpenLeavesUnreadableSecretAlone(t *testing.T) {
	good := encode(newZip(), content{Sequence: 1, Entries: []entry{{Key: "a", Value: []byte("1")}}})
	cases := map[string]struct {
		reason string
		change func(*corev1.Secret)
	}{
		"Empty":     {reason: "Somebody took its content.", change: func(*corev1.Secret) {}},
		"Truncated": {reason: "Half of a segment is none.", change: func(s *corev1.Secret) { s.Data[dataKey] = good[:len(good)-5] }},
		"Foreign": {reason: "The label alone does not make a segment.", change: func(s *corev1.Secret) {
			s.Type, s.Data[dataKey] = corev1.SecretTypeOpaque, good
		}},
		"Hostile": {reason: "A small Secret may be a large one.", change: segmentOf(1, entry{Key: "a", Value: make([]byte, 2*maxContent)})},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newAPIServer()
				p := start(t, server, nil)
				p.put(t, "b", "1")
				_ = p.end()
				server.change("theirs", tc.change)
				before := server.secrets["theirs"]
				p = start(t, server, nil)
				if p.unreadable != 1 {
					t.Errorf("%s\n%d are unreadable, want one", tc.reason, p.unreadable)
				}
				p.put(t, "b", "2")
				calm()
				if diff := cmp.Diff(map[string]string{"b": "2"}, allOf(p.Store)); diff != "" {
					t.Errorf("%s\ncontent (-want +got):\n%s", tc.reason, diff)
				}
				if diff := cmp.Diff(before, server.secrets["theirs"]); diff != "" {
					t.Errorf("%s\nSecret (-before +after):\n%s", tc.reason, diff)
				}
			})
		})
	}
}

func TestOpenFailsWhenListFails(t *testing.T) {
	if _, err := Open(t.Context(), Config{Name: "test", Secrets: newAPIServer().client(func(string, string) outcome { return lost }), Logger: logr.Discard()}); !errors.Is(err, errBoom) {
		t.Errorf("error is %v, want %v", err, errBoom)
	}
}

func TestOpenRestartsAnExpiredList(t *testing.T) {
	server, pages := newAPIServer(), 0
	for i := range 3 * pageSize {
		server.change(fmt.Sprint("s", i), segmentOf(uint64(i), entry{Key: strconv.Itoa(i), Value: []byte("1")}))
	}
	c := &fake.Clientset{}
	c.AddReactor("*", "secrets", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if pages++; pages == 3 {
			return true, nil, apierrors.NewResourceExpired("boom")
		}
		obj, err := server.request(nil, action)
		return true, obj, err
	})
	s, err := Open(t.Context(), Config{Name: "test", Secrets: c.CoreV1().Secrets(agentNamespace), Logger: logr.Discard()})
	if err != nil || len(s.Keys()) != 3*pageSize || len(s.segments) != 3*pageSize || pages != 4 {
		t.Errorf("%d keys of %d segments in %d pages, error %v", len(s.Keys()), len(s.segments), pages, err)
	}
}

func TestOpenPrefersTheNewerSegment(t *testing.T) {
	cases := map[string]struct {
		reason   string
		old, new entry
		want     map[string]string
	}{
		"Value":     {reason: "A crash came before the older one was deleted.", old: entry{Key: "k", Value: []byte("old")}, new: entry{Key: "k", Value: []byte("new")}, want: map[string]string{"k": "new"}},
		"Tombstone": {reason: "The key was deleted.", old: entry{Key: "k", Value: []byte("old")}, new: entry{Key: "k", Deleted: true}, want: map[string]string{}},
		"PutAgain":  {reason: "It was deleted, and put again.", old: entry{Key: "k", Deleted: true}, new: entry{Key: "k", Value: []byte("new")}, want: map[string]string{"k": "new"}},
	}
	for name, tc := range cases {
		for _, names := range [][2]string{{"a", "b"}, {"b", "a"}} {
			t.Run(name+names[0], func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					server := newAPIServer()
					server.change(names[0], segmentOf(7, tc.old))
					server.change(names[1], segmentOf(9, tc.new))
					p := start(t, server, nil)
					if diff := cmp.Diff(tc.want, allOf(p.Store)); diff != "" {
						t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
					}
					if p.sequence <= 9 {
						t.Errorf("sequence is %d, want more than 9", p.sequence)
					}
					calm()
					wantConsistent(t, p.Store, server)
					if len(server.names()) != len(tc.want) {
						t.Errorf("Secrets are %v, want %d", server.names(), len(tc.want))
					}
				})
			})
		}
	}
}
