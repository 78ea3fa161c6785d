// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	admissionreviewv1 "k8s.io/api/admission/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/cert"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/api/wire"
)

// hostile marks the objects that a test's webhook is asked about.
const hostile = "hostile"

// marked is a ConfigMap that bears the mark.
func (c *testCluster) marked(name string, data ...string) string {
	return strings.Replace(c.configMap(name, data...), `"metadata":{`, `"metadata":{"labels":{"`+hostile+`":"yes"},`, 1)
}

// listen serves where the API server can reach it: on the address from which this
// process reaches that, for the API server may be in a network of its own.
func (c *testCluster) listen(answer http.HandlerFunc) (server *httptest.Server, bundle []byte) {
	c.t.Helper()
	host, err := url.Parse(c.cfg.Host)
	if err != nil {
		c.t.Fatal(err)
	}
	towards, err := (&net.Dialer{}).DialContext(c.t.Context(), "udp", host.Host) // nothing is sent
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = towards.Close() }()
	ip, _, err := net.SplitHostPort(towards.LocalAddr().String())
	if err != nil {
		c.t.Fatal(err)
	}
	chain, key, err := cert.GenerateSelfSignedCertKey(ip, []net.IP{net.ParseIP(ip)}, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(chain, key)
	if err != nil {
		c.t.Fatal(err)
	}
	server = httptest.NewUnstartedServer(answer)
	_ = server.Listener.Close()
	if server.Listener, err = (&net.ListenConfig{}).Listen(c.t.Context(), "tcp", net.JoinHostPort(ip, "0")); err != nil {
		c.t.Fatal(err)
	}
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13}
	server.StartTLS()
	return server, chain
}

// hook registers a webhook for marked ConfigMaps of the namespace; answer is a
// local server's. It returns when the API server asks it.
func (c *testCluster) hook(answer http.HandlerFunc, says string) (lift func()) {
	c.t.Helper()
	server, bundle := c.listen(answer)
	hooks := c.kube.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	name := c.name(hostile)
	hook := &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name: "hostile.example.com",
			ClientConfig: admissionv1.WebhookClientConfig{
				URL:      new(server.URL + "/"),
				CABundle: bundle,
			},
			Rules:                   []admissionv1.RuleWithOperations{configMapRule()},
			NamespaceSelector:       c.here(),
			ObjectSelector:          &metav1.LabelSelector{MatchLabels: map[string]string{hostile: "yes"}},
			FailurePolicy:           new(admissionv1.Fail),
			SideEffects:             new(admissionv1.SideEffectClassNone),
			AdmissionReviewVersions: []string{"v1"},
			TimeoutSeconds:          new(int32(1)),
		}},
	}
	if _, err := hooks.Create(c.t.Context(), hook, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
	lift = func() { _ = hooks.Delete(contextOf(c.t), name, metav1.DeleteOptions{}) }
	c.t.Cleanup(func() {
		lift()
		server.Close()
	})
	c.eventually("the API server asks the webhook", func() bool {
		probe := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "probe", Labels: map[string]string{hostile: "yes"}}}
		_, err := c.kube.CoreV1().ConfigMaps(c.namespace).Create(c.t.Context(), probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err != nil && strings.Contains(err.Error(), says)
	})
	return lift
}

// denies everything that it is asked about.
func denies(w http.ResponseWriter, r *http.Request) {
	var review admissionreviewv1.AdmissionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
		http.Error(w, "no review", http.StatusBadRequest)
		return
	}
	review.Response = &admissionreviewv1.AdmissionResponse{
		UID: review.Request.UID, Result: &metav1.Status{Code: http.StatusForbidden, Message: "not on a Sunday"},
	}
	_ = json.NewEncoder(w).Encode(review)
}

// hangs until whoever asked gives up, which a server only sees once it has read
// the question.
func hangs(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
}

// babbles answers, but no review.
func babbles(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, "<html>It works!</html>") }

// waitForFailure waits until one manifest of a ManifestWork is said to have failed for a
// reason, and checks that every other one is applied.
func (h *testHub) waitForFailure(c *testCluster, name string, generation int64, ordinal int, reason, want string) reportedStatus {
	c.t.Helper()
	var s reportedStatus
	defer func() {
		if c.t.Failed() {
			c.t.Logf("status of %s: %+v", name, s)
		}
	}()
	c.eventually(fmt.Sprintf("manifest %d of %s fails with %q", ordinal, name, want), func() bool {
		s = h.said(name)
		if s.ObservedGeneration != generation || len(s.Manifests) <= ordinal {
			return false
		}
		applied := meta.FindStatusCondition(s.Manifests[ordinal].Conditions, conditionApplied)
		return applied != nil && applied.Status == metav1.ConditionFalse && applied.Reason == reason && strings.Contains(applied.Message, want)
	})
	for i := range s.Manifests {
		applied := meta.FindStatusCondition(s.Manifests[i].Conditions, conditionApplied)
		if i != ordinal && (applied == nil || applied.Status != metav1.ConditionTrue) {
			c.t.Errorf("manifest %d beside it: %+v", i, applied)
		}
	}
	work := meta.FindStatusCondition(s.Conditions, conditionApplied)
	if work == nil || work.Status != metav1.ConditionFalse || work.ObservedGeneration != generation || work.Message != "Failed to apply manifest work" {
		c.t.Errorf("the work: %+v", work)
	}
	return s
}

// applies asks for a work and says how long it took until it was applied.
func (h *testHub) applies(c *testCluster, name string, generation int64, manifests ...string) time.Duration {
	c.t.Helper()
	began := time.Now()
	h.ask(name, generation, wire.Work{}, manifests...)
	h.says(c, name, generation, conditionApplied, metav1.ConditionTrue)
	return time.Since(began)
}

// drop deletes a work and waits until nothing is left of it.
func (h *testHub) drop(c *testCluster, name string, generation int64) {
	c.t.Helper()
	h.ask(name, generation, wire.Work{Deleting: true})
	c.eventually(name+" finalized", func() bool { return h.said(name).Finalized })
}

func TestWebhookBlocksOnlyItsObjects(t *testing.T) {
	t.Parallel()
	for label, tc := range map[string]struct {
		reason, want string
		answer       http.HandlerFunc
	}{
		"that denies":  {reason: "its own words are told", answer: denies, want: `admission webhook "hostile.example.com" denied the request: not on a Sunday`},
		"that hangs":   {reason: "the API server gives up, and is tried again", answer: hangs, want: `failed calling webhook "hostile.example.com"`},
		"that babbles": {reason: "what it is not is told", answer: babbles, want: `failed calling webhook "hostile.example.com"`},
	} {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			c, h := newCluster(t), newHub(t)
			c.startForOCM(h)
			lift := c.hook(tc.answer, tc.want)
			bad, good := c.name("bad"), c.name("good")
			h.ask(bad, 1, wire.Work{}, c.configMap("before", "k", "1"), c.marked("refused", "k", "1"), c.configMap("after", "k", "1"))
			h.waitForFailure(c, bad, 1, 1, workv1.AppliedManifestFailed, tc.want)
			if took := h.applies(c, good, 1, c.configMap("good", "k", "1")); took > soon {
				t.Errorf("%s: another work took %s", tc.reason, took)
			}
			h.ask(bad, 2, wire.Work{}, c.configMap("before", "k", "2"), c.marked("refused", "k", "2"), c.configMap("after", "k", "2"))
			h.waitForFailure(c, bad, 2, 1, workv1.AppliedManifestFailed, tc.want)
			if got := c.get("after").Data["k"]; got != "2" {
				t.Errorf("%s: what follows it is %q", tc.reason, got)
			}
			if c.get("refused") != nil {
				t.Error("the webhook was not asked")
			}
			lift()
			h.says(c, bad, 2, conditionApplied, metav1.ConditionTrue)
			if got := c.get("refused"); got == nil || got.Data["k"] != "2" {
				t.Errorf("%s: in the end it is %+v", tc.reason, got)
			}
			h.drop(c, bad, 2)
		})
	}
}

// A repair that a webhook denies is said, and made once it does not.
func TestDeniedRepairIsReportedAndRetried(t *testing.T) {
	t.Parallel()
	c, h := newCluster(t), newHub(t)
	c.startForOCM(h)
	work := c.name("w")
	h.applies(c, work, 1, c.marked("cm", "k", "1"), c.configMap("beside", "k", "1"))
	if err := c.kube.CoreV1().ConfigMaps(c.namespace).Delete(t.Context(), "beside", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.eventually("drift is repaired", func() bool { return c.get("beside") != nil })
	lift := c.hook(denies, "not on a Sunday")
	if err := c.kube.CoreV1().ConfigMaps(c.namespace).Delete(t.Context(), "cm", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s := h.waitForFailure(c, work, 1, 0, workv1.AppliedManifestFailed, "not on a Sunday")
	if available := meta.FindStatusCondition(s.Manifests[0].Conditions, conditionAvailable); available == nil || available.Status != metav1.ConditionFalse {
		t.Errorf("what is gone is available: %+v", available)
	}
	lift()
	h.says(c, work, 1, conditionApplied, metav1.ConditionTrue)
	h.says(c, work, 1, conditionAvailable, metav1.ConditionTrue)
}

func (c *testCluster) deployment(name, selector string) string {
	return fmt.Sprintf(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":%q,"namespace":%q},"spec":{"replicas":0,
		"selector":{"matchLabels":{"a":%q}},"template":{"metadata":{"labels":{"a":%q}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`,
		name, c.namespace, selector, selector)
}

func (c *testCluster) binding(name, role string) string {
	return fmt.Sprintf(`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"RoleBinding","metadata":{"name":%q,"namespace":%q},
		"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":%q},"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"nobody"}]}`,
		name, c.namespace, role)
}

func TestImmutableFieldIsReportedUntilObjectIsReplaced(t *testing.T) {
	t.Parallel()
	frozen := func(c *testCluster, v string) string {
		return strings.Replace(c.configMap("i", "k", v), `"data"`, `"immutable":true,"data"`, 1)
	}
	for label, tc := range map[string]struct {
		reason, want, resource string
		manifest               func(c *testCluster, value string) string
		strategy               *workv1.UpdateStrategy
	}{
		"a selector, updated": {
			reason: "the object is not deleted for it", resource: "deployments.apps", want: "field is immutable",
			manifest: func(c *testCluster, v string) string { return c.deployment("i", v) },
		},
		"a selector, server-side": {
			reason: "the object is not deleted for it", resource: "deployments.apps", want: "field is immutable", strategy: strategyOf(workv1.UpdateStrategyTypeServerSideApply),
			manifest: func(c *testCluster, v string) string { return c.deployment("i", v) },
		},
		"a role": {
			reason: "as OCM's agent does", resource: "rolebindings.rbac.authorization.k8s.io", want: "cannot change roleRef",
			manifest: func(c *testCluster, v string) string { return c.binding("i", v) },
		},
		"a frozen ConfigMap, server-side": {
			reason: "only an update makes it anew", resource: "configmaps", want: "field is immutable when `immutable` is set",
			manifest: frozen, strategy: strategyOf(workv1.UpdateStrategyTypeServerSideApply),
		},
	} {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			c, h := newCluster(t), newHub(t)
			c.startForOCM(h)
			gr := schema.ParseGroupResource(tc.resource)
			w := wire.Work{}
			w.Spec.ManifestConfigs = []workv1.ManifestConfigOption{{
				ResourceIdentifier: workv1.ResourceIdentifier{Group: gr.Group, Resource: gr.Resource, Namespace: "*", Name: "i"}, UpdateStrategy: tc.strategy,
			}}
			work := c.name("w")
			h.ask(work, 1, w, tc.manifest(c, "one"), c.configMap("beside", "k", "1"))
			h.says(c, work, 1, conditionApplied, metav1.ConditionTrue)
			h.says(c, work, 1, conditionAvailable, metav1.ConditionTrue)
			h.ask(work, 2, w, tc.manifest(c, "two"), c.configMap("beside", "k", "2"))
			s := h.waitForFailure(c, work, 2, 0, workv1.AppliedManifestFailed, tc.want)
			if !meta.IsStatusConditionTrue(s.Conditions, conditionAvailable) {
				t.Errorf("%s: %+v", tc.reason, s.Conditions)
			}
			if got := c.get("beside").Data["k"]; got != "2" {
				t.Errorf("the manifest beside it is %q", got)
			}
			objects := c.dynamic.Resource(gr.WithVersion("v1")).Namespace(c.namespace)
			if err := objects.Delete(t.Context(), "i", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			h.says(c, work, 2, conditionApplied, metav1.ConditionTrue)
			h.drop(c, work, 2)
		})
	}
}

func TestTerminatingNamespaceIsReportedAndRecreated(t *testing.T) {
	t.Parallel()
	c, h := newCluster(t), newHub(t)
	c.startForOCM(h)
	namespaces, going := c.kube.CoreV1().Namespaces(), c.name("going")
	there := func(name string) string { return strings.Replace(c.configMap(name), c.namespace, going, 1) }
	space := `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"` + going + `"}}`
	work := c.name("w")
	h.applies(c, work, 1, space, there("early"))
	hold := func(finalizers string) {
		t.Helper()
		patch := `{"metadata":{"finalizers":` + finalizers + `}}`
		if _, err := namespaces.Patch(contextOf(t), going, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	hold(`["example.com/hold"]`)
	t.Cleanup(func() {
		_, _ = namespaces.Patch(contextOf(t), going, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	})
	if err := namespaces.Delete(t.Context(), going, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.eventually("the namespace is emptied", func() bool {
		ns, err := namespaces.Get(t.Context(), going, metav1.GetOptions{})
		return err == nil && len(ns.Spec.Finalizers) == 0
	})
	h.ask(work, 2, wire.Work{}, space, c.configMap("beside"), there("late"))
	h.waitForFailure(c, work, 2, 2, workv1.AppliedManifestFailed, "is being terminated")
	if c.get("beside") == nil {
		t.Error("the manifest beside it is missing")
	}
	hold("null")
	h.says(c, work, 2, conditionApplied, metav1.ConditionTrue)
	h.says(c, work, 2, conditionAvailable, metav1.ConditionTrue)
	if _, err := c.kube.CoreV1().ConfigMaps(going).Get(t.Context(), "late", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	h.drop(c, work, 2)
}

func TestForeignFieldIsNotForced(t *testing.T) {
	t.Parallel()
	for label, tc := range map[string]struct {
		reason string
		patch  types.PatchType
		// take and leave are what somebody sends.
		take, leave string
	}{
		"applied by somebody": {
			reason: "the other one applies", patch: types.ApplyPatchType,
			take:  `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"cm"},"data":{"k":"theirs","other":"x"}}`,
			leave: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"cm"},"data":{"other":"x"}}`,
		},
		"written by somebody": {reason: "the other one updates", patch: types.MergePatchType, take: `{"data":{"k":"theirs"}}`, leave: `{"data":{"k":null}}`},
	} {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			c, h := newCluster(t), newHub(t)
			f := c.front()
			c.startForOCM(h, f.through)
			c.make("cm", map[string]string{"other": "x"}) // who has nothing in it is not known later
			somebody := func(patch string) {
				t.Helper()
				_, err := c.kube.CoreV1().ConfigMaps(c.namespace).Patch(contextOf(t), "cm", tc.patch, []byte(patch), metav1.PatchOptions{FieldManager: "somebody"})
				if err != nil {
					t.Fatal(err)
				}
			}
			somebody(tc.take)
			w := wire.Work{}
			w.Spec.ManifestConfigs = []workv1.ManifestConfigOption{c.option(workv1.ManifestConfigOption{UpdateStrategy: strategyOf(workv1.UpdateStrategyTypeServerSideApply)})}
			work := c.name("w")
			h.ask(work, 1, w, c.configMap("cm", "k", "ours"), c.configMap("beside", "k", "1"))
			h.waitForFailure(c, work, 1, 0, workv1.AppliedManifestFailed, `conflict with "somebody"`)
			tries := 0
			c.eventually("it is tried again", func() bool { tries += f.reset()["write"]; return tries >= 3 })
			if got := c.get("cm").Data["k"]; got != "theirs" {
				t.Errorf("%s: the field is %q", tc.reason, got)
			}
			somebody(tc.leave)
			h.says(c, work, 1, conditionApplied, metav1.ConditionTrue)
			if got := c.get("cm").Data["k"]; got != "ours" {
				t.Errorf("%s: in the end it is %q", tc.reason, got)
			}
			h.drop(c, work, 1)
		})
	}
}
