// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spokelet/spokelet/agent/pod/translate"
	"github.com/spokelet/spokelet/api/wire"
)

func TestOwnerNamespaceTakesPodsOnceLabelled(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.makeNamespace(nil)
	h := newHub(c)
	h.complete()
	a := h.start()
	h.want(h.pod("web"))
	s := h.refused("web", ReasonNamespaceNotAllowed)
	if !s.Retried || !strings.Contains(s.Message, "spokelet.io/pods=allowed") {
		t.Errorf("status does not say what to do: %+v", s)
	}
	// As after many attempts: the next but one would be in a minute.
	it := queueItem{pod: namespacedName{Namespace: c.namespace, Name: "web"}}
	for range 20 {
		a.queue.AddRateLimited(it)
	}
	c.eventually("the pauses are long", func() bool { return a.queue.NumRequeues(it) > 21 })
	began := time.Now()
	label := []byte(`{"metadata":{"labels":{"spokelet.io/pods":"allowed"}}}`)
	if _, err := c.kube.CoreV1().Namespaces().Patch(t.Context(), c.namespace, types.MergePatchType, label, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	c.appears("web", "uid-web")
	if took := time.Since(began); took > maxRetry/2 {
		t.Errorf("the pod was made after %s, which an attempt does too", took)
	}
	h.is("web", "is there, without a reason", func(s told) bool { return s.Status != nil && s.Reason == "" })
}

func TestReservedNamespacesTakeNoPods(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	h := newHub(c)
	h.complete()
	h.start(func(cfg *Config) { cfg.Namespaces = []string{"shop"} })
	for _, namespace := range []string{"kube-system", "spokelet-agent", c.namespace} {
		p := h.pod("web", func(p *wire.Pod) { p.Pod.Namespace = namespace })
		h.want(p)
		key := wire.PodKey{Namespace: namespace, Name: "web"}.String()
		c.eventually(namespace+" is refused", func() bool {
			h.mu.Lock()
			defer h.mu.Unlock()
			s := h.statuses[key]
			return s.Reason == ReasonNamespaceNotAllowed && !s.Retried
		})
		if _, err := c.kube.CoreV1().Pods(namespace).Get(t.Context(), "web", metav1.GetOptions{}); err == nil {
			t.Errorf("a pod is in %s", namespace)
		}
	}
}

func TestForeignPodIsLeftAlone(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.makeNamespace(map[string]string{LabelPods: PodsAllowed})
	h := newHub(c)
	h.complete()
	h.start()
	theirs := h.pod("web").Pod
	theirs.UID, theirs.Generation, theirs.Spec.NodeName = "", 0, ""
	before, err := c.kube.CoreV1().Pods(c.namespace).Create(t.Context(), &theirs, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	h.want(h.pod("web"))
	h.refused("web", ReasonNameTaken)
	h.want(h.pod("web", deleting(1)))
	h.is("web", "is gone", func(s told) bool { return s.Gone })
	// Its status is the scheduler's to write.
	after := c.pod("web")
	if after == nil || after.UID != before.UID || after.Generation != before.Generation || after.DeletionTimestamp != nil {
		t.Fatalf("the pod of somebody else was changed: %+v", after)
	}
	if diff := cmp.Diff(before.Labels, after.Labels); diff != "" {
		t.Errorf("labels (-before +after):\n%s", diff)
	}
}

func TestForeignObjectIsNeitherChangedNorUsed(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]wire.PodObject{
		"one that the hub has":     {Text: map[string]string{"k": "hub"}},
		"one that the hub has not": {Missing: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			c.makeNamespace(map[string]string{LabelPods: PodsAllowed})
			theirs := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"k": "owner"}}
			if _, err := c.kube.CoreV1().ConfigMaps(c.namespace).Create(t.Context(), theirs, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			h := newHub(c)
			h.complete()
			h.start()
			h.object(h.configMap("settings"), o)
			h.want(h.pod("web", reading("settings")))
			h.refused("web", ReasonNameTaken)
			if got := c.dataOf("settings")["k"]; got != "owner" {
				t.Errorf("the owner's data is now %q", got)
			}
			if c.pod("web") != nil {
				t.Error("the pod runs with what is not the hub's")
			}
			if err := c.kube.CoreV1().ConfigMaps(c.namespace).Delete(t.Context(), "settings", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			c.appears("web", "uid-web")
		})
	}
}

func TestEphemeralContainerReadsNoForeignObject(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.makeNamespace(map[string]string{LabelPods: PodsAllowed})
	theirs := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"k": "owner"}}
	if _, err := c.kube.CoreV1().ConfigMaps(c.namespace).Create(t.Context(), theirs, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	h := newHub(c)
	h.complete()
	h.start()
	h.want(h.pod("web"))
	c.appears("web", "uid-web")
	h.object(h.configMap("settings"), wire.PodObject{Missing: true})
	// More than once: a write may meet the scheduler's.
	for round := range 5 {
		tier := fmt.Sprint("front-", round)
		h.want(h.pod("web", func(p *wire.Pod) {
			p.Pod.Generation = int64(2 + round)
			p.Pod.Labels["tier"] = tier
			p.Pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
				Name: "debugger", Image: "spokelet.io/test/busybox:latest",
				EnvFrom: []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}}},
			}}}
		}))
		c.eventually("what else has changed is written", func() bool { return c.pod("web").Labels["tier"] == tier })
	}
	if n := len(c.pod("web").Spec.EphemeralContainers); n > 0 {
		t.Error("a container of the hub reads what is the owner's")
	}
}

func TestRefusalIsReportedAndRecovers(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.makeNamespace(map[string]string{LabelPods: PodsAllowed})
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "few"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: apiresource.MustParse("0")}},
	}
	if _, err := c.kube.CoreV1().ResourceQuotas(c.namespace).Create(t.Context(), quota, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.refuses("exceeded quota: few") // which it does once a controller has counted
	h := newHub(c)
	h.complete()
	h.start()
	h.want(h.pod("web"))
	s := h.refused("web", ReasonForbidden)
	if !s.Retried || s.Message == "" || s.Gone {
		t.Errorf("status: %+v, want a message, and another attempt", s)
	}
	if err := c.kube.CoreV1().ResourceQuotas(c.namespace).Delete(t.Context(), "few", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.appears("web", "uid-web")
}

func TestRefusalReasonNamesItsSource(t *testing.T) {
	t.Parallel()
	enforce := map[string]string{LabelPods: PodsAllowed, "pod-security.kubernetes.io/enforce": "restricted"}
	reader := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"namespaces", "pods"}, Verbs: []string{"get", "list", "watch"}}}
	cases := map[string]struct {
		reason string
		labels map[string]string
		rights []rbacv1.PolicyRule
		policy bool
		want   string
	}{
		"Pod Security":                 {reason: "it is of the API server itself", labels: enforce, want: ReasonForbidden},
		"a policy of the owner":        {reason: "its cause has words alone", labels: map[string]string{LabelPods: PodsAllowed}, policy: true, want: ReasonAdmissionDenied},
		"an account that only reads":   {reason: "the right to make pods is missing", labels: map[string]string{LabelPods: PodsAllowed}, rights: reader, want: ReasonRightMissing},
		"an account without any right": {reason: "the right to read is missing", labels: map[string]string{LabelPods: PodsAllowed}, rights: []rbacv1.PolicyRule{}, want: ReasonRightMissing},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			c.makeNamespace(tc.labels)
			if tc.policy {
				c.forbid()
			}
			h := newHub(c)
			h.complete()
			h.start(func(cfg *Config) {
				if tc.rights != nil {
					cfg.Account = c.account(tc.rights)
				}
			})
			h.want(h.pod("web"))
			if s := h.refused("web", tc.want); s.Message == "" || !s.Retried {
				t.Errorf("%s: %+v", tc.reason, s)
			}
		})
	}
}

// account is a user with rights in all namespaces.
func (c *cluster) account(rights []rbacv1.PolicyRule) string {
	c.t.Helper()
	rbac, name := c.kube.RbacV1(), metav1.ObjectMeta{Name: "user-" + c.namespace}
	_, role := rbac.ClusterRoles().Create(c.t.Context(), &rbacv1.ClusterRole{ObjectMeta: name, Rules: rights}, metav1.CreateOptions{})
	_, binding := rbac.ClusterRoleBindings().Create(c.t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: name,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name.Name}},
	}, metav1.CreateOptions{})
	c.t.Cleanup(func() {
		ctx := context.WithoutCancel(c.t.Context())
		_ = rbac.ClusterRoleBindings().Delete(ctx, name.Name, metav1.DeleteOptions{})
		_ = rbac.ClusterRoles().Delete(ctx, name.Name, metav1.DeleteOptions{})
	})
	if err := errors.Join(role, binding); err != nil {
		c.t.Fatal(err)
	}
	return name.Name
}

// forbid has a policy deny every pod of the namespace, and waits until it does.
func (c *cluster) forbid() {
	c.t.Helper()
	admission, name := c.kube.AdmissionregistrationV1(), metav1.ObjectMeta{Name: c.namespace}
	_, policy := admission.ValidatingAdmissionPolicies().Create(c.t.Context(), &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: name,
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			}}}},
			Validations: []admissionv1.Validation{{Expression: "false", Message: "the owner says no"}},
		},
	}, metav1.CreateOptions{})
	_, binding := admission.ValidatingAdmissionPolicyBindings().Create(c.t.Context(), &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: name,
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name.Name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
			MatchResources: &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{
				MatchLabels: map[string]string{corev1.LabelMetadataName: c.namespace},
			}},
		},
	}, metav1.CreateOptions{})
	c.t.Cleanup(func() {
		ctx := context.WithoutCancel(c.t.Context())
		_ = admission.ValidatingAdmissionPolicyBindings().Delete(ctx, name.Name, metav1.DeleteOptions{})
		_ = admission.ValidatingAdmissionPolicies().Delete(ctx, name.Name, metav1.DeleteOptions{})
	})
	if err := errors.Join(policy, binding); err != nil {
		c.t.Fatal(err)
	}
	c.refuses("the owner says no")
}

// refuses waits until the API server refuses pods of the namespace, in words.
func (c *cluster) refuses(words string) {
	c.t.Helper()
	probe := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "probe"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "i"}}}}
	c.eventually("pods are refused: "+words, func() bool {
		_, err := c.kube.CoreV1().Pods(c.namespace).Create(c.t.Context(), probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err != nil && strings.Contains(err.Error(), words)
	})
}

func TestUnsupportedPodReportsTheReason(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	h := newHub(c)
	h.complete()
	h.start()
	h.want(h.pod("invalid", func(p *wire.Pod) { p.Pod.Spec.Containers[0].Image = "" }))
	h.want(h.pod("host", func(p *wire.Pod) { p.Pod.Spec.HostNetwork = true }))
	h.refused("invalid", ReasonInvalid)
	if s := h.refused("host", translate.ReasonHostAccess); s.Retried {
		t.Errorf("status: %+v, want no other attempt", s)
	}
}

func TestImmutableCopyIsReplaced(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	h := newHub(c)
	h.complete()
	h.start()
	key := wire.PodObjectKey{Kind: wire.PodObjectSecret, Namespace: c.namespace, Name: "token"}
	h.object(key, wire.PodObject{Immutable: true, Type: corev1.SecretTypeOpaque, Data: map[string][]byte{"k": []byte("1")}})
	h.want(h.pod("web", func(p *wire.Pod) {
		p.Pod.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "token"}}
	}))
	c.appears("web", "uid-web")
	value := func() string {
		s, err := c.kube.CoreV1().Secrets(c.namespace).Get(t.Context(), "token", metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		return fmt.Sprintf("%s immutable=%t %s", s.Data["k"], *s.Immutable, s.Annotations[AnnotationHubObject])
	}
	if got, want := value(), "1 immutable=true "+key.String(); got != want {
		t.Errorf("copy is %q, want %q", got, want)
	}
	h.object(key, wire.PodObject{Type: "spokelet.io/test", Data: map[string][]byte{"k": []byte("2")}})
	c.eventually("the copy is another", func() bool { return value() == "2 immutable=false "+key.String() })
	h.object(key, wire.PodObject{Missing: true})
	c.eventually("the copy is gone", func() bool {
		_, err := c.kube.CoreV1().Secrets(c.namespace).Get(t.Context(), "token", metav1.GetOptions{})
		return err != nil
	})
}

func TestDeletedNamespaceIsRecreatedWithCopies(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	h := newHub(c)
	h.complete()
	h.start()
	h.object(h.configMap("settings"), wire.PodObject{Text: map[string]string{"k": "1"}})
	h.want(h.pod("web", reading("settings")))
	c.appears("web", "uid-web")
	if err := c.kube.CoreV1().Namespaces().Delete(t.Context(), c.namespace, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	h.is("web", "is lost", func(s told) bool { return s.Gone && s.Lost })
	h.want(h.pod("next", reading("settings")))
	c.appears("next", "uid-next")
	if got := c.dataOf("settings")["k"]; got != "1" {
		t.Errorf("the copy has %q", got)
	}
}

// deaf loses the answers to the first creations of pods, which were done.
type deaf struct {
	next http.RoundTripper
	left *atomic.Int64
}

func (d deaf) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := d.next.RoundTrip(r)
	if err == nil && r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/pods") && d.left.Add(-1) >= 0 {
		_ = resp.Body.Close()
		return nil, errors.New("connection reset")
	}
	return resp, err
}

func TestPodIsAdoptedAfterALostCreateResponse(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	h := newHub(c)
	h.complete()
	left := &atomic.Int64{}
	left.Store(1)
	h.start(func(cfg *Config) {
		cfg.REST.Wrap(func(next http.RoundTripper) http.RoundTripper { return deaf{next, left} })
	})
	h.want(h.pod("web"))
	live := c.appears("web", "uid-web")
	h.is("web", "is told of", func(s told) bool { return s.Status != nil && s.Generation == 1 && s.Reason == "" })
	if now := c.pod("web"); now == nil || now.UID != live.UID || now.DeletionTimestamp != nil {
		t.Error("the pod was made twice")
	}
}

func TestPodWaitsForUnknownObjects(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	h := newHub(c)
	h.complete()
	a := h.start()
	p := h.pod("web", reading("late"))
	h.put(wire.KindPod, h.key("web").String(), "uid-web", p)
	h.want(h.pod("other"))
	c.appears("other", "uid-other")
	c.eventually("one pod waits", func() bool { return a.countStates()[stateWaiting] == 1 })
	if c.pod("web") != nil {
		t.Error("the pod was made before its ConfigMap is known")
	}
	h.object(h.configMap("late"), wire.PodObject{Text: map[string]string{"k": "1"}})
	c.appears("web", "uid-web")
}

func TestServiceAccountIsCreatedInOwnNamespace(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	h := newHub(c)
	h.complete()
	h.start()
	h.want(h.pod("web", func(p *wire.Pod) { p.Pod.Spec.ServiceAccountName = "robot" }))
	if live := c.appears("web", "uid-web"); live.Spec.ServiceAccountName != "robot" {
		t.Errorf("the pod runs as %q", live.Spec.ServiceAccountName)
	}
	account, err := c.kube.CoreV1().ServiceAccounts(c.namespace).Get(t.Context(), "robot", metav1.GetOptions{})
	if err != nil || account.Labels[LabelCreatedBy] != Creator {
		t.Errorf("service account: %v, labels %v", err, account.Labels)
	}
}

func TestServiceAccountIsNotCreatedInOwnersNamespace(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.makeNamespace(map[string]string{LabelPods: PodsAllowed})
	h := newHub(c)
	h.complete()
	h.start()
	h.want(h.pod("web", func(p *wire.Pod) { p.Pod.Spec.ServiceAccountName = "robot" }))
	h.refused("web", ReasonAccountNotAllowed)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}
	if _, err := c.kube.CoreV1().ServiceAccounts(c.namespace).Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	h.is("web", "says what the account lacks", func(s told) bool { return strings.Contains(s.Message, LabelPods) })
	label := []byte(`{"metadata":{"labels":{"spokelet.io/pods":"allowed"}}}`)
	if _, err := c.kube.CoreV1().ServiceAccounts(c.namespace).Patch(t.Context(), "robot", types.MergePatchType, label, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if live := c.appears("web", "uid-web"); live.Spec.ServiceAccountName != "robot" {
		t.Errorf("the pod runs as %q", live.Spec.ServiceAccountName)
	}
}

func TestMissingRightIsTheReason(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	h := newHub(c)
	h.complete()
	user := "nobody-" + c.namespace
	h.start(func(cfg *Config) { cfg.Account = user })
	h.want(h.pod("web"))
	if s := h.refused("web", ReasonRightMissing); !strings.Contains(s.Message, user) {
		t.Errorf("message %q does not say who lacks the right", s.Message)
	}
	role := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
	bindings := c.kube.RbacV1().ClusterRoleBindings()
	if _, err := bindings.Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = bindings.Delete(t.Context(), user, metav1.DeleteOptions{}) }()
	c.appears("web", "uid-web")
}

func TestPrefixSeparatesHubNamespaces(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	h := newHub(c)
	h.complete()
	a := h.start(func(cfg *Config) { cfg.Prefix = "pods-" })
	bare := strings.TrimPrefix(c.namespace, "pods-")
	h.want(h.pod("web", func(p *wire.Pod) { p.Pod.Namespace = bare }))
	c.appears("web", "uid-web")
	key := wire.PodKey{Namespace: bare, Name: "web"}
	c.eventually("it is told of under the hub's name", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.statuses[key.String()].Status != nil
	})
	if namespace, _, ok := a.Locate(key); !ok || namespace != c.namespace {
		t.Errorf("Locate = %q, %t", namespace, ok)
	}
}
