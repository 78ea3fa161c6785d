// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	workv1 "open-cluster-management.io/api/work/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/api/crds"
	"github.com/spokelet/spokelet/internal/testing/livetest"
)

// The users of the live tests.
const (
	admin  = ""       // the administrator of the kubeconfig
	editor = "editor" // writes works
	bobs   = "bobs"   // writes works, and may execute as team/bob
)

// asking is a real API server that asks a webhook of this process about the works
// of one namespace.
type asking struct {
	t         *testing.T
	namespace string
	clients   map[string]client.Client
	stop      func() // ends the webhook
}

func newAsking(t *testing.T) *asking {
	t.Helper()
	cfg := livetest.Config(t, "SPOKELET_HUB_KUBECONFIG")
	a := &asking{t: t, namespace: "test-" + rand.String(8), clients: map[string]client.Client{}}
	for _, user := range []string{admin, editor, bobs} {
		a.clients[user] = a.clientFor(cfg, user)
	}
	a.install(cfg)
	a.grant()
	a.register(cfg)
	return a
}

func (a *asking) clientFor(cfg *rest.Config, user string) client.Client {
	a.t.Helper()
	cfg = rest.CopyConfig(cfg)
	if user != admin {
		cfg.Impersonate.UserName = user + "-" + a.namespace
	}
	scheme := runtime.NewScheme()
	err := errors.Join(workv1.Install(scheme), rbacv1.AddToScheme(scheme), corev1.AddToScheme(scheme), admissionregistrationv1.AddToScheme(scheme))
	if err != nil {
		a.t.Fatal(err)
	}
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		a.t.Fatal(err)
	}
	return c
}

func (a *asking) install(cfg *rest.Config) {
	a.t.Helper()
	definitions, err := dynamic.NewForConfig(cfg)
	if err != nil {
		a.t.Fatal(err)
	}
	if err := crds.Install(a.t.Context(), definitions, crds.Hub()); err != nil {
		a.t.Fatal(err)
	}
}

// create makes what is taken away again with the test.
func (a *asking) create(obj client.Object) {
	a.t.Helper()
	if err := a.clients[admin].Create(a.t.Context(), obj); err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() {
		err := a.clients[admin].Delete(context.WithoutCancel(a.t.Context()), obj)
		if client.IgnoreNotFound(err) != nil {
			a.t.Error(err)
		}
	})
}

func (a *asking) grant() {
	a.t.Helper()
	a.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: a.namespace, Labels: map[string]string{"spokelet.io/test": a.namespace}}})
	write := rbacv1.PolicyRule{
		APIGroups: []string{workv1.GroupName}, Resources: []string{"manifestworks"},
		Verbs: []string{"get", "create", "update", "patch", "delete"},
	}
	execute := rbacv1.PolicyRule{
		APIGroups: []string{workv1.GroupName}, Resources: []string{"manifestworks"},
		ResourceNames: []string{"system:serviceaccount:team:bob"}, Verbs: []string{"execute-as"},
	}
	for user, rules := range map[string][]rbacv1.PolicyRule{editor: {write}, bobs: {write, execute}} {
		meta := metav1.ObjectMeta{Namespace: a.namespace, Name: user}
		a.create(&rbacv1.Role{ObjectMeta: meta, Rules: rules})
		a.create(&rbacv1.RoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user + "-" + a.namespace}},
		})
	}
}

// register has the API server ask a webhook of this process, under the chart's
// condition, and returns when it does.
func (a *asking) register(cfg *rest.Config) {
	a.t.Helper()
	ip := localIP(a.t, cfg)
	certificate, bundle := newCertificate(a.t, ip)
	kube, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		a.t.Fatal(err)
	}
	address, stop := start(a.t, net.JoinHostPort(ip.String(), "0"), certificate, Config{
		Self:   self,
		Access: kube.AuthorizationV1().SubjectAccessReviews(), Clusters: ClustersFunc(owned), Stored: StoredFunc(empty), Limits: roomy,
	})
	a.stop = stop
	at := "https://" + address.String() + Path
	a.create(&admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "spokelet-" + a.namespace},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name:                    "manifestworks.spokelet.io",
			AdmissionReviewVersions: []string{"v1"},
			SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
			FailurePolicy:           new(admissionregistrationv1.Fail),
			NamespaceSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{"spokelet.io/test": a.namespace}},
			ClientConfig:            admissionregistrationv1.WebhookClientConfig{URL: &at, CABundle: bundle},
			MatchConditions:         []admissionregistrationv1.MatchCondition{{Name: "spec-is-new", Expression: chartCondition(a.t)}},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{workv1.GroupName}, APIVersions: []string{"v1"}, Resources: []string{"manifestworks"}},
			}},
		}},
	})
	livetest.Eventually(a.t, "the webhook is asked", func() bool {
		return apierrors.IsBadRequest(a.clients[editor].Create(a.t.Context(), a.work(""), client.DryRunAll))
	})
	// Whose rights came last the API server may not know yet.
	livetest.Eventually(a.t, "the rights are in force", func() bool {
		return a.clients[bobs].Create(a.t.Context(), a.work(roleOfBob, configMap), client.DryRunAll) == nil
	})
}

// localIP is where the API server finds this process.
func localIP(t *testing.T, cfg *rest.Config) net.IP {
	t.Helper()
	u, err := url.Parse(cfg.Host)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", u.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	return conn.LocalAddr().(*net.TCPAddr).IP
}

// chartCondition is the expression that the chart registers the webhook with.
func chartCondition(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile("../../charts/spokelet-hub/templates/_names.tpl")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^ +expression: (.+)$`).FindSubmatch(data)
	if found == nil {
		t.Fatal("the chart has no condition")
	}
	return string(found[1])
}

// work makes one of a new name.
func (a *asking) work(executor string, manifests ...string) *workv1.ManifestWork {
	a.t.Helper()
	w := &workv1.ManifestWork{}
	if err := json.Unmarshal([]byte(object(executor, manifests...)), w); err != nil {
		a.t.Fatal(err)
	}
	w.Namespace, w.Name = a.namespace, "w-"+rand.String(8)
	return w
}

func TestLiveWebhookValidatesManifestWorks(t *testing.T) {
	t.Parallel()
	a := newAsking(t)
	large := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"` + strings.Repeat("x", 600<<10) + `"}}`
	cases := map[string]struct {
		reason string
		user   string
		work   *workv1.ManifestWork
		want   string
	}{
		"a good one":             {reason: "nothing is wrong with it", user: editor, work: a.work("", configMap, deployment)},
		"an empty one":           {reason: "there is nothing to do", user: admin, work: a.work(""), want: "manifests should not be empty"},
		"the same thing twice":   {reason: "they would fight", user: editor, work: a.work("", configMap, configMap), want: "duplicate manifest for resource default/a with resource type v1.ConfigMap"},
		"600 KiB":                {reason: "they are over the limit", user: editor, work: a.work("", large), want: "which exceeds the 512000 limit"},
		"somebody's, by another": {reason: "the user lacks the right", user: editor, work: a.work(roleOfBob, configMap), want: "cannot manipulate the Manifestwork with executor team/bob in namespace " + a.namespace},
		"somebody's, by theirs":  {reason: "the user has the right", user: bobs, work: a.work(roleOfBob, configMap)},
		"another's, by somebody": {reason: "the right has a name", user: bobs, work: a.work(roleOfEve, configMap), want: "with executor team/eve"},
		"somebody's, by all":     {reason: "all rights include this one", user: admin, work: a.work(roleOfBob, configMap)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := a.clients[tc.user].Create(t.Context(), tc.work)
			if tc.want == "" {
				if err != nil {
					t.Errorf("%s: %v", tc.reason, err)
				}
				return
			}
			if !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), "denied the request: ") || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: got %v, want a bad request with %q", tc.reason, err, tc.want)
			}
		})
	}
}

func TestLiveWebhookRefusesSpecChangeWithoutExecutorRight(t *testing.T) {
	t.Parallel()
	a := newAsking(t)
	stored := a.work(roleOfBob, configMap)
	if err := a.clients[bobs].Create(t.Context(), stored); err != nil {
		t.Fatal(err)
	}
	others := stored.DeepCopy()
	others.Spec.Workload.Manifests = a.work("", configMap, other).Spec.Workload.Manifests
	another := stored.DeepCopy()
	another.Spec.Executor.Subject.ServiceAccount.Name = "eve"
	configured := stored.DeepCopy()
	configured.Spec.DeleteOption = &workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeOrphan}
	for reason, changed := range map[string]*workv1.ManifestWork{
		"the manifests are others": others, "the executor is another": another, "the deletion is another": configured,
	} {
		if err := a.clients[editor].Update(t.Context(), changed); !apierrors.IsBadRequest(err) {
			t.Errorf("%s: got %v, want a refusal", reason, err)
		}
	}
	labelled := stored.DeepCopy()
	labelled.Labels = map[string]string{"a": "b"}
	if err := a.clients[editor].Update(t.Context(), labelled); err != nil {
		t.Errorf("labels are not executed: %v", err)
	}
	others.ResourceVersion = labelled.ResourceVersion
	if err := a.clients[bobs].Update(t.Context(), others); err != nil {
		t.Errorf("the user has the right: %v", err)
	}
}

// While the hub is away a work's labels and finalizers can change, and what it
// asks for cannot.
func TestLiveWebhookFailsClosed(t *testing.T) {
	t.Parallel()
	a := newAsking(t)
	stored := a.work("", configMap)
	if err := a.clients[editor].Create(t.Context(), stored); err != nil {
		t.Fatal(err)
	}
	a.stop()
	patch := func(body string) error {
		return a.clients[editor].Patch(t.Context(), stored.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(body)))
	}
	if err := patch(`{"metadata":{"labels":{"a":"b"},"finalizers":["example.com/x"]}}`); err != nil {
		t.Errorf("labels and finalizers: %v", err)
	}
	if err := patch(`{"metadata":{"finalizers":null}}`); err != nil {
		t.Errorf("finalizers go: %v", err)
	}
	if err := patch(`{"spec":{"deleteOption":{"propagationPolicy":"Orphan"}}}`); !apierrors.IsInternalError(err) {
		t.Errorf("spec: got %v, want the webhook's failure", err)
	}
	if err := a.clients[editor].Delete(t.Context(), stored); err != nil {
		t.Errorf("deletion: %v", err)
	}
}
