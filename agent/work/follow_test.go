// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// script answers each List and Watch with its next line.
type script struct {
	watches []func(metav1.ListOptions) (watch.Interface, error)
	pages   []*metav1.PartialObjectMetadataList
	asked   []string
	at      []time.Duration
	start   time.Time
	lists   int
}

func (s *script) List(_ context.Context, _ scope, o metav1.ListOptions) (runtime.Object, error) {
	s.asked = append(s.asked, "list "+o.Continue)
	page := s.pages[0]
	s.pages = s.pages[1:]
	s.lists++
	return page, nil
}

func (s *script) Watch(ctx context.Context, _ scope, o metav1.ListOptions) (watch.Interface, error) {
	ask := "watch " + o.ResourceVersion
	if o.SendInitialEvents != nil {
		ask = "stream"
	}
	s.asked = append(s.asked, ask)
	s.at = append(s.at, time.Since(s.start))
	if len(s.watches) == 0 {
		w := watch.NewFake()
		context.AfterFunc(ctx, w.Stop)
		return w, nil
	}
	next := s.watches[0]
	s.watches = s.watches[1:]
	return next(o)
}

// notes is a sink that writes down what it is told.
type notes struct{ told []string }

func (n *notes) event(_ scope, obj metav1.Object, deleted bool) {
	what := "is "
	if deleted {
		what = "gone "
	}
	n.told = append(n.told, what+obj.GetName())
}
func (n *notes) begin(scope)                 { n.told = append(n.told, "begin") }
func (n *notes) end(_ scope, version string) { n.told = append(n.told, "end "+version) }
func (n *notes) refused(_ scope, err error) {
	n.told = append(n.told, "refused "+string(apierrors.ReasonForError(err)))
}

func item(name, version string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: version}}
}

func bookmark(version string, initial bool) watch.Event {
	b := item("", version)
	if initial {
		b.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	return watch.Event{Type: watch.Bookmark, Object: b}
}

// ends is a watch that brings events and is closed.
func ends(events ...watch.Event) func(metav1.ListOptions) (watch.Interface, error) {
	return func(metav1.ListOptions) (watch.Interface, error) {
		w := watch.NewFakeWithOptions(watch.FakeOptions{ChannelSize: len(events) + 1})
		for _, e := range events {
			w.Action(e.Type, e.Object)
		}
		w.Stop()
		return w, nil
	}
}

func refuses(err error) func(metav1.ListOptions) (watch.Interface, error) {
	return func(metav1.ListOptions) (watch.Interface, error) { return nil, err }
}

func TestFollowerKeepsUp(t *testing.T) {
	gone := watch.Event{Type: watch.Error, Object: &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonExpired}}
	added := func(name, version string) watch.Event {
		return watch.Event{Type: watch.Added, Object: item(name, version)}
	}
	gr := schema.GroupResource{Resource: "x"}
	tests := map[string]struct {
		reason string
		script script
		asked  []string
		told   []string
	}{
		"a watch ends": {
			reason: "it is resumed where it ended, without a list",
			script: script{watches: []func(metav1.ListOptions) (watch.Interface, error){
				ends(added("a", "1"), bookmark("5", true), added("b", "6")), ends(bookmark("9", false)),
			}},
			asked: []string{"stream", "watch 6", "watch 9"},
			told:  []string{"begin", "is a", "end 5", "is b"},
		},
		"a watch ends before its initial events did": {
			reason: "nothing may be concluded from half of them",
			script: script{watches: []func(metav1.ListOptions) (watch.Interface, error){
				ends(added("a", "1")), ends(added("a", "1"), bookmark("5", true)),
			}},
			asked: []string{"stream", "stream", "watch 5"},
			told:  []string{"begin", "is a", "begin", "is a", "end 5"},
		},
		"the version expired": {
			reason: "everything is read anew",
			script: script{watches: []func(metav1.ListOptions) (watch.Interface, error){
				ends(bookmark("5", true)), ends(gone), ends(added("c", "7"), bookmark("8", true)),
			}},
			asked: []string{"stream", "watch 5", "stream", "watch 8"},
			told:  []string{"begin", "end 5", "begin", "is c", "end 8"},
		},
		"lists cannot be streamed": {
			reason: "they are read in pages",
			script: script{
				watches: []func(metav1.ListOptions) (watch.Interface, error){refuses(apierrors.NewInvalid(schema.GroupKind{}, "", nil))},
				pages: []*metav1.PartialObjectMetadataList{
					{ListMeta: metav1.ListMeta{Continue: "more"}, Items: []metav1.PartialObjectMetadata{*item("a", "1")}},
					{ListMeta: metav1.ListMeta{ResourceVersion: "4"}, Items: []metav1.PartialObjectMetadata{*item("b", "2")}},
				},
			},
			asked: []string{"stream", "list ", "list more", "watch 4"},
			told:  []string{"begin", "is a", "is b", "end 4"},
		},
		"the right is missing for a while": {
			reason: "it is reported, and tried again",
			script: script{watches: []func(metav1.ListOptions) (watch.Interface, error){
				refuses(apierrors.NewForbidden(gr, "", errBoom)), ends(bookmark("5", true)),
			}},
			asked: []string{"stream", "stream", "watch 5"},
			told:  []string{"refused Forbidden", "begin", "end 5"},
		},
		"garbage": {
			reason: "an object that is none ends the watch, not the process",
			script: script{watches: []func(metav1.ListOptions) (watch.Interface, error){
				ends(watch.Event{Type: watch.Added, Object: &runtime.Unknown{}}), ends(bookmark("5", true)),
			}},
			asked: []string{"stream", "stream", "watch 5"},
			told:  []string{"begin", "begin", "end 5"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				n := &notes{}
				f := &follower{lister: &tc.script, sink: n, log: logr.Discard()}
				done := make(chan struct{})
				go func() {
					defer close(done)
					f.run(ctx)
				}()
				advance(ctx, 10*time.Second)
				cancel()
				<-done
				if diff := cmp.Diff(tc.asked, tc.script.asked); diff != "" {
					t.Errorf("%s: asked (-want +got):\n%s", tc.reason, diff)
				}
				if diff := cmp.Diff(tc.told, n.told); diff != "" {
					t.Errorf("%s: told (-want +got):\n%s", tc.reason, diff)
				}
			})
		})
	}
}

// advance lets the bubble's time pass.
func advance(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	synctest.Wait()
}

func TestWatchThatClosesEverySecondIsNotListedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{start: time.Now(), watches: []func(metav1.ListOptions) (watch.Interface, error){ends(bookmark("5", true))}}
		for range 1000 {
			s.watches = append(s.watches, ends(bookmark("6", false)))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		f := &follower{lister: s, sink: &notes{}, log: logr.Discard()}
		f.run(ctx)
		if streams := strings.Count(strings.Join(s.asked, ","), "stream"); streams != 1 || s.lists != 0 {
			t.Errorf("%d streams, %d lists", streams, s.lists)
		}
		if len(s.asked) > 60 {
			t.Errorf("%d watches in 10 minutes", len(s.asked))
		}
	})
}

func TestBackoffGrowsAndIsBounded(t *testing.T) {
	for failures := range 70 {
		d := backoff(failures, time.Second, time.Minute)
		if d < time.Second/2 || d > time.Minute {
			t.Errorf("after %d failures: %s", failures, d)
		}
	}
	if !errors.Is(expired(apierrors.NewResourceExpired("x")), errExpired) {
		t.Error("an expired version is not recognised")
	}
}
