// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package action

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

func TestTheLedgerIsRemovedAndNothingElse(t *testing.T) {
	named := func(name, ledger string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "agent", Name: name, Labels: map[string]string{labelLedger: ledger}}}
	}
	client := fake.NewClientset(named("entry", ledgerActions), named("another", "of-something-else")).CoreV1().ConfigMaps("agent")
	if err := Remove(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	left, err := client.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(left.Items) != 1 || left.Items[0].Name != "another" {
		t.Errorf("left are %v", left.Items)
	}
}
