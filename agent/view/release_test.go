// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/spokelet/spokelet/api/mcm/v1alpha1"
	"github.com/spokelet/spokelet/api/wire"
)

// setRevision records a revision of a release as Helm does.
func (r *rig) setRevision(namespace, release string, number int, status string) {
	r.t.Helper()
	obj := recordSecret(r.t, namespace, release, number, fmt.Sprintf(`{
		"name":%q,"namespace":%q,"version":%d,"manifest":"kind: ConfigMap",
		"info":{"first_deployed":"2026-11-03T09:12:44.5Z","last_deployed":"2026-11-04T16:03:10+01:00","deleted":"","description":"Done","status":%q},
		"chart":{"metadata":{"name":"web","version":"1.2.3"},"templates":[{"name":"a","data":"eA=="}]},"config":{"password":"needle"}
	}`, release, namespace, number, status))
	r.server.set("secrets", namespace, obj.GetName(), map[string]any{
		"data": obj.Object["data"], "metadata": map[string]any{"labels": map[string]any{
			"owner": "helm", "name": release, "version": strconv.Itoa(number), "status": status,
		}},
	})
}

func recordName(release string, number int) string {
	return fmt.Sprintf("sh.helm.release.v1.%s.v%d", release, number)
}

// releases are those of an answer: "namespace/name revision status".
func (a decodedResult) releases(t *testing.T) []string {
	t.Helper()
	var list v1alpha1.ResultHelmList
	if err := json.Unmarshal(a.Result, &list); err != nil {
		t.Fatalf("%v in %s, %+v", err, a.Result, a.Refusal)
	}
	if list.APIVersion != "mcm.ibm.com/v1alpha1" || list.Kind != "ResultHelmList" {
		t.Errorf("a list of %s %s", list.APIVersion, list.Kind)
	}
	of := []string{}
	for _, i := range list.Items {
		of = append(of, fmt.Sprintf("%s/%s %d %s", i.Metadata.Namespace, i.Metadata.Name, i.Spec.Version, i.Spec.Status))
	}
	return of
}

func TestReleasesHaveLatestRevision(t *testing.T) {
	for name, pages := range map[string]bool{"a stream": false, "pages": true} {
		t.Run(name, func(t *testing.T) {
			runSynctest(t, func(r *rig) {
				r.server.pages = pages
				for number := 1; number <= 10; number++ {
					r.setRevision("shop", "web", number, "superseded")
				}
				r.setRevision("shop", "web", 11, "deployed")
				r.setRevision("shop", "web.v2", 3, "failed")
				r.setRevision("other", "web", 1, "deployed")
				key := r.ask(wire.View{Releases: true, Target: wire.Target{Namespace: "shop"}}, 1)
				first := r.onlyAnswer(key, "the initial state")
				item := func(release string, number int, status string) string {
					return fmt.Sprintf(`{"kind":"HelmRelease","apiVersion":"mcm.ibm.com/v1alpha1","metadata":{"name":%q,"namespace":"shop"},"spec":{`+
						`"releaseName":%[1]q,"description":"Done","firstDeployed":"2026-11-03T09:12:44Z","lastDeployed":"2026-11-04T15:03:10Z","manifest":"***",`+
						`"chartName":"web","chartVersion":"1.2.3","namespace":"shop","version":%d,"status":%q}}`, release, number, status)
				}
				want := `{"apiVersion":"mcm.ibm.com/v1alpha1","items":[` + item("web", 11, "deployed") + "," + item("web.v2", 3, "failed") +
					`],"kind":"ResultHelmList","metadata":{}}`
				if diff := cmp.Diff(want, string(first.Result)); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestUpgradeIsPublishedWhileItRuns(t *testing.T) {
	runSynctest(t, func(r *rig) {
		r.setRevision("shop", "web", 1, "superseded")
		r.setRevision("shop", "web", 2, "deployed")
		key := r.ask(wire.View{Releases: true}, 1)
		r.onlyAnswer(key, "the initial state")
		shows := func(what string, want ...string) {
			t.Helper()
			if got := r.onlyAnswer(key, what).releases(t); !slices.Equal(got, want) {
				t.Errorf("%s: %q, want %q", what, got, want)
			}
			r.sleep(time.Minute)
		}
		r.sleep(time.Minute)
		r.setRevision("shop", "web", 3, "pending-upgrade")
		shows("it begins", "shop/web 3 pending-upgrade")
		r.setRevision("shop", "web", 2, "superseded")
		r.expectNoAnswer(key, "the revision before is another's past")
		r.setRevision("shop", "web", 3, "deployed")
		shows("it ends", "shop/web 3 deployed")
		r.server.remove("secrets", "shop", recordName("web", 1))
		r.expectNoAnswer(key, "the oldest goes, for Helm keeps ten")
		r.setRevision("shop", "api", 1, "deployed")
		shows("another release", "shop/api 1 deployed", "shop/web 3 deployed")
		r.setRevision("shop", "web", 3, "uninstalling")
		shows("it is uninstalled", "shop/api 1 deployed", "shop/web 3 uninstalling")
		r.server.remove("secrets", "shop", recordName("web", 2))
		r.expectNoAnswer(key, "the history goes")
		r.server.remove("secrets", "shop", recordName("web", 3))
		shows("the last revision goes", "shop/api 1 deployed")
		r.server.remove("secrets", "shop", recordName("api", 1))
		shows("the last release goes")
		if requests := views(r.server.seen()); len(requests) > 1 {
			t.Errorf("one watch is all that it takes: %q", requests)
		}
	})
}

// Somebody deletes a record by hand: of the one before nothing was kept.
func TestRemovedLatestRevisionReloadsList(t *testing.T) {
	runSynctest(t, func(r *rig) {
		for number, status := range map[int]string{1: "superseded", 2: "deployed", 3: "failed"} {
			r.setRevision("shop", "web", number, status)
		}
		key := r.ask(wire.View{Releases: true}, 1)
		r.onlyAnswer(key, "the initial state")
		r.sleep(time.Minute)
		r.server.seen()
		r.server.remove("secrets", "shop", recordName("web", 3))
		if got := r.onlyAnswer(key, "the latest goes").releases(t); !cmp.Equal(got, []string{"shop/web 2 deployed"}) {
			t.Errorf("%q, want the one before", got)
		}
		// Whoever does that again and again has it read once a second.
		for range 50 {
			r.setRevision("shop", "web", 3, "failed")
			r.server.remove("secrets", "shop", recordName("web", 3))
			r.sleep(100 * time.Millisecond)
		}
		r.sleep(time.Minute)
		if requests := views(r.server.seen()); len(requests) > 8 {
			t.Errorf("%d requests in five seconds: %q", len(requests), requests)
		}
		all := r.nextAnswer(key)
		if len(all) == 0 {
			t.Fatal("nothing is answered")
		}
		if got := all[len(all)-1].releases(t); !cmp.Equal(got, []string{"shop/web 2 deployed"}) {
			t.Errorf("at last %q", got)
		}
	})
}

func TestRevisionRemovedDuringListReloadsIt(t *testing.T) {
	e := newEngine(t, newServer())
	v := newView(e, "k", wire.View{Releases: true, MaxBytes: 10_000}, 1)
	cancelled := 0
	s := &viewSink{
		view: v, mapping: secretsMapping(), cancel: func() { cancelled++ },
		feed: &feed{columns: func() json.RawMessage { return nil }},
	}
	first, second := recordSecret(t, "shop", "web", 1, `{}`), recordSecret(t, "shop", "web", 2, `{}`)
	s.StartSync()
	s.HandleEvent(first, false)
	s.HandleEvent(second, false)
	s.HandleEvent(second, true)
	if cancelled != 0 {
		t.Error("the list is not read to its end: nothing would ever be shown where that happens again and again")
	}
	s.FinishSync("1")
	if cancelled != 1 || v.list == nil {
		t.Errorf("cancelled %d times, a list is shown: %t", cancelled, v.list != nil)
	}
	s.StartSync()
	s.HandleEvent(first, false)
	s.FinishSync("2")
	s.HandleEvent(recordSecret(t, "shop", "web", 7, `{}`), true) // one that was never seen
	if cancelled != 1 {
		t.Error("what is shown was right")
	}
	s.close()
	v.close()
	if held := e.memory.used.Load(); held != 0 {
		t.Errorf("%d bytes are held", held)
	}
}

func TestReleaseViewRequests(t *testing.T) {
	tests := map[string]struct {
		reason string
		view   wire.View
		path   string
		want   string
	}{
		"all":             {reason: "those of Helm", path: "/api/v1/secrets", want: "owner=helm"},
		"in a namespace":  {reason: "records lie in it", view: wire.View{Target: wire.Target{Namespace: "shop"}}, path: "/api/v1/namespaces/shop/secrets", want: "owner=helm"},
		"of a name":       {reason: "a release has several Secrets", view: wire.View{Target: wire.Target{Name: "web"}}, path: "/api/v1/secrets", want: "owner=helm,name=web"},
		"of labels":       {reason: "both have to hold", view: wire.View{LabelSelector: "status in (a,b),owner!=helm"}, path: "/api/v1/secrets", want: "owner=helm,status in (a,b),owner!=helm"},
		"all that can be": {reason: "nothing is dropped", view: wire.View{Target: wire.Target{Namespace: "shop", Name: "web"}, LabelSelector: "a=b"}, path: "/api/v1/namespaces/shop/secrets", want: "owner=helm,name=web,a=b"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			tc.view.Releases = true
			var asked []*url.URL
			feed, err := newFeed(newView(nil, "k", tc.view, 1).spec, secretsMapping(), door{roundTripper(func(r *http.Request) (*http.Response, error) {
				asked = append(asked, r.URL)
				return nil, errDown
			})})
			if err != nil {
				t.Fatal(err)
			}
			_, _ = feed.Watch(t.Context(), metav1.ListOptions{})
			_, _ = feed.List(t.Context(), metav1.ListOptions{Limit: 500})
			for n, limit := range []string{"", "8"} { // a page of large Secrets is held at once
				query := asked[n].Query()
				if asked[n].Path != tc.path || query.Get("labelSelector") != tc.want || query.Get("fieldSelector") != "" || query.Get("limit") != limit {
					t.Errorf("%s: %s", tc.reason, asked[n])
				}
			}
		})
	}
}

func TestReleasesOfNameAreList(t *testing.T) {
	runSynctest(t, func(r *rig) {
		r.setRevision("shop", "web", 1, "deployed")
		r.setRevision("other", "web", 2, "deployed")
		r.setRevision("shop", "api", 1, "deployed")
		if got := r.onlyAnswer(r.ask(wire.View{Releases: true, Target: wire.Target{Name: "web"}}, 1), "in all namespaces").releases(t); !cmp.Equal(got, []string{"other/web 2 deployed", "shop/web 1 deployed"}) {
			t.Errorf("%q", got)
		}
		if got := r.onlyAnswer(r.ask(wire.View{Releases: true, Target: wire.Target{Namespace: "shop", Name: "none"}}, 1), "one that does not exist").releases(t); len(got) != 0 {
			t.Errorf("%q", got)
		}
		if got := r.onlyAnswer(r.ask(wire.View{Releases: true, LabelSelector: "version=1"}, 1), "of a label").releases(t); !cmp.Equal(got, []string{"shop/api 1 deployed", "shop/web 1 deployed"}) {
			t.Errorf("%q", got)
		}
	})
}

func TestReleasesNeedRightToReadSecrets(t *testing.T) {
	runSynctest(t, func(r *rig) {
		r.server.may = func(question string) bool { return !strings.HasPrefix(question, "bob ") }
		r.setRevision("shop", "web", 1, "deployed")
		got := r.onlyAnswer(r.ask(wire.View{Requester: wire.Requester{User: "bob"}, Releases: true}, 1), "bob's").Refusal
		want := &wire.Refusal{Cause: wire.CauseRequest, Status: metav1.StatusReasonForbidden, Message: `secrets is forbidden: User "bob" cannot watch`}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		got = r.onlyAnswer(r.ask(wire.View{Releases: true, Secrets: wire.SecretsRefused}, 1), "the policy's").Refusal
		want = &wire.Refusal{Cause: wire.CauseRequest, Status: metav1.StatusReasonForbidden, Message: errSecretsRefused.Error()}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

func TestOtherSecretsAreNotShown(t *testing.T) {
	tests := map[string]struct {
		name string
		want revision
		ok   bool
	}{
		"a record":                    {name: "sh.helm.release.v1.web.v12", want: revision{release: "web", number: 12}, ok: true},
		"a release with dots":         {name: "sh.helm.release.v1.web.v2.v3", want: revision{release: "web.v2", number: 3}, ok: true},
		"a token":                     {name: "default-token-abcde"},
		"no revision":                 {name: "sh.helm.release.v1.web"},
		"an empty revision":           {name: "sh.helm.release.v1.web.v"},
		"no release":                  {name: "sh.helm.release.v1..v1"},
		"nothing at all":              {name: "sh.helm.release.v1.v1"},
		"a revision before the first": {name: "sh.helm.release.v1.web.v0"},
		"a revision in another way":   {name: "sh.helm.release.v1.web.v01"},
		"a large revision":            {name: "sh.helm.release.v1.web.v2147483648"},
		"a later format":              {name: "sh.helm.release.v2.web.v1"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			obj := &unstructured.Unstructured{}
			obj.SetName(tc.name)
			if got, ok := revisionOf(obj); got != tc.want || ok != tc.ok {
				t.Errorf("%s: %+v, %t", tc.name, got, ok)
			}
		})
	}
	runSynctest(t, func(r *rig) {
		r.server.set("secrets", "shop", "a", map[string]any{"metadata": map[string]any{"labels": map[string]any{"owner": "helm", "name": "web"}}})
		if got := r.onlyAnswer(r.ask(wire.View{Releases: true}, 1), "a label alone").releases(t); len(got) != 0 {
			t.Errorf("%q", got)
		}
	})
}

func TestRevisionsUseMemoryBudget(t *testing.T) {
	m := &memoryBudget{limit: 1 << 20}
	r := &revisions{memory: m, numbers: map[string][]int32{}}
	rev := func(number int32) revision { return revision{namespace: "shop", release: "web", number: number} }
	for _, number := range []int32{3, 1, 2, 3} {
		if latest, err := r.add(rev(number)); err != nil || latest != (number == 3) {
			t.Errorf("revision %d: latest is %t: %v", number, latest, err)
		}
	}
	if held := m.used.Load(); held != 3*revisionSize+int64(len("shop/web")) {
		t.Errorf("%d bytes are held", held)
	}
	m.limit = m.used.Load()
	if _, err := r.add(rev(4)); !errors.Is(err, errLimit) {
		t.Errorf("%v, want that one more is too much, at once", err)
	}
	for _, step := range []struct {
		number        int32
		gone, unknown bool
	}{{number: 1}, {number: 1}, {number: 4, unknown: true}, {number: 2}, {number: 3, gone: true}} {
		if gone, unknown := r.remove(rev(step.number)); gone != step.gone || unknown != step.unknown {
			t.Errorf("revision %d goes: gone is %t, unknown is %t", step.number, gone, unknown)
		}
	}
	if m.used.Load() != 0 || len(r.numbers) != 0 {
		t.Errorf("%d bytes are held of %v", m.used.Load(), r.numbers)
	}
	if _, err := r.add(rev(1)); err != nil {
		t.Error(err)
	}
	if r.release(); m.used.Load() != 0 {
		t.Errorf("%d bytes are held after the end", m.used.Load())
	}
}

func TestReleasesBeyondMemoryAreRefused(t *testing.T) {
	runSynctest(t, func(r *rig) {
		for number := range 100 {
			r.setRevision("shop", "web", number+1, "superseded")
		}
		r.engine.memory.limit = 100 * revisionSize
		key := r.ask(wire.View{Releases: true}, 1)
		if got := r.onlyAnswer(key, "all revisions").Refusal; got == nil || got.Cause != wire.CauseLimit {
			t.Errorf("%+v, want that there is no room", got)
		}
	})
}

// A Secret may have 1 MiB, and Helm keeps ten of each release.
func TestRecordsAreNotRetained(t *testing.T) {
	for _, policy := range []wire.SecretPolicy{wire.SecretsMasked, wire.SecretsShown} {
		t.Run(string(policy), func(t *testing.T) {
			e := newEngine(t, newServer())
			v := newView(e, "k", wire.View{Releases: true, MaxBytes: 512 << 10, Secrets: policy}, 1)
			s := &viewSink{view: v, mapping: secretsMapping(), cancel: func() {}, feed: &feed{columns: func() json.RawMessage { return nil }}}
			heap := func() uint64 {
				runtime.GC()
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				return m.HeapAlloc
			}
			s.StartSync()
			before := heap()
			record := `{"manifest":"` + strings.Repeat("kind: ConfigMap\\n", 20_000) + `"}`
			for release := range 4 {
				for number := range 10 {
					s.HandleEvent(recordSecret(t, "shop", "web"+strconv.Itoa(release), number+1, record), false)
				}
			}
			s.FinishSync("1")
			if grown := int64(heap()) - int64(before); grown > 2<<20 {
				t.Errorf("%d bytes are kept, %d are counted", grown, e.memory.used.Load())
			}
			runtime.KeepAlive(s)
			v.close()
			s.close()
		})
	}
}
