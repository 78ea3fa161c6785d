// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spokelet/spokelet/internal/watcher"
)

// follow keeps a sink up to date until ctx or the returned stop ends it; stop does
// not wait. The sink may keep what it is told of.
func (e *Engine) follow(ctx context.Context, feed watcher.Feed, to watcher.Sink) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	e.following.Go(func() {
		defer cancel()
		(&watcher.Follower{Feed: feed, Sink: to, Copy: true}).Run(ctx)
	})
	return cancel
}

// podSink feeds the table of pods.
type podSink struct {
	engine *Engine
	seen   map[types.UID]struct{}
}

// Event implements watcher.Sink.
func (s *podSink) Event(obj metav1.Object, deleted bool) {
	pod, ok := obj.(*corev1.Pod)
	switch {
	case !ok:
	case deleted:
		s.engine.vanish(place{Namespace: pod.Namespace, Name: pod.Name}, pod.UID, pod)
	default:
		if s.seen != nil {
			s.seen[pod.UID] = struct{}{}
		}
		s.engine.observe(pod)
	}
}

// Begin implements watcher.Sink.
func (s *podSink) Begin() { s.seen = map[types.UID]struct{}{} }

// End implements watcher.Sink.
func (s *podSink) End(version string) {
	s.engine.resync(s.seen, version)
	s.seen = nil
}

// Refused is said of the pods too, until they are known.
func (s *podSink) Refused(err error) {
	e := s.engine
	e.log.Error(err, "cannot watch the pods of the hub in this cluster")
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.listed {
		return
	}
	e.blind = err
	for at := range e.entries {
		e.queue.Add(item{place: at})
	}
}
