// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// registration returns the webhooks that the hub's chart registers, nil without any.
func registration(t *testing.T, values ...string) []admissionregistrationv1.ValidatingWebhook {
	t.Helper()
	var c admissionregistrationv1.ValidatingWebhookConfiguration
	find(t, "spokelet-hub", "ValidatingWebhookConfiguration", &c, values...)
	return c.Webhooks
}

// An outage of the hub must not stop works of clusters that are not the hub's.
func TestEachNamespaceHasTheWebhookOfItsOwner(t *testing.T) {
	type asked struct {
		Name   string
		Policy admissionregistrationv1.FailurePolicyType
	}
	ours := asked{"manifestworks.spokelet.io", admissionregistrationv1.Fail}
	theirs := asked{"adopted.manifestworks.spokelet.io", admissionregistrationv1.Ignore}
	webhooks := registration(t)
	cases := map[string]struct {
		reason string
		labels labels.Set
		want   []asked
	}{
		"one that the hub made": {
			reason: "without the hub nothing is stored unjudged",
			labels: labels.Set{"spokelet.io/created-by": "spokelet-hub", "open-cluster-management.io/cluster-name": "a"}, want: []asked{ours},
		},
		"one that another controller made": {
			reason: "its cluster may have moved, and others have not", labels: labels.Set{"open-cluster-management.io/cluster-name": "a"}, want: []asked{theirs},
		},
		"one of no cluster": {reason: "works lie there in vain", labels: labels.Set{}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got []asked
			for _, w := range webhooks {
				selector, err := metav1.LabelSelectorAsSelector(w.NamespaceSelector)
				if err != nil {
					t.Fatal(err)
				}
				if selector.Matches(tc.labels) {
					got = append(got, asked{w.Name, *w.FailurePolicy})
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestTheWebhookLeavesToTheHubWhatIsItsToWrite(t *testing.T) {
	webhooks := registration(t)
	if len(webhooks) == 0 {
		t.Fatal("nothing is registered")
	}
	for _, w := range webhooks {
		if w.ClientConfig.CABundle != nil {
			t.Errorf("%s: the chart declares a CA bundle: an upgrade would take the hub's away", w.Name)
		}
		if service := w.ClientConfig.Service; service == nil || service.Namespace != namespace || service.Name != "spokelet-hub" || *service.Port != 9443 {
			t.Errorf("%s: asks %+v, want the hub's Service", w.Name, service)
		}
		if *w.SideEffects != admissionregistrationv1.SideEffectClassNone {
			t.Errorf("%s: has side effects: dry runs would be refused", w.Name)
		}
	}
}

// Works of multicluster.x-k8s.io name no executor, so that there is nothing to ask about
// them unless the default account is asked for.
func TestWorksWithoutAnExecutorAreValidatedWhenConfigured(t *testing.T) {
	for value, want := range map[string][]string{
		"false": {"work.open-cluster-management.io/v1/manifestworks"},
		"true":  {"work.open-cluster-management.io/v1/manifestworks", "multicluster.x-k8s.io/v1alpha1/works"},
	} {
		webhooks := registration(t, "admission.nilExecutorValidating="+value)
		if len(webhooks) != 2 {
			t.Fatalf("%d webhooks are registered, want 2", len(webhooks))
		}
		for _, w := range webhooks {
			var got []string
			for _, rule := range w.Rules {
				got = append(got, rule.APIGroups[0]+"/"+rule.APIVersions[0]+"/"+rule.Resources[0])
				if diff := cmp.Diff([]admissionregistrationv1.OperationType{"CREATE", "UPDATE"}, rule.Operations); diff != "" {
					t.Errorf("%s: operations (-want +got):\n%s", w.Name, diff)
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s with nilExecutorValidating=%s (-want +got):\n%s", w.Name, value, diff)
			}
		}
	}
}

func TestAdmissionCanBeTurnedOff(t *testing.T) {
	if got := registration(t, "admission.enabled=false"); got != nil {
		t.Errorf("registered although it is off: %v", got)
	}
	for _, g := range install(t, "spokelet-hub", "admission.enabled=false") {
		if slices.Contains(g.rule.Resources, "validatingwebhookconfigurations") {
			t.Errorf("%s may still %v webhooks", g.account, g.rule.Verbs)
		}
	}
}

func TestNoShippedRoleMayExecuteAsAnother(t *testing.T) {
	found := false
	for _, object := range render(t, "spokelet-hub") {
		if object.GetLabels()["rbac.authorization.k8s.io/aggregate-to-edit"] != "true" {
			continue
		}
		var role rbacv1.ClusterRole
		convert(t, object, &role)
		for _, rule := range role.Rules {
			if !slices.Contains(rule.Resources, "manifestworks") {
				continue
			}
			found = true
			if slices.Contains(rule.Verbs, "execute-as") || slices.Contains(rule.Verbs, "*") {
				t.Errorf("%s has %v", object.GetName(), rule.Verbs)
			}
		}
	}
	if !found {
		t.Error("editors may not write works")
	}
}
