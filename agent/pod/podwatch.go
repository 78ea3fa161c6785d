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

// startWatcher keeps a sink up to date until ctx or the returned stop ends it; stop does
// not wait. The sink may keep what it is told of.
func (e *Engine) startWatcher(ctx context.Context, feed watcher.ListWatch, to watcher.Handler) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	e.watchers.Go(func() {
		defer cancel()
		(&watcher.Watcher{ListWatch: feed, Handler: to, CopyObjects: true}).Run(ctx)
	})
	return cancel
}

// podSink feeds the table of pods.
type podSink struct {
	engine *Engine
	seen   map[types.UID]struct{}
}

func (s *podSink) HandleEvent(obj metav1.Object, deleted bool) {
	pod, ok := obj.(*corev1.Pod)
	switch {
	case !ok:
	case deleted:
		s.engine.observePodDeleted(namespacedName{Namespace: pod.Namespace, Name: pod.Name}, pod.UID, pod)
	default:
		if s.seen != nil {
			s.seen[pod.UID] = struct{}{}
		}
		s.engine.observePod(pod)
	}
}

func (s *podSink) StartSync() { s.seen = map[types.UID]struct{}{} }

func (s *podSink) FinishSync(version string) {
	s.engine.observePodList(s.seen, version)
	s.seen = nil
}

// HandleDenied is said of the pods too, until they are known.
func (s *podSink) HandleDenied(err error) {
	e := s.engine
	e.log.Error(err, "cannot watch the pods of the hub in this cluster")
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.podsListed {
		return
	}
	e.listError = err
	for at := range e.pods {
		e.queue.Add(queueItem{pod: at})
	}
}
