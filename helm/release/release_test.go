// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/kube"
	"helm.sh/helm/v4/pkg/storage/driver"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/resource"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"

	"github.com/spokelet/spokelet/agent/helm/message"
	"github.com/spokelet/spokelet/helm/chart"
)

func TestFailureOf(t *testing.T) {
	secrets := schema.GroupResource{Resource: "secrets"}
	wrap := func(err error) error { return fmt.Errorf("release web: %w", errors.Join(errors.New("hook"), err)) }
	for name, tc := range map[string]struct {
		reason string
		err    error
		verb   message.Verb
		end    time.Time
		cause  message.Cause
		status metav1.StatusReason
	}{
		"after the time":      {reason: "what Helm's waits end in is not wrapped by all", err: errors.New("event funnel closed"), end: time.Unix(1, 0), cause: message.Limit},
		"within the time":     {reason: "it has another cause", err: errors.New("event funnel closed"), end: time.Now().Add(time.Hour), cause: message.Refused},
		"unknown":             {reason: "nothing tells", err: errUnknown, cause: message.Unknown},
		"too large":           {reason: "another try ends alike", err: chart.ErrTooLarge, cause: message.Limit},
		"too long":            {reason: "it took the server's time, not the request's", err: chart.ErrTooLong, cause: message.Limit},
		"a server":            {reason: "another try may end otherwise", err: chart.ErrUnavailable, cause: message.Unavailable},
		"no URL":              {reason: "it is the request's", err: chart.ErrURL, cause: message.Invalid},
		"no chart":            {reason: "it is the request's", err: chart.ErrChart, cause: message.Invalid},
		"no values":           {reason: "they are the request's", err: chart.ErrValues, cause: message.Invalid},
		"no request":          {reason: "it is the request's", err: errRequest, cause: message.Invalid},
		"not allowed":         {reason: "the owner refuses", err: chart.ErrNotAllowed, cause: message.Refused},
		"a state":             {reason: "it is the release's", err: errReleaseState, cause: message.Refused},
		"no release":          {reason: "it is the release's", err: driver.ErrReleaseNotFound, cause: message.Refused},
		"the time":            {reason: "it is the request's", err: context.DeadlineExceeded, cause: message.Limit},
		"the time of a look":  {reason: "looking is done again", err: context.DeadlineExceeded, verb: message.Recover, cause: message.Unavailable},
		"forbidden":           {reason: "the API server refuses", err: apierrors.NewForbidden(secrets, "a", nil), cause: message.Refused, status: metav1.StatusReasonForbidden},
		"an API server":       {reason: "another try may end otherwise", err: apierrors.NewInternalError(errors.New("etcd")), cause: message.Unavailable, status: metav1.StatusReasonInternalError},
		"too many requests":   {reason: "another try may end otherwise", err: apierrors.NewTooManyRequests("later", 1), cause: message.Unavailable, status: metav1.StatusReasonTooManyRequests},
		"what nobody foresaw": {reason: "it is final", err: errors.New("boom"), cause: message.Refused},
	} {
		t.Run(name, func(t *testing.T) {
			o := &operation{request: message.Request{Verb: tc.verb, Timeout: time.Minute}, end: tc.end}
			got := o.failureOf(wrap(tc.err))
			if got.Cause != tc.cause || got.Reason != string(tc.status) {
				t.Errorf("got %s %q, want %s %q: %s", got.Cause, got.Reason, tc.cause, tc.status, tc.reason)
			}
			if !strings.Contains(got.Message, tc.err.Error()) {
				t.Errorf("got %q, want it to say %q", got.Message, tc.err)
			}
		})
	}
}

func TestFailureMessageIsBounded(t *testing.T) {
	got := (&operation{}).failureOf(errors.New(strings.Repeat("ä", maxMessage)))
	if len(got.Message) > maxMessage+3 || !strings.HasSuffix(got.Message, "ä...") {
		t.Errorf("a message of %d bytes", len(got.Message))
	}
}

func TestMergeValues(t *testing.T) {
	type m = map[string]any
	for name, tc := range map[string]struct {
		reason            string
		under, over, want m
	}{
		"none":              {reason: "nothing is nothing", under: m{}, over: m{}, want: m{}},
		"another key":       {reason: "both count", under: m{"a": 1}, over: m{"b": 2}, want: m{"a": 1, "b": 2}},
		"the same key":      {reason: "the request wins", under: m{"a": 1}, over: m{"a": 2}, want: m{"a": 2}},
		"a map over a map":  {reason: "maps are merged", under: m{"a": m{"b": 1, "c": 1}}, over: m{"a": m{"b": 2}}, want: m{"a": m{"b": 2, "c": 1}}},
		"a map over a text": {reason: "the request wins", under: m{"a": "b"}, over: m{"a": m{"b": 2}}, want: m{"a": m{"b": 2}}},
		"a text over a map": {reason: "the request wins", under: m{"a": m{"b": 2}}, over: m{"a": "b"}, want: m{"a": "b"}},
		"a list":            {reason: "lists are not merged", under: m{"a": []any{1, 2}}, over: m{"a": []any{3}}, want: m{"a": []any{3}}},
		"null":              {reason: "it removes a default of the chart", under: m{"a": 1}, over: m{"a": nil}, want: m{"a": nil}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, mergeValues(tc.under, tc.over)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestFormatNames(t *testing.T) {
	object := func(name string) *resource.Info {
		return &resource.Info{Name: name, Mapping: &meta.RESTMapping{GroupVersionKind: schema.GroupVersionKind{Kind: "Pod"}}}
	}
	for want, resources := range map[string]kube.ResourceList{
		"nothing":                        nil,
		"Pod a":                          {object("a")},
		"Pod a, object b":                {object("a"), {Name: "b"}},
		"Pod a, Pod b, Pod c":            {object("a"), object("b"), object("c")},
		"Pod a, Pod b, Pod c and 2 more": {object("a"), object("b"), object("c"), object("d"), object("e")},
	} {
		if got := formatNames(resources); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestFindNotServed(t *testing.T) {
	apps, batch, core := schema.GroupVersion{Group: "apps", Version: "v1"}, schema.GroupVersion{Group: "batch", Version: "v1"}, schema.GroupVersion{Version: "v1"}
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{apps, batch, core})
	for _, kind := range []schema.GroupVersionKind{apps.WithKind("Deployment"), batch.WithKind("CronJob"), core.WithKind("Service")} {
		mapper.Add(kind, meta.RESTScopeNamespace)
	}
	for name, tc := range map[string]struct {
		reason, manifest string
		want             []string
	}{
		"served":               {reason: "there is nothing to say", manifest: "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}"},
		"moved":                {reason: "another group serves the kind", manifest: "apiVersion: extensions/v1beta1\nkind: Deployment\nmetadata: {name: a}", want: []string{"Deployment a (extensions/v1beta1: use apps/v1)"}},
		"grown up":             {reason: "another version serves the kind", manifest: "apiVersion: batch/v1beta1\nkind: CronJob\nmetadata: {name: a}", want: []string{"CronJob a (batch/v1beta1: use batch/v1)"}},
		"somebody else's kind": {reason: "Knative's Service is not that of Kubernetes", manifest: "apiVersion: serving.knative.dev/v1\nkind: Service\nmetadata: {name: a}", want: []string{"Service a (serving.knative.dev/v1: no version of the kind is served)"}},
		"several": {
			reason: "each is named, and what is no object is none", manifest: "# a comment\n---\nkind: [\n---\napiVersion: a/v1\nkind: B\nmetadata: {name: c, labels: {d: 1}}\n---\napiVersion: a/v1\nkind: E\nmetadata: {name: f}\n",
			want: []string{"B c (a/v1: no version of the kind is served)", "E f (a/v1: no version of the kind is served)"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, findNotServed(mapper, []byte(tc.manifest))); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
	if got, want := joinLimited(slices.Repeat([]string{"a"}, maxNotServed+2)), strings.Repeat("a, ", maxNotServed-1)+"a and 2 more"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestResolveNamespace(t *testing.T) {
	record := func(namespace, revision string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "sh.helm.release.v1.web.v" + revision, Labels: map[string]string{"owner": "helm", "name": "web"}}}
	}
	for name, tc := range map[string]struct {
		reason  string
		request message.Request
		there   []*corev1.Secret
		want    string
		err     error
	}{
		"a namespace":      {reason: "it is named", request: message.Request{Verb: message.Upgrade, Namespace: "a"}, want: "a"},
		"an install":       {reason: "there is none yet", request: message.Request{Verb: message.Install}, there: []*corev1.Secret{record("a", "1")}, want: "default"},
		"the look for one": {reason: "it was made there", request: message.Request{Verb: message.Recover, OriginalVerb: message.Install}, there: []*corev1.Secret{record("a", "1")}, want: "default"},
		"the only one":     {reason: "it is meant", request: message.Request{Verb: message.Upgrade}, there: []*corev1.Secret{record("a", "1"), record("a", "2")}, want: "a"},
		"none":             {reason: "it is said to be missing there", request: message.Request{Verb: message.Uninstall}, want: "default"},
		"two":              {reason: "either may be meant", request: message.Request{Verb: message.Uninstall}, there: []*corev1.Secret{record("a", "1"), record("b", "1")}, err: errRequest},
	} {
		t.Run(name, func(t *testing.T) {
			tc.request.Name = "web"
			client := fake.NewSimpleClientset()
			for _, secret := range tc.there {
				if err := client.Tracker().Add(secret); err != nil {
					t.Fatal(err)
				}
			}
			o := &operation{request: tc.request, kube: client}
			if err := o.resolveNamespace(t.Context()); !errors.Is(err, tc.err) {
				t.Fatalf("got %v, want %v: %s", err, tc.err, tc.reason)
			}
			if o.request.Namespace != tc.want {
				t.Errorf("got %q, want %q: %s", o.request.Namespace, tc.want, tc.reason)
			}
		})
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestRunReturnsWhenAPIServerHangs(t *testing.T) {
	for verb, tc := range map[message.Verb]struct {
		reason string
		took   time.Duration
		cause  message.Cause
	}{
		message.Uninstall: {reason: "its time is over", took: time.Second + shutdownTime, cause: message.Limit},
		message.Recover:   {reason: "it has time of its own, and is tried again", took: recoverTimeout + shutdownTime, cause: message.Unavailable},
	} {
		t.Run(string(verb), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hung := make(chan struct{})
				config := &rest.Config{Host: "http://cluster", QPS: -1, Transport: roundTripper(func(*http.Request) (*http.Response, error) {
					<-hung
					return nil, errors.New("the end")
				})}
				started := time.Now()
				answer := Run(t.Context(), message.Request{Verb: verb, OriginalVerb: message.Install, Name: "web", Namespace: "a", Timeout: time.Second}, config, func(string) {})
				if took := time.Since(started); took != tc.took {
					t.Errorf("it took %s, want %s: %s", took, tc.took, tc.reason)
				}
				if answer.Failure == nil || answer.Failure.Cause != tc.cause || !strings.Contains(answer.Failure.Message, "release web") {
					t.Errorf("got %+v", answer.Failure)
				}
				close(hung)
				synctest.Wait()
			})
		})
	}
}
