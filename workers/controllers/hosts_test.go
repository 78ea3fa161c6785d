// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/workers/api"
	accountv1alpha1 "github.com/spokelet/spokelet/workers/api/account/v1alpha1"
	"github.com/spokelet/spokelet/workers/placement"
)

// routing is a world whose operator makes Ingresses, with the namespaces of two accounts.
func routing(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, namespaceOf("team-b", "5678"))
	w.place = placement.Options{Route: placement.RouteIngress, HostSuffix: "workers.example"}
	w.restart()
	return w
}

// give gives a namespace hosts, as an administrator does.
func (w *world) give(namespace, hosts string) {
	w.t.Helper()
	ns := &corev1.Namespace{}
	if err := w.client.Get(w.t.Context(), types.NamespacedName{Name: namespace}, ns); err != nil {
		w.t.Fatal(err)
	}
	ns.Annotations = map[string]string{api.AnnotationHosts: hosts}
	if err := w.client.Update(w.t.Context(), ns); err != nil {
		w.t.Fatal(err)
	}
}

// name has the account of a namespace name a host.
func (w *world) name(namespace, account, host string) {
	w.t.Helper()
	a := w.accountOf(namespace, account)
	a.Spec.Host = host
	a.Generation++
	if err := w.client.Update(w.t.Context(), a); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) accountOf(namespace, account string) *accountv1alpha1.WorkerAccount {
	w.t.Helper()
	a := &accountv1alpha1.WorkerAccount{}
	if err := w.client.Get(w.t.Context(), types.NamespacedName{Namespace: namespace, Name: account}, a); err != nil {
		w.t.Fatal(err)
	}
	return a
}

// routed is what a WorkerAccount is told of its host.
func (w *world) routed(namespace, account string) string {
	w.t.Helper()
	a := w.accountOf(namespace, account)
	c := meta.FindStatusCondition(a.Status.Conditions, api.ConditionRouted)
	if c == nil {
		return a.Status.Host
	}
	if (c.Status == metav1.ConditionTrue) != (a.Status.Host != "") {
		w.t.Errorf("%s: host %q and condition %+v contradict each other", account, a.Status.Host, c)
	}
	return c.Reason + " " + a.Status.Host
}

// reached are the hosts of all Ingresses, and whose accounts they lead to.
func (w *world) reached() map[string]string {
	w.t.Helper()
	reached := map[string]string{}
	for _, o := range w.list(&workv1.ManifestWorkList{}) {
		for _, m := range o.(*workv1.ManifestWork).Spec.Workload.Manifests {
			var ingress networkingv1.Ingress
			if err := json.Unmarshal(m.Raw, &ingress); err != nil {
				w.t.Fatal(err)
			}
			if ingress.Kind != "Ingress" {
				continue
			}
			for _, rule := range ingress.Spec.Rules {
				account := o.GetLabels()[api.LabelAccount]
				if other, taken := reached[rule.Host]; taken && other != account {
					w.t.Errorf("host %q leads to accounts %s and %s", rule.Host, other, account)
				}
				reached[rule.Host] = account
			}
		}
	}
	return reached
}

// shows checks what two accounts are told, and which hosts lead to whom.
func (w *world) shows(what, first, second string, reached map[string]string) {
	w.t.Helper()
	w.reconcileAll()
	w.runJob()
	if got := []string{w.routed(team, "1234"), w.routed("team-b", "5678")}; !slices.Equal(got, []string{first, second}) {
		w.t.Errorf("%s: accounts are told %q, want %q and %q", what, got, first, second)
	}
	if diff := cmp.Diff(reached, w.reached()); diff != "" {
		w.t.Errorf("%s: hosts of routes (-want +got):\n%s", what, diff)
	}
}

func TestHostWithoutAnnotationIsNotAssigned(t *testing.T) {
	w := routing(t)
	w.tenant(team, "1234", "shop.example") // of an application, which no hub knows
	w.tenant("team-b", "5678", "")
	w.shows("a host of an application", "HostNotAllowed ", "Routed 5678.workers.example", map[string]string{"5678.workers.example": "5678"})
	// It is served all the same, by its Service.
	if placed := w.placed()["spoke1/workers-1234"]; placed != team {
		t.Errorf("the work of account 1234 is of %q", placed)
	}
	w.give(team, "other.example, shop.example")
	w.shows("a host that is given", "Routed shop.example", "Routed 5678.workers.example",
		map[string]string{"shop.example": "1234", "5678.workers.example": "5678"})
	w.give(team, "other.example")
	w.shows("a host that is withdrawn", "HostNotAllowed ", "Routed 5678.workers.example", map[string]string{"5678.workers.example": "5678"})
	w.give(team, "shop.example,")
	w.shows("an annotation that cannot be read", "Invalid ", "Routed 5678.workers.example", map[string]string{"5678.workers.example": "5678"})
}

func TestHostStaysWithItsAccount(t *testing.T) {
	w := routing(t)
	w.give(team, "*.shop.example")
	w.give("team-b", "a.shop.example")
	w.tenant(team, "1234", "")
	w.tenant("team-b", "5678", "a.shop.example")
	theirs := map[string]string{"1234.workers.example": "1234", "a.shop.example": "5678"}
	w.shows("one names it", "Routed 1234.workers.example", "Routed a.shop.example", theirs)

	delete(theirs, "1234.workers.example")
	w.name(team, "1234", "a.shop.example")
	w.shows("an older account names it later", "HostTaken ", "Routed a.shop.example", theirs)
	c := meta.FindStatusCondition(w.accountOf(team, "1234").Status.Conditions, api.ConditionRouted)
	if !strings.Contains(c.Message, "a.shop.example") || strings.Contains(c.Message, "team-b") || strings.Contains(c.Message, "5678") {
		t.Errorf("it is told %q: that is to name the host, and not whose it is", c.Message)
	}
	w.restart()
	w.shows("the operator starts again", "HostTaken ", "Routed a.shop.example", theirs)
	for _, spelling := range []string{"A.shop.example", "a.shop.example.", "a.Shop.Example"} {
		w.name(team, "1234", spelling)
		w.shows("another spelling, "+spelling, "Invalid ", "Routed a.shop.example", theirs)
	}

	w.name(team, "1234", "a.shop.example")
	w.name("team-b", "5678", "")
	w.shows("the account lets it go", "Routed a.shop.example", "Routed 5678.workers.example",
		map[string]string{"a.shop.example": "1234", "5678.workers.example": "5678"})
	w.name("team-b", "5678", "a.shop.example")
	w.remove(w.accountOf(team, "1234"))
	w.reconcileAll()
	w.runJob()
	if diff := cmp.Diff(map[string]string{"a.shop.example": "5678"}, w.reached()); diff != "" {
		t.Errorf("after the account is gone (-want +got):\n%s", diff)
	}
}

func TestOlderAccountGetsContestedHost(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			w := routing(t)
			w.order = rand.New(rand.NewPCG(seed, 0))
			w.give(team, "shop.example")
			w.give("team-b", "shop.example")
			w.tenant(team, "1234", "shop.example")
			w.tenant("team-b", "5678", "shop.example")
			w.shows("both name it", "Routed shop.example", "HostTaken ", map[string]string{"shop.example": "1234"})
		})
	}
}

func TestOwnNameOfAccountIsReserved(t *testing.T) {
	w := routing(t)
	w.tenant(team, "1234", "5678.workers.example") // before account 5678 is there
	w.give(team, "5678.workers.example, *.workers.example")
	w.tenant("team-b", "5678", "")
	w.shows("another account names it first, and was even given it", "HostNotAllowed ", "Routed 5678.workers.example",
		map[string]string{"5678.workers.example": "5678"})
	w.name(team, "1234", "1234.workers.example")
	w.shows("an account names its own", "Routed 1234.workers.example", "Routed 5678.workers.example",
		map[string]string{"1234.workers.example": "1234", "5678.workers.example": "5678"})
}

// The name of a WorkerAccount is its author's to choose, the account of a namespace is not.
func TestWorkerAccountsWithSameNameGetDifferentHosts(t *testing.T) {
	w := routing(t)
	for _, namespace := range []string{team, "team-b"} {
		w.create(&accountv1alpha1.WorkerAccount{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "1234"}, Spec: accountv1alpha1.WorkerAccountSpec{WorkerBundleName: "bundle"},
		})
	}
	w.reconcileAll()
	if first, second := w.routed(team, "1234"), w.routed("team-b", "1234"); first != "Routed 1234.workers.example" || second != "Routed 5678.workers.example" {
		t.Errorf("they have %q and %q", first, second)
	}
}

func TestSecondWorkerAccountGetsNoHost(t *testing.T) {
	w := routing(t)
	w.tenant(team, "1234", "")
	w.tenant("team-b", "5678", "")
	w.reconcileAll()
	older := &accountv1alpha1.WorkerAccount{
		ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: "0000", CreationTimestamp: metav1.Unix(1, 0)},
		Spec:       accountv1alpha1.WorkerAccountSpec{WorkerBundleName: "other"},
	}
	w.create(older)
	w.reconcileAll()
	if got := w.routed(team, "0000"); got != "Routed 1234.workers.example" {
		t.Errorf("the older one has %q", got)
	}
	if got := w.routed(team, "1234"); got != "" {
		t.Errorf("the one that is not served has %q", got)
	}
}

func TestWithoutRoutesNoHostIsAssigned(t *testing.T) {
	w := routing(t)
	w.give(team, "shop.example")
	w.tenant(team, "1234", "shop.example")
	w.tenant("team-b", "5678", "")
	w.shows("with routes", "Routed shop.example", "Routed 5678.workers.example", map[string]string{"shop.example": "1234", "5678.workers.example": "5678"})
	w.place = placement.Options{}
	w.restart()
	w.shows("without", "", "", map[string]string{})
	w.place = placement.Options{Route: placement.RouteIngress}
	w.restart()
	w.shows("without own names", "Routed shop.example", "NoHost ", map[string]string{"shop.example": "1234"})
}
