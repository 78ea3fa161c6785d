// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package action

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spokelet/spokelet/agent/helm"
	"github.com/spokelet/spokelet/agent/helm/message"
	"github.com/spokelet/spokelet/api/mcm/v1alpha1"
	"github.com/spokelet/spokelet/api/wire"
)

// fakeHelm stands in for processes of Helm. Each run does the next step, or the last one.
type fakeHelm struct {
	mu    sync.Mutex
	steps []step            // guarded by mu
	asked []message.Request // guarded by mu
}

// step is what a process does.
type step func(ctx context.Context, request message.Request, on helm.Events) (message.Answer, error)

func (h *fakeHelm) Run(ctx context.Context, _ wire.Requester, request message.Request, on helm.Events) (message.Answer, error) {
	h.mu.Lock()
	h.asked = append(h.asked, request)
	next := h.steps[0]
	if len(h.steps) > 1 {
		h.steps = h.steps[1:]
	}
	h.mu.Unlock()
	return next(ctx, request, on)
}

// verbs are those of the processes so far.
func (h *fakeHelm) verbs() []message.Verb {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []message.Verb
	for _, request := range h.asked {
		all = append(all, request.Verb)
	}
	return all
}

var released = message.Release{
	Name: "web", Namespace: "app", Revision: 1, Status: "deployed", Description: "Install complete", ChartName: "web", ChartVersion: "1.2.3",
	FirstDeployed: time.Unix(1, 0).UTC(), LastDeployed: time.Unix(2, 0).UTC(), Manifest: message.Masked,
}

// then begins, and ends so.
func then(answer message.Answer, err error) step {
	return func(ctx context.Context, _ message.Request, on helm.Events) (message.Answer, error) {
		if begin := on.BeforeChange(ctx); begin != nil {
			return message.Answer{}, begin
		}
		return answer, err
	}
}

// ends does not begin.
func ends(answer message.Answer, err error) step {
	return func(context.Context, message.Request, helm.Events) (message.Answer, error) { return answer, err }
}

func fails(cause message.Cause) message.Answer {
	return message.Answer{Failure: &message.Failure{Cause: cause, Message: string(cause) + " indeed"}}
}

func does() message.Answer { return message.Answer{Release: &released} }

// lasts begins, says what it does, and goes on until ctx ends or some time has passed.
func lasts(d time.Duration) step {
	return func(ctx context.Context, _ message.Request, on helm.Events) (message.Answer, error) {
		if err := on.BeforeChange(ctx); err != nil {
			return message.Answer{}, err
		}
		on.Progress("creating Deployment web")
		select {
		case <-ctx.Done():
			return message.Answer{}, helm.ErrEnded
		case <-time.After(d):
			return does(), nil
		}
	}
}

func releaseAction(verb wire.Verb) wire.Action {
	return wire.Action{
		Requester: wire.Requester{User: "alice"}, Verb: verb, MaxBytes: wire.MaxViewBytes,
		Release: &wire.Release{Name: "web", Namespace: "app", ChartURL: "https://c.example.com/web.tgz", Values: []byte("a: 1"), Timeout: 300},
	}
}

func TestReleaseIsInstalledOnce(t *testing.T) {
	r := newRig()
	r.helm.steps = []step{then(does(), nil)}
	result := r.execute(t, releaseAction(wire.VerbCreate))
	var got v1alpha1.HelmRelease
	if err := json.Unmarshal(result.Result, &got); err != nil {
		t.Fatal(err)
	}
	if got.Kind != "HelmRelease" || got.Spec.ReleaseName != "web" || got.Spec.Version != 1 || got.Spec.Status != "deployed" || got.Spec.Manifest != "***" {
		t.Errorf("result %s", result.Result)
	}
	// Another process, which the hub asks for the same.
	again := r.execute(t, releaseAction(wire.VerbCreate))
	if diff := cmp.Diff(string(result.Result), string(again.Result)); diff != "" {
		t.Errorf("result of the second process (-first +second):\n%s", diff)
	}
	want := []message.Request{{
		Verb: message.Install, OriginalVerb: message.Install, Name: "web", Namespace: "app", Chart: message.Chart{URL: "https://c.example.com/web.tgz"},
		Values: []byte("a: 1"), Timeout: 5 * time.Minute, ActionLabel: actionUID + ".1",
	}}
	if diff := cmp.Diff(want, r.helm.asked); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
}

func TestReleaseOutcomes(t *testing.T) {
	const away = 20 // more than it is tried
	unavailable := make([]step, away)
	for i := range unavailable {
		unavailable[i] = ends(fails(message.Unavailable), nil)
	}
	for name, tc := range map[string]struct {
		reason  string
		steps   []step
		verbs   []message.Verb
		refused wire.Cause
		text    string
		entry   bool
	}{
		"is no chart": {
			reason: "nothing was begun", steps: []step{ends(fails(message.Invalid), nil)},
			verbs: []message.Verb{message.Install}, refused: wire.CauseTarget, text: "invalid indeed",
		},
		"is not enabled": {
			reason: "the owner has to", steps: []step{ends(message.Answer{}, helm.ErrNotEnabled)},
			verbs: []message.Verb{message.Install}, refused: wire.CauseTarget, text: "helm.charts",
		},
		"eats, and has not begun": {
			reason: "another try would end likewise", steps: []step{ends(message.Answer{}, helm.ErrEnded)},
			verbs: []message.Verb{message.Install}, refused: wire.CauseLimit, text: "without an answer",
		},
		"meets an API server that is away": {
			reason: "it is tried again", steps: []step{ends(fails(message.Unavailable), nil), ends(message.Answer{}, errors.New("fork")), then(does(), nil)},
			verbs: []message.Verb{message.Install, message.Install, message.Install}, entry: true,
		},
		"meets an API server that stays away": {
			reason: "it is said after some tries", steps: unavailable,
			verbs: verbsOf(message.Install, maxTries+1), refused: wire.CauseRequest, text: "unavailable indeed",
		},
		"fails for an unknown cause": {
			reason: "the hub takes only causes that it knows", steps: []step{then(fails("other"), nil)},
			verbs: []message.Verb{message.Install}, refused: wire.CauseUnknown, text: "other indeed", entry: true,
		},
		"fails": {
			reason: "Helm has recorded it", steps: []step{then(fails(message.Refused), nil)},
			verbs: []message.Verb{message.Install}, refused: wire.CauseRequest, text: "refused indeed", entry: true,
		},
		"ends in the middle, and was done": {
			reason: "the release says so", steps: []step{then(message.Answer{}, helm.ErrEnded), ends(does(), nil)},
			verbs: []message.Verb{message.Install, message.Recover}, entry: true,
		},
		"ends in the middle, and nothing tells": {
			reason: "it is not repeated", steps: []step{then(message.Answer{}, helm.ErrEnded), ends(fails(message.Unknown), nil)},
			verbs: []message.Verb{message.Install, message.Recover}, refused: wire.CauseUnknown, text: "without an answer: unknown indeed", entry: true,
		},
		"takes too long": {
			reason: "the release says how far it came", steps: []step{then(fails(message.Limit), nil), ends(fails(message.Refused), nil)},
			verbs: []message.Verb{message.Install, message.Recover}, refused: wire.CauseRequest, text: "limit indeed: refused indeed", entry: true,
		},
		"cannot be settled at once": {
			reason: "it is not known yet", steps: []step{then(message.Answer{}, helm.ErrEnded), ends(fails(message.Unavailable), nil), ends(does(), nil)},
			verbs: []message.Verb{message.Install, message.Recover, message.Recover}, entry: true,
		},
		"cannot be settled": {
			reason: "nothing tells", steps: []step{then(message.Answer{}, helm.ErrEnded), ends(message.Answer{}, helm.ErrEnded)},
			verbs: []message.Verb{message.Install, message.Recover}, refused: wire.CauseUnknown, text: "outcome unknown", entry: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig()
				r.helm.steps = tc.steps
				p := r.start(t, nil)
				p.send(t, version(t, releaseAction(wire.VerbCreate), 1))
				<-time.After(10 * time.Minute)
				synctest.Wait()
				result := p.result(t)
				if diff := cmp.Diff(tc.verbs, r.helm.verbs()); diff != "" {
					t.Errorf("processes (-want +got):\n%s\n%s", diff, tc.reason)
				}
				checkRefusal(t, result, tc.refused, tc.text)
				if entry := r.server.object(entryPath(1)) != nil; entry != tc.entry {
					t.Errorf("there is an entry: %t, want %t: %s", entry, tc.entry, tc.reason)
				}
			})
		})
	}
}

func verbsOf(verb message.Verb, n int) (all []message.Verb) {
	for range n {
		all = append(all, verb)
	}
	return all
}

func checkRefusal(t *testing.T, result wire.ActionResult, cause wire.Cause, text string) {
	t.Helper()
	switch {
	case cause == "" && (result.Refusal != nil || len(result.Result) == 0):
		t.Errorf("got %+v, want a release", result)
	case cause != "" && (result.Refusal == nil || result.Refusal.Cause != cause || !strings.Contains(result.Refusal.Message, text)):
		t.Errorf("got %+v, want a refusal of cause %s with %q", result.Refusal, cause, text)
	}
}

func TestInterruptedReleaseIsRecoveredByNextProcess(t *testing.T) {
	for name, tc := range map[string]struct {
		reason  string
		verb    wire.Verb
		settled message.Answer
		refused wire.Cause
	}{
		"install, done":      {reason: "the release has the mark", verb: wire.VerbCreate, settled: does()},
		"upgrade, pending":   {reason: "it was left so", verb: wire.VerbUpdate, settled: fails(message.Unknown), refused: wire.CauseUnknown},
		"uninstall, resumed": {reason: "what is gone is gone", verb: wire.VerbDelete, settled: does()},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig()
				r.helm.steps = []step{lasts(time.Hour), ends(tc.settled, nil)}
				p := r.start(t, nil)
				p.send(t, version(t, releaseAction(tc.verb), 1))
				<-time.After(time.Minute)
				p.stop()
				p = r.start(t, nil)
				p.send(t, version(t, releaseAction(tc.verb), 1))
				synctest.Wait()
				checkRefusal(t, p.result(t), tc.refused, "")
				if diff := cmp.Diff([]message.Verb{verbs[tc.verb], message.Recover}, r.helm.verbs()); diff != "" {
					t.Errorf("processes (-want +got):\n%s\n%s", diff, tc.reason)
				}
				if r.helm.asked[1].OriginalVerb != verbs[tc.verb] || r.helm.asked[0].ActionLabel != r.helm.asked[1].ActionLabel {
					t.Errorf("settled as %+v", r.helm.asked[1])
				}
			})
		})
	}
}

func TestReleaseNeedsLogEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		r.helm.steps = []step{then(does(), nil)}
		p := r.start(t, &fault{method: "POST", path: entriesPath})
		p.send(t, version(t, releaseAction(wire.VerbCreate), 1))
		<-time.After(time.Minute)
		synctest.Wait()
		checkRefusal(t, p.result(t), "", "")
		if n := len(r.helm.verbs()); n < 2 {
			t.Errorf("%d processes, want one more for the one that could not begin", n)
		}
	})
}

func TestProgressOfLongActionIsPublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		r.helm.steps = []step{lasts(time.Minute)}
		p := r.start(t, nil)
		p.send(t, version(t, releaseAction(wire.VerbCreate), 1))
		<-time.After(progressDelay - time.Millisecond)
		synctest.Wait()
		if p.answered() {
			t.Error("it is told at once")
		}
		<-time.After(time.Second)
		synctest.Wait()
		if got := p.result(t); got.Progress != "creating Deployment web" {
			t.Errorf("got %+v", got)
		}
		<-time.After(time.Minute)
		synctest.Wait()
		checkRefusal(t, p.result(t), "", "")
	})
}

func TestReleasesDoNotDelayOtherActions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		r.helm.steps = []step{lasts(time.Hour)}
		p := r.start(t, nil)
		for i := range 2 * releaseWorkers {
			v := version(t, releaseAction(wire.VerbCreate), 1)
			v.Key, v.UID = fmt.Sprintf("mcm/cluster1/helm-%d", i), fmt.Sprintf("0b0c7a3e-1111-4222-8333-44445555%04d", i)
			p.send(t, v)
		}
		p.send(t, version(t, create, 1))
		synctest.Wait()
		decode(t, p.result(t))
		if n := len(r.helm.verbs()); n != releaseWorkers {
			t.Errorf("%d processes, want %d", n, releaseWorkers)
		}
		if n := p.say("waiting for other releases of this cluster"); n != releaseWorkers {
			t.Errorf("%d actions say that they wait, want %d", n, releaseWorkers)
		}
		<-time.After(time.Hour)
		v := version(t, releaseAction(wire.VerbCreate), 1)
		v.Key, v.UID = "mcm/cluster1/helm-later", "0b0c7a3e-1111-4222-8333-444455559999"
		p.send(t, v)
		<-time.After(2 * time.Hour)
		synctest.Wait()
		if waiting, done := p.say("waiting for other releases of this cluster"), p.say(""); waiting != 0 || done != 2*releaseWorkers+2 {
			t.Errorf("at last %d actions say that they wait, and %d are done", waiting, done)
		}
	})
}

// say counts the actions that say what they do; without a word, those that are done.
func (p *process) say(what string) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, result := range p.results {
		if result.Progress == what {
			n++
		}
	}
	return n
}

func TestLargeReleaseIsPublishedWithoutManifest(t *testing.T) {
	large := released
	large.Manifest, large.Description = strings.Repeat("m", 2000), strings.Repeat("d", 2*maxDescription)
	for name, tc := range map[string]struct {
		reason   string
		most     int
		manifest string
	}{
		"all of it":        {reason: "there is room", most: 1 << 20, manifest: large.Manifest},
		"without manifest": {reason: "the rest of it has room", most: 6 << 10, manifest: message.Omitted},
		"nothing":          {reason: "that has none either", most: 1 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			var got v1alpha1.HelmRelease
			result := releaseResult(&request{action: wire.Action{MaxBytes: tc.most}}, &large, nil)
			if len(result.Result) > 0 {
				if err := json.Unmarshal(result.Result, &got); err != nil {
					t.Fatal(err)
				}
			}
			if got.Spec.Manifest != tc.manifest || result.Omitted != (tc.manifest == "") || len(result.Result) > tc.most {
				t.Errorf("%d bytes, left out %t, manifest %.50q: %s", len(result.Result), result.Omitted, got.Spec.Manifest, tc.reason)
			}
		})
	}
}

func TestNewGenerationDoesNotWaitForHelm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		r.helm.steps = []step{lasts(time.Minute)}
		p := r.start(t, nil)
		p.send(t, version(t, releaseAction(wire.VerbCreate), 1))
		<-time.After(10 * time.Second)
		p.send(t, version(t, create, 2))
		synctest.Wait()
		object := decode(t, p.result(t))
		<-time.After(2 * time.Minute)
		synctest.Wait()
		if diff := cmp.Diff(object, decode(t, p.result(t))); diff != "" {
			t.Errorf("the end of the earlier version is told (-before +after):\n%s", diff)
		}
	})
}
