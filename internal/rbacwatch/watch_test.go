// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package rbacwatch

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
)

// server is a metadata client of which each resource has one watch at a time.
type server struct {
	metadata.Interface
	mu      sync.Mutex
	watches map[string]*watch.FakeWatcher // guarded by mu
	starts  int                           // guarded by mu
	asked   int                           // guarded by mu
	refuse  error                         // guarded by mu
}

func (s *server) Resource(gvr schema.GroupVersionResource) metadata.Getter {
	return getter{server: s, name: gvr.Resource}
}

type getter struct {
	metadata.Getter
	server *server
	name   string
}

func (g getter) List(context.Context, metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	g.server.mu.Lock()
	defer g.server.mu.Unlock()
	return &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}, g.server.refuse
}

func (g getter) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	g.server.mu.Lock()
	defer g.server.mu.Unlock()
	g.server.asked++
	if g.server.refuse != nil {
		return nil, g.server.refuse
	}
	if o.ResourceVersion == "" && o.SendInitialEvents == nil || o.TimeoutSeconds == nil {
		return nil, errors.New("a watch without version or end")
	}
	w := watch.NewFakeWithChanSize(2, false)
	context.AfterFunc(ctx, w.Stop)
	g.server.watches[g.name] = w
	if o.SendInitialEvents != nil {
		g.server.starts++
		w.Add(object("kube-system"))
		end := object("")
		end.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
		w.Action(watch.Bookmark, end)
	}
	return w, nil
}

func (s *server) watch(name string) *watch.FakeWatcher {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.watches[name]
}

// recorder is a Handler.
type recorder struct {
	mu      sync.Mutex
	lost    int      // guarded by mu
	changes []string // guarded by mu
}

func (r *recorder) WatchLost() { r.mu.Lock(); r.lost++; r.mu.Unlock() }

func (r *recorder) WatchEstablished() { r.mu.Lock(); r.lost--; r.mu.Unlock() }

func (r *recorder) RightsChanged(namespace string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changes = append(r.changes, namespace)
}

func (r *recorder) take() (lost int, changes []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	changes, r.changes = r.changes, nil
	return r.lost, changes
}

func object(namespace string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "a", ResourceVersion: "2"}}
}

func TestWatchNotifiesOfChangesOfAllRBACKinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := &server{watches: map[string]*watch.FakeWatcher{}}, &recorder{}
		stop := Watch(s, r, logr.Discard())
		defer stop()
		synctest.Wait()
		if lost, changes := r.take(); lost != 0 || len(changes) != len(watchedResources()) {
			t.Fatalf("%d watches see nothing, %d changes; want 0, and one for each watch that began", lost, len(changes))
		}
		for _, name := range []string{"roles", "rolebindings"} {
			s.watch(name).Modify(object("shop"))
			synctest.Wait()
			if _, changes := r.take(); len(changes) != 1 || changes[0] != "shop" {
				t.Errorf("a change of %s: %q, want that of its namespace", name, changes)
			}
		}
		for _, name := range []string{"clusterroles", "clusterrolebindings"} {
			s.watch(name).Delete(object(""))
			synctest.Wait()
			if _, changes := r.take(); len(changes) != 1 || changes[0] != AllNamespaces {
				t.Errorf("a change of %s: %q, want one everywhere", name, changes)
			}
		}
		s.watch("roles").Action(watch.Bookmark, object(""))
		synctest.Wait()
		if _, changes := r.take(); len(changes) != 0 {
			t.Errorf("a bookmark is no change: %q", changes)
		}
	})
}

func TestFailedWatchIsLostUntilReestablished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := &server{watches: map[string]*watch.FakeWatcher{}}, &recorder{}
		defer Watch(s, r, logr.Discard())()
		synctest.Wait()
		r.take()
		failure := apierrors.NewForbidden(rbacv1.Resource("roles"), "", errors.New("no")).Status()
		s.watch("roles").Error(&failure)
		synctest.Wait()
		if lost, _ := r.take(); lost != 1 {
			t.Errorf("%d watches are lost, want the one that failed", lost)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if lost, changes := r.take(); lost != 0 || len(changes) != 1 || changes[0] != AllNamespaces {
			t.Errorf("%d watches are lost, changes %q; want none, and that anything may have changed", lost, changes)
		}
	})
}

func TestForbiddenWatchStaysLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := &server{refuse: errors.New("forbidden")}, &recorder{}
		stop := Watch(s, r, logr.Discard())
		time.Sleep(10 * time.Minute)
		stop()
		if lost, changes := r.take(); lost != len(watchedResources()) || len(changes) != 0 {
			t.Errorf("%d watches are lost, changes %q; want all, and none", lost, changes)
		}
		if most := len(watchedResources()) * 60; s.asked > most {
			t.Errorf("%d watches in ten minutes, want %d at most", s.asked, most)
		}
	})
}

func TestWatchTimeoutIsNotReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := &server{watches: map[string]*watch.FakeWatcher{}}, &recorder{}
		defer Watch(s, r, logr.Discard())()
		time.Sleep(5 * time.Minute)
		r.take()
		starts := s.starts
		s.watch("roles").Stop()
		synctest.Wait()
		if lost, changes := r.take(); lost != 0 || len(changes) != 0 || s.starts != starts {
			t.Errorf("%d watches are lost, changes %q, %d starts more; want nothing of that", lost, changes, s.starts-starts)
		}
	})
}
