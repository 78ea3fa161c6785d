// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// here selects what is in the test's namespace.
func (c *testCluster) here() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: c.namespace}}
}

func configMapRule() admissionv1.RuleWithOperations {
	return admissionv1.RuleWithOperations{
		Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
		Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
	}
}

// forbid makes a policy that denies ConfigMaps with the key "denied".
func (c *testCluster) forbid() (lift func()) {
	c.t.Helper()
	admission := c.kube.AdmissionregistrationV1()
	name := c.name("policy")
	policy := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{
				NamespaceSelector: c.here(),
				ResourceRules:     []admissionv1.NamedRuleWithOperations{{RuleWithOperations: configMapRule()}},
			},
			Validations: []admissionv1.Validation{{Expression: "!('denied' in object.?data.orValue({}))", Message: "key denied is not wanted here"}},
		},
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		},
	}
	if _, err := admission.ValidatingAdmissionPolicies().Create(c.t.Context(), policy, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
	if _, err := admission.ValidatingAdmissionPolicyBindings().Create(c.t.Context(), binding, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
	lift = func() {
		_ = admission.ValidatingAdmissionPolicyBindings().Delete(contextOf(c.t), name, metav1.DeleteOptions{})
		_ = admission.ValidatingAdmissionPolicies().Delete(contextOf(c.t), name, metav1.DeleteOptions{})
	}
	c.t.Cleanup(lift)
	return lift
}

// breakWebhook registers a webhook for ConfigMaps at which nobody answers.
func (c *testCluster) breakWebhook() (lift func()) {
	c.t.Helper()
	hooks := c.kube.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	name := c.name("hook")
	hook := &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name:                    "gone.example.com",
			ClientConfig:            admissionv1.WebhookClientConfig{URL: new("https://" + deadAddress + "/")},
			Rules:                   []admissionv1.RuleWithOperations{configMapRule()},
			NamespaceSelector:       c.here(),
			FailurePolicy:           new(admissionv1.Fail),
			SideEffects:             new(admissionv1.SideEffectClassNone),
			AdmissionReviewVersions: []string{"v1"},
			TimeoutSeconds:          new(int32(2)),
		}},
	}
	if _, err := hooks.Create(c.t.Context(), hook, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
	lift = func() { _ = hooks.Delete(contextOf(c.t), name, metav1.DeleteOptions{}) }
	c.t.Cleanup(lift)
	return lift
}

// limit leaves room for one ConfigMap of ours besides the cluster's own.
func (c *testCluster) limit() (lift func()) {
	c.t.Helper()
	quotas := c.kube.CoreV1().ResourceQuotas(c.namespace)
	c.eventually("the namespace has its own ConfigMap", func() bool {
		_, err := c.kube.CoreV1().ConfigMaps(c.namespace).Get(c.t.Context(), "kube-root-ca.crt", metav1.GetOptions{})
		return err == nil
	})
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "small"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"count/configmaps": resource.MustParse("2")}},
	}
	if _, err := quotas.Create(c.t.Context(), quota, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
	c.eventually("the quota is counted", func() bool {
		q, err := quotas.Get(c.t.Context(), "small", metav1.GetOptions{})
		return err == nil && len(q.Status.Used) > 0
	})
	return func() { _ = quotas.Delete(contextOf(c.t), "small", metav1.DeleteOptions{}) }
}

// A spoke's owner may refuse what the hub asks for. The hub is told who refused,
// nothing else is held up, and it is applied once nobody refuses any more.
func TestApplyReportsAdmissionDenial(t *testing.T) {
	t.Parallel()
	for label, tc := range map[string]struct {
		refuse func(*testCluster) (lift func())
		want   string
		others bool // refused too
	}{
		"by a policy":         {refuse: (*testCluster).forbid, want: "key denied is not wanted here"},
		"by a broken webhook": {refuse: (*testCluster).breakWebhook, want: `failed calling webhook "gone.example.com"`, others: true},
		"by a quota":          {refuse: (*testCluster).limit, want: "exceeded quota: small"},
	} {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			c, h := newCluster(t), newHub(t)
			f := c.front()
			c.start(h, f.through)
			good, bad := c.name("good"), c.name("bad")
			h.want(good, 1, c.configMap("good", "k", "1"))
			h.is(c, good, 1, conditionApplied, metav1.ConditionTrue)
			lift := tc.refuse(c)
			secret := `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"beside","namespace":"` + c.namespace + `"}}`
			c.untilRefused(tc.want)
			h.want(bad, 1, c.configMap("bad", "denied", "1"), secret)
			h.failsSoon(c, bad, 1, tc.want)
			if _, err := c.kube.CoreV1().Secrets(c.namespace).Get(t.Context(), "beside", metav1.GetOptions{}); err != nil {
				t.Errorf("the manifest beside it: %v", err)
			}
			if got := f.sitOut(); sum(got) > calm {
				t.Errorf("%d requests in %s of refusal: %v", sum(got), faultTime, got)
			}
			if !tc.others {
				h.want(good, 2, c.configMap("good", "k", "2"))
				h.is(c, good, 2, conditionApplied, metav1.ConditionTrue)
			}
			lift()
			h.is(c, bad, 1, conditionApplied, metav1.ConditionTrue)
		})
	}
}

// untilRefused waits until the API server acts by what it was just told.
func (c *testCluster) untilRefused(want string) {
	c.t.Helper()
	c.eventually("the API server refuses", func() bool {
		probe := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "probe"}, Data: map[string]string{"denied": "1"}}
		_, err := c.kube.CoreV1().ConfigMaps(c.namespace).Create(c.t.Context(), probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err != nil && strings.Contains(err.Error(), want)
	})
}
