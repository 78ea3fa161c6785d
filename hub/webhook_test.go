// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	workv1 "open-cluster-management.io/api/work/v1"
)

func TestTheBundleOfTheWebhooksIsAllThatTheHubWrites(t *testing.T) {
	of := func(bundle string) *admissionregistrationv1.ValidatingWebhookConfiguration {
		path := "/x"
		service := &admissionregistrationv1.ServiceReference{Namespace: "spokelet-system", Name: "spokelet-hub", Path: &path}
		c := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: webhooks}}
		for _, name := range []string{"a.spokelet.io", "b.spokelet.io"} {
			c.Webhooks = append(c.Webhooks, admissionregistrationv1.ValidatingWebhook{
				Name: name, ClientConfig: admissionregistrationv1.WebhookClientConfig{Service: service, CABundle: []byte(bundle)},
			})
		}
		return c
	}
	client := fake.NewClientset(of("old")).AdmissionregistrationV1().ValidatingWebhookConfigurations()
	if err := trustWebhooks(t.Context(), client, []byte("new")); err != nil {
		t.Fatal(err)
	}
	got, err := client.Get(t.Context(), webhooks, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got.ManagedFields = nil
	if diff := cmp.Diff(of("new"), got); diff != "" {
		t.Errorf("registration (-want +got):\n%s", diff)
	}
}

func TestAHubWithoutRegistrationSaysSo(t *testing.T) {
	client := fake.NewClientset().AdmissionregistrationV1().ValidatingWebhookConfigurations()
	if err := trustWebhooks(t.Context(), client, []byte("new")); !apierrors.IsNotFound(err) {
		t.Errorf("got %v, want not found, which publishing tells from a fault", err)
	}
}

func TestTheCacheHoldsNoSecondCopyOfAWork(t *testing.T) {
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
