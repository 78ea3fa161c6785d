// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	k8stesting "k8s.io/client-go/testing"

	"github.com/spokelet/spokelet/agent/pod/translate"
	"github.com/spokelet/spokelet/api/wire"
)

func TestDecideNamespace(t *testing.T) {
	one, two, other := origin{"hub", "shop", "u1"}, origin{"hub", "shop", "u2"}, origin{"another", "shop", "u1"}
	cases := map[string]struct {
		reason string
		s      namespaceInput
		want   namespaceAction
	}{
		"not there":                         {"nothing can be done", namespaceInput{isUsed: true, from: one, listed: true}, leaveNamespace},
		"on its way":                        {"it goes", namespaceInput{exists: true, deleting: true, goneOnHub: true, listed: true, origin: one}, leaveNamespace},
		"used":                              {"it bears what it should", namespaceInput{exists: true, isUsed: true, from: one, origin: one, listed: true}, leaveNamespace},
		"used, and of nobody yet":           {"an agent that comes after this one would not know", namespaceInput{exists: true, isUsed: true, from: one}, claimNamespace},
		"used, of a hub that says no UID":   {"there is nothing to write", namespaceInput{exists: true, isUsed: true, isKept: true}, leaveNamespace},
		"used again by another of the name": {"it is that one's now", namespaceInput{exists: true, isUsed: true, from: two, origin: one}, claimNamespace},
		"used again after it was kept":      {"why it was is over", namespaceInput{exists: true, isUsed: true, from: one, origin: one, isKept: true}, claimNamespace},
		"used, and gone":                    {"its pods have yet to end", namespaceInput{exists: true, isUsed: true, from: one, origin: one, goneOnHub: true, listed: true}, leaveNamespace},
		"used, of another hub":              {"that one keeps the word", namespaceInput{exists: true, isUsed: true, from: one, origin: other, listed: true}, leaveNamespace},
		"used, kept for another hub":        {"that one keeps the word", namespaceInput{exists: true, isUsed: true, from: one, origin: other, isKept: true}, leaveNamespace},
		"gone":                              {"nobody uses it", namespaceInput{exists: true, origin: one, goneOnHub: true, listed: true}, collectNamespace},
		"gone, before the pods are known":   {"there may be some", namespaceInput{exists: true, origin: one, goneOnHub: true}, leaveNamespace},
		"gone and kept":                     {"somebody wants it looked into again", namespaceInput{exists: true, origin: one, goneOnHub: true, listed: true, isKept: true}, collectNamespace},
		"not used":                          {"the hub has it", namespaceInput{exists: true, origin: one, listed: true}, leaveNamespace},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := decideNamespace(tc.s); got != tc.want {
				t.Errorf("%s: %s, want %s", tc.reason, got, tc.want)
			}
		})
	}
}

func TestOriginRoundTrip(t *testing.T) {
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

func TestEmptyNamespaceIsCollected(t *testing.T) {
	ours := func(o *metav1.PartialObjectMetadata) {
		o.Labels = map[string]string{translate.LabelHub: "hub", LabelCreatedBy: Creator}
	}
	theirs := func(o *metav1.PartialObjectMetadata) { o.Labels = map[string]string{translate.LabelHub: "another"} }
	copyOf := func(key string) func(*metav1.PartialObjectMetadata) {
		return func(o *metav1.PartialObjectMetadata) { o.Annotations = map[string]string{AnnotationHubObject: key} }
	}
	labelled := func(pairs ...string) *corev1.Namespace {
		ns := madeFor("shop", "hub/shop/u1")
		for i := 0; i < len(pairs); i += 2 {
			ns.Labels[pairs[i]] = pairs[i+1]
		}
		return ns
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
		"with what came with pods": {reason: "nobody needs it any more", inside: []runtime.Object{inside("Secret", "copy", ours, copyOf("secret/shop/copy")), inside("ServiceAccount", "robot", ours)}, want: removed},
		"with the owner's":         {reason: "it is not ours to remove", inside: []runtime.Object{inside("ConfigMap", "settings")}, want: kept, says: "holds configmaps/settings"},
		"with another hub's":       {reason: "it is not ours to remove", inside: []runtime.Object{inside("ConfigMap", "copy", theirs, copyOf("configmap/shop/copy"))}, want: kept, says: "holds configmaps/copy"},
		"with one that was copied on": {
			reason: "whoever did wants it", want: kept, says: "holds configmaps/copy",
			inside: []runtime.Object{inside("ConfigMap", "copy", ours)},
		},
		"with one that was made of a copy": {
			reason: "the agent gives a copy no other name", want: kept, says: "holds configmaps/mine",
			inside: []runtime.Object{inside("ConfigMap", "mine", ours, copyOf("configmap/shop/copy"))},
		},
		"with one of another kind that was made of a copy": {
			reason: "the agent makes no other kind of a copy", want: kept, says: "holds secrets/copy",
			inside: []runtime.Object{inside("Secret", "copy", ours, copyOf("configmap/shop/copy"))},
		},
		"with a copy that came from another namespace": {
			reason: "the agent puts copies of that one elsewhere", want: kept, says: "holds secrets/copy",
			inside: []runtime.Object{inside("Secret", "copy", ours, copyOf("secret/op/copy"))},
		},
		"of a work": {
			reason: "that made it its own", want: []string{"annotate shop"}, says: "belongs to AppliedManifestWork w",
			ns: func() *corev1.Namespace {
				ns := madeFor("shop", "hub/shop/u1")
				ns.OwnerReferences = []metav1.OwnerReference{{Kind: "AppliedManifestWork", Name: "w"}}
				return ns
			}(),
		},
		"with the owner's consent to pods": {
			reason: "the owner made it theirs", want: []string{"annotate shop"}, says: "labelled spokelet.io/pods",
			ns: labelled(LabelPods, PodsAllowed),
		},
		"with labels of the owner": {
			reason: "whoever may remake the hub's namespace must not take them away", want: []string{"annotate shop"},
			says: "labelled istio-injection, pod-security.kubernetes.io/enforce",
			ns:   labelled("pod-security.kubernetes.io/enforce", "restricted", "istio-injection", "enabled", "pod-security.kubernetes.io/warn", "restricted"),
		},
		"with labels that Kubernetes and OpenShift set": {
			reason: "they are on each namespace, and restrict nothing", want: removed,
			ns: labelled("kubernetes.io/metadata.name", "shop",
				"pod-security.kubernetes.io/audit", "restricted", "pod-security.kubernetes.io/audit-version", "latest",
				"pod-security.kubernetes.io/warn", "restricted", "pod-security.kubernetes.io/warn-version", "latest"),
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
			withCollector(t, tc.inside, func(t *testing.T, e *Engine, s *namespaceServer) {
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

func TestKeptNamespaceIsInspectedAgainOnRequest(t *testing.T) {
	withCollector(t, []runtime.Object{inside("ConfigMap", "settings")}, func(t *testing.T, e *Engine, s *namespaceServer) {
		goes(e, "shop", "u1")
		s.happened()
		ask := func() {
			s.edit("shop", func(ns *corev1.Namespace) { delete(ns.Annotations, AnnotationKeptBecause) })
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

func TestUnlistedKindKeepsTheNamespace(t *testing.T) {
	forbidden := apierrors.NewForbidden(corev1.Resource("secrets"), "", nil)
	away := apierrors.NewServiceUnavailable("boom")
	cases := map[string]struct {
		reason string
		err    error
		often  int
		gone   bool
		says   string
	}{
		"a right without effect":   {reason: "something may be there", err: forbidden, often: 1 << 20, says: "cannot list secrets"},
		"a right on its way":       {reason: "it was given just now", err: forbidden, often: 3, gone: true},
		"a right that takes long":  {reason: "some API server heard of it late", err: forbidden, often: 50, gone: true},
		"an API server in trouble": {reason: "it heals, and is asked again", err: away, often: 3, gone: true},
		"one that does not heal":   {reason: "something may be there", err: away, often: 1 << 20, says: "cannot list secrets"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			withCollector(t, nil, func(t *testing.T, e *Engine, s *namespaceServer) {
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
				// While the right may be on its way a look lists four times a second.
				if most := (1 + maxInspections) * (4*int(rightPropagation/time.Second) + 1); rights != 0 || lists > most {
					t.Errorf("%d rights are left after %d lists", rights, lists)
				}
			}, madeFor("shop", "hub/shop/u1"))
		})
	}
}

func TestMissingKindKeepsTheNamespaceWhileItIsServed(t *testing.T) {
	withCollector(t, nil, func(t *testing.T, e *Engine, s *namespaceServer) {
		s.metadata.PrependReactor("list", "serviceaccounts", func(k8stesting.Action) (bool, runtime.Object, error) {
			s.lock.Lock()
			defer s.lock.Unlock()
			s.unserved = "serviceaccounts"
			return true, nil, apierrors.NewNotFound(corev1.Resource("serviceaccounts"), "")
		})
		goes(e, "shop", "u1")
		check(t, "something may be there", []string{"post right", "delete right", "annotate shop"}, s.happened())
		check(t, "why it is there", "cannot list serviceaccounts", s.annotation("shop", AnnotationKeptBecause))
		<-time.After(maxRetry)
		check(t, "the kind is gone", []string{"post right", "delete shop"}, s.happened())
	}, madeFor("shop", "hub/shop/u1"))
}

func TestInspectionIsRepeatedUntilTheReasonIsRecorded(t *testing.T) {
	withCollector(t, []runtime.Object{inside("ConfigMap", "settings")}, func(t *testing.T, e *Engine, s *namespaceServer) {
		s.setAway(true)
		goes(e, "shop", "u1")
		<-time.After(time.Hour)
		s.setAway(false)
		<-time.After(2 * maxRetry)
		synctest.Wait()
		check(t, "after an outage of an hour", "holds configmaps/settings", s.annotation("shop", AnnotationKeptBecause))
	}, madeFor("shop", "hub/shop/u1"))
}

func TestTerminatingObjectsAreWaitedFor(t *testing.T) {
	claim := func(o *metav1.PartialObjectMetadata) {
		o.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "web"}}
	}
	going := func(o *metav1.PartialObjectMetadata) { o.DeletionTimestamp = new(metav1.Now()) }
	cases := map[string]struct {
		reason string
		object runtime.Object
		ends   bool
		says   string
	}{
		"that of a pod":               {reason: "Kubernetes deletes it some time after the pod", object: inside("ConfigMap", "left", claim), ends: true, says: "no namespace"},
		"a deletion":                  {reason: "a finalizer takes its time", object: inside("ConfigMap", "left", going), ends: true, says: "no namespace"},
		"a deletion that never ends":  {reason: "nothing is deleted that was seen", object: inside("ConfigMap", "left", going), says: "holds configmaps/left"},
		"that of a pod, and orphaned": {reason: "nothing is deleted that was seen", object: inside("ConfigMap", "left", claim), says: "holds configmaps/left"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			withCollector(t, []runtime.Object{tc.object}, func(t *testing.T, e *Engine, s *namespaceServer) {
				goes(e, "shop", "u1")
				<-time.After(maxRetry)
				synctest.Wait()
				check(t, "meanwhile", "holds configmaps/left", s.annotation("shop", AnnotationKeptBecause))
				if tc.ends {
					if err := s.metadata.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("configmaps"), "shop", "left"); err != nil {
						t.Fatal(err)
					}
				}
				<-time.After(time.Hour)
				synctest.Wait()
				check(t, tc.reason, tc.says, s.annotation("shop", AnnotationKeptBecause))
				s.happened()
				<-time.After(time.Hour)
				check(t, "an hour later", []string(nil), s.happened())
			}, madeFor("shop", "hub/shop/u1"))
		})
	}
}

// hanging answers no list of Secrets.
type hanging struct{ metadata.Interface }

func (h hanging) Resource(kind schema.GroupVersionResource) metadata.Getter {
	if kind.Resource == "secrets" {
		return hangingList{}
	}
	return h.Interface.Resource(kind)
}

type hangingList struct{ metadata.Getter }

func (h hangingList) Namespace(string) metadata.ResourceInterface { return h }

func (hangingList) List(ctx context.Context, _ metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestHangingListLeavesTimeToRecordTheReason(t *testing.T) {
	withCollector(t, nil, func(t *testing.T, e *Engine, s *namespaceServer) {
		e.collector.reader.Metadata = hanging{s.metadata}
		goes(e, "shop", "u1")
		<-time.After(inspectTimeout)
		check(t, "at its deadline", []string{"post right", "delete right", "annotate shop"}, s.happened())
		check(t, "why it is there", "cannot list secrets", s.annotation("shop", AnnotationKeptBecause))
		<-time.After(2 * time.Hour)
		if looks := len(s.happened()) / 2; looks != maxInspections {
			t.Errorf("%d looks follow", looks)
		}
	}, madeFor("shop", "hub/shop/u1"))
}

func TestRefusedAnnotationEndsTheInspections(t *testing.T) {
	withCollector(t, nil, func(t *testing.T, e *Engine, s *namespaceServer) {
		away := apierrors.NewServiceUnavailable("boom")
		s.metadata.PrependReactor("list", "secrets", func(k8stesting.Action) (bool, runtime.Object, error) { return true, nil, away })
		s.sealed = true
		goes(e, "shop", "u1")
		check(t, "at first", []string{"post right", "delete right", "refuse to annotate shop"}, s.happened())
		<-time.After(2 * time.Hour)
		if looks := len(s.happened()) / 2; looks != maxInspections {
			t.Errorf("%d looks follow", looks)
		}
		// Its owner changes it.
		s.edit("shop", func(ns *corev1.Namespace) { ns.Annotations["team"] = "a" })
		check(t, "after a change", []string{"post right", "delete right", "refuse to annotate shop"}, s.happened())
	}, madeFor("shop", "hub/shop/u1"))
}

func TestDeletionTimesOutWithItsInspection(t *testing.T) {
	withCollector(t, nil, func(t *testing.T, e *Engine, s *namespaceServer) {
		s.slow = true
		began := time.Now()
		s.metadata.PrependReactor("list", "secrets", func(k8stesting.Action) (bool, runtime.Object, error) {
			s.slow = time.Since(began) == 0
			return false, nil, nil
		})
		goes(e, "shop", "u1")
		check(t, "while it hangs", []string{"post right"}, s.happened())
		<-time.After(inspectTimeout)
		check(t, "at its deadline", []string{"delete right"}, s.happened())
		<-time.After(minRetry)
		check(t, "at another look", []string{"post right", "delete shop"}, s.happened())
	}, madeFor("shop", "hub/shop/u1"))
}

func TestNamespaceChangedDuringInspectionIsInspectedAgain(t *testing.T) {
	withCollector(t, nil, func(t *testing.T, e *Engine, s *namespaceServer) {
		lists := 0
		s.metadata.PrependReactor("list", "secrets", func(k8stesting.Action) (bool, runtime.Object, error) {
			if lists++; lists == 1 {
				s.edit("shop", func(ns *corev1.Namespace) { ns.Labels["team"] = "a" })
			}
			return false, nil, nil
		})
		goes(e, "shop", "u1")
		check(t, "it is another by then", []string{"post right", "delete right", "annotate shop"}, s.happened())
		check(t, "why it is there", "labelled team", s.annotation("shop", AnnotationKeptBecause))
	}, madeFor("shop", "hub/shop/u1"))
}

func TestPodsEndBeforeTheirNamespaceIsCollected(t *testing.T) {
	withCollector(t, nil, func(t *testing.T, e *Engine, s *namespaceServer) {
		tellChanged(t, e, "hub-1", func(p *wire.Pod) { p.NamespaceUID = "u1" })
		synctest.Wait()
		goes(e, "shop", "u1")
		check(t, "while its pod runs", []string(nil), s.happened())
		e.handlePodDeleted("shop/web")
		e.observePodDeleted(web, "spoke-web", nil)
		check(t, "when that is gone", []string{"post right", "delete shop"}, s.happened())
	}, madeFor("shop", "hub/shop/u1"))
}

func TestNoPodIsCreatedDuringInspection(t *testing.T) {
	withCollector(t, nil, func(t *testing.T, e *Engine, s *namespaceServer) {
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
		<-time.After(maxRetry)
		synctest.Wait()
		if s.count() != 1 {
			t.Error("the pod is not made in the new one")
		}
	}, madeFor("shop", "hub/shop/u1"))
}

func TestReusedNamespaceIsNotCollected(t *testing.T) {
	withCollector(t, []runtime.Object{inside("ConfigMap", "settings")}, func(t *testing.T, e *Engine, s *namespaceServer) {
		goes(e, "shop", "u1")
		s.happened()
		tellChanged(t, e, "hub-1", func(p *wire.Pod) { p.NamespaceUID = "u2" })
		check(t, "it is another's", []string{"annotate shop", "delete right"}, s.happened())
		check(t, "whose it is", "hub/shop/u2", s.annotation("shop", AnnotationHubNamespace))
		check(t, "why it is there", "", s.annotation("shop", AnnotationKeptBecause))
		ref, _ := e.collector.createdSource.Ref("shop")
		check(t, "what the hub is told", "u2", ref.UID)
	}, madeFor("shop", "hub/shop/u1"))
}

func TestOriginOfAnotherHubIsKept(t *testing.T) {
	withCollector(t, nil, func(t *testing.T, e *Engine, s *namespaceServer) {
		tellChanged(t, e, "hub-1", func(p *wire.Pod) { p.NamespaceUID = "u1" })
		check(t, "the agents of both hubs would write it for ever", []string(nil), s.happened())
		if s.count() != 1 {
			t.Error("the pod is not made")
		}
	}, madeFor("shop", "another/shop/u9"))
}

func TestCreatedNamespacesArePublished(t *testing.T) {
	e := idle(t)
	e.cfg.Prefix = "eu-"
	e.collector.cfg.Prefix = "eu-"
	sink := &namespaceSink{collector: e.collector}
	sink.StartSync()
	leaving := madeFor("eu-leaving", "hub/leaving/u4")
	leaving.DeletionTimestamp = new(metav1.Now())
	for _, ns := range []*corev1.Namespace{
		madeFor("eu-shop", "hub/shop/u1"), madeFor("web", "hub/web/u2"), madeFor("eu-other", "another/other/u3"), madeFor("eu-new", ""), leaving,
		madeFor("eu-moved", "hub/eu-moved/u5"),
	} {
		sink.HandleEvent(ns, false)
	}
	sink.FinishSync("1")
	check(t, "with a prefix", []string{"shop"}, e.collector.createdSource.Keys())
	if ref, _ := e.collector.createdSource.Ref("shop"); ref.UID != "u1" {
		t.Errorf("of UID %q", ref.UID)
	}
	// After a watch that has missed its end.
	sink.StartSync()
	sink.FinishSync("2")
	check(t, "when it is gone", []string(nil), e.collector.createdSource.Keys())
}

func TestConfiguredNamespacesAreNotCollected(t *testing.T) {
	e, err := New(Config{REST: &rest.Config{Host: "http://127.0.0.1:1"}, HubID: "hub", Namespace: "spokelet-agent", Namespaces: []string{"shop"}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.shutDownQueues()
	if len(e.Sources()) != 2 || len(e.Mirrors()) != 3 {
		t.Errorf("%d sources and %d mirrors", len(e.Sources()), len(e.Mirrors()))
	}
	e.observePodList(nil, "1")
	e.handlePodsSynced()
	tellPod(t, e, "hub-1")
	e.handlePodDeleted("shop/web")
}
