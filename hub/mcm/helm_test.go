// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package mcm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/spokelet/spokelet/api/mcm/v1alpha1"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/quota"
	"github.com/spokelet/spokelet/tunnel/resource"
)

const webRelease = `{"apiVersion":"mcm.ibm.com/v1alpha1","kind":"HelmRelease","metadata":{"name":"web","namespace":"shop"},"spec":{"version":1}}`

func TestParseHelmWork(t *testing.T) {
	const chart = "https://charts.example.com/web-1.0.0.tgz"
	all := v1alpha1.HelmWorkSpec{
		ReleaseName: "web", Namespace: "shop", ChartURL: "https://charts.example.com", ChartName: "web", Version: "^1", InSecureSkipVerify: true,
		Values: []byte("a: b"), ValuesURL: "https://charts.example.com/values.yaml", Wait: true, TimeoutSeconds: 3600,
	}
	does := func(verb wire.Verb, r wire.Release) request {
		return newActionRequest(wire.Action{Verb: verb, Release: &r})
	}
	tests := map[string]struct {
		reason, kind, verb string
		helm               v1alpha1.HelmWorkSpec
		options            options
		want               request
	}{
		"installs":                   {reason: "the original waited 300 s", verb: "Create", helm: v1alpha1.HelmWorkSpec{ReleaseName: "web", ChartURL: chart}, want: does(wire.VerbCreate, wire.Release{Name: "web", ChartURL: chart, Timeout: 300})},
		"installs, in small letters": {reason: "as the document writes it", kind: "action", verb: "create", helm: v1alpha1.HelmWorkSpec{ReleaseName: "web", ChartURL: chart}, want: does(wire.VerbCreate, wire.Release{Name: "web", ChartURL: chart, Timeout: 300})},
		"installs all that is said": {
			reason: "no field is dropped", verb: "Create", helm: all,
			want: does(wire.VerbCreate, wire.Release{
				Name: "web", Namespace: "shop", ChartURL: "https://charts.example.com", ChartName: "web", Version: "^1", InsecureSkipVerify: true,
				Values: []byte("a: b"), ValuesURL: "https://charts.example.com/values.yaml", Wait: true, Timeout: 3600,
			}),
		},
		"upgrades":           {reason: "a chart is needed, too", verb: "UPDATE", helm: v1alpha1.HelmWorkSpec{ReleaseName: "web", ChartURL: chart, TimeoutSeconds: 1}, want: does(wire.VerbUpdate, wire.Release{Name: "web", ChartURL: chart, Timeout: 1})},
		"uninstalls":         {reason: "the name is enough", verb: "delete", helm: v1alpha1.HelmWorkSpec{ReleaseName: "web"}, want: does(wire.VerbDelete, wire.Release{Name: "web", Timeout: 300})},
		"uninstalls a chart": {reason: "what was installed does not matter", verb: "Delete", helm: all, want: does(wire.VerbDelete, wire.Release{Name: "web", Namespace: "shop", Wait: true, Timeout: 3600})},
		"shows manifests": {
			reason: "the hub's option allows it", verb: "Create", options: options{showSecrets: true}, helm: v1alpha1.HelmWorkSpec{ReleaseName: "web", ChartURL: chart},
			want: newActionRequest(wire.Action{Verb: wire.VerbCreate, Secrets: wire.SecretsShown, Release: &wire.Release{Name: "web", ChartURL: chart, Timeout: 300}}),
		},
		"the most values": {
			reason: "the limit is one that can be used", verb: "Create", helm: v1alpha1.HelmWorkSpec{ReleaseName: "web", ChartURL: chart, Values: bytes.Repeat([]byte("#"), wire.MaxActionTemplate)},
			want: does(wire.VerbCreate, wire.Release{Name: "web", ChartURL: chart, Values: bytes.Repeat([]byte("#"), wire.MaxActionTemplate), Timeout: 300}),
		},
		"more values": {
			reason: "no agent takes them", verb: "Create", helm: v1alpha1.HelmWorkSpec{ReleaseName: "web", ChartURL: chart, Values: bytes.Repeat([]byte("#"), wire.MaxActionTemplate+1)},
			want: newFailure("", "spec.helm.values has 1048577 bytes, the limit is 1048576"),
		},
		"installs nothing": {reason: "there is no chart", verb: "Create", helm: v1alpha1.HelmWorkSpec{ReleaseName: "web", ChartName: "web"}, want: newFailure("", "spec.helm.chartURL is missing")},
		"upgrades nothing": {reason: "there is no chart", verb: "Update", helm: v1alpha1.HelmWorkSpec{ReleaseName: "web"}, want: newFailure("", "spec.helm.chartURL is missing")},
		"rolls back":       {reason: "an unknown action is never silently done", verb: "Rollback", helm: all, want: newFailure("", `spec.actionType "Rollback" is none of Create, Update and Delete`)},
		"says nothing":     {reason: "an unknown action is never silently done", helm: all, want: newFailure("", `spec.actionType "" is none of Create, Update and Delete`)},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := releaseWork("w")
			w.Spec.ActionType, w.Spec.HelmWork = v1alpha1.ActionType(tc.verb), &tc.helm
			if tc.kind != "" {
				w.Spec.Type = v1alpha1.WorkType(tc.kind)
			}
			tc.options.maxBytes = testBytes
			compareRequests(t, tc.reason, mcmWorks().parse(w, tc.options), tc.want)
		})
	}
}

func TestParseReleasesWork(t *testing.T) {
	refusal := newFailure("", "spec.scope.fieldSelector and spec.scope.serverPrint are not for releases")
	tests := map[string]struct {
		reason  string
		scope   v1alpha1.ResourceFilter
		options options
		want    request
	}{
		"all":              {reason: "the original's word", scope: v1alpha1.ResourceFilter{ResourceType: "releases"}, want: newViewRequest(wire.View{Releases: true})},
		"in capitals":      {reason: "types are read in any case", scope: v1alpha1.ResourceFilter{ResourceType: "RELEASES"}, want: newViewRequest(wire.View{Releases: true})},
		"with manifests":   {reason: "the hub's option allows it", scope: v1alpha1.ResourceFilter{ResourceType: "releases"}, options: options{showSecrets: true}, want: newViewRequest(wire.View{Releases: true, Secrets: wire.SecretsShown})},
		"of a namespace":   {reason: "records lie in it", scope: v1alpha1.ResourceFilter{ResourceType: "releases", NameSpace: "shop"}, want: newViewRequest(wire.View{Releases: true, Target: wire.Target{Namespace: "shop"}})},
		"of a name":        {reason: "it may be in several namespaces, and has labels, too", scope: v1alpha1.ResourceFilter{ResourceType: "releases", Name: "web", LabelSelector: newRaw(`{"status":"deployed"}`)}, want: newViewRequest(wire.View{Releases: true, Target: wire.Target{Name: "web"}, LabelSelector: "status=deployed"})},
		"of labels":        {reason: "a LabelSelector", scope: v1alpha1.ResourceFilter{ResourceType: "releases", LabelSelector: newRaw(`{"matchExpressions":[{"key":"status","operator":"NotIn","values":["deployed"]}]}`)}, want: newViewRequest(wire.View{Releases: true, LabelSelector: "status notin (deployed)"})},
		"of any labels":    {reason: "it selects all", scope: v1alpha1.ResourceFilter{ResourceType: "releases", LabelSelector: newRaw(`{}`)}, want: newViewRequest(wire.View{Releases: true})},
		"periodically":     {reason: "the mode is the status's", scope: v1alpha1.ResourceFilter{ResourceType: "releases", Mode: "periodic"}, want: newViewRequest(wire.View{Releases: true})},
		"of no labels":     {reason: "labels are text", scope: v1alpha1.ResourceFilter{ResourceType: "releases", LabelSelector: newRaw(`{"version":1}`)}, want: newFailure("", "spec.scope.labelSelector: it is neither a label selector nor a map of labels")},
		"once":             {reason: "it is no mode", scope: v1alpha1.ResourceFilter{ResourceType: "releases", Mode: "Once"}, want: newFailure("", `spec.scope.mode "Once" is not Periodic`)},
		"of a field":       {reason: "more would be shown than was asked for", scope: v1alpha1.ResourceFilter{ResourceType: "releases", FieldSelector: "metadata.name=a"}, want: refusal},
		"as a table":       {reason: "kubectl prints none", scope: v1alpha1.ResourceFilter{ResourceType: "releases", ServerPrint: true}, want: refusal},
		"of another group": {reason: "it is a resource like any other", scope: v1alpha1.ResourceFilter{ResourceType: "releases", APIGroup: "example.com", FieldSelector: "metadata.name=a"}, want: newViewRequest(wire.View{Target: wire.Target{Resource: "releases", Group: "example.com"}, FieldSelector: "metadata.name=a"})},
		"with a group":     {reason: "it is a resource like any other", scope: v1alpha1.ResourceFilter{ResourceType: "releases.example.com"}, want: newViewRequest(wire.View{Target: wire.Target{Resource: "releases.example.com"}})},
		"one":              {reason: "the word is the plural", scope: v1alpha1.ResourceFilter{ResourceType: "release"}, want: newViewRequest(wire.View{Target: wire.Target{Resource: "release"}})},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			tc.options.maxBytes = testBytes
			compareRequests(t, tc.reason, mcmWorks().parse(resourceWork("w", func(w *v1alpha1.Work) { w.Spec.Scope = tc.scope }), tc.options), tc.want)
		})
	}
}

// No ViewWork shows releases.
func TestTruncatedReleaseListExplainsHowToNarrow(t *testing.T) {
	w := resourceWork("w", func(w *v1alpha1.Work) { w.Spec.Scope.ResourceType = "Releases" })
	got := mcmWorks().nextState(w, state{}, newViewOutcome(wire.ViewResult{Result: json.RawMessage(`{}`), Cut: 7}))
	want := state{kind: "Completed", reason: "7 releases are left out, for the result is limited: ask for fewer, by namespace, name or labels", observed: 1}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(state{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestHelmProgressIsWrittenToStatus(t *testing.T) {
	w := releaseWork("w")
	r := newRig(t, w)
	r.reconcileObjects(t, w)
	status := func() v1alpha1.WorkStatus { return stored(t, r, w.DeepCopy()).Status }
	for _, what := range []string{"reading the chart", "creating Deployment web"} {
		r.answerAction(t, managed, w, wire.Progressing(what))
		if got := status(); got.Type != v1alpha1.WorkProcessing || got.Reason != what || got.ObservedGeneration != 0 || got.Result != nil {
			t.Errorf("%s: %+v", what, got)
		}
	}
	r.answerAction(t, managed, w, wire.Progressing("creating Deployment web"))
	r.reconcileObjects(t, w)
	if len(r.patches) != 2 || len(r.publishedActions(managed)) != 1 {
		t.Errorf("%d writes of two words; published %v", len(r.patches), r.publishedActions(managed))
	}
	r.restart(t) // the agent says again what it does
	r.reconcileObjects(t, w)
	r.answerAction(t, managed, w, wire.Progressing("creating Deployment web"))
	if len(r.patches) != 2 || len(r.publishedActions(managed)) != 1 {
		t.Errorf("after a restart %d writes of two words; published %v", len(r.patches), r.publishedActions(managed))
	}
	r.answerAction(t, managed, w, wire.ActionResult{Result: json.RawMessage(webRelease)})
	if got := status(); got.Type != v1alpha1.WorkCompleted || got.Reason != "" || got.ObservedGeneration != 1 || string(got.Result.Raw) != webRelease {
		t.Errorf("at last: %+v", got)
	}
	r.answerAction(t, managed, w, wire.Progressing("creating Deployment web"))
	if got := status(); got.Type != v1alpha1.WorkCompleted {
		t.Errorf("after the result: %+v", got)
	}
	if len(r.publishedActions(managed)) != 0 || r.memory.Held() != 0 {
		t.Errorf("published %v, %d bytes are held", r.publishedActions(managed), r.memory.Held())
	}
}

func TestProgressOfUnpublishedActionIsDropped(t *testing.T) {
	tests := map[string]struct {
		reason string
		// meanwhile is between the report and its writing.
		meanwhile func(*testing.T, *rig, *v1alpha1.Work)
		want      v1alpha1.WorkStatus
	}{
		"of an earlier spec": {
			reason: "it is about another chart",
			meanwhile: func(t *testing.T, r *rig, w *v1alpha1.Work) {
				t.Helper()
				edit(t, r, w, func(w *v1alpha1.Work) { w.Spec.HelmWork.Version = "2" })
			},
		},
		"of what became a view": {
			reason: "it says nothing of what is shown",
			meanwhile: func(t *testing.T, r *rig, w *v1alpha1.Work) {
				t.Helper()
				edit(t, r, w, func(w *v1alpha1.Work) { w.Spec = resourceWork("w").Spec })
			},
		},
		"of an author who may not any more": {
			reason: "the refusal is what is to be read",
			meanwhile: func(_ *testing.T, r *rig, w *v1alpha1.Work) {
				r.access.deny("alice")
				r.queue.Add(objectKeyOf(w))
			},
			want: v1alpha1.WorkStatus{
				Type:   v1alpha1.WorkFailed,
				Reason: `forbidden: user "alice" cannot create resource "works" in API group "mcm.ibm.com" in the namespace "c1"`,
			},
		},
		"of what is done": {
			reason: "nothing is being done any more",
			meanwhile: func(t *testing.T, r *rig, w *v1alpha1.Work) {
				t.Helper()
				r.enqueueReport(objectKeyOf(w), report{uid: w.UID, cluster: managed, outcome: outcome{generation: 1, action: &wire.ActionResult{}}})
			},
			want: v1alpha1.WorkStatus{Type: v1alpha1.WorkCompleted, ObservedGeneration: 1},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := releaseWork("w")
			r := newRig(t, w)
			r.reconcileObjects(t, w)
			say := func() {
				r.receiveActionResult(managed, resource.Resource{
					Key: objectKeyOf(w).String(), UID: string(w.UID), Generation: 1, Body: mustEncode(t, wire.Progressing("creating Deployment web")),
					Account: r.openAccount(t, managed, 1),
				})
			}
			say()
			tc.meanwhile(t, r, w.DeepCopy())
			// The look withdraws the action; that the report came first makes no difference.
			for r.queue.Len() > 0 {
				processOne(t, r.queue, func(o objectKey) error { return r.reconcileAndMark(t.Context(), o) })
			}
			r.enqueueReport(objectKeyOf(w), report{uid: w.UID, generation: 1, cluster: managed, outcome: outcome{waiting: "creating Deployment web"}})
			say()
			r.drainQueues(t)
			got := stored(t, r, w.DeepCopy()).Status
			got.LastUpdateTime = nil
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if r.memory.Held() != 0 {
				t.Errorf("%d bytes are held", r.memory.Held())
			}
		})
	}
}

func TestSpecEditedDuringInstallationIsPublishedAfterwards(t *testing.T) {
	w := releaseWork("w")
	r := newRig(t, w)
	r.reconcileObjects(t, w)
	r.answerAction(t, managed, w, wire.Progressing("creating Deployment web"))
	next := edit(t, r, w.DeepCopy(), func(w *v1alpha1.Work) { w.Spec.ActionType = v1alpha1.UpdateActionType })
	r.reconcileObjects(t, next)
	// What comes of the first is nobody's any more; the agent begins the second after it.
	r.answerAction(t, managed, w, wire.ActionResult{Result: json.RawMessage(webRelease)})
	if got := stored(t, r, w.DeepCopy()).Status; got.Type != v1alpha1.WorkProcessing || got.ObservedGeneration != 0 {
		t.Errorf("after the first: %+v", got)
	}
	r.answerAction(t, managed, next, wire.Progressing("updating Deployment web"))
	if got := stored(t, r, w.DeepCopy()).Status; got.Reason != "updating Deployment web" {
		t.Errorf("during the second: %+v", got)
	}
	r.answerAction(t, managed, next, wire.ActionResult{Refusal: wire.Refuse(wire.CauseRequest, "", "release web: no such release")})
	if got := stored(t, r, w).Status; got.Type != v1alpha1.WorkFailed || got.ObservedGeneration != 2 || got.Result != nil {
		t.Errorf("after the second: %+v", got)
	}
}

// A status that cannot be written at once is written with the latest word, and with no
// other's.
func TestLatestProgressIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := releaseWork("w")
		r := newRig(t, w)
		r.cfg.Writes = quota.NewWrites(quota.Rate{PerSecond: 100, Burst: 10}, quota.Rate{PerSecond: 1 << 30, Burst: 1 << 30})
		r.reconcileObjects(t, w)
		for i := range 10 {
			r.answerAction(t, managed, w, wire.Progressing(fmt.Sprintf("step %d", i)))
		}
		if len(r.patches) != 1 {
			t.Errorf("written %d times", len(r.patches))
		}
		<-time.After(time.Minute)
		synctest.Wait()
		r.drainQueues(t)
		if got := stored(t, r, w.DeepCopy()).Status.Reason; got != "step 9" || r.memory.Held() != 0 {
			t.Errorf("reason %q, %d bytes are held", got, r.memory.Held())
		}
		// The cluster goes away while a word waits: that is what is to be read.
		r.answerAction(t, managed, w, wire.Progressing("step 10"))
		r.answerAction(t, managed, w, wire.Progressing("step 11"))
		r.sessions.set(managed, false)
		r.reconcileObjects(t, w)
		<-time.After(time.Minute)
		synctest.Wait()
		r.drainQueues(t)
		if got := stored(t, r, w).Status.Reason; got != `cluster "c1" is not connected` {
			t.Errorf("reason %q", got)
		}
		r.queue.ShutDown()
		r.results.ShutDown()
	})
}

func TestProgressIsRepeatedAfterReconnect(t *testing.T) {
	w := releaseWork("w")
	r := newRig(t, w)
	r.reconcileObjects(t, w)
	reason := func() string { return stored(t, r, w.DeepCopy()).Status.Reason }
	r.answerAction(t, managed, w, wire.Progressing("creating Deployment web"))
	r.sessions.set(managed, false)
	r.reconcileObjects(t, w)
	if got := reason(); got != `cluster "c1" is not connected` {
		t.Errorf("while it is away: %q", got)
	}
	r.sessions.set(managed, true)
	r.reconcileObjects(t, w)
	if got := reason(); got != "creating Deployment web" {
		t.Errorf("when it is back: %q", got)
	}
	// The cluster goes, and is back before that is written.
	r.sessions.set(managed, false)
	r.queue.Add(objectKeyOf(w))
	processOne(t, r.queue, func(o objectKey) error { return r.reconcileAndMark(t.Context(), o) })
	r.sessions.set(managed, true)
	r.reconcileObjects(t, w)
	if got := reason(); got != "creating Deployment web" || len(r.patches) != 3 {
		t.Errorf("after a moment: %q, %d writes", got, len(r.patches))
	}
	// What it said of the spec before is not repeated.
	edit(t, r, w.DeepCopy(), func(w *v1alpha1.Work) { w.Spec.HelmWork.Version = "2" })
	r.reconcileObjects(t, w)
	r.sessions.set(managed, false)
	r.reconcileObjects(t, w)
	r.sessions.set(managed, true)
	r.reconcileObjects(t, w)
	if got := reason(); got != `cluster "c1" is not connected` {
		t.Errorf("after an edit: %q", got)
	}
	edit(t, r, w, func(w *v1alpha1.Work) { w.Spec.ActionType = "odd" })
	r.reconcileObjects(t, w)
	if len(r.progress) != 0 {
		t.Errorf("%v is kept of what is not asked for", r.progress)
	}
}

func TestRefusedProgressIsDropped(t *testing.T) {
	w := releaseWork("w")
	r := newRig(t, w)
	r.reconcileObjects(t, w)
	r.refused = func() error { return apierrors.NewRequestEntityTooLargeError("limit is 3145728") }
	r.answerAction(t, managed, w, wire.Progressing("creating Deployment web"))
	if r.memory.Held() != 0 || len(r.pending) != 0 || len(r.publishedActions(managed)) != 1 {
		t.Errorf("%d bytes are held, %d reports; published %v", r.memory.Held(), len(r.pending), r.publishedActions(managed))
	}
	r.refused = nil
	r.answerAction(t, managed, w, wire.ActionResult{Result: json.RawMessage(webRelease)})
	if got := stored(t, r, w).Status; got.Type != v1alpha1.WorkCompleted {
		t.Errorf("%+v", got)
	}
}

// Nothing that an API server stores is too large for Sync, or for the agent.
func TestLargestReleaseFitsIntoSync(t *testing.T) {
	w := releaseWork("w", func(w *v1alpha1.Work) {
		w.Spec.HelmWork.Values = bytes.Repeat([]byte{0xff}, wire.MaxActionTemplate)
		w.Spec.HelmWork.ChartURL = "https://" + strings.Repeat("a", 4088)
	})
	r := newRig(t, w)
	r.reconcileObjects(t, w)
	sent, ok := r.loadAction(managed, objectKeyOf(w).String())
	if !ok || len(r.publishedActions(managed)) != 1 {
		t.Fatalf("sent %t, published %v", ok, r.publishedActions(managed))
	}
	if _, err := wire.DecodeAction(sent.Body); err != nil || len(sent.Body) > resource.MaxBody {
		t.Errorf("%d bytes: %v", len(sent.Body), err)
	}
	w = edit(t, r, w, func(w *v1alpha1.Work) { w.Spec.HelmWork.Values = append(w.Spec.HelmWork.Values, 0xff) })
	r.reconcileObjects(t, w)
	if got := stored(t, r, w).Status; got.Type != v1alpha1.WorkFailed || !strings.HasPrefix(got.Reason, "spec.helm.values has ") || len(r.publishedActions(managed)) != 0 {
		t.Errorf("one byte more: %+v; published %v", got, r.publishedActions(managed))
	}
}
