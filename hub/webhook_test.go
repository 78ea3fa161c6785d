// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/hub/requester"
)

func TestPatchValidatingWebhooksSetsBundleOnly(t *testing.T) {
	of := func(bundle string) *admissionregistrationv1.ValidatingWebhookConfiguration {
		path := "/x"
		service := &admissionregistrationv1.ServiceReference{Namespace: "spokelet-system", Name: "spokelet-hub", Path: &path}
		c := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: validatingWebhooks}}
		for _, name := range []string{"a.spokelet.io", "b.spokelet.io"} {
			c.Webhooks = append(c.Webhooks, admissionregistrationv1.ValidatingWebhook{
				Name: name, ClientConfig: admissionregistrationv1.WebhookClientConfig{Service: service, CABundle: []byte(bundle)},
			})
		}
		return c
	}
	client := fake.NewSimpleClientset(of("old")).AdmissionregistrationV1().ValidatingWebhookConfigurations()
	if err := patchValidatingWebhooks(t.Context(), client, []byte("new")); err != nil {
		t.Fatal(err)
	}
	got, err := client.Get(t.Context(), validatingWebhooks, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got.ManagedFields = nil
	if diff := cmp.Diff(of("new"), got); diff != "" {
		t.Errorf("registration (-want +got):\n%s", diff)
	}
}

func TestPatchMutatingWebhooksSetsBundleOnly(t *testing.T) {
	of := func(bundle string) *admissionregistrationv1.MutatingWebhookConfiguration {
		path := "/x"
		service := &admissionregistrationv1.ServiceReference{Namespace: "spokelet-system", Name: "spokelet-hub", Path: &path}
		return &admissionregistrationv1.MutatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: mutatingWebhooks},
			Webhooks: []admissionregistrationv1.MutatingWebhook{{
				Name: "authors.spokelet.io", ReinvocationPolicy: new(admissionregistrationv1.IfNeededReinvocationPolicy),
				ClientConfig: admissionregistrationv1.WebhookClientConfig{Service: service, CABundle: []byte(bundle)},
			}},
		}
	}
	client := fake.NewSimpleClientset(of("old")).AdmissionregistrationV1().MutatingWebhookConfigurations()
	if err := patchMutatingWebhooks(t.Context(), client, []byte("new")); err != nil {
		t.Fatal(err)
	}
	got, err := client.Get(t.Context(), mutatingWebhooks, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got.ManagedFields = nil
	if diff := cmp.Diff(of("new"), got); diff != "" {
		t.Errorf("registration (-want +got):\n%s", diff)
	}
}

func TestMissingWebhookRegistrationIsLogged(t *testing.T) {
	registrations := fake.NewSimpleClientset().AdmissionregistrationV1()
	for kind, err := range map[string]error{
		"validating": patchValidatingWebhooks(t.Context(), registrations.ValidatingWebhookConfigurations(), []byte("new")),
		"mutating":   patchMutatingWebhooks(t.Context(), registrations.MutatingWebhookConfigurations(), []byte("new")),
	} {
		if !apierrors.IsNotFound(err) {
			t.Errorf("%s: got %v, want not found, which publishing tells from a fault", kind, err)
		}
	}
}

func TestMissingWebhookRegistrationIsNoError(t *testing.T) {
	missing := fmt.Errorf("cannot get: %w", apierrors.NewNotFound(schema.GroupResource{}, mutatingWebhooks))
	cases := map[string]struct {
		reason string
		err    error
		want   string
	}{
		"published": {reason: "all is well"},
		"missing":   {reason: "the chart registers none, as when somebody runs the hub alone", err: missing},
		"a fault":   {reason: "nothing would be asked of this hub", err: errors.New("boom"), want: "mutatingwebhookconfiguration spokelet-authors: boom"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := ""
			if err := (&hub{}).wrapPublishError("mutatingwebhookconfiguration", mutatingWebhooks, tc.err); err != nil {
				got = err.Error()
			}
			if got != tc.want {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

// Without the bundle an API server does not reach the webhook, and nothing is written that
// it is to be asked about.
func TestBundleIsPublishedToNewRegistration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, published := &hub{requesters: &requester.Registration{}}, 0
		h.publishToNewRegistrations(t.Context(), func(context.Context) error {
			if published++; published == 1 {
				return errors.New("boom")
			}
			return nil
		})
		h.requesters.Set("a")
		<-time.After(time.Minute)
		synctest.Wait()
		if published != 2 {
			t.Errorf("published %d times, want once and once more, as it failed", published)
		}
		h.requesters.Set("")
		<-time.After(time.Minute)
		synctest.Wait()
		if published != 2 {
			t.Error("published without a registration")
		}
		h.requesters.Set("b")
		<-time.After(time.Minute)
		synctest.Wait()
		if published != 3 {
			t.Error("the next one is trusted by nobody")
		}
	})
}

func TestStripCopiesRemovesLastApplied(t *testing.T) {
	work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{
		Name: "w", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}},
		Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: "{}", "kept": "x"},
	}}
	got, err := stripCopies(work)
	if err != nil {
		t.Fatal(err)
	}
	want := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Name: "w", Annotations: map[string]string{"kept": "x"}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what is kept (-want +got):\n%s", diff)
	}
}
