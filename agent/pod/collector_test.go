// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	k8stesting "k8s.io/client-go/testing"

	"github.com/spokelet/spokelet/agent/pod/shape"
	"github.com/spokelet/spokelet/api/wire"
)

func TestWhatIsDoneAboutANamespace(t *testing.T) {
	one, two := origin{"hub", "shop", "u1"}, origin{"hub", "shop", "u2"}
	cases := map[string]struct {
		reason string
		s      tenancy
		want   chore
	}{
		"not there":                          {"nothing can be done", tenancy{used: true, from: one, listed: true}, choreNone},
		"on its way":                         {"it goes", tenancy{made: true, deleting: true, gone: true, listed: true, written: one}, choreNone},
		"used":                               {"it bears what it should", tenancy{made: true, used: true, from: one, written: one, listed: true}, choreNone},
		"used, and of nobody yet":            {"an agent that comes after this one would not know", tenancy{made: true, used: true, from: one}, choreClaim},
		"used, of a hub that says no UID":    {"there is nothing to write", tenancy{made: true, used: true, kept: true}, choreNone},
		"used again by another of the name":  {"it is that one's now", tenancy{made: true, used: true, from: two, written: one}, choreClaim},
		"used again after it was kept":       {"why it was is over", tenancy{made: true, used: true, from: one, written: one, kept: true}, choreClaim},
		"used, and gone":                     {"its pods have yet to end", tenancy{made: true, used: true, from: one, written: one, gone: true, listed: true, told: true}, choreNone},
		"gone":                               {"nobody uses it", tenancy{made: true, written: one, gone: true, listed: true}, choreCollect},
		"gone, before the pods are known":    {"there may be some", tenancy{made: true, written: one, gone: true}, choreNone},
		"gone and kept":                      {"somebody wants it looked into again", tenancy{made: true, written: one, gone: true, listed: true, kept: true}, choreCollect},
		"there, and was kept":                {"the hub has it again", tenancy{made: true, written: one, listed: true, told: true, kept: true}, choreClear},
		"was kept, and the hub has not said": {"it may be gone", tenancy{made: true, written: one, listed: true, kept: true}, choreNone},
		"not used":                           {"the hub has it", tenancy{made: true, written: one, listed: true, told: true}, choreNone},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := decideNamespace(tc.s); got != tc.want {
				t.Errorf("%s: %s, want %s", tc.reason, got, tc.want)
			}
		})
	}
}

func TestAnOriginIsReadAsItWasWritten(t *testing.T) {
	o := origin{hub: "hub", namespace: "shop", uid: "u1"}
	if got := parseOrigin(o.String()); got != o {
		t.Errorf("%+v is read as %+v", o, got)
	}
	for _, text := range []string{"", "hub", "hub/shop", "hub/shop/u1/more"} {
		if got := parseOrigin(text); got != (origin{}) {
			t.Errorf("%q is read as %+v", text, got)
		}
	}
}

func TestANamespaceGoesWithTheHubsWhenNothingIsInIt(t *testing.T) {
	ours := func(o *metav1.PartialObjectMetadata) {
		o.Labels = map[string]string{shape.LabelHub: "hub", LabelCreatedBy: Creator}
	}
	theirs := func(o *metav1.PartialObjectMetadata) { o.Labels = map[string]string{shape.LabelHub: "another"} }
	copied := func(o *metav1.PartialObjectMetadata) {
		o.Annotations = map[string]string{AnnotationHubObject: strings.ToLower(o.Kind) + "/shop/" + o.Name}
	}
	removed := []string{"post right", "delete shop"}
	kept := []string{"post right", "delete right", "annotate shop"}
	cases := map[string]struct {
		reason string
		ns     *corev1.Namespace
		inside []runtime.Object
		want   []string
		says   string
	}{
		"empty":                    {reason: "nobody put anything there", want: removed},
		"with what came with pods": {reason: "nobody needs it any more", inside: []runtime.Object{inside("Secret", "copy", ours, copied), inside("ServiceAccount", "robot", ours)}, want: removed},
		"with the owner's":         {reason: "it is not ours to remove", inside: []runtime.Object{inside("ConfigMap", "settings")}, want: kept, says: "holds configmaps/settings"},
		"with another hub's":       {reason: "it is not ours to remove", inside: []runtime.Object{inside("ConfigMap", "copy", theirs, copied)}, want: kept, says: "holds configmaps/copy"},
		"with one that was copied on": {
			reason: "whoever did wants it", want: kept, says: "holds configmaps/copy",
			inside: []runtime.Object{inside("ConfigMap", "copy", ours)},
		},
		"of a work": {
			reason: "that made it its own", want: []string{"annotate shop"}, says: "belongs to AppliedManifestWork w",
			ns: func() *corev1.Namespace {
				ns := madeFor("shop", "hub/shop/u1")
				ns.OwnerReferences = []metav1.OwnerReference{{Kind: "AppliedManifestWork", Name: "w"}}
				return ns
			}(),
		},
		"of another hub":           {reason: "that one has not said so", ns: madeFor("shop", "another/shop/u1")},
		"of another of the name":   {reason: "the hub speaks of one before", ns: madeFor("shop", "hub/shop/u2")},
		"of a name with a prefix":  {reason: "it was made for another", ns: madeFor("shop", "hub/op/u1")},
		"of which it is not known": {reason: "it may be another's", ns: madeFor("shop", "")},
		"that is on its way by itself": {reason: "it goes", ns: func() *corev1.Namespace {
			ns := madeFor("shop", "hub/shop/u1")
			ns.DeletionTimestamp = new(metav1.Now())
			return ns
		}()},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.ns == nil {
				tc.ns = madeFor("shop", "hub/shop/u1")
			}
			collecting(t, tc.inside, func(t *testing.T, e *Engine, s *estate) {
				check(t, "before the hub has said anything", []string(nil), s.happened())
				goes(e, "shop", "u1")
				check(t, tc.reason, tc.want, s.happened())
				if s.namespaces["shop"] != nil {
					check(t, "why it is there", tc.says, s.annotation("shop", AnnotationKeptBecause))
				}
				<-time.After(time.Hour)
				check(t, "an hour later", []string(nil), s.happened())
			}, tc.ns)
		})
	}
}

func TestANamespaceThatWasKeptIsLookedIntoAgainWhenSomebodyAsks(t *testing.T) {
	collecting(t, []runtime.Object{inside("ConfigMap", "settings")}, func(t *testing.T, e *Engine, s *estate) {
		goes(e, "shop", "u1")
		s.happened()
		ask := func() {
			s.lock.Lock()
			delete(s.namespaces["shop"].Annotations, AnnotationKeptBecause)
			ns := s.namespaces["shop"].DeepCopy()
			s.lock.Unlock()
			s.tell(ns, false)
		}
		ask()
		check(t, "it is not empty yet", []string{"post right", "delete right", "annotate shop"}, s.happened())
		if err := s.metadata.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("configmaps"), "shop", "settings"); err != nil {
			t.Fatal(err)
		}
		ask()
		check(t, "it is empty", []string{"post right", "delete shop"}, s.happened())
	}, madeFor("shop", "hub/shop/u1"))
}

func TestWhatCannotBeListedKeepsANamespace(t *testing.T) {
	forbidden := apierrors.NewForbidden(corev1.Resource("secrets"), "", nil)
	away := apierrors.NewServiceUnavailable("boom")
	cases := map[string]struct {
		reason string
		err    error
		often  int
		gone   bool
		says   string
	}{
		"a right that nobody gave": {reason: "something may be there", err: forbidden, often: 1 << 20, says: "cannot list secrets"},
		"a right on its way":       {reason: "it was given just now", err: forbidden, often: 3, gone: true},
		"an API server in trouble": {reason: "it heals, and is asked again", err: away, often: 3, gone: true},
		"one that does not heal":   {reason: "something may be there", err: away, often: 1 << 20, says: "cannot list secrets"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			collecting(t, nil, func(t *testing.T, e *Engine, s *estate) {
				lists := 0
				s.metadata.PrependReactor("list", "secrets", func(k8stesting.Action) (bool, runtime.Object, error) {
					lists++
					return lists <= tc.often, nil, tc.err
				})
				goes(e, "shop", "u1")
				<-time.After(time.Hour)
				synctest.Wait()
				if gone := s.annotation("shop", AnnotationKeptBecause) == "no namespace"; gone != tc.gone {
					t.Errorf("%s: it is gone: %t", tc.reason, gone)
				}
				if !tc.gone {
					check(t, tc.reason, tc.says, s.annotation("shop", AnnotationKeptBecause))
				}
				rights := 0
				for _, what := range s.happened() {
					rights += map[string]int{"post right": 1, "delete right": -1, "delete shop": -1}[what]
				}
				if rights != 0 || lists > 100 {
					t.Errorf("%d rights are left after %d lists", rights, lists)
				}
			}, madeFor("shop", "hub/shop/u1"))
		})
	}
}

func TestThePodsOfANamespaceThatIsGoneEndBeforeIt(t *testing.T) {
	collecting(t, nil, func(t *testing.T, e *Engine, s *estate) {
		tellChanged(t, e, "hub-1", func(p *wire.Pod) { p.NamespaceUID = "u1" })
		synctest.Wait()
		goes(e, "shop", "u1")
		check(t, "while its pod runs", []string(nil), s.happened())
		e.withdraw("shop/web")
		e.vanish(web, "spoke-web", nil)
		check(t, "when that is gone", []string{"post right", "delete shop"}, s.happened())
	}, madeFor("shop", "hub/shop/u1"))
}

func TestNoPodComesToANamespaceThatIsLookedInto(t *testing.T) {
	collecting(t, nil, func(t *testing.T, e *Engine, s *estate) {
		looking, goOn := make(chan struct{}), make(chan struct{})
		s.metadata.PrependReactor("list", "secrets", func(k8stesting.Action) (bool, runtime.Object, error) {
			close(looking)
			<-goOn
			return false, nil, nil
		})
		goes(e, "shop", "u1")
		<-looking
		// The hub has one of that name again, with a pod.
		tellChanged(t, e, "hub-1", func(p *wire.Pod) { p.NamespaceUID = "u2" })
		synctest.Wait()
		if got := said(e, "web"); got.Reason != ReasonNamespaceTerminating || !got.Retried || s.count() != 0 {
			t.Errorf("told %+v, and %d pods are made, which would end with their namespace", got, s.count())
		}
		began := time.Now()
		close(goOn)
		synctest.Wait()
		check(t, "it was empty", []string{"post right", "delete shop"}, s.happened())
		if s.count() != 0 || time.Since(began) != 0 {
			t.Errorf("%d pods are made", s.count())
		}
		s.lock.Lock()
		s.namespaces["shop"] = madeFor("shop", "hub/shop/u2")
		s.lock.Unlock()
		<-time.After(longestRetry)
		synctest.Wait()
		if s.count() != 1 {
			t.Error("the pod is not made in the new one")
		}
	}, madeFor("shop", "hub/shop/u1"))
}

func TestANamespaceThatIsUsedAgainIsNotGone(t *testing.T) {
	collecting(t, []runtime.Object{inside("ConfigMap", "settings")}, func(t *testing.T, e *Engine, s *estate) {
		goes(e, "shop", "u1")
		s.happened()
		tellChanged(t, e, "hub-1", func(p *wire.Pod) { p.NamespaceUID = "u2" })
		check(t, "it is another's", []string{"annotate shop", "delete right"}, s.happened())
		check(t, "whose it is", "hub/shop/u2", s.annotation("shop", AnnotationHubNamespace))
		check(t, "why it is there", "", s.annotation("shop", AnnotationKeptBecause))
		ref, _ := e.collector.made.Ref("shop")
		check(t, "what the hub is told", "u2", ref.UID)
	}, madeFor("shop", "hub/shop/u1"))
}

func TestANamespaceThatTheHubHasAgainIsAsBefore(t *testing.T) {
	collecting(t, []runtime.Object{inside("ConfigMap", "settings")}, func(t *testing.T, e *Engine, s *estate) {
		goes(e, "shop", "u1")
		e.collector.goneSynced()
		s.happened()
		e.collector.withdrawGone("shop") // the hub was restored from a backup
		check(t, "it says nothing any more", []string{"annotate shop"}, s.happened())
		check(t, "why it is there", "", s.annotation("shop", AnnotationKeptBecause))
	}, madeFor("shop", "hub/shop/u1"))
}

func TestTheHubIsToldOfTheNamespacesThatWereMadeForItsPods(t *testing.T) {
	e := idle(t)
	e.cfg.Prefix = "eu-"
	e.collector.cfg.Prefix = "eu-"
	sink := &madeSink{collector: e.collector}
	sink.Begin()
	leaving := madeFor("eu-leaving", "hub/leaving/u4")
	leaving.DeletionTimestamp = new(metav1.Now())
	for _, ns := range []*corev1.Namespace{
		madeFor("eu-shop", "hub/shop/u1"), madeFor("web", "hub/web/u2"), madeFor("eu-other", "another/other/u3"), madeFor("eu-new", ""), leaving,
		madeFor("eu-moved", "hub/eu-moved/u5"),
	} {
		sink.Event(ns, false)
	}
	sink.End("1")
	check(t, "with a prefix", []string{"shop"}, e.collector.made.Keys())
	if ref, _ := e.collector.made.Ref("shop"); ref.UID != "u1" {
		t.Errorf("of UID %q", ref.UID)
	}
	// After a watch that has missed its end.
	sink.Begin()
	sink.End("2")
	check(t, "when it is gone", []string(nil), e.collector.made.Keys())
}

func TestWhereTheOwnerNamesTheNamespacesNoneIsCollected(t *testing.T) {
	e, err := New(Config{REST: &rest.Config{Host: "http://127.0.0.1:1"}, HubID: "hub", Namespace: "spokelet-agent", Namespaces: []string{"shop"}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.shutDown()
	if len(e.Sources()) != 2 || len(e.Mirrors()) != 2 {
		t.Errorf("%d sources and %d mirrors", len(e.Sources()), len(e.Mirrors()))
	}
	e.resync(nil, "1")
	e.complete()
	tellPod(t, e, "hub-1")
	e.withdraw("shop/web")
}
