// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	k8stesting "k8s.io/client-go/testing"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/podrefs"
)

// sending is a hub that may read the objects of some namespaces.
func sending(namespaces ...string) Config {
	return Config{Objects: ObjectPolicy{Namespaces: append([]string{}, namespaces...)}}
}

// askedFor counts the requests for ConfigMaps and Secrets by verb, resource and namespace.
func (r *rig) askedFor() map[string]int {
	count := map[string]int{}
	for _, a := range r.client.Actions() {
		if resource := a.GetResource().Resource; resource == "configmaps" || resource == "secrets" {
			count[a.GetVerb()+" "+resource+" in "+a.GetNamespace()]++
		}
	}
	return count
}

func withPullSecret(p *corev1.Pod) {
	p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "registry"}}
}

func TestPodWithReferencesIsPublishedFromAllowedNamespacesOnly(t *testing.T) {
	cases := map[string]struct {
		reason  string
		config  Config
		pod     func(*corev1.Pod)
		message string
	}{
		"no namespace is named":      {reason: "nobody consented", config: sending(), pod: withObjects, message: `the pod refers to configmap "settings", and namespace "default" is not in the hub's option pods.namespaces`},
		"another is":                 {reason: "the consent is for that one", config: sending("shop"), pod: withObjects, message: "pods.namespaces"},
		"a pull secret":              {reason: "it is a Secret of the hub as well", config: sending("shop"), pod: withPullSecret, message: `secret "registry"`},
		"it is named":                {reason: "that is the consent", config: sending("shop", "default"), pod: withObjects},
		"all are":                    {reason: "its owner said so", config: sending(AllNamespaces), pod: withObjects},
		"it refers to nothing":       {reason: "nothing of the hub goes along", config: sending(), pod: func(*corev1.Pod) {}},
		"admission gave it a volume": {reason: "every pod has it, and the cluster puts in its own", config: sending(), pod: withToken},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			inBubble(t, tc.config, func(r *rig) {
				r.watch(spoke)
				defer r.connect(spoke)()
				time.Sleep(time.Hour)
				synctest.Wait()
				status := r.pod("a").Status
				if sent := len(r.published(spoke, wire.KindPod)) == 1; sent != (tc.message == "") {
					t.Errorf("%s: sent is %t", tc.reason, sent)
				}
				if tc.message == "" {
					if status.Reason == ReasonObjectNotAllowed {
						t.Errorf("%s: the pod says %q", tc.reason, status.Message)
					}
					return
				}
				if status.Reason != ReasonObjectNotAllowed || !strings.Contains(status.Message, tc.message) {
					t.Errorf("%s: the pod says %q: %q", tc.reason, status.Reason, status.Message)
				}
				if diff := cmp.Diff(map[string]int{}, r.askedFor()); diff != "" {
					t.Errorf("%s: the API server was asked (-want +got):\n%s", tc.reason, diff)
				}
				if n := r.requests()["patch pods"]; n > 1 {
					t.Errorf("the status was written %d times", n)
				}
			}, podNamed("a", tc.pod), settings(), keys())
		})
	}
}

// deniedEvents are the messages of the events that say what a pod may not have.
func (r *rig) deniedEvents() []string {
	r.t.Helper()
	events, err := r.client.CoreV1().Events("default").List(r.t.Context(), metav1.ListOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	var messages []string
	for i := range events.Items {
		if e := &events.Items[i]; e.Reason == ReasonObjectNotAllowed && e.Type == corev1.EventTypeWarning && e.InvolvedObject.UID == "uid-of-a" {
			messages = append(messages, e.Message)
		}
	}
	return messages
}

func TestDeniedObjectIsRecordedInOneEvent(t *testing.T) {
	want := []string{`the pod refers to configmap "settings", and namespace "default" is not in the hub's option pods.namespaces`}
	inBubble(t, sending("shop"), func(r *rig) {
		failures := 1
		r.client.PrependReactor("create", "events", func(k8stesting.Action) (bool, runtime.Object, error) {
			failures--
			return failures >= 0, nil, errors.New("so says the test")
		})
		r.watch(spoke)
		defer r.connect(spoke)()
		<-time.After(time.Minute)
		if diff := cmp.Diff(want, r.deniedEvents()); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		r.requests()
		changed := r.pod("a")
		changed.Labels = map[string]string{"more": "1"}
		r.update(changed)
		<-time.After(time.Minute)
		if n := r.requests()["create events"]; n != 0 {
			t.Errorf("it was said again: %d times", n)
		}
	}, podNamed("a", withObjects), settings(), keys())
}

func TestRunningPodStaysWhenItsNamespaceIsNoLongerAllowed(t *testing.T) {
	inBubble(t, sending("shop"), func(r *rig) {
		r.watch(spoke)
		defer r.connect(spoke)()
		if diff := cmp.Diff([]string{"default/a"}, r.published(spoke, wire.KindPod)); diff != "" {
			t.Errorf("pods that are sent (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(map[string]int{}, r.askedFor()); diff != "" {
			t.Errorf("the API server was asked (-want +got):\n%s", diff)
		}
	}, podNamed("a", withObjects, inCluster), settings(), keys())
}

func TestHubRootCAIsPublishedWithHubTokens(t *testing.T) {
	config := issuing()
	config.Objects = ObjectPolicy{Namespaces: []string{"shop"}}
	inBubble(t, config, func(r *rig) {
		(&mint{}).with(r)
		r.watch(spoke)
		defer r.asks(spoke)()
		if !r.sends("configmap/default/" + podrefs.RootCA) {
			t.Error("a pod with a token of the hub does not know its authority")
		}
	}, podNamed("a", withToken))
}
