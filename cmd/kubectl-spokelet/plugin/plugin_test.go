// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clienttesting "k8s.io/client-go/testing"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	livev1alpha1 "github.com/spokelet/spokelet/api/live/v1alpha1"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/hub/registration/token"
	"github.com/spokelet/spokelet/internal/managedcluster"
)

var rewrite = flag.Bool("rewrite", false, "write what the commands print to testdata")

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// cli is the plugin over an API server in memory.
type cli struct {
	t        *testing.T
	hub      client.WithWatch
	out, err bytes.Buffer
	// noLive makes the hub one without the live API.
	noLive bool
	// works has the kinds of work that the hub serves.
	works map[schema.GroupVersionKind]bool
	// watched runs once, when the first watch is open.
	watched func()
	// tokenWritten runs once a join token was written.
	tokenWritten func()
	// noHub makes the API server one without a hub, which sees no taint.
	noHub bool
	// creating runs before anything is created.
	creating func(client.Object)
	in       bytes.Buffer
	terminal bool
	// cancel ends the command that runs, as a signal does.
	cancel context.CancelFunc
}

func newCLI(t *testing.T, objects ...client.Object) *cli {
	t.Helper()
	scheme, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	byName := func(o client.Object) []string { return []string{o.GetName()} }
	for _, kind := range workKinds {
		scheme.AddKnownTypeWithName(kind, &metav1.PartialObjectMetadata{})
		scheme.AddKnownTypeWithName(kind.GroupVersion().WithKind(kind.Kind+"List"), &metav1.PartialObjectMetadataList{})
	}
	c := &cli{t: t, works: map[schema.GroupVersionKind]bool{}}
	// Nothing is applied here: a tracker without field managers is many times faster.
	tracker := clienttesting.NewObjectTracker(scheme, serializer.NewCodecFactory(scheme).UniversalDecoder())
	c.hub = interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme).WithObjectTracker(tracker).WithObjects(objects...).
		WithIndex(&corev1.Namespace{}, metav1.ObjectNameField, byName).
		WithIndex(&corev1.Pod{}, nodeOfPod, func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).
		WithIndex(&clusterv1.ManagedCluster{}, metav1.ObjectNameField, byName).Build(), c.interceptors())
	return c
}

func (c *cli) interceptors() interceptor.Funcs {
	return interceptor.Funcs{
		Create: func(ctx context.Context, hub client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			if c.creating != nil {
				c.creating(obj)
			}
			err := hub.Create(ctx, obj, opts...)
			if secret, ok := obj.(*corev1.Secret); ok && secret.Type == token.SecretType && err == nil && c.tokenWritten != nil {
				c.tokenWritten()
			}
			return err
		},
		Patch: func(ctx context.Context, hub client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			err := hub.Patch(ctx, obj, patch, opts...)
			if record, ok := obj.(*clusterv1.ManagedCluster); ok && err == nil && !c.noHub && managedcluster.IsDetaching(record) {
				return c.acknowledge(ctx, hub, record)
			}
			return err
		},
		List: func(ctx context.Context, hub client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			kind := list.GetObjectKind().GroupVersionKind()
			kind.Kind = strings.TrimSuffix(kind.Kind, "List")
			_, live := list.(*livev1alpha1.ClusterList)
			_, metadata := list.(*metav1.PartialObjectMetadataList)
			if (live && c.noLive) || (metadata && !c.works[kind]) {
				return &meta.NoKindMatchError{GroupKind: kind.GroupKind()}
			}
			return hub.List(ctx, list, opts...)
		},
		Watch: func(ctx context.Context, hub client.WithWatch, list client.ObjectList, opts ...client.ListOption) (watch.Interface, error) {
			stream, err := hub.Watch(ctx, list, opts...)
			if watched := c.watched; watched != nil {
				c.watched = nil
				watched()
			}
			// As the API server does: the watch ends with its context.
			context.AfterFunc(ctx, stream.Stop)
			return stream, err
		},
	}
}

// acknowledge says that a cluster is being detached, as the hub does.
func (c *cli) acknowledge(ctx context.Context, hub client.Client, record *clusterv1.ManagedCluster) error {
	now := record.DeepCopy()
	meta.SetStatusCondition(&now.Status.Conditions, metav1.Condition{
		Type: managedcluster.ConditionDetaching, Status: metav1.ConditionTrue, Reason: "Detaching",
	})
	return hub.Update(ctx, now)
}

func (c *cli) run(args ...string) int {
	c.t.Helper()
	c.out.Reset()
	c.err.Reset()
	s := &session{
		IOStreams: genericiooptions.IOStreams{In: &c.in, Out: &c.out, ErrOut: &c.err},
		connect:   func() (client.WithWatch, error) { return c.hub, nil }, terminal: c.terminal,
	}
	ctx, cancel := context.WithCancel(c.t.Context())
	defer cancel()
	c.cancel = cancel
	return Run(ctx, s.root(), args)
}

var (
	tokens = regexp.MustCompile(`spokelet\.[A-Za-z0-9_-]{43}`)
	times  = regexp.MustCompile(`20\d\d-[0-9T:-]+Z`)
)

// golden compares what was printed with a file of testdata; tokens and times
// have placeholders.
func (c *cli) golden(name string) {
	c.t.Helper()
	got := fmt.Sprintf("%s--- stderr\n%s", c.out.String(), c.err.String())
	got = times.ReplaceAllString(tokens.ReplaceAllString(got, "<token>"), "<time>")
	path := filepath.Join("testdata", name+".golden")
	if *rewrite {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			c.t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		c.t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		c.t.Error(diff)
	}
}

func page() *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "spokelet-system", Name: joinPage},
		Data:       map[string]string{"address": "hub.example.com:8443", "caFingerprint": strings.Repeat("ab", 32)},
	}
}

func namespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func cluster(name string, changes ...func(*clusterv1.ManagedCluster)) *clusterv1.ManagedCluster {
	c := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: "uid-1", CreationTimestamp: metav1.NewTime(time.Now().Add(-49 * time.Hour)),
		Annotations: map[string]string{managedcluster.AnnotationManaged: "true", managedcluster.AnnotationClusterID: "0b9cf2f5-8d0e-4b7f-8a4e-5a5c3c1d2e3f"},
	}, Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true}}
	for _, change := range changes {
		change(c)
	}
	return c
}

func condition(status metav1.ConditionStatus) func(*clusterv1.ManagedCluster) {
	return func(c *clusterv1.ManagedCluster) {
		c.Status.Version.Kubernetes = "v1.37.2"
		c.Status.Conditions = []metav1.Condition{{
			Type: clusterv1.ManagedClusterConditionAvailable, Status: status, Reason: "Test",
			LastTransitionTime: metav1.NewTime(time.Now().Add(-5 * time.Hour)),
		}}
	}
}

func TestJoin(t *testing.T) {
	for _, output := range []string{"helm", "values", "json"} {
		t.Run("The output "+output+" is stable", func(t *testing.T) {
			c := newCLI(t, page(), namespace("store1"))
			if code := c.run("join", "store1", "-o", output); code != exitDone {
				t.Fatalf("exit code %d: %s", code, c.err.String())
			}
			c.golden("join-" + output)
		})
	}

	t.Run("The record and the hash of the printed token are kept, not the token", func(t *testing.T) {
		c := newCLI(t, page())
		c.watched = func() {
			if err := c.hub.Create(t.Context(), namespace("store1")); err != nil {
				t.Error(err)
			}
		}
		if code := c.run("join", "store1", "--accept=false", "--expires", "2h"); code != exitDone {
			t.Fatalf("exit code %d: %s", code, c.err.String())
		}
		record := &clusterv1.ManagedCluster{}
		if err := c.hub.Get(t.Context(), client.ObjectKey{Name: "store1"}, record); err != nil {
			t.Fatal(err)
		}
		if record.Spec.HubAcceptsClient || !managedcluster.IsManaged(record) {
			t.Errorf("record %+v, want ours and not accepted", record)
		}
		secret := &corev1.Secret{}
		if err := c.hub.Get(t.Context(), client.ObjectKey{Namespace: "spokelet-system", Name: token.SecretName("store1")}, secret); err != nil {
			t.Fatal(err)
		}
		kept, err := token.Decode(secret.Data)
		if err != nil {
			t.Fatal(err)
		}
		printed, err := token.Parse(tokens.FindString(c.out.String()))
		if err != nil || kept.Hash != printed.Hash() || kept.BoundKey != nil {
			t.Errorf("the secret is not that of the printed token: %v", err)
		}
		if left := time.Until(kept.Expires); left < 119*time.Minute || left > 2*time.Hour {
			t.Errorf("the token is good for %s, want 2h", left)
		}
		if strings.Contains(fmt.Sprintf("%s", secret.Data), printed.Reveal()) {
			t.Error("the secret holds the token")
		}
	})

	t.Run("A known cluster gets a new token, and is not accepted by the way", func(t *testing.T) {
		denied := cluster("store1", func(c *clusterv1.ManagedCluster) { c.Spec.HubAcceptsClient = false })
		c := newCLI(t, page(), namespace("store1"), denied)
		if code := c.run("join", "store1"); code != exitDone {
			t.Fatalf("exit code %d: %s", code, c.err.String())
		}
		first := tokens.FindString(c.out.String())
		c.golden("join-again")
		if code := c.run("join", "store1", "--accept"); code != exitDone || tokens.FindString(c.out.String()) == first {
			t.Errorf("exit code %d, the same token", code)
		}
		record := &clusterv1.ManagedCluster{}
		if err := c.hub.Get(t.Context(), client.ObjectKey{Name: "store1"}, record); err != nil || !record.Spec.HubAcceptsClient {
			t.Errorf("not accepted on demand: %v", err)
		}
	})

	for name, tc := range map[string]struct {
		objects []client.Object
		args    []string
		code    int
		says    string
	}{
		"A name that is no DNS label":   {args: []string{"store.1"}, code: exitUsage, says: "DNS label"},
		"No name":                       {code: exitUsage},
		"An unknown flag":               {args: []string{"store1", "--nonsense"}, code: exitUsage},
		"An unknown output":             {args: []string{"store1", "-o", "xml"}, code: exitUsage, says: "helm, values, json"},
		"A token for ever":              {args: []string{"store1", "--expires", "9000h"}, code: exitUsage},
		"A hub that is not installed":   {args: []string{"store1"}, code: exitNotFound, says: "is Spokelet installed"},
		"A hub that makes no namespace": {objects: []client.Object{page()}, args: []string{"store1", "--timeout", "50ms"}, code: exitTimeout, says: "is it running"},
		"A record of another tool": {
			objects: []client.Object{page(), cluster("store1", func(c *clusterv1.ManagedCluster) { c.Annotations = nil })},
			args:    []string{"store1"}, code: exitFailed, says: managedcluster.AnnotationManaged,
		},
	} {
		t.Run(name+" fails", func(t *testing.T) {
			c := newCLI(t, tc.objects...)
			if code := c.run(append([]string{"join"}, tc.args...)...); code != tc.code || !strings.Contains(c.err.String(), tc.says) {
				t.Errorf("exit code %d, want %d: %s", code, tc.code, c.err.String())
			}
			if c.out.Len() > 0 {
				t.Errorf("stdout has %q", c.out.String())
			}
		})
	}
}

func TestALabelToBeSplitByIsConsentedToAndStays(t *testing.T) {
	c := newCLI(t, page(), namespace("store1"))
	for _, args := range [][]string{{"--split-label", "example.com/zone"}, {"--split-label", "example.com/pool"}, nil} {
		if code := c.run(append([]string{"join", "store1"}, args...)...); code != exitDone {
			t.Fatalf("exit code %d: %s", code, c.err.String())
		}
	}
	record := &clusterv1.ManagedCluster{}
	if err := c.hub.Get(t.Context(), client.ObjectKey{Name: "store1"}, record); err != nil {
		t.Fatal(err)
	}
	if got := record.Annotations[wire.AnnotationSplitLabel]; got != "example.com/pool" {
		t.Errorf("the record consents to %q", got)
	}
	if code := c.run("join", "store1", "--split-label", "kubernetes.io/hostname"); code != exitUsage {
		t.Errorf("exit code %d for a label that is the hub's to set", code)
	}
}

func TestGetClusters(t *testing.T) {
	fleet := func() []client.Object {
		return []client.Object{
			cluster("store2", condition(metav1.ConditionUnknown)), cluster("store1", condition(metav1.ConditionTrue)),
			cluster("store3", func(c *clusterv1.ManagedCluster) { c.Spec.HubAcceptsClient = false }),
			cluster("foreign", func(c *clusterv1.ManagedCluster) { c.Annotations = nil }),
		}
	}
	live := &livev1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "store1"}, Status: livev1alpha1.ClusterStatus{
		Connected: true, ConnectedSince: &metav1.Time{Time: time.Now().Add(-3 * time.Hour)},
		RTT: &metav1.Duration{Duration: 12345678}, AgentVersion: "v0.1.0",
	}}
	for name, args := range map[string][]string{
		"table": nil, "wide": {"-o", "wide"}, "name": {"-o", "name"}, "json": {"store1", "-o", "json"}, "yaml": {"store1", "store2", "-o", "yaml"},
		"no-headers": {"store1", "--no-headers"},
	} {
		t.Run("The output "+name+" is stable", func(t *testing.T) {
			c := newCLI(t, append(fleet(), live)...)
			if code := c.run(append([]string{"get", "clusters"}, args...)...); code != exitDone {
				t.Fatalf("exit code %d: %s", code, c.err.String())
			}
			c.golden("get-" + name)
		})
	}

	t.Run("Without the live API the records speak", func(t *testing.T) {
		c := newCLI(t, fleet()...)
		c.noLive = true
		c.run("get", "clusters", "-o", "wide")
		c.golden("get-records")
	})

	t.Run("An unknown cluster is not found", func(t *testing.T) {
		if code := newCLI(t).run("get", "clusters", "nowhere"); code != exitNotFound {
			t.Errorf("exit code %d, want %d", code, exitNotFound)
		}
	})

	t.Run("Names are completed", func(t *testing.T) {
		c := newCLI(t, fleet()...)
		c.run("__complete", "detach", "")
		if got := strings.Fields(c.out.String()); !cmp.Equal(got[:3], []string{"store1", "store2", "store3"}) {
			t.Errorf("completions %q", got)
		}
	})
}

func (c *cli) exists(cluster string) bool {
	c.t.Helper()
	err := c.hub.Get(c.t.Context(), client.ObjectKey{Name: cluster}, &clusterv1.ManagedCluster{})
	if err != nil && !apierrors.IsNotFound(err) {
		c.t.Fatal(err)
	}
	return err == nil
}

func TestDetachEndsThePodsOfTheNode(t *testing.T) {
	pod := func(change ...func(*corev1.Pod)) client.Object {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u"}, Spec: corev1.PodSpec{NodeName: "store1"}}
		for _, c := range change {
			c(p)
		}
		return p
	}
	held := func(p *corev1.Pod) { p.Finalizers = []string{"example.com/runs"} }
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "store1"}}

	t.Run("Pods end before the record goes, and none comes after them", func(t *testing.T) {
		c := newCLI(t, cluster("store1"), node, pod(held))
		c.watched = func() {
			var n corev1.Node
			if err := c.hub.Get(t.Context(), client.ObjectKey{Name: "store1"}, &n); err != nil || !n.Spec.Unschedulable {
				t.Errorf("the node takes pods: %v", err)
			}
			if !c.exists("store1") {
				t.Error("the record went before its pods")
			}
			if err := c.hub.Patch(t.Context(), pod(), client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
				t.Error(err)
			}
		}
		if code := c.run("detach", "store1"); code != exitDone || c.exists("store1") {
			t.Errorf("exit code %d, record exists: %v: %s", code, c.exists("store1"), c.err.String())
		}
	})

	t.Run("Pods of its groups end, too, and nobody else's", func(t *testing.T) {
		labelled := func(name, provider string) *corev1.Node {
			return &corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"spokelet.io/cluster": "store1"}},
				Spec:       corev1.NodeSpec{ProviderID: provider},
			}
		}
		on := func(node string) client.Object {
			return pod(func(p *corev1.Pod) { p.Name, p.Spec.NodeName = "on-"+node, node })
		}
		c := newCLI(t, cluster("store1"), node.DeepCopy(), labelled("store1.gpu", "spokelet://id/gpu"), on("store1.gpu"),
			labelled("store1.aws", "aws://x"), on("store1.aws"), labelled("worker", "aws://y"), on("worker"))
		if code := c.run("detach", "store1"); code != exitDone || c.exists("store1") {
			t.Errorf("exit code %d, record exists: %v: %s", code, c.exists("store1"), c.err.String())
		}
		for node, want := range map[string]bool{"store1.gpu": false, "store1.aws": true, "worker": true} {
			err := c.hub.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "on-" + node}, &corev1.Pod{})
			var n corev1.Node
			if got := err == nil; got != want || c.hub.Get(t.Context(), client.ObjectKey{Name: node}, &n) != nil || n.Spec.Unschedulable == want {
				t.Errorf("%s: its pod is there: %t, cordoned: %t", node, got, n.Spec.Unschedulable)
			}
		}
	})

	t.Run("A cluster whose pods do not end is not detached", func(t *testing.T) {
		c := newCLI(t, cluster("store1"), pod(held))
		if code := c.run("detach", "store1", "--timeout", "50ms"); code != exitTimeout || !c.exists("store1") {
			t.Errorf("exit code %d, record exists: %v", code, c.exists("store1"))
		}
	})

	t.Run("By force, and says what runs on", func(t *testing.T) {
		c := newCLI(t, cluster("store1"), pod(held))
		if code := c.run("detach", "store1", "--force"); code != exitDone || c.exists("store1") || !strings.Contains(c.err.String(), "pod/shop/web") {
			t.Errorf("exit code %d, record exists: %v: %s", code, c.exists("store1"), c.err.String())
		}
	})

	t.Run("The pods of DaemonSets never were there", func(t *testing.T) {
		owner := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "d", Controller: new(true)}
		c := newCLI(t, cluster("store1"), pod(held, func(p *corev1.Pod) { p.OwnerReferences = []metav1.OwnerReference{owner} }))
		if code := c.run("detach", "store1"); code != exitDone || c.exists("store1") {
			t.Errorf("exit code %d, record exists: %v: %s", code, c.exists("store1"), c.err.String())
		}
	})
}

func TestQuote(t *testing.T) {
	for word, want := range map[string]string{
		"a=b": "a=b", "": "''", "[::1]:8443": "'[::1]:8443'", "a b": "'a b'", "$(rm)": "'$(rm)'", "it's": `'it'\''s'`,
	} {
		if got := quote(word); got != want {
			t.Errorf("quote(%q) = %s, want %s", word, got, want)
		}
	}
}

func TestExitCode(t *testing.T) {
	if got := exitCode(errors.New("boom")); got != exitFailed {
		t.Errorf("exit code %d, want %d", got, exitFailed)
	}
}
