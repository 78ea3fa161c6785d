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
	lists   int                           // guarded by mu
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
	g.server.lists++
	return &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}, g.server.refuse
}

func (g getter) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	g.server.mu.Lock()
	defer g.server.mu.Unlock()
	if g.server.refuse != nil {
		return nil, g.server.refuse
	}
	if o.ResourceVersion == "" || o.TimeoutSeconds == nil {
		return nil, errors.New("a watch without version or end")
	}
	w := watch.NewFake()
	context.AfterFunc(ctx, w.Stop)
	g.server.watches[g.name] = w
	return w, nil
}

func (s *server) watch(name string) *watch.FakeWatcher {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.watches[name]
}

// record is a Sink.
type record struct {
	mu      sync.Mutex
	blind   int      // guarded by mu
	changes []string // guarded by mu
}

func (r *record) Lost() { r.mu.Lock(); r.blind++; r.mu.Unlock() }

func (r *record) Found() { r.mu.Lock(); r.blind--; r.mu.Unlock() }

func (r *record) Changed(namespace string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changes = append(r.changes, namespace)
}

func (r *record) take() (blind int, changes []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	changes, r.changes = r.changes, nil
	return r.blind, changes
}

func object(namespace string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "a", ResourceVersion: "2"}}
}

func TestEveryKindThatRightsComeFromIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := &server{watches: map[string]*watch.FakeWatcher{}}, &record{}
		stop := Follow(s, r, logr.Discard())
		defer stop()
		synctest.Wait()
		if blind, changes := r.take(); blind != 0 || len(changes) != len(sources()) {
			t.Fatalf("%d watches see nothing, %d changes; want 0, and one for each watch that began", blind, len(changes))
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
			if _, changes := r.take(); len(changes) != 1 || changes[0] != Everywhere {
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

func TestAWatchThatFailsIsLostUntilItSeesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := &server{watches: map[string]*watch.FakeWatcher{}}, &record{}
		defer Follow(s, r, logr.Discard())()
		synctest.Wait()
		r.take()
		failure := apierrors.NewForbidden(rbacv1.Resource("roles"), "", errors.New("no")).Status()
		s.watch("roles").Error(&failure)
		synctest.Wait()
		if blind, _ := r.take(); blind != 1 {
			t.Errorf("%d watches are lost, want the one that failed", blind)
		}
		time.Sleep(firstPause)
		synctest.Wait()
		if blind, changes := r.take(); blind != 0 || len(changes) != 1 || changes[0] != Everywhere {
			t.Errorf("%d watches are lost, changes %q; want none, and that anything may have changed", blind, changes)
		}
	})
}

func TestWhatCannotBeWatchedStaysLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := &server{refuse: errors.New("forbidden")}, &record{}
		stop := Follow(s, r, logr.Discard())
		time.Sleep(10 * time.Minute)
		stop()
		if blind, changes := r.take(); blind != len(sources()) || len(changes) != 0 {
			t.Errorf("%d watches are lost, changes %q; want all, and none", blind, changes)
		}
		if most := len(sources()) * 60; s.lists > most {
			t.Errorf("%d lists in ten minutes, want %d at most", s.lists, most)
		}
	})
}

func TestAWatchThatEndsInItsTimeIsResumedUnseen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := &server{watches: map[string]*watch.FakeWatcher{}}, &record{}
		defer Follow(s, r, logr.Discard())()
		time.Sleep(watchLife)
		r.take()
		lists := s.lists
		s.watch("roles").Stop()
		synctest.Wait()
		if blind, changes := r.take(); blind != 0 || len(changes) != 0 || s.lists != lists {
			t.Errorf("%d watches are lost, changes %q, %d lists more; want nothing of that", blind, changes, s.lists-lists)
		}
	})
}
