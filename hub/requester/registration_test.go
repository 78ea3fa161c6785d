// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package requester

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

const registered = "spokelet-authors"

// newConfiguration is one whose webhooks have failure policies.
func newConfiguration(uid types.UID, policies ...*admissionregistrationv1.FailurePolicyType) *admissionregistrationv1.MutatingWebhookConfiguration {
	c := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: registered, UID: uid}}
	for _, policy := range policies {
		c.Webhooks = append(c.Webhooks, admissionregistrationv1.MutatingWebhook{Name: "authors.spokelet.io", FailurePolicy: policy})
	}
	return c
}

func TestSubscribersAreCalledOnChange(t *testing.T) {
	var r Registration
	if r.UID() != "" {
		t.Errorf("before anything is known it is %q", r.UID())
	}
	var got []string
	r.Subscribe(func() { got = append(got, r.UID()) })
	for _, uid := range []string{"a", "a", "", "b"} {
		r.Set(uid)
	}
	if diff := cmp.Diff([]string{"a", "", "b"}, got); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
}

func TestFailOpenWebhookIsNotARegistration(t *testing.T) {
	fail, ignore := new(admissionregistrationv1.Fail), new(admissionregistrationv1.Ignore)
	cases := map[string]struct {
		reason string
		is     *admissionregistrationv1.MutatingWebhookConfiguration
		want   string
	}{
		"one that fails closed": {reason: "as the chart has it", is: newConfiguration("a", fail), want: "a"},
		"one that fails open":   {reason: "while it fails, whoever writes says who asks", is: newConfiguration("a", ignore)},
		"one of two":            {reason: "the hub cannot tell which is asked about what", is: newConfiguration("a", fail, ignore)},
		"no policy":             {reason: "what it means is not ours to guess", is: newConfiguration("a", nil)},
		"no webhooks":           {reason: "nothing is asked", is: newConfiguration("a")},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var r Registration
			r.Set("before")
			f := NewRegistrationWatcher(fake.NewSimpleClientset(tc.is), registered, &r, logr.Discard())
			if err := f.Read(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := r.UID(); got != tc.want {
				t.Errorf("%s: %q is in force, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

func TestReadFailsOnlyOnErrorsOtherThanNotFound(t *testing.T) {
	var r Registration
	r.Set("before")
	client := fake.NewSimpleClientset()
	f := NewRegistrationWatcher(client, registered, &r, logr.Discard())
	if err := f.Read(t.Context()); err != nil || r.UID() != "" {
		t.Errorf("missing: %v, %q is in force", err, r.UID())
	}
	r.Set("before")
	client.PrependReactor("get", "mutatingwebhookconfigurations", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewServiceUnavailable("boom")
	})
	if err := f.Read(t.Context()); !apierrors.IsServiceUnavailable(errors.Unwrap(err)) || r.UID() != "before" {
		t.Errorf("unreadable: %v, %q is in force", err, r.UID())
	}
}

// startWatcher is a Follower that runs, until the test ends.
func startWatcher(t *testing.T, client *fake.Clientset, r *Registration) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := NewRegistrationWatcher(client, registered, r, logr.Discard()).Start(ctx); err != nil {
			t.Errorf("it ended: %v", err)
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

func waitForUID(t *testing.T, changes <-chan string, reason, want string) {
	t.Helper()
	select {
	case got := <-changes:
		if got != want {
			t.Fatalf("%s: %q is in force, want %q", reason, got, want)
		}
	case <-time.After(10 * time.Second):
		t.Fatalf("%s: nothing changes", reason)
	}
}

func TestRegistrationWatcherTracksChanges(t *testing.T) {
	fail, ignore := new(admissionregistrationv1.Fail), new(admissionregistrationv1.Ignore)
	client := fake.NewSimpleClientset(newConfiguration("a", fail))
	selected := make(chan string, 1)
	client.PrependWatchReactor("mutatingwebhookconfigurations", func(action clienttesting.Action) (bool, watch.Interface, error) {
		if w, ok := action.(clienttesting.WatchActionImpl); ok {
			select {
			case selected <- w.ListOptions.FieldSelector:
			default:
			}
		}
		return false, nil, nil
	})
	var r Registration
	changes := make(chan string, 10)
	r.Subscribe(func() { changes <- r.UID() })
	startWatcher(t, client, &r)
	waitForUID(t, changes, "it is there", "a")
	if got := <-selected; got != "metadata.name="+registered {
		t.Errorf("watched is %q: the hub has a right to one name", got)
	}
	api := client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	if _, err := api.Update(t.Context(), newConfiguration("a", ignore), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	waitForUID(t, changes, "it lets writes pass", "")
	if _, err := api.Update(t.Context(), newConfiguration("a", fail), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	waitForUID(t, changes, "it does so no more", "a")
	if err := api.Delete(t.Context(), registered, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waitForUID(t, changes, "it is deleted", "")
	if _, err := api.Create(t.Context(), newConfiguration("b", fail), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	waitForUID(t, changes, "it is made anew", "b")
}

// Between the first look and the watch it may be deleted, of which no watch tells.
func TestRegistrationDeletedBeforeWatchIsNone(t *testing.T) {
	var r Registration
	r.Set("a")
	changes := make(chan string, 10)
	r.Subscribe(func() { changes <- r.UID() })
	startWatcher(t, fake.NewSimpleClientset(), &r)
	waitForUID(t, changes, "it is gone", "")
}
