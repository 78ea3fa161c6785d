// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// diary writes down what a follower does and sees.
type diary struct {
	mu    sync.Mutex
	lines []string // guarded by mu
}

func (d *diary) addf(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, fmt.Sprintf(format, args...))
}

func (d *diary) read() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.lines)
}

func (d *diary) event(obj metav1.Object, deleted bool) {
	d.addf("event %s deleted=%t", obj.GetName(), deleted)
}
func (d *diary) begin()             { d.addf("begin") }
func (d *diary) end(version string) { d.addf("end %s", version) }
func (d *diary) refused(error)      { d.addf("refused") }

func named(name, version string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: version}}
}

func bookmark(version string) watch.Event {
	pod := named("", version)
	pod.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	return watch.Event{Type: watch.Bookmark, Object: pod}
}

// script answers one watch after the other: an error, or events after which the
// watch ends. The last one stays open.
type script struct {
	*diary
	answers []any
	pages   []*corev1.PodList
}

func (s *script) feed() feed {
	return feed{
		list: func(_ context.Context, o metav1.ListOptions) (runtime.Object, error) {
			s.addf("list continue=%q", o.Continue)
			page := s.pages[0]
			s.pages = s.pages[1:]
			return page, nil
		},
		watch: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			s.addf("watch from=%q stream=%t", o.ResourceVersion, o.SendInitialEvents != nil)
			if len(s.answers) == 0 {
				w := watch.NewFake()
				context.AfterFunc(ctx, w.Stop)
				return w, nil
			}
			answer := s.answers[0]
			s.answers = s.answers[1:]
			if err, ok := answer.(error); ok {
				return nil, err
			}
			events, ok := answer.([]watch.Event)
			if !ok {
				return nil, errors.New("script: not an answer")
			}
			ch := make(chan watch.Event, len(events))
			for _, e := range events {
				ch <- e
			}
			close(ch)
			return watch.NewProxyWatcher(ch), nil
		},
	}
}

func TestFollower(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	gone := apierrors.NewResourceExpired("too old")
	cases := map[string]struct {
		reason string
		script script
		want   []string
	}{
		"streams the list": {
			reason: "nothing is held",
			script: script{answers: []any{[]watch.Event{{Type: watch.Added, Object: named("a", "1")}, bookmark("5"), {Type: watch.Deleted, Object: named("a", "6")}}}},
			want:   []string{`watch from="" stream=true`, "begin", "event a deleted=false", "end 5", "event a deleted=true", `watch from="6" stream=false`},
		},
		"pages where the server cannot stream": {
			reason: "an older API server refuses the option",
			script: script{
				answers: []any{apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil)},
				pages: []*corev1.PodList{
					{ListMeta: metav1.ListMeta{Continue: "more"}, Items: []corev1.Pod{*named("a", "1")}},
					{ListMeta: metav1.ListMeta{ResourceVersion: "7"}, Items: []corev1.Pod{*named("b", "2")}},
				},
			},
			want: []string{`watch from="" stream=true`, "begin", `list continue=""`, "event a deleted=false", `list continue="more"`, "event b deleted=false", "end 7", `watch from="7" stream=false`},
		},
		"begins afresh when its version is gone": {
			reason: "what happened meanwhile is not known",
			script: script{answers: []any{[]watch.Event{bookmark("5")}, gone, []watch.Event{bookmark("9")}}},
			want:   []string{`watch from="" stream=true`, "begin", "end 5", `watch from="5" stream=false`, `watch from="" stream=true`, "begin", "end 9", `watch from="9" stream=false`},
		},
		"resumes after a cut": {
			reason: "nothing is listed twice",
			script: script{answers: []any{[]watch.Event{bookmark("5")}, errors.New("cut")}},
			want:   []string{`watch from="" stream=true`, "begin", "end 5", `watch from="5" stream=false`, `watch from="5" stream=false`},
		},
		"tells of a refusal": {
			reason: "nobody else can see why nothing happens",
			script: script{answers: []any{apierrors.NewForbidden(pods, "", nil)}},
			want:   []string{`watch from="" stream=true`, "refused", `watch from="" stream=true`, "begin"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				s := tc.script
				s.diary = &diary{}
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					(&follower{feed: s.feed(), sink: s.diary}).run(ctx)
				}()
				want := tc.want
				for range 10 { // every pause is shorter than a minute
					synctest.Wait()
					if len(s.read()) >= len(want) {
						break
					}
					pause(ctx, 20)
				}
				cancel()
				<-ended
				if diff := cmp.Diff(want, s.read()); diff != "" {
					t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
				}
			})
		})
	}
}
