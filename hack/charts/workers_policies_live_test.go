// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"context"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/spokelet/spokelet/internal/testing/livetest"
)

// workersHub is one on which worker bundles are installed, without the operator. It has a
// cluster that is offered to them.
type workersHub struct {
	*installedHub
	// anybody is an administrator, for objects of any kind.
	anybody dynamic.Interface
}

var (
	worksResource    = schema.GroupVersionResource{Group: "work.open-cluster-management.io", Version: "v1", Resource: "manifestworks"}
	clustersResource = schema.GroupVersionResource{Group: "cluster.open-cluster-management.io", Version: "v1", Resource: "managedclusters"}
)

// valuesOf are those with which the operator makes the works of workers/placement/testdata.
func valuesOf(work string) []string {
	tail := []string{"api.enabled=true", "api.tlsSecret=tls", "api.clusterUser=hub:system:serviceaccount:spokelet-workers:spokelet-workers-api"}
	return map[string][]string{
		"none": nil,
		"ingress": append(tail, "route.kind=Ingress", "route.ingress.className=nginx", "route.ingress.rewrite=Nginx",
			`route.ingress.annotations.nginx\.ingress\.kubernetes\.io/proxy-body-size=100m`),
		"gateway": {"route.kind=Gateway", "route.gateway.parentRefs[0].name=public"},
	}[work]
}

func newWorkersHub(t *testing.T, work string) workersHub {
	t.Helper()
	h := workersHub{installedHub: newAccountOf(t, workersChart)}
	h.anybody = dynamic.NewForConfigOrDie(h.config)
	h.define("../../api/crds/work/0000_00_work.open-cluster-management.io_manifestworks.crd.yaml")
	h.define("../../api/crds/cluster/0000_00_clusters.open-cluster-management.io_managedclusters.crd.yaml")
	h.cluster(h.namespace, "true")
	h.apply(workersChart, valuesOf(work)...)
	// That is also when the API server serves the definitions.
	livetest.Eventually(t, "the policies are in force", func() bool {
		unmarked := func(w *unstructured.Unstructured) { w.SetAnnotations(nil) }
		_, err := h.applies.Resource(worksResource).Namespace(h.namespace).Create(t.Context(), h.read(work), creation)
		return err == nil && refusedBy(h.create(work, unmarked), "spokelet-workers-works") && refusedBy(h.secret(nil), "spokelet-workers-secrets") &&
			refusedBy(h.asAnybody(h.read(work)), "spokelet-workers-marks")
	})
	return h
}

// define makes a definition unless it is there. It stays: tests of other packages may have
// objects of it.
func (h workersHub) define(file string) {
	h.t.Helper()
	raw, err := os.ReadFile(file)
	h.must(err)
	object := &unstructured.Unstructured{}
	h.must(yaml.Unmarshal(raw, &object.Object))
	definitions := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	if _, err = h.anybody.Resource(definitions).Create(h.t.Context(), object, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		h.must(err)
	}
}

// cluster makes a cluster of which the namespace is there, and that is offered or not.
func (h workersHub) cluster(name, offered string) {
	h.t.Helper()
	h.label(name, `"open-cluster-management.io/cluster-name":"`+name+`"`)
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": clustersResource.GroupVersion().String(), "kind": "ManagedCluster", "metadata": map[string]any{"name": name},
	}}
	if offered != "" {
		object.SetLabels(map[string]string{"workers.spokelet.io/clusters": offered})
	}
	clusters := h.anybody.Resource(clustersResource)
	livetest.Eventually(h.t, "the API server serves ManagedClusters", func() bool {
		_, err := clusters.Create(h.t.Context(), object, metav1.CreateOptions{})
		return err == nil
	})
	h.t.Cleanup(func() { _ = clusters.Delete(context.WithoutCancel(h.t.Context()), name, metav1.DeleteOptions{}) })
}

// label sets labels of a namespace, by the inside of a JSON object.
func (h workersHub) label(namespace, labels string) {
	h.t.Helper()
	_, err := h.admin.CoreV1().Namespaces().Patch(h.t.Context(), namespace, types.MergePatchType, []byte(`{"metadata":{"labels":{`+labels+`}}}`), metav1.PatchOptions{})
	h.must(err)
}

// read returns a work as the operator makes it, which is account 1234's.
func (h workersHub) read(work string) *unstructured.Unstructured {
	h.t.Helper()
	raw, err := os.ReadFile("../../workers/placement/testdata/" + work + ".yaml")
	h.must(err)
	object := &unstructured.Unstructured{}
	h.must(yaml.Unmarshal(raw, &object.Object))
	object.SetNamespace(h.namespace)
	return object
}

// create tries, as the operator, to make such a work, which the change changes.
func (h workersHub) create(work string, change func(*unstructured.Unstructured)) error {
	h.t.Helper()
	object := h.read(work)
	change(object)
	_, err := h.applies.Resource(worksResource).Namespace(object.GetNamespace()).Create(h.t.Context(), object, creation)
	return err
}

// asAnybody tries to make a work as an administrator.
func (h workersHub) asAnybody(work *unstructured.Unstructured) error {
	_, err := h.anybody.Resource(worksResource).Namespace(work.GetNamespace()).Create(h.t.Context(), work, creation)
	return err
}

// patch tries to change a work by a merge patch.
func (h workersHub) patch(as dynamic.Interface, name, patch string) error {
	_, err := as.Resource(worksResource).Namespace(h.namespace).Patch(h.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{DryRun: dry})
	return err
}

// secret tries to make a copy for a release, which the change changes.
func (h workersHub) secret(change func(*corev1.Secret)) error {
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: h.namespace, Name: "hello-1", OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "api.worker-release/v1alpha1", Kind: "WorkerRelease", Name: "hello-1", UID: "any"},
		}},
		Immutable: new(true), Data: map[string][]byte{"KEY": []byte("value")},
	}
	if change == nil {
		change = func(s *corev1.Secret) { s.OwnerReferences = nil }
	}
	change(s)
	_, err := h.hub.CoreV1().Secrets(s.Namespace).Create(h.t.Context(), s, creation)
	return err
}

func TestThePolicyOfWorksTakesWhatTheOperatorMakes(t *testing.T) {
	for _, work := range []string{"none", "ingress", "gateway"} {
		t.Run(work, func(t *testing.T) {
			h := newWorkersHub(t, work)
			if err := h.create(work, func(*unstructured.Unstructured) {}); err != nil {
				t.Error(err)
			}
			works := h.applies.Resource(worksResource).Namespace(h.namespace)
			made, err := works.Create(t.Context(), h.read(work), metav1.CreateOptions{})
			h.must(err)
			made.Object["spec"].(map[string]any)["manifestConfigs"] = nil
			_, err = works.Update(t.Context(), made, metav1.UpdateOptions{})
			h.must(err)
			h.must(works.Delete(t.Context(), made.GetName(), metav1.DeleteOptions{}))
		})
	}
}

func TestTheLargestWorkOfTheOperatorIsWithinThePolicysCost(t *testing.T) {
	const scripts = 100 // the most that an account may have
	h := newWorkersHub(t, "ingress")
	err := h.create("ingress", func(work *unstructured.Unstructured) {
		c := containerOf(work)
		ports, _ := c["ports"].([]any)
		for range scripts {
			ports = append(ports, ports[0])
			add(work, manifestOf(work, "Service"))
			add(work, manifestOf(work, "Secret"))
		}
		c["ports"] = ports
	})
	if err != nil {
		t.Error(err)
	}
}

func TestTheOperatorOfWorkersIsHeldToWorksOfAccounts(t *testing.T) {
	h := newWorkersHub(t, "ingress")
	for what, attacks := range map[string]map[string]attack{"pod": podAttacks(), "object": objectAttacks(), "work": workAttacks()} {
		for reason, change := range attacks {
			if err := h.create("ingress", change); !refusedBy(err, "spokelet-workers-works") || !apierrors.IsForbidden(err) {
				t.Errorf("%s: %s: got %v, want the policy's refusal", what, reason, err)
			}
		}
	}
	// What it may create it must not get by a change either, and nothing of others.
	works := h.applies.Resource(worksResource).Namespace(h.namespace)
	_, err := works.Create(t.Context(), h.read("ingress"), metav1.CreateOptions{})
	h.must(err)
	theirs := h.read("none")
	theirs.SetName("theirs")
	theirs.SetLabels(nil)
	theirs.SetAnnotations(nil)
	_, err = h.anybody.Resource(worksResource).Namespace(h.namespace).Create(t.Context(), theirs, metav1.CreateOptions{})
	h.must(err)
	for reason, err := range map[string]error{
		"an executor of its work":   h.patch(h.applies, "workers-1234", `{"spec":{"executor":{"subject":{"type":"ServiceAccount","serviceAccount":{"namespace":"a","name":"b"}}}}}`),
		"other objects of its work": h.patch(h.applies, "workers-1234", `{"spec":{"workload":{"manifests":[{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"workers-1234"}}]}}}`),
		"somebody else's work":      h.patch(h.applies, "theirs", `{"spec":{"workload":{"manifests":[]}}}`),
		"that it goes":              works.Delete(t.Context(), "theirs", metav1.DeleteOptions{DryRun: dry}),
	} {
		if !refusedBy(err, "spokelet-workers-works") || !apierrors.IsForbidden(err) {
			t.Errorf("%s: got %v, want the policy's refusal", reason, err)
		}
	}
}

func TestTheOperatorOfWorkersIsHeldToClustersThatAreOffered(t *testing.T) {
	h := newWorkersHub(t, "none")
	for reason, offered := range map[string]string{"one that nobody offered": "", "one that is kept back": "false"} {
		cluster := livetest.Namespace(t, h.admin, "chart-")
		h.cluster(cluster, offered)
		livetest.Eventually(t, reason, func() bool {
			return refusedBy(h.create("none", func(work *unstructured.Unstructured) { work.SetNamespace(cluster) }), "spokelet-workers-clusters")
		})
		_, err := h.anybody.Resource(clustersResource).Patch(t.Context(), cluster, types.MergePatchType, []byte(`{"metadata":{"labels":{"workers.spokelet.io/clusters":"true"}}}`), metav1.PatchOptions{})
		h.must(err)
		livetest.Eventually(t, reason+", and is offered now", func() bool {
			return h.create("none", func(work *unstructured.Unstructured) { work.SetNamespace(cluster) }) == nil
		})
	}
}

func TestNobodyMakesAWorkThatOfABundle(t *testing.T) {
	h := newWorkersHub(t, "none")
	bare := func(change func(*unstructured.Unstructured)) error {
		work := h.read("none")
		work.SetName("theirs")
		work.SetLabels(nil)
		work.SetAnnotations(nil)
		change(work)
		return h.asAnybody(work)
	}
	if err := bare(func(work *unstructured.Unstructured) { work.SetLabels(map[string]string{"app": "theirs"}) }); err != nil {
		t.Errorf("a work of somebody else: %v", err)
	}
	_, err := h.applies.Resource(worksResource).Namespace(h.namespace).Create(t.Context(), h.read("none"), metav1.CreateOptions{})
	h.must(err)
	for what, patch := range map[string]string{
		"the finalizer of the cluster": `{"metadata":{"finalizers":["cluster.open-cluster-management.io/manifest-work-cleanup"]}}`,
		"a label":                      `{"metadata":{"labels":{"app":"any"}}}`,
		"what is asked for":            `{"spec":{"manifestConfigs":null}}`,
	} {
		if err := h.patch(h.anybody, "workers-1234", patch); err != nil {
			t.Errorf("%s of a work of a bundle: %v", what, err)
		}
	}
	label := func(key, value string) error {
		return bare(func(work *unstructured.Unstructured) {
			work.SetLabels(map[string]string{"workers.spokelet.io/" + key: value})
		})
	}
	for reason, err := range map[string]error{
		"the label of a bundle":      label("bundle", "bundle"),
		"that label without a value": label("bundle", ""),
		"the label of an account":    label("account", "1234"),
		"the label of a namespace":   label("namespace", "team-a"),
		"the UID of a bundle": bare(func(work *unstructured.Unstructured) {
			work.SetAnnotations(map[string]string{"workers.spokelet.io/bundle-uid": "uid"})
		}),
		"a bundle's work without label":  h.patch(h.anybody, "workers-1234", `{"metadata":{"labels":{"workers.spokelet.io/bundle":null}}}`),
		"a bundle's work without UID":    h.patch(h.anybody, "workers-1234", `{"metadata":{"annotations":{"workers.spokelet.io/bundle-uid":null}}}`),
		"a bundle's work of another":     h.patch(h.anybody, "workers-1234", `{"metadata":{"annotations":{"workers.spokelet.io/bundle-uid":"another"}}}`),
		"a bundle's work that stays":     h.patch(h.anybody, "workers-1234", `{"metadata":{"finalizers":["example.com/held"]}}`),
		"a bundle's work of another one": h.patch(h.anybody, "workers-1234", `{"metadata":{"labels":{"workers.spokelet.io/namespace":"team-b"}}}`),
	} {
		if !refusedBy(err, "spokelet-workers-marks") || !apierrors.IsForbidden(err) {
			t.Errorf("%s: got %v, want the policy's refusal", reason, err)
		}
	}
}

func TestTheOperatorOfWorkersIsHeldToCopiesOfSecrets(t *testing.T) {
	h := newWorkersHub(t, "none")
	h.label(h.namespace, `"workers.spokelet.io/account":"1234"`)
	// No release is there that could own it, which is another one's to say.
	livetest.Eventually(t, "a copy for a release is made", func() bool {
		err := h.secret(func(*corev1.Secret) {})
		return err == nil || !strings.Contains(err.Error(), "spokelet-workers-secrets")
	})
	for reason, change := range map[string]func(*corev1.Secret){
		"one in a namespace of no account": func(s *corev1.Secret) { s.Namespace = namespace },
		"one of nobody's":                  func(s *corev1.Secret) { s.OwnerReferences = nil },
		"one of another's":                 func(s *corev1.Secret) { s.OwnerReferences[0].Kind = "WorkerAccount" },
		"one that may change":              func(s *corev1.Secret) { s.Immutable = nil },
		"a token of an account": func(s *corev1.Secret) {
			s.Type = corev1.SecretTypeServiceAccountToken
			s.Annotations = map[string]string{corev1.ServiceAccountNameKey: "default"}
		},
		"one of another release": func(s *corev1.Secret) { s.OwnerReferences[0].Name = "hello-2" },
	} {
		if err := h.secret(change); !refusedBy(err, "spokelet-workers-secrets") || !apierrors.IsForbidden(err) {
			t.Errorf("%s: got %v, want the policy's refusal", reason, err)
		}
	}
}
