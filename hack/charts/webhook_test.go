// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"slices"
	"strings"
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
	type asking struct {
		Name   string
		Policy admissionregistrationv1.FailurePolicyType
	}
	ours := asking{"manifestworks.spokelet.io", admissionregistrationv1.Fail}
	theirs := asking{"adopted.manifestworks.spokelet.io", admissionregistrationv1.Ignore}
	webhooks := registration(t)
	cases := map[string]struct {
		reason string
		labels labels.Set
		want   []asking
	}{
		"one that the hub made": {
			reason: "without the hub nothing is stored unjudged",
			labels: labels.Set{"spokelet.io/created-by": "spokelet-hub", "open-cluster-management.io/cluster-name": "a"}, want: []asking{ours},
		},
		"one that another controller made": {
			reason: "its cluster may have moved, and others have not", labels: labels.Set{"open-cluster-management.io/cluster-name": "a"}, want: []asking{theirs},
		},
		"one of no cluster": {reason: "works lie there in vain", labels: labels.Set{}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got []asking
			for _, w := range webhooks {
				selector, err := metav1.LabelSelectorAsSelector(w.NamespaceSelector)
				if err != nil {
					t.Fatal(err)
				}
				if selector.Matches(tc.labels) {
					got = append(got, asking{w.Name, *w.FailurePolicy})
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

// asked is what a rule has the API server ask about.
func asked(rules []admissionregistrationv1.RuleWithOperations) []string {
	var all []string
	for _, rule := range rules {
		for _, resource := range rule.Resources {
			for _, operation := range rule.Operations {
				all = append(all, string(operation)+" "+resource+"."+rule.APIGroups[0]+" "+strings.Join(rule.APIVersions, ","))
			}
		}
	}
	slices.Sort(all)
	return all
}

// A view or an action is done as its author: nothing of it is stored unless it is recorded
// who that is.
func TestAuthorsOfAllViewsAndActionsAreRecorded(t *testing.T) {
	var c admissionregistrationv1.MutatingWebhookConfiguration
	find(t, "spokelet-hub", "MutatingWebhookConfiguration", &c)
	if c.Name != "spokelet-authors" || len(c.Webhooks) != 1 {
		t.Fatalf("%q registers %d webhooks, want spokelet-authors with one", c.Name, len(c.Webhooks))
	}
	w := c.Webhooks[0]
	want := []string{
		"CREATE managedclusteractions.action.open-cluster-management.io v1beta1", "CREATE managedclusterviews.view.open-cluster-management.io v1beta1",
		"CREATE resourceviews.mcm.ibm.com v1alpha1,v1beta1", "CREATE works.mcm.ibm.com v1alpha1,v1beta1", "CREATE worksets.mcm.ibm.com v1alpha1,v1beta1",
		"UPDATE managedclusteractions.action.open-cluster-management.io v1beta1", "UPDATE managedclusterviews.view.open-cluster-management.io v1beta1",
		"UPDATE resourceviews.mcm.ibm.com v1alpha1,v1beta1", "UPDATE works.mcm.ibm.com v1alpha1,v1beta1", "UPDATE worksets.mcm.ibm.com v1alpha1,v1beta1",
	}
	if diff := cmp.Diff(want, asked(w.Rules)); diff != "" {
		t.Errorf("what is asked about (-want +got):\n%s", diff)
	}
	policy, ok := policies(t, "spokelet-hub")["spokelet-authors"]
	if !ok {
		t.Fatal("there is no policy beside the webhook")
	}
	var constrained []admissionregistrationv1.RuleWithOperations
	for _, rule := range policy.Spec.MatchConstraints.ResourceRules {
		constrained = append(constrained, rule.RuleWithOperations)
	}
	updates := slices.DeleteFunc(asked(w.Rules), func(what string) bool { return strings.HasPrefix(what, "CREATE ") })
	if diff := cmp.Diff(updates, asked(constrained)); diff != "" {
		t.Errorf("what the policy is about (-want +got):\n%s", diff)
	}
	if w.NamespaceSelector != nil || w.ObjectSelector != nil || len(w.MatchConditions) != 1 {
		t.Errorf("some are stored with the author that a user writes: %+v", w)
	}
	w.Rules, w.MatchConditions = nil, nil // the latter is tried against an API server
	wanted := admissionregistrationv1.MutatingWebhook{
		Name: "authors.spokelet.io",
		// Without a CA bundle, or an upgrade would take the hub's away.
		ClientConfig: admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{
			Namespace: namespace, Name: "spokelet-hub", Port: new(int32(9443)), Path: new("/mutate-authors"),
		}},
		FailurePolicy: new(admissionregistrationv1.Fail),
		MatchPolicy:   new(admissionregistrationv1.Equivalent),
		// What is changed after this webhook may be the spec.
		ReinvocationPolicy:      new(admissionregistrationv1.IfNeededReinvocationPolicy),
		SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
		TimeoutSeconds:          new(int32(10)),
		AdmissionReviewVersions: []string{"v1"},
	}
	if diff := cmp.Diff(wanted, w); diff != "" {
		t.Errorf("webhook (-want +got):\n%s", diff)
	}
}

// An author counts as long as the registration is there that recorded it.
func TestTheHubFollowsTheRegistrationOfTheAuthorsWebhook(t *testing.T) {
	var got []rbacv1.PolicyRule
	for _, g := range install(t, "spokelet-hub") {
		if slices.Contains(g.rule.Resources, "mutatingwebhookconfigurations") {
			got = append(got, g.rule)
		}
	}
	want := []rbacv1.PolicyRule{{
		APIGroups: []string{"admissionregistration.k8s.io"}, Resources: []string{"mutatingwebhookconfigurations"},
		ResourceNames: []string{"spokelet-authors"}, Verbs: []string{"get", "list", "watch", "patch"},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rights on registrations (-want +got):\n%s", diff)
	}
}

func TestAdmissionCanBeTurnedOff(t *testing.T) {
	if got := registration(t, "admission.enabled=false"); got != nil {
		t.Errorf("registered although it is off: %v", got)
	}
	if find(t, "spokelet-hub", "MutatingWebhookConfiguration", &admissionregistrationv1.MutatingWebhookConfiguration{}, "admission.enabled=false") {
		t.Error("authors are asked about although nobody would answer")
	}
	if _, ok := policies(t, "spokelet-hub", "admission.enabled=false")["spokelet-authors"]; ok {
		t.Error("users are held to forms of specs although no author is recorded")
	}
	for _, g := range install(t, "spokelet-hub", "admission.enabled=false") {
		if slices.Contains(g.rule.Resources, "validatingwebhookconfigurations") || slices.Contains(g.rule.Resources, "mutatingwebhookconfigurations") {
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
