// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/spokelet/spokelet/workers/api"
	accountv1alpha1 "github.com/spokelet/spokelet/workers/api/account/v1alpha1"
)

func TestReleasedHostRequeuesWaitingAccounts(t *testing.T) {
	account := func(namespace, host string, conditions ...conditionState) *accountv1alpha1.WorkerAccount {
		a := &accountv1alpha1.WorkerAccount{}
		a.Namespace, a.Name, a.Status.Host = namespace, namespace, host
		for _, v := range conditions {
			setCondition(&a.Status.Conditions, api.ConditionRouted, 0, v)
		}
		return a
	}
	before, after := account("a", "shop.example"), account("a", "a.example")
	w := newWorld(t, after, account("waits", "", conditionFalse(api.ReasonHostTaken, "")), account("same", "a.example"), account("other", "other.example"),
		account("refused", "", conditionFalse(api.ReasonHostNotAllowed, "")))
	s := setup{base: w.p.base}
	want := []reconcile.Request{
		{NamespacedName: types.NamespacedName{Name: "a"}}, {NamespacedName: types.NamespacedName{Name: "same"}}, {NamespacedName: types.NamespacedName{Name: "waits"}},
	}
	if diff := cmp.Diff(want, s.accountsWaitingForHost(t.Context(), after)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !hostChangedPredicate().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}) || hostChangedPredicate().Update(event.UpdateEvent{ObjectOld: after, ObjectNew: after}) {
		t.Error("a change of the host is not what is looked at")
	}
	if !hostChangedPredicate().Delete(event.DeleteEvent{Object: after}) {
		t.Error("an account that is deleted does not let its host go")
	}
}
