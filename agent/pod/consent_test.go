// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/agent/pod/translate"
	"github.com/spokelet/spokelet/api/wire"
)

// lending is an API server without a network that has service accounts and claims, by
// the end of their paths and with their labels.
type lending struct {
	*prompt
	labels map[string]map[string]string
	// asked is told of each request, before it is answered.
	asked func(method, path string)
	made  []string
}

// RoundTrip implements http.RoundTripper.
func (l *lending) RoundTrip(r *http.Request) (*http.Response, error) {
	path := strings.TrimPrefix(r.URL.Path, "/api/v1/namespaces/shop/")
	if l.asked != nil {
		l.asked(r.Method, path)
	}
	if !strings.HasPrefix(path, "serviceaccounts") && !strings.HasPrefix(path, "persistentvolumeclaims") {
		return l.prompt.RoundTrip(r)
	}
	w := httptest.NewRecorder()
	w.Header().Set("Content-Type", "application/json")
	if r.Method == http.MethodPost {
		path += "/robot"
		l.made = append(l.made, path)
		l.labels[path] = map[string]string{LabelCreatedBy: Creator, translate.LabelHub: "hub"}
	}
	kind, name, _ := strings.Cut(path, "/")
	labels, ok := l.labels[path]
	if !ok {
		l.fail(w, name, http.StatusNotFound)
		return w.Result(), nil
	}
	meta := metav1.ObjectMeta{Name: name, Labels: labels}
	if kind == "serviceaccounts" {
		l.answer(w, &corev1.ServiceAccount{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"}, ObjectMeta: meta})
	} else {
		l.answer(w, &corev1.PersistentVolumeClaim{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"}, ObjectMeta: meta})
	}
	return w.Result(), nil
}

// lent makes one pod against such an API server.
func (l *lending) lent(t *testing.T, namespace map[string]string, change func(*corev1.PodSpec)) error {
	t.Helper()
	l.prompt = &prompt{labels: namespace}
	e := l.engine(t, l)
	pod := wire.Pod{Pod: corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "hub-web"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "web"}}},
	}}
	change(&pod.Pod.Spec)
	key := wire.PodKey{Namespace: "shop", Name: "web"}
	_, err := e.prepareAndCreate(t.Context(), e.spokeName(key), e.newDesiredPod(key, pod))
	if made := l.count(); (made == 1) != (err == nil) {
		t.Errorf("%d pods were made, and the error is: %v", made, err)
	}
	return err
}

func runsAs(account string) func(*corev1.PodSpec) {
	return func(spec *corev1.PodSpec) { spec.ServiceAccountName = account }
}

func mounts(claims ...string) func(*corev1.PodSpec) {
	return func(spec *corev1.PodSpec) {
		for _, claim := range claims {
			spec.Volumes = append(spec.Volumes, corev1.Volume{Name: claim, VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
			}})
		}
	}
}

var (
	ours    = map[string]string{LabelCreatedBy: Creator}
	allowed = map[string]string{LabelPods: PodsAllowed}
)

func TestPodUsesOnlyWhatTheOwnerAllows(t *testing.T) {
	const robot, data = "serviceaccounts/robot", "persistentvolumeclaims/data"
	cases := map[string]struct {
		reason    string
		namespace map[string]string
		has       map[string]map[string]string
		pod       func(*corev1.PodSpec)
		want      string
		made      []string
	}{
		"no account":                       {reason: "every pod has the default one", namespace: ours, pod: runsAs("")},
		"the default account":              {reason: "nobody made it for anything", namespace: allowed, pod: runsAs("default")},
		"an account that is missing":       {reason: "it is made, and bears the mark", namespace: ours, pod: runsAs("robot"), made: []string{robot}},
		"an account of ours":               {reason: "it was made for a pod before", namespace: ours, has: map[string]map[string]string{robot: {LabelCreatedBy: Creator, translate.LabelHub: "hub"}}, pod: runsAs("robot")},
		"an account of the owner":          {reason: "it came into our namespace for reasons of his", namespace: ours, has: map[string]map[string]string{robot: nil}, pod: runsAs("robot"), want: ReasonAccountNotAllowed},
		"an account of another hub":        {reason: "rights were given to it for that one", namespace: ours, has: map[string]map[string]string{robot: {LabelCreatedBy: Creator, translate.LabelHub: "other"}}, pod: runsAs("robot"), want: ReasonAccountNotAllowed},
		"an account that is allowed":       {reason: "the owner says so", namespace: ours, has: map[string]map[string]string{robot: allowed}, pod: runsAs("robot")},
		"the owner's, in the owner's":      {reason: "sharing a namespace is not sharing its rights", namespace: allowed, has: map[string]map[string]string{robot: nil}, pod: runsAs("robot"), want: ReasonAccountNotAllowed},
		"an allowed one in the owner's":    {reason: "the owner says so", namespace: allowed, has: map[string]map[string]string{robot: allowed}, pod: runsAs("robot")},
		"a missing one in the owner's":     {reason: "who makes it is the owner, who may not mean it for the hub", namespace: allowed, pod: runsAs("robot"), want: ReasonAccountNotAllowed},
		"a claim of the owner":             {reason: "it came into our namespace for reasons of his", namespace: ours, has: map[string]map[string]string{data: nil}, pod: mounts("data"), want: ReasonClaimNotAllowed},
		"a claim with the mark of a space": {reason: "no claim is made by us, whatever it bears", namespace: ours, has: map[string]map[string]string{data: ours}, pod: mounts("data"), want: ReasonClaimNotAllowed},
		"a claim that is allowed":          {reason: "the owner says so", namespace: allowed, has: map[string]map[string]string{data: allowed}, pod: mounts("data")},
		"a claim that is not there":        {reason: "it may be anybody's when it comes", namespace: ours, pod: mounts("data"), want: ReasonClaimNotAllowed},
		"a second claim":                   {reason: "each is asked for", namespace: ours, has: map[string]map[string]string{data: allowed, "persistentvolumeclaims/more": nil}, pod: mounts("data", "more"), want: ReasonClaimNotAllowed},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			api := &lending{labels: map[string]map[string]string{}}
			maps.Copy(api.labels, tc.has)
			err := api.lent(t, tc.namespace, tc.pod)
			refused, _ := errors.AsType[*RefusedError](err)
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("%s: %v", tc.reason, err)
			case tc.want != "" && (refused == nil || refused.Reason != tc.want || !refused.Retried):
				t.Errorf("%s: got %v, want %s", tc.reason, err, tc.want)
			}
			if diff := cmp.Diff(tc.made, api.made); diff != "" {
				t.Errorf("accounts that were made (-want +got):\n%s", diff)
			}
		})
	}
}

// Copies are written between the first look and the pod.
func TestConsentIsCheckedAgainBeforeTheCreate(t *testing.T) {
	for path, change := range map[string]func(*corev1.PodSpec){
		"serviceaccounts/robot":       runsAs("robot"),
		"persistentvolumeclaims/data": mounts("data"),
	} {
		t.Run(path, func(t *testing.T) {
			api := &lending{labels: map[string]map[string]string{path: allowed}}
			looks := 0
			api.asked = func(method, at string) {
				if method == http.MethodGet && at == path {
					looks++
				}
				if looks == 2 {
					api.labels[path] = nil
				}
			}
			if err := api.lent(t, ours, change); err == nil {
				t.Errorf("the pod has what somebody put in the place of what was allowed, after %d looks", looks)
			}
		})
	}
}
