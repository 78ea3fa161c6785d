// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package action

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/spokelet/spokelet/api/wire"
)

// addEntry stores an entry as an earlier process left it.
func (r *rig) addEntry(name, text string) {
	r.server.put(entriesPath+"/"+name, map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{
			"name": name, "namespace": agentNamespace, "labels": map[string]any{labelLog: logActions},
			"creationTimestamp": time.Now().UTC().Format(time.RFC3339),
		},
		"data": map[string]any{entryKey: text},
	})
}

func endedAt(t time.Time) string {
	return fmt.Sprintf(`{"ended":%q,"started":%q}`, t.UTC().Format(time.RFC3339), t.UTC().Format(time.RFC3339))
}

// entries returns how many there are.
func (r *rig) entries() (n int) {
	r.server.with(func() {
		for path := range r.server.objects {
			if strings.HasPrefix(path, entriesPath+"/") {
				n++
			}
		}
	})
	return n
}

func TestEntryExpiresWeekAfterEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		first := r.start(t, nil)
		first.send(t, version(t, action(wire.VerbCreate, settingsTemplate), 1))
		synctest.Wait()
		first.actions.Delete(actionKey)
		time.Sleep(retention)
		second := version(t, action(wire.VerbCreate, settingsTemplate), 2)
		first.send(t, second)
		synctest.Wait()
		if r.entries() != 2 {
			t.Error("an entry went within the week, because the hub has withdrawn its action")
		}
		time.Sleep(time.Second)
		first.send(t, version(t, action(wire.VerbCreate, settingsTemplate), 3))
		synctest.Wait()
		if r.server.object(entryPath(1)) != nil || r.entries() != 2 {
			t.Errorf("%d entries, want that the first is gone", r.entries())
		}
		first.stop()
		time.Sleep(retention)
		next := r.start(t, nil)
		next.send(t)
		synctest.Wait()
		if r.entries() != 1 {
			t.Errorf("%d entries, want the one of the third, whose week ends in a second", r.entries())
		}
	})
}

// A cluster that was away for more than a week gets its actions again.
func TestEntryOfWantedActionStays(t *testing.T) {
	for _, crash := range []*fault{unrecorded(), atOutcome()} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig()
			r.server.put(settingsPath, settings(nil))
			first := r.start(t, crash)
			first.send(t, version(t, action(wire.VerbUpdate, settingsTemplate), 1))
			synctest.Wait()
			first.stop()
			time.Sleep(2 * retention)
			next := r.start(t, nil)
			synctest.Wait()
			next.send(t, version(t, action(wire.VerbUpdate, settingsTemplate), 1))
			synctest.Wait()
			decode(t, next.result(t))
			if got := r.server.writes(settingsPath); len(got) != 1 {
				t.Errorf("writes are %v, want one", got)
			}
			if r.entries() != 1 {
				t.Error("the entry is gone, although the hub still asks")
			}
		})
	}
}

func TestUnfinishedEntryExpiresWeekAfterStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		r.addEntry("action-a-1", fmt.Sprintf(`{"started":%q}`, time.Now().UTC().Format(time.RFC3339)))
		r.addEntry("action-b-1", "no JSON")
		r.server.put(entriesPath+"/other", map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "other"}})
		time.Sleep(retention + time.Second)
		p := r.start(t, nil)
		p.send(t)
		synctest.Wait()
		if r.entries() != 1 || r.server.object(entriesPath+"/other") == nil {
			t.Errorf("%d ConfigMaps are left, want the one that is no entry", r.entries())
		}
	})
}

func TestUnreadableEntryIsUnknownOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		r.addEntry("action-"+actionUID+"-1", "no JSON")
		p := r.start(t, nil)
		p.send(t, version(t, action(wire.VerbCreate, settingsTemplate), 1))
		synctest.Wait()
		if got := causeIn(p.result(t)); got != wire.CauseUnknown || r.server.object(settingsPath) != nil {
			t.Errorf("cause %q, and the object is %v", got, r.server.object(settingsPath))
		}
	})
}

func TestOldestEntriesAreRemovedBeyondLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		now := time.Now()
		for i := range maxEntries + 3 {
			r.addEntry(fmt.Sprintf("action-u%05d-1", i), endedAt(now.Add(time.Duration(-i)*time.Second)))
		}
		p := r.start(t, nil)
		p.send(t)
		synctest.Wait()
		if r.entries() != maxEntries {
			t.Errorf("%d entries, want %d", r.entries(), maxEntries)
		}
		if r.server.object(entriesPath+"/action-u00000-1") == nil || r.server.object(fmt.Sprintf("%s/action-u%05d-1", entriesPath, maxEntries+2)) != nil {
			t.Error("it was not the oldest that went")
		}
		p.send(t, version(t, action(wire.VerbCreate, settingsTemplate), 1))
		synctest.Wait()
		if r.entries() != maxEntries {
			t.Errorf("%d entries after one more, want %d", r.entries(), maxEntries)
		}
	})
}

func TestEntryThatEndsBeforeLoadCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		for i := range maxEntries - 1 {
			r.addEntry(fmt.Sprintf("action-u%05d-1", i), endedAt(time.Now()))
		}
		p := r.start(t, nil)
		if err := p.actions.Put(version(t, action(wire.VerbCreate, settingsTemplate), 1)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		p.send(t)
		synctest.Wait()
		if r.entries() != maxEntries {
			t.Errorf("%d entries, want all %d", r.entries(), maxEntries)
		}
	})
}

func TestNoEntryIsRemovedBeforeSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		r.addEntry("action-a-1", endedAt(time.Now().Add(-2*retention)))
		p := r.start(t, nil)
		if err := p.actions.Put(version(t, action(wire.VerbCreate, settingsTemplate), 1)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if r.entries() != 2 {
			t.Error("an entry is gone whose action may be sent yet")
		}
		p.send(t)
		synctest.Wait()
		if r.entries() != 1 {
			t.Error("an entry has stayed that nobody wants")
		}
	})
}

func TestFailedCollectionIsRetriedWithNextAction(t *testing.T) {
	cases := map[string]struct{ method, path string }{
		"the entries are not read":   {"GET", entriesPath},
		"an entry cannot be removed": {"DELETE", entriesPath + "/action-a-1"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig()
				r.addEntry("action-a-1", endedAt(time.Now().Add(-2*retention)))
				r.server.refuse = refuseOnce(tc.method, tc.path, 500, metav1.StatusReasonInternalError)
				p := r.start(t, nil)
				p.send(t)
				synctest.Wait()
				if r.entries() != 1 {
					t.Error("nothing has failed")
				}
				p.send(t, version(t, action(wire.VerbCreate, settingsTemplate), 1))
				synctest.Wait()
				if r.server.object(entriesPath+"/action-a-1") != nil || r.entries() != 1 {
					t.Errorf("%d entries, want the new one", r.entries())
				}
			})
		})
	}
}

func TestActionDeletedBeforeEndLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		r.server.put(settingsPath, settings(nil))
		r.server.refuse = func(method, path string) *metav1.Status {
			if method != "PATCH" || path != settingsPath {
				return nil
			}
			return &metav1.Status{Status: metav1.StatusFailure, Code: 503, Reason: metav1.StatusReasonServiceUnavailable}
		}
		p := r.start(t, nil)
		p.send(t)
		synctest.Wait() // the entries of earlier processes have been read
		p.send(t, version(t, action(wire.VerbUpdate, settingsTemplate), 1))
		time.Sleep(time.Minute)
		p.actions.Delete(actionKey)
		time.Sleep(retention)
		another := version(t, action(wire.VerbCreate, widgetTemplate), 1)
		another.UID = "another"
		p.send(t, another)
		synctest.Wait()
		if r.server.object(entryPath(1)) != nil || r.entries() != 1 {
			t.Errorf("%d entries, want that of the other action", r.entries())
		}
		if n := len(p.engine.log.open); n != 0 {
			t.Errorf("%d actions count as under way", n)
		}
	})
}

func TestEntryWantedAgainStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		ended := time.Now().Add(-2 * retention)
		r.addEntry("action-a-1", endedAt(ended))
		r.addEntry("action-"+actionUID+"-1", endedAt(ended.Add(time.Second)))
		entered, release := make(chan struct{}), make(chan struct{})
		cfg := r.config(nil)
		cfg.Entries = slowRemoval{ConfigMapInterface: cfg.Entries, entered: entered, release: release}
		p := startEngine(t, cfg)
		p.send(t)
		<-entered // the first entry is being removed
		p.send(t, version(t, action(wire.VerbCreate, settingsTemplate), 1))
		synctest.Wait()
		close(release)
		synctest.Wait()
		if r.server.object(entryPath(1)) == nil || r.entries() != 1 {
			t.Errorf("%d entries, want the one whose action is wanted again", r.entries())
		}
	})
}

// slowRemoval removes no entry before it is released.
type slowRemoval struct {
	corev1client.ConfigMapInterface

	entered, release chan struct{}
}

func (s slowRemoval) Delete(ctx context.Context, name string, o metav1.DeleteOptions) error {
	select {
	case s.entered <- struct{}{}:
	case <-s.release:
	}
	<-s.release
	return s.ConfigMapInterface.Delete(ctx, name, o)
}
