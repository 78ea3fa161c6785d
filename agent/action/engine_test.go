// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package action

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/tunnel/resource"
)

func hasSuffix(err error, suffix string) bool { return strings.HasSuffix(err.Error(), suffix) }

func TestNewRequiresConfig(t *testing.T) {
	if _, err := New(Config{}); err == nil {
		t.Error("it was made of nothing")
	}
}

func TestEngineWithoutActionsReadsOnlyItsLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		p := r.start(t, nil)
		synctest.Wait()
		if n := r.server.requests(); n != 0 {
			t.Errorf("%d requests before the hub has sent what it wants", n)
		}
		p.send(t)
		synctest.Wait()
		if diff := cmp.Diff([]string{"GET " + entriesPath}, r.server.seen); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
		if n := len(r.discovery.Actions()); n != 0 {
			t.Errorf("discovery was read %d times", n)
		}
	})
}

func TestActionIsExecutedOncePerGeneration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		r.server.put(settingsPath, settings(nil))
		p := r.start(t, nil)
		a := action(wire.VerbUpdate, settingsTemplate)
		p.send(t, version(t, a, 1))
		synctest.Wait()
		a.MaxBytes-- // the hub's limit has changed, the action has not
		p.send(t, version(t, a, 1))
		synctest.Wait()
		if got := r.server.writes(settingsPath); len(got) != 1 {
			t.Errorf("writes are %v, want one", got)
		}
		p.send(t, version(t, a, 2))
		synctest.Wait()
		if got := r.server.writes(settingsPath); len(got) != 2 {
			t.Errorf("writes are %v, want another for the new generation", got)
		}
		decode(t, p.result(t))
		if ref := p.refs[actionKey]; ref.UID != actionUID || ref.Generation != 2 {
			t.Errorf("the result is of %s/%d", ref.UID, ref.Generation)
		}
		another := version(t, a, 2)
		another.UID = "another"
		p.send(t, another)
		synctest.Wait()
		if got := r.server.writes(settingsPath); len(got) != 3 {
			t.Errorf("writes are %v, want another for the new UID", got)
		}
	})
}

func TestResultIsRemovedWithAction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		p := r.start(t, nil)
		p.send(t, version(t, action(wire.VerbCreate, settingsTemplate), 1))
		synctest.Wait()
		p.actions.Delete(actionKey)
		synctest.Wait()
		if p.answered() {
			t.Error("the result is still published")
		}
		if r.server.object(settingsPath) == nil {
			t.Error("what was done was undone")
		}
		if r.server.object(entryPath(1)) == nil {
			t.Error("the action log has dropped the entry")
		}
		p.send(t, version(t, action(wire.VerbCreate, settingsTemplate), 1))
		synctest.Wait()
		decode(t, p.result(t))
	})
}

func TestActionsAreExecutedConcurrently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		running, most, release := 0, 0, make(chan struct{})
		cfg := r.config(nil)
		cfg.Guard = func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(request *http.Request) (*http.Response, error) {
				if request.Method != http.MethodPost {
					return next.RoundTrip(request)
				}
				r.server.with(func() { running++; most = max(most, running) })
				<-release
				r.server.with(func() { running-- })
				return next.RoundTrip(request)
			})
		}
		p := startEngine(t, cfg)
		var all []resource.Resource
		for i := range 100 {
			v := version(t, action(wire.VerbCreate, fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c%d","namespace":"app"}}`, i)), 1)
			v.Key, v.UID = fmt.Sprintf("mcm/cluster1/w%d", i), fmt.Sprintf("uid-%d", i)
			all = append(all, v)
		}
		p.send(t, all...)
		synctest.Wait()
		for i := range all { // a new generation waits for the old one
			all[i].Generation = 2
		}
		p.send(t, all...)
		synctest.Wait()
		if most != workers {
			t.Errorf("%d at once, want %d", most, workers)
		}
		for _, request := range r.server.seen {
			if strings.HasSuffix(request, "-2") {
				t.Errorf("%s while the generation before is executed", request)
			}
		}
		close(release)
		synctest.Wait()
		if got := len(r.server.writes("/api/v1/namespaces/app")); got != 100 || len(p.results) != 100 {
			t.Errorf("%d objects were made, %d results are there; want 100, for the second generation finds that they exist", got, len(p.results))
		}
	})
}

// roundTripper is an http.RoundTripper.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestActionEndsWithLeaseNotTunnel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		entered, ended := make(chan struct{}), make(chan struct{})
		cfg := r.config(nil)
		cfg.Guard = func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(request *http.Request) (*http.Response, error) {
				if request.Method != http.MethodPost {
					return next.RoundTrip(request)
				}
				close(entered)
				<-request.Context().Done()
				close(ended)
				return nil, request.Context().Err()
			})
		}
		e, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			_ = e.Run(ctx)
		}()
		e.putAction(version(t, action(wire.VerbCreate, settingsTemplate), 1))
		<-entered
		e.deleteAction(actionKey)
		synctest.Wait()
		select {
		case <-ended:
			t.Error("it has ended with the hub's wish")
		default:
		}
		cancel()
		<-stopped
		<-ended
		if r.server.object(entryPath(1)) == nil || len(e.source.Keys()) > 0 {
			t.Error("there is no entry to settle, or a result")
		}
	})
}

func TestInvalidActionIsRefused(t *testing.T) {
	cases := map[string]struct {
		reason string
		change func(*resource.Resource)
	}{
		"no JSON":              {"the body is not the wire's", func(v *resource.Resource) { v.Body = []byte("x") }},
		"no UID":               {"the action log could not tell it from others", func(v *resource.Resource) { v.UID = "" }},
		"a UID that is a path": {"it names a ConfigMap", func(v *resource.Resource) { v.UID = "../secrets/x" }},
		"a UID that is long":   {"likewise", func(v *resource.Resource) { v.UID = strings.Repeat("a", 300) }},
		"a generation below 0": {"it could be that of another UID", func(v *resource.Resource) { v.Generation = -1 }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig()
				p := r.start(t, nil)
				v := version(t, action(wire.VerbCreate, settingsTemplate), 1)
				tc.change(&v)
				p.send(t, v)
				synctest.Wait()
				if got := causeIn(p.result(t)); got != wire.CauseTarget {
					t.Errorf("%s: cause %q", tc.reason, got)
				}
				if len(r.server.done) > 0 {
					t.Errorf("%s: writes %v", tc.reason, r.server.done)
				}
			})
		})
	}
}

func TestRevokedRequesterGetsOutcomeWithoutObject(t *testing.T) {
	r := newRig()
	decode(t, r.execute(t, action(wire.VerbCreate, settingsTemplate)))
	locked := action(wire.VerbCreate, settingsTemplate)
	locked.Requester.User = "nobody"
	if result := r.execute(t, locked); result.Refusal != nil || result.Result != nil {
		t.Errorf("%+v, want done without an object", result)
	}
	r.server.refuse = refuseOnce("GET", settingsPath, 403, metav1.StatusReasonForbidden)
	if result := r.execute(t, action(wire.VerbCreate, settingsTemplate)); result.Refusal != nil || result.Result != nil {
		t.Errorf("%+v, want done without an object", result)
	}
}

func TestRevokedRequesterGetsUnknownOutcome(t *testing.T) {
	cases := map[string]struct {
		reason string
		user   string
		refuse func(string, string) *metav1.Status
	}{
		"the door is closed":  {"nobody may look", "nobody", nil},
		"its rights are gone": {"it may not look", "alice", refuseOnce("GET", settingsPath, 403, metav1.StatusReasonForbidden)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig()
				first := r.start(t, unrecorded())
				first.send(t, version(t, action(wire.VerbCreate, settingsTemplate), 1))
				synctest.Wait()
				first.stop()
				r.server.refuse = tc.refuse
				next := r.start(t, nil)
				again := action(wire.VerbCreate, settingsTemplate)
				again.Requester.User = tc.user
				next.send(t, version(t, again, 1))
				synctest.Wait()
				if got := causeIn(next.result(t)); got != wire.CauseUnknown {
					t.Errorf("%s: cause %q", tc.reason, got)
				}
			})
		})
	}
}

// slowReset is Resources that wait for the cluster.
type slowReset struct {
	Resources

	begun, end chan struct{}
}

func (s slowReset) Reset() {
	close(s.begun)
	<-s.end
}

func TestSyncDoesNotWaitForDiscovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := newRig().config(nil)
		slow := slowReset{Resources: cfg.Resources, begun: make(chan struct{}), end: make(chan struct{})}
		cfg.Resources = slow
		e, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer e.shutDown()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			e.refreshDiscovery()
		}()
		<-slow.begun
		e.putAction(version(t, action(wire.VerbCreate, settingsTemplate), 1))
		close(slow.end)
		<-ended
	})
}

func TestAnsweredActionIsNotRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		if _, err := r.resources.Resource(wire.Target{Resource: "gadgets"}); err == nil {
			t.Fatal("it is there already")
		}
		time.Sleep(time.Second)
		p := r.start(t, nil)
		// The first version waits until the cluster may be read again, the second takes
		// its place before that.
		p.send(t, version(t, action(wire.VerbUpdate, `{"apiVersion":"example.org/v1","kind":"Gadget","metadata":{"name":"g","namespace":"app"}}`), 1))
		synctest.Wait()
		p.send(t, version(t, action(wire.VerbUpdate, settingsTemplate), 2))
		synctest.Wait()
		want := p.result(t)
		if want.Refusal == nil {
			t.Fatal("it has updated nothing")
		}
		r.server.put(settingsPath, settings(nil))
		time.Sleep(time.Minute)
		if diff := cmp.Diff(want, p.result(t)); diff != "" {
			t.Errorf("the result has changed by itself (-want +got):\n%s", diff)
		}
		if got := r.server.writes(settingsPath); len(got) > 0 {
			t.Errorf("writes are %v", got)
		}
	})
}

func TestAnsweredActionKeepsOnlyResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		p := r.start(t, nil)
		p.send(t, version(t, action(wire.VerbCreate, settingsTemplate), 1))
		synctest.Wait()
		if template := p.engine.request(actionKey).action.Template; template != nil {
			t.Errorf("the template is kept: %s", template)
		}
		if n := len(p.result(t).Result); n == 0 || n != p.engine.totalSize {
			t.Errorf("%d bytes are accounted for, the result has %d", p.engine.totalSize, n)
		}
		p.actions.Delete(actionKey)
		synctest.Wait()
		if p.engine.totalSize != 0 || len(p.engine.sizes)+len(p.engine.requests)+len(p.engine.entries) != 0 {
			t.Errorf("of an action that was withdrawn there are %d bytes, %v, %v, %v", p.engine.totalSize, p.engine.sizes, p.engine.requests, p.engine.entries)
		}
	})
}

func TestResultsBeyondLimitOmitObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		p := r.start(t, nil)
		p.engine.reserveSize("others", maxTotalSize-10)
		p.send(t, version(t, action(wire.VerbCreate, settingsTemplate), 1))
		synctest.Wait()
		if result := p.result(t); result.Refusal != nil || result.Result != nil || !result.Omitted {
			t.Errorf("%+v, want one without its object", result)
		}
		p.engine.deleteAction("others")
		smaller := action(wire.VerbCreate, settingsTemplate)
		smaller.MaxBytes--
		p.send(t, version(t, smaller, 1))
		synctest.Wait()
		decode(t, p.result(t))
	})
}
