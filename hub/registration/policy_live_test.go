// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/api/crds"
	"github.com/spokelet/spokelet/internal/managedcluster"
	"github.com/spokelet/spokelet/internal/testing/livetest"
)

// The users of the policy's tests. All may write records.
const (
	theHub    = "hub"      // whom the policy names
	editor    = "editor"   // has no further right
	acceptor  = "acceptor" // has the right to accept every cluster
	ofAnother = "another"  // has it for a cluster of another name
	admin     = ""         // the administrator of the kubeconfig
)

// guarded is a real API server in which the policy is in force for the records
// that bear a label of the test.
type guarded struct {
	t       *testing.T
	suffix  string
	labels  map[string]string
	clients map[string]client.Client
}

func newGuarded(t *testing.T) *guarded {
	t.Helper()
	cfg := livetest.Config(t, "SPOKELET_HUB_KUBECONFIG")
	suffix := rand.String(8)
	g := &guarded{t: t, suffix: suffix, labels: map[string]string{"spokelet.io/test": suffix}, clients: map[string]client.Client{}}
	for _, user := range []string{admin, theHub, editor, acceptor, ofAnother} {
		g.clients[user] = g.clientFor(cfg, user)
	}
	definitions, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := crds.Install(t.Context(), definitions, crds.Hub()); err != nil {
		t.Fatal(err)
	}
	g.grant()
	g.enforce()
	return g
}

func (g *guarded) user(name string) string { return name + "-" + g.suffix }

func (g *guarded) clientFor(cfg *rest.Config, user string) client.Client {
	g.t.Helper()
	cfg = rest.CopyConfig(cfg)
	if user != admin {
		cfg.Impersonate.UserName = g.user(user)
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clusterv1.Install, rbacv1.AddToScheme, admissionv1.AddToScheme} {
		if err := add(scheme); err != nil {
			g.t.Fatal(err)
		}
	}
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		g.t.Fatal(err)
	}
	return c
}

// create makes what is taken away again with the test.
func (g *guarded) create(obj client.Object) {
	g.t.Helper()
	if err := g.clients[admin].Create(g.t.Context(), obj); err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() {
		err := g.clients[admin].Delete(context.WithoutCancel(g.t.Context()), obj)
		if client.IgnoreNotFound(err) != nil {
			g.t.Error(err)
		}
	})
}

func (g *guarded) grant() {
	g.t.Helper()
	write := rbacv1.PolicyRule{
		APIGroups: []string{clusterv1.GroupName}, Resources: []string{"managedclusters", "managedclusters/status"}, Verbs: []string{"*"},
	}
	accepting := rbacv1.PolicyRule{
		APIGroups: []string{"register.open-cluster-management.io"}, Resources: []string{"managedclusters/accept"}, Verbs: []string{"update"},
	}
	one := accepting
	one.ResourceNames = []string{"another"}
	for user, rules := range map[string][]rbacv1.PolicyRule{
		theHub: {write}, editor: {write}, acceptor: {write, accepting}, ofAnother: {write, one},
	} {
		name := "spokelet-test-" + g.user(user)
		g.create(&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules})
		g.create(&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: g.user(user)}},
		})
	}
}

// enforce applies the policy, and returns once the API server acts by it. A hub
// that is installed in the cluster is not disturbed: name and selector are the
// test's own.
func (g *guarded) enforce() {
	g.t.Helper()
	objects, err := AdmissionPolicy(g.user(theHub))
	if err != nil {
		g.t.Fatal(err)
	}
	for _, obj := range objects {
		obj.SetName("spokelet-test-" + g.suffix)
		if binding, ok := obj.(*admissionv1.ValidatingAdmissionPolicyBinding); ok {
			binding.Spec.PolicyName = binding.Name
			binding.Spec.MatchResources = &admissionv1.MatchResources{ObjectSelector: &metav1.LabelSelector{MatchLabels: g.labels}}
		}
		g.create(obj)
	}
	probe := g.record(accept)
	livetest.Eventually(g.t, "the policy is in force", func() bool {
		err := g.clients[editor].Create(g.t.Context(), probe.DeepCopy(), client.DryRunAll)
		return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "managedclusters/accept")
	})
	// Whose rights came last the API server may not know yet.
	allowed := map[string]*clusterv1.ManagedCluster{theHub: g.record(refuse), ofAnother: g.record(refuse), acceptor: g.record(accept)}
	for user, record := range allowed {
		livetest.Eventually(g.t, "the rights of "+user+" are in force", func() bool {
			return g.clients[user].Create(g.t.Context(), record.DeepCopy(), client.DryRunAll) == nil
		})
	}
}

// record makes one of a new name.
func (g *guarded) record(changes ...func(*clusterv1.ManagedCluster)) *clusterv1.ManagedCluster {
	r := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "test-" + rand.String(8), Labels: g.labels}}
	for _, change := range changes {
		change(r)
	}
	return r
}

func refuse(record *clusterv1.ManagedCluster) { record.Spec.HubAcceptsClient = false }

// annotate sets an annotation, or takes it away when the value is empty.
func annotate(key, value string) func(*clusterv1.ManagedCluster) {
	return func(r *clusterv1.ManagedCluster) {
		if value == "" {
			delete(r.Annotations, key)
			return
		}
		metav1.SetMetaDataAnnotation(&r.ObjectMeta, key, value)
	}
}

// A verdictCase is one request that the policy judges.
type verdictCase struct {
	reason string
	user   string
	before []func(*clusterv1.ManagedCluster) // nil for a creation
	change func(*clusterv1.ManagedCluster)
	// denied is in the message of the refusal; empty when the request is allowed.
	denied string
}

const (
	lacksAccept = "the right to update managedclusters/accept in group register.open-cluster-management.io is needed"
	idIsFixed   = "annotation spokelet.io/cluster-id of managed cluster"
	uidIsFixed  = "annotation spokelet.io/kube-system-uid of managed cluster"
)

func creations() map[string]verdictCase {
	generated := func(r *clusterv1.ManagedCluster) {
		accept(r)
		r.Name, r.GenerateName = "", "test-"
	}
	return map[string]verdictCase{
		"An editor makes a record": {reason: "a record alone admits nobody", user: editor, change: refuse},
		"An editor makes an accepted record": {
			reason: "acceptance at creation is acceptance", user: editor, change: accept, denied: lacksAccept,
		},
		"An acceptor makes an accepted record": {reason: "it has the right", user: acceptor, change: accept},
		"An acceptor of another cluster makes an accepted record": {
			reason: "the right is looked up by name", user: ofAnother, change: accept, denied: lacksAccept,
		},
		"An acceptor of another cluster lets the name be generated": {
			reason: "a name that is not known yet is not the one of the right", user: ofAnother, change: generated, denied: lacksAccept,
		},
		"An acceptor lets the name be generated": {reason: "its right has no name", user: acceptor, change: generated},
		"The hub makes an accepted record": {
			reason: "writing ids is the hub's, accepting is not", user: theHub, change: accept, denied: lacksAccept,
		},
		"An editor restores a record with its ids": {reason: "a backup brings them", user: editor, change: func(r *clusterv1.ManagedCluster) {
			annotate(managedcluster.AnnotationClusterID, store1ID)(r)
			annotate(AnnotationKubeSystemUID, store1NS)(r)
		}},
	}
}

func acceptances() map[string]verdictCase {
	type changes = []func(*clusterv1.ManagedCluster)
	labelled := func(r *clusterv1.ManagedCluster) { r.Labels["tier"] = "gold" }
	return map[string]verdictCase{
		"An editor accepts":     {reason: "it lacks the right", user: editor, before: changes{refuse}, change: accept, denied: lacksAccept},
		"An acceptor accepts":   {reason: "it has the right", user: acceptor, before: changes{refuse}, change: accept},
		"The hub accepts":       {reason: "it lacks the right", user: theHub, before: changes{refuse}, change: accept, denied: lacksAccept},
		"An admin accepts":      {reason: "all rights include this one", user: admin, before: changes{refuse}, change: accept},
		"An editor withdraws":   {reason: "withdrawing admits nobody", user: editor, before: changes{accept}, change: refuse},
		"An editor sets labels": {reason: "an accepted record stays editable", user: editor, before: changes{accept}, change: labelled},
		"An acceptor of another cluster accepts": {
			reason: "the right is looked up by name", user: ofAnother, before: changes{refuse}, change: accept, denied: lacksAccept,
		},
		"An editor takes away the label of the selector and accepts": {
			reason: "the stored record counts as well", user: editor, before: changes{refuse}, denied: lacksAccept,
			change: func(r *clusterv1.ManagedCluster) {
				r.Labels = nil
				accept(r)
			},
		},
	}
}

func ids() map[string]verdictCase {
	type changes = []func(*clusterv1.ManagedCluster)
	id, otherOne, noID := annotate(managedcluster.AnnotationClusterID, store1ID), annotate(managedcluster.AnnotationClusterID, otherID), annotate(managedcluster.AnnotationClusterID, "")
	uid, otherUID, noUID := annotate(AnnotationKubeSystemUID, store1NS), annotate(AnnotationKubeSystemUID, otherNS), annotate(AnnotationKubeSystemUID, "")
	return map[string]verdictCase{
		"The hub sets the id":              {reason: "it is the one who does", user: theHub, before: changes{refuse}, change: id},
		"The hub changes the id":           {reason: "it is set once", user: theHub, before: changes{id}, change: otherOne, denied: idIsFixed},
		"The hub takes the id away":        {reason: "then it could be set anew", user: theHub, before: changes{id}, change: noID, denied: idIsFixed},
		"An editor sets the id":            {reason: "it is not the hub", user: editor, before: changes{refuse}, change: id, denied: idIsFixed},
		"An editor changes the id":         {reason: "a certificate would pass for another's", user: editor, before: changes{id}, change: otherOne, denied: idIsFixed},
		"An acceptor changes the id":       {reason: "accepting is another right", user: acceptor, before: changes{id}, change: otherOne, denied: idIsFixed},
		"An admin changes the id":          {reason: "no right changes an id", user: admin, before: changes{id}, change: otherOne, denied: idIsFixed},
		"An admin takes the id away":       {reason: "no right changes an id", user: admin, before: changes{id}, change: noID, denied: idIsFixed},
		"An editor leaves the ids alone":   {reason: "what stays is no change", user: editor, before: changes{id, uid}, change: annotate("a", "b")},
		"The hub pins the cluster":         {reason: "at the first session", user: theHub, before: changes{id}, change: uid},
		"The hub pins another cluster":     {reason: "after a detach", user: theHub, before: changes{id, uid}, change: otherUID},
		"An editor pins the cluster":       {reason: "it is not the hub", user: editor, before: changes{id}, change: uid, denied: uidIsFixed},
		"An editor takes the pin away":     {reason: "another cluster could step in", user: editor, before: changes{id, uid}, change: noUID, denied: uidIsFixed},
		"An acceptor pins another cluster": {reason: "accepting is another right", user: acceptor, before: changes{id, uid}, change: otherUID, denied: uidIsFixed},
		"An admin pins another cluster":    {reason: "the way is to detach", user: admin, before: changes{id, uid}, change: otherUID, denied: uidIsFixed},
		"An acceptor accepts and sets an id": {reason: "one right does not bring the other", user: acceptor, before: changes{refuse}, denied: idIsFixed,
			change: func(r *clusterv1.ManagedCluster) { accept(r); id(r) }},
	}
}

func TestLiveAdmissionPolicy(t *testing.T) {
	g := newGuarded(t)
	for _, table := range []map[string]verdictCase{creations(), acceptances(), ids()} {
		for label, c := range table {
			t.Run(label, func(t *testing.T) { g.judge(t, c) })
		}
	}
}

func (g *guarded) judge(t *testing.T, c verdictCase) {
	t.Helper()
	who := g.clients[c.user]
	var stored *clusterv1.ManagedCluster
	var err error
	if c.before == nil {
		err = who.Create(t.Context(), g.record(c.change), client.DryRunAll)
	} else {
		stored = g.record(c.before...)
		g.create(stored)
		changed := stored.DeepCopy()
		c.change(changed)
		err = who.Update(t.Context(), changed)
	}
	if c.denied == "" {
		if err != nil {
			t.Errorf("%s: %v", c.reason, err)
		}
		return
	}
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), c.denied) {
		t.Errorf("%s: got %v, want a refusal with %q", c.reason, err, c.denied)
	}
	if stored != nil {
		g.unchanged(t, stored)
	}
}

func (g *guarded) unchanged(t *testing.T, want *clusterv1.ManagedCluster) {
	t.Helper()
	var got clusterv1.ManagedCluster
	if err := g.clients[admin].Get(t.Context(), client.ObjectKeyFromObject(want), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.ResourceVersion, got.ResourceVersion); diff != "" {
		t.Errorf("what was refused changed the record (-want +got):\n%s", diff)
	}
}

// What the policy does not look at must not lead around it.
func TestLiveAdmissionPolicyCoversSubresources(t *testing.T) {
	g := newGuarded(t)
	stored := g.record(annotate(managedcluster.AnnotationClusterID, store1ID))
	g.create(stored)

	t.Run("A patch is judged as an update is", func(t *testing.T) {
		for label, patch := range map[string]client.Patch{
			"merge": client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"hubAcceptsClient":true}}`)),
			"json":  client.RawPatch("application/json-patch+json", []byte(`[{"op":"add","path":"/spec/hubAcceptsClient","value":true}]`)),
			"apply": client.RawPatch("application/apply-patch+yaml", []byte(`{"apiVersion":"cluster.open-cluster-management.io/v1","kind":"ManagedCluster","spec":{"hubAcceptsClient":true}}`)),
		} {
			var options []client.PatchOption
			if label == "apply" {
				options = append(options, client.FieldOwner("test"), client.ForceOwnership)
			}
			err := g.clients[editor].Patch(t.Context(), stored.DeepCopy(), patch, options...)
			if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), lacksAccept) {
				t.Errorf("%s patch: got %v, want a refusal with %q", label, err, lacksAccept)
			}
		}
		g.unchanged(t, stored)
	})

	t.Run("The status leaves acceptance and ids as they are", func(t *testing.T) {
		changed := stored.DeepCopy()
		accept(changed)
		annotate(managedcluster.AnnotationClusterID, otherID)(changed)
		changed.Status.Version.Kubernetes = "v1.36.0"
		if err := g.clients[editor].Status().Update(t.Context(), changed); err != nil {
			t.Fatal(err)
		}
		var got clusterv1.ManagedCluster
		if err := g.clients[admin].Get(t.Context(), client.ObjectKeyFromObject(stored), &got); err != nil {
			t.Fatal(err)
		}
		if got.Spec.HubAcceptsClient || got.Annotations[managedcluster.AnnotationClusterID] != store1ID {
			t.Errorf("accepted %t, id %q", got.Spec.HubAcceptsClient, got.Annotations[managedcluster.AnnotationClusterID])
		}
	})
}
