// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// shelved is an API server without a network that has ConfigMaps and pods, and is
// asked before it removes one of the first: for a code, 0 to remove.
type shelved struct {
	*prompt
	refuse func(name string) int

	lock  sync.Mutex
	kept  map[string]*corev1.ConfigMap
	ended []string
}

// RoundTrip implements http.RoundTripper.
func (s *shelved) RoundTrip(r *http.Request) (*http.Response, error) {
	name := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	w := httptest.NewRecorder()
	w.Header().Set("Content-Type", "application/json")
	s.lock.Lock()
	defer s.lock.Unlock()
	switch {
	case r.Method == http.MethodDelete && strings.Contains(r.URL.Path, "/pods/"):
		s.ended = append(s.ended, name)
		s.answer(w, s.made[name])
	case !strings.Contains(r.URL.Path, "/configmaps"):
		return s.prompt.RoundTrip(r)
	case r.Method == http.MethodPost:
		s.keep(w, r)
	case s.kept[name] == nil:
		s.fail(w, name, http.StatusNotFound)
	case r.Method == http.MethodGet:
		s.answer(w, s.kept[name])
	default:
		if code := s.refuse(name); code != 0 {
			s.fail(w, name, code)
			break
		}
		delete(s.kept, name)
		s.answer(w, &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess})
	}
	return w.Result(), nil
}

func (s *shelved) keep(w io.Writer, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(err) // there is no network
	}
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		panic(err) // the client is client-go
	}
	copied := object.(*corev1.ConfigMap)
	copied.APIVersion, copied.Kind, copied.UID = "v1", "ConfigMap", "spoke-copy"
	s.kept[copied.Name] = copied
	s.answer(w, copied)
}

// left are the copies that are there and the pods that were ended.
func (s *shelved) left() (copies, ended []string) {
	s.lock.Lock()
	defer s.lock.Unlock()
	return slices.Sorted(maps.Keys(s.kept)), s.ended
}

// onShelves is atOnce against such an API server.
func onShelves(t *testing.T, s *shelved, test func(*testing.T, *Engine)) {
	t.Helper()
	s.kept = map[string]*corev1.ConfigMap{}
	atOnce(t, s.prompt, func(t *testing.T, e *Engine) {
		s.use(t, e)
		test(t, e)
	})
}

// use has an engine that has nothing to do yet talk to it.
func (s *shelved) use(t *testing.T, e *Engine) {
	t.Helper()
	spoke, err := newSpokeClient(&rest.Config{Host: "http://spoke", Transport: s}, "")
	if err != nil {
		t.Fatal(err)
	}
	e.spoke = spoke
}

// tellReader gives an engine a pod of the hub that reads two ConfigMaps, which are there.
func tellReader(t *testing.T, e *Engine, change ...func(*wire.Pod)) {
	t.Helper()
	for _, name := range []string{"base", "settings"} {
		e.handleObject(resource.Resource{Key: "configmap/shop/" + name, Body: []byte(`{"text":{"k":"v"}}`)})
	}
	tellChanged(t, e, "hub-web", func(p *wire.Pod) {
		reading("settings")(p)
		p.Pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "K", ValueFrom: &corev1.EnvVarSource{
			ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "base"}, Key: "k"},
		}}}
		for _, f := range change {
			f(p)
		}
	})
}

func TestEarlierFailuresDoNotCountAgainstCopyRemoval(t *testing.T) {
	// The API server fails for a time, not for a number of attempts: the engine's queue has
	// the copies themselves as well as the pod, and may try them at once.
	failing := true
	s := &shelved{
		prompt: &prompt{refuse: func(string) int { return http.StatusForbidden }},
		refuse: func(string) int {
			if failing {
				return http.StatusInternalServerError
			}
			return 0
		},
	}
	onShelves(t, s, func(t *testing.T, e *Engine) {
		tellReader(t, e)
		<-time.After(2 * maxCopyRetries * maxRetry)
		synctest.Wait()
		if copies, _ := s.left(); len(copies) != 2 || said(e, "web").Reason != ReasonForbidden {
			t.Fatalf("the pod is not refused after its copies were made: %v, %+v", copies, said(e, "web"))
		}
		tellReader(t, e, deleting(1))
		synctest.Wait()
		if said(e, "web").Gone {
			t.Error("the hub lets go of the pod after one attempt at its copy, and nobody will know of that")
		}
		s.lock.Lock()
		failing = false
		s.lock.Unlock()
		<-time.After(maxRetry / 2)
		synctest.Wait()
		if copies, _ := s.left(); len(copies) != 0 || !said(e, "web").Gone {
			t.Errorf("copies %v are left, the hub is told %+v", copies, said(e, "web"))
		}
	})
}

func TestPodOfAnotherPrefixIsDeletedDespiteItsCopies(t *testing.T) {
	cases := map[string]struct {
		reason string
		code   int
		after  time.Duration
	}{
		"a refusal": {reason: "it stays one", code: http.StatusForbidden},
		"a failure": {reason: "it may pass, within half a minute", code: http.StatusInternalServerError, after: maxRetry},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := &shelved{prompt: &prompt{}, refuse: func(name string) int {
				if name == "base" {
					return tc.code
				}
				return 0
			}}
			onShelves(t, s, func(t *testing.T, e *Engine) {
				tellReader(t, e)
				synctest.Wait()
				if copies, _ := s.left(); len(copies) != 2 || s.count() != 1 {
					t.Fatal("there is no pod with copies")
				}
				// The next process has another prefix.
				next := idle(t)
				next.cfg.Prefix = "east-"
				s.use(t, next)
				next.observePod(s.made["web"])
				next.observePodList(nil, "1")
				next.handlePodsSynced()
				began := time.Now()
				for ended := []string(nil); len(ended) == 0; _, ended = s.left() {
					if time.Since(began) > time.Hour {
						t.Fatalf("%s: the pod runs on", tc.reason)
					}
					it, _ := next.queue.Get()
					next.handle(t.Context(), it)
					next.queue.Done(it)
				}
				if copies, _ := s.left(); !slices.Equal(copies, []string{"base"}) {
					t.Errorf("%s: copies %v are left, want the one that does not go", tc.reason, copies)
				}
				if took := time.Since(began); took > tc.after || tc.after > 0 && took < tc.after/4 {
					t.Errorf("%s: the pod ends after %s", tc.reason, took)
				}
			})
		})
	}
}

// A volume that passed for one of admission is no exception.
func TestObjectsOfAllVolumesAreCopied(t *testing.T) {
	p := &wire.Pod{Pod: corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}}}}
	asking(p)
	sources := &p.Pod.Spec.Volumes[0].Projected.Sources
	*sources = append(*sources, corev1.VolumeProjection{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "database"}}})
	want := []wire.PodObjectKey{{Kind: wire.PodObjectSecret, Namespace: "shop", Name: "database"}}
	if diff := cmp.Diff(want, requiredCopies(&p.Pod, "shop")); diff != "" {
		t.Errorf("needsOf() (-want +got):\n%s", diff)
	}
	if got := referencedCopies(&p.Pod, "shop"); len(got) != 0 {
		t.Errorf("copiesOf() a pod with what the spoke's admission put in: %v", got)
	}
}

// keeper forbids the first lists of what is not a pod.
type keeper struct {
	times int
	asked map[string]int
}

// RoundTrip implements http.RoundTripper.
func (k *keeper) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	w.Header().Set("Content-Type", "application/json")
	resource := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	k.asked[resource]++
	switch {
	case resource == "pods":
		_, _ = w.WriteString(`{"kind":"PodList","apiVersion":"v1"}`)
	case k.times > 0:
		k.times--
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.WriteString(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`)
	default:
		_, _ = w.WriteString(`{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1"}`)
	}
	return w.Result(), nil
}

func TestRemoveWithoutListRightLogsAndSucceeds(t *testing.T) {
	cases := map[string]struct {
		reason string
		times  int
		want   map[string]int
		logged int
	}{
		"the right is on its way": {reason: "the hook has just given it", times: 3, want: map[string]int{"pods": 1, "configmaps": 4, "secrets": 1}},
		"nobody gives it":         {reason: "the agent goes all the same", times: 1 << 20, want: map[string]int{"pods": 1, "configmaps": 21, "secrets": 1}, logged: 2},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &keeper{times: tc.times, asked: map[string]int{}}
				logged := 0
				log := funcr.New(func(string, string) { logged++ }, funcr.Options{})
				if err := Remove(t.Context(), &rest.Config{Host: "http://spoke", Transport: d}, log, "", ""); err != nil {
					t.Errorf("%s: %v", tc.reason, err)
				}
				if diff := cmp.Diff(tc.want, maps.Clone(d.asked)); diff != "" || logged != tc.logged {
					t.Errorf("%s: %d lines are logged, asked for (-want +got):\n%s", tc.reason, logged, diff)
				}
			})
		})
	}
}
