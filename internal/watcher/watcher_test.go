// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package watcher

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// answer is what the script has for one watch.
type answer func() (watch.Interface, error)

// scriptedServer answers each list and watch with its next line; the last watch stays open.
// As a sink it writes down what it is told, between what it was asked.
type scriptedServer struct {
	watches []answer
	pages   []*metav1.PartialObjectMetadataList
	diary   []string
	// at is when each watch was asked for.
	at   []time.Time
	objs []metav1.Object
}

func (s *scriptedServer) notef(format string, args ...any) {
	s.diary = append(s.diary, fmt.Sprintf(format, args...))
}

func (s *scriptedServer) listWatch() ListWatch { return ListWatch{List: s.list, Watch: s.watch} }

func (s *scriptedServer) list(_ context.Context, o metav1.ListOptions) (runtime.Object, error) {
	s.notef("list %s", o.Continue)
	page := s.pages[0]
	s.pages = s.pages[1:]
	return page, nil
}

func (s *scriptedServer) watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if o.SendInitialEvents != nil {
		s.notef("stream%s", o.ResourceVersion)
	} else {
		s.notef("watch %s", o.ResourceVersion)
	}
	s.at = append(s.at, time.Now())
	if len(s.watches) == 0 {
		w := watch.NewFake()
		context.AfterFunc(ctx, w.Stop)
		return w, nil
	}
	next := s.watches[0]
	s.watches = s.watches[1:]
	return next()
}

func (s *scriptedServer) HandleEvent(obj metav1.Object, deleted bool) {
	what := "is"
	if deleted {
		what = "gone"
	}
	s.notef("%s %s", what, obj.GetName())
	s.objs = append(s.objs, obj)
}
func (s *scriptedServer) StartSync()                { s.notef("begin") }
func (s *scriptedServer) FinishSync(version string) { s.notef("end %s", version) }
func (s *scriptedServer) HandleDenied(err error) {
	s.notef("refused %s", apierrors.ReasonForError(err))
}

func object(name, version string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: version}}
}

func added(name, version string) watch.Event {
	return watch.Event{Type: watch.Added, Object: object(name, version)}
}

func deleted(name, version string) watch.Event {
	return watch.Event{Type: watch.Deleted, Object: object(name, version)}
}

func bookmark(version string, initial bool) watch.Event {
	b := object("", version)
	if initial {
		b.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	return watch.Event{Type: watch.Bookmark, Object: b}
}

// newClosedWatch is a watch that brings events and is closed.
func newClosedWatch(events ...watch.Event) answer {
	return func() (watch.Interface, error) {
		ch := make(chan watch.Event, len(events))
		for _, e := range events {
			ch <- e
		}
		close(ch)
		return watch.NewProxyWatcher(ch), nil
	}
}

func newFailedWatch(err error) answer {
	return func() (watch.Interface, error) { return nil, err }
}

// run runs a watcher of the script for d.
func run(t *testing.T, f *Watcher, s *scriptedServer, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	f.ListWatch, f.Handler = s.listWatch(), s
	f.Run(ctx)
}

func pages() []*metav1.PartialObjectMetadataList {
	return []*metav1.PartialObjectMetadataList{
		{ListMeta: metav1.ListMeta{Continue: "more"}, Items: []metav1.PartialObjectMetadata{*object("a", "1")}},
		{ListMeta: metav1.ListMeta{ResourceVersion: "4"}, Items: []metav1.PartialObjectMetadata{*object("b", "2")}},
	}
}

func TestWatcherReportsEvents(t *testing.T) {
	gone := watch.Event{Type: watch.Error, Object: &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonExpired}}
	tests := map[string]struct {
		reason string
		script scriptedServer
		want   []string
	}{
		"a watch ends": {
			reason: "it is resumed where it ended, without a list",
			script: scriptedServer{watches: []answer{
				newClosedWatch(added("a", "1"), bookmark("5", true), added("b", "6"), deleted("a", "7")), newClosedWatch(bookmark("9", false)),
			}},
			want: []string{"stream", "begin", "is a", "end 5", "is b", "gone a", "watch 7", "watch 9"},
		},
		"a watch ends before its initial events did": {
			reason: "nothing may be concluded from half of them",
			script: scriptedServer{watches: []answer{newClosedWatch(added("a", "1"), bookmark("3", false)), newClosedWatch(added("a", "1"), bookmark("5", true))}},
			want:   []string{"stream", "begin", "is a", "stream", "begin", "is a", "end 5", "watch 5"},
		},
		"a watch is cut off": {
			reason: "nothing is listed twice",
			script: scriptedServer{watches: []answer{newClosedWatch(bookmark("5", true)), newFailedWatch(errors.New("cut"))}},
			want:   []string{"stream", "begin", "end 5", "watch 5", "watch 5"},
		},
		"the version expired, says an event": {
			reason: "everything is read anew",
			script: scriptedServer{watches: []answer{newClosedWatch(bookmark("5", true)), newClosedWatch(gone), newClosedWatch(added("c", "7"), bookmark("8", true))}},
			want:   []string{"stream", "begin", "end 5", "watch 5", "stream", "begin", "is c", "end 8", "watch 8"},
		},
		"the version expired, says the answer": {
			reason: "what happened meanwhile is not known",
			script: scriptedServer{watches: []answer{newClosedWatch(bookmark("5", true)), newFailedWatch(apierrors.NewResourceExpired("too old")), newClosedWatch(bookmark("9", true))}},
			want:   []string{"stream", "begin", "end 5", "watch 5", "stream", "begin", "end 9", "watch 9"},
		},
		"lists cannot be streamed": {
			reason: "an older API server refuses the option; they are read in pages",
			script: scriptedServer{watches: []answer{newFailedWatch(apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil))}, pages: pages()},
			want:   []string{"stream", "begin", "list ", "is a", "list more", "is b", "end 4", "watch 4"},
		},
		"the right is missing for a while": {
			reason: "it is reported, for nobody else can see why nothing happens, and tried again",
			script: scriptedServer{watches: []answer{newFailedWatch(forbidden()), newClosedWatch(bookmark("5", true))}},
			want:   []string{"stream", "refused Forbidden", "stream", "begin", "end 5", "watch 5"},
		},
		"garbage": {
			reason: "an object that is none ends the watch, not the process",
			script: scriptedServer{watches: []answer{newClosedWatch(watch.Event{Type: watch.Added, Object: &runtime.Unknown{}}), newClosedWatch(bookmark("5", true))}},
			want:   []string{"stream", "begin", "stream", "begin", "end 5", "watch 5"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				run(t, &Watcher{}, &tc.script, 10*time.Second)
				if diff := cmp.Diff(tc.want, tc.script.diary); diff != "" {
					t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
				}
			})
		})
	}
}

func forbidden() error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: "x"}, "", errors.New("no"))
}

func TestIsDeniedDecidesWhatIsReported(t *testing.T) {
	notFound := apierrors.NewNotFound(schema.GroupResource{Resource: "x"}, "")
	tests := map[string]struct {
		reason  string
		err     error
		refusal func(error) bool
		want    bool
	}{
		"no right":              {reason: "waiting does not give it", err: forbidden(), want: true},
		"no identity":           {reason: "nor that", err: apierrors.NewUnauthorized("who"), want: true},
		"not there":             {reason: "what is built in is not away for good", err: notFound},
		"not there, as it says": {reason: "a kind may be removed", err: notFound, refusal: apierrors.IsNotFound, want: true},
		"no right, not said":    {reason: "who says what a refusal is says all of it", err: forbidden(), refusal: apierrors.IsNotFound},
		"cut off":               {reason: "a fault on the way is no answer", err: errors.New("cut")},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &scriptedServer{watches: []answer{newFailedWatch(tc.err)}}
				run(t, &Watcher{IsDenied: tc.refusal}, s, 10*time.Second)
				if got := strings.Contains(strings.Join(s.diary, ","), "refused"); got != tc.want {
					t.Errorf("%s: refused %t, want %t", tc.reason, got, tc.want)
				}
			})
		})
	}
}

func TestCopyObjectsDoesNotRetainPages(t *testing.T) {
	for name, copied := range map[string]bool{"a sink that keeps objects": true, "one that does not": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &scriptedServer{watches: []answer{newFailedWatch(apierrors.NewBadRequest("no"))}, pages: pages()}
				page := s.pages[0]
				run(t, &Watcher{CopyObjects: copied}, s, time.Second)
				if len(s.objs) != 2 || s.objs[0].GetName() != "a" {
					t.Fatalf("told of %v", s.objs)
				}
				if in := s.objs[0] == metav1.Object(&page.Items[0]); in == copied {
					t.Errorf("got what is in the page: %t", in)
				}
			})
		})
	}
}

func TestShortWatchesAreResumedWithoutList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scriptedServer{watches: []answer{newClosedWatch(bookmark("5", true))}}
		for range 1000 {
			s.watches = append(s.watches, newClosedWatch(bookmark("6", false)))
		}
		run(t, &Watcher{}, s, 10*time.Minute)
		asked := strings.Join(s.diary, ",")
		if streams, lists := strings.Count(asked, "stream"), strings.Count(asked, "list"); streams != 1 || lists != 0 {
			t.Errorf("%d streams, %d lists", streams, lists)
		}
		if len(s.at) > 60 {
			t.Errorf("%d watches in 10 minutes", len(s.at))
		}
		for i := 1; i < len(s.at); i++ {
			least := min(minBackoff<<min(i-1, 20), maxBackoff) / 2
			if d := s.at[i].Sub(s.at[i-1]); d < least || d > maxBackoff {
				t.Errorf("paused %s after %d watches, want %s to %s", d, i, least, maxBackoff)
			}
		}
	})
}

func TestStableWatchIsResumedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lives := func() (watch.Interface, error) {
			w := watch.NewFake()
			time.AfterFunc(minWatchTimeout, w.Stop)
			return w, nil
		}
		s := &scriptedServer{watches: []answer{newClosedWatch(bookmark("5", true)), lives, lives}}
		run(t, &Watcher{}, s, 3*minWatchTimeout)
		if n := len(s.at); n != 4 {
			t.Fatalf("%d watches, want 4", n)
		}
		if d := s.at[3].Sub(s.at[2]); d != minWatchTimeout {
			t.Errorf("resumed after %s, want %s", d, minWatchTimeout)
		}
	})
}
