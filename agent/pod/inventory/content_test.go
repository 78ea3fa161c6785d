// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/fake"
	k8stesting "k8s.io/client-go/testing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errBoom = errors.New("boom")

// served is what an API server says that it serves.
type served struct {
	discovery.DiscoveryInterfaceWithContext

	lists []*metav1.APIResourceList
	err   error
}

func (s served) ServerPreferredNamespacedResourcesWithContext(context.Context) ([]*metav1.APIResourceList, error) {
	return s.lists, s.err
}

func resources(version string, names ...string) *metav1.APIResourceList {
	l := &metav1.APIResourceList{GroupVersion: version}
	for _, name := range names {
		l.APIResources = append(l.APIResources, metav1.APIResource{Name: name, Namespaced: true, Verbs: metav1.Verbs{"list", "delete"}})
	}
	return l
}

func kubernetes() []*metav1.APIResourceList {
	return []*metav1.APIResourceList{
		resources("v1", "secrets", "serviceaccounts", "configmaps", "events", "pods", "persistentvolumeclaims"), resources("events.k8s.io/v1", "events"), resources("apps/v1", "deployments"),
	}
}

// object is one in the namespace, or in another.
func object(version, kind, name string, change ...func(*metav1.PartialObjectMetadata)) runtime.Object {
	o := &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: kind}, ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
	}
	for _, f := range change {
		f(o)
	}
	return o
}

// standards are what Kubernetes puts into each namespace.
func standards() []runtime.Object {
	return []runtime.Object{
		object("v1", "ServiceAccount", "default"), object("v1", "ConfigMap", "kube-root-ca.crt"),
		object("v1", "Event", "web.1"), object("events.k8s.io/v1", "Event", "web.2"),
	}
}

// refusing answers the lists of a resource with an error, so often.
func refusing(resource string, err error, often int) func(*fake.FakeMetadataClient) {
	return func(c *fake.FakeMetadataClient) {
		c.PrependReactor("list", resource, func(k8stesting.Action) (bool, runtime.Object, error) {
			often--
			return often >= 0, nil, err
		})
	}
}

// paged has more of a resource than is asked for.
func paged(resource string) func(*fake.FakeMetadataClient) {
	return func(c *fake.FakeMetadataClient) {
		c.PrependReactor("list", resource, func(k8stesting.Action) (bool, runtime.Object, error) {
			return true, &metav1.List{ListMeta: metav1.ListMeta{Continue: "more"}}, nil
		})
	}
}

// limiting honours the limit of a list, as an API server does and the fake does not.
type limiting struct{ metadata.Interface }

func (l limiting) Resource(kind schema.GroupVersionResource) metadata.Getter {
	return limitingKind{l.Interface.Resource(kind)}
}

type limitingKind struct{ metadata.Getter }

func (k limitingKind) Namespace(name string) metadata.ResourceInterface {
	return limitingObjects{k.Getter.Namespace(name)}
}

type limitingObjects struct{ metadata.ResourceInterface }

func (o limitingObjects) List(ctx context.Context, options metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	found, err := o.ResourceInterface.List(ctx, options)
	if err == nil && len(found.Items) > int(options.Limit) {
		found.Items, found.Continue = found.Items[:options.Limit], "more"
	}
	return found, err
}

// reader is a Reader of what is there, and ignores what bears the label "spared".
func reader(t *testing.T, api served, objects []runtime.Object, refuse func(*fake.FakeMetadataClient)) *Reader {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	client := fake.NewSimpleMetadataClient(scheme, objects...)
	if refuse != nil {
		refuse(client)
	}
	if api.lists == nil && api.err == nil {
		api.lists = kubernetes()
	}
	return &Reader{Discovery: api, Metadata: limiting{client}, Ignore: func(_ schema.GroupResource, o metav1.Object) bool { return o.GetLabels()["spared"] != "" }}
}

// contentCase is a namespace, and what is to be found in it.
type contentCase struct {
	reason  string
	objects []runtime.Object
	api     served
	refuse  func(*fake.FakeMetadataClient)
	grace   time.Duration
	want    Content
	says    string
	fails   bool
}

func (tc contentCase) check(t *testing.T) {
	r := reader(t, tc.api, tc.objects, tc.refuse)
	began := time.Now()
	got, err := r.Read(t.Context(), "shop", tc.grace)
	if diff := cmp.Diff(tc.want, got, cmpopts.EquateEmpty()); diff != "" || (err != nil) != tc.fails {
		t.Errorf("%s: error %v, (-want +got):\n%s", tc.reason, err, diff)
	}
	if got.String() != tc.says {
		t.Errorf("%s: it says %q", tc.reason, got)
	}
	if took := time.Since(began); took > tc.grace+retryInterval {
		t.Errorf("it took %s", took)
	}
}

// going is on its way out.
func going(o *metav1.PartialObjectMetadata) { o.DeletionTimestamp = new(metav1.Now()) }

func TestReadNamespaceContent(t *testing.T) {
	elsewhere := func(o *metav1.PartialObjectMetadata) { o.Namespace = "other" }
	spared := func(o *metav1.PartialObjectMetadata) { o.Labels = map[string]string{"spared": "true"} }
	token := func(o *metav1.PartialObjectMetadata) {
		o.Annotations = map[string]string{corev1.ServiceAccountNameKey: "default"}
	}
	of := func(owners ...string) func(*metav1.PartialObjectMetadata) {
		return func(o *metav1.PartialObjectMetadata) {
			for i := 0; i < len(owners); i += 2 {
				o.OwnerReferences = append(o.OwnerReferences, metav1.OwnerReference{APIVersion: owners[i], Kind: owners[i+1], Name: "web-1"})
			}
		}
	}
	manyKinds := &metav1.APIResourceList{GroupVersion: "v1"}
	var many, accounts []runtime.Object
	for i := range 12 {
		accounts = append(accounts, object("v1", "ServiceAccount", fmt.Sprintf("account%02d", i), spared))
		manyKinds.APIResources = append(manyKinds.APIResources, resources("v1", fmt.Sprintf("kind%02ds", i)).APIResources...)
		many = append(many, object("v1", fmt.Sprintf("Kind%02d", i), "a"))
	}
	cases := map[string]contentCase{
		"nothing":              {reason: "no controller has been there yet"},
		"what every one has":   {reason: "nobody put it there", objects: standards()},
		"what is spared":       {reason: "its maker says that it may go", objects: append(standards(), object("v1", "Secret", "copy", spared))},
		"many that are spared": {reason: "their maker says that they may go", objects: accounts},
		"what is in another":   {reason: "it stays", objects: []runtime.Object{object("v1", "ConfigMap", "settings", elsewhere)}},
		"a ConfigMap":          {reason: "somebody put it there", objects: append(standards(), object("v1", "ConfigMap", "settings")), want: Content{Objects: []string{"configmaps/settings"}}, says: "holds configmaps/settings"},
		"another account":      {reason: "somebody put it there", objects: []runtime.Object{object("v1", "ServiceAccount", "robot")}, want: Content{Objects: []string{"serviceaccounts/robot"}}, says: "holds serviceaccounts/robot"},
		"a token of the account \"default\"": {
			reason: "Kubernetes makes none: somebody did", objects: append(standards(), object("v1", "Secret", "default-token-x", token)),
			want: Content{Objects: []string{"secrets/default-token-x"}}, says: "holds secrets/default-token-x",
		},
		"several kinds": {
			reason: "each is named, in order", objects: []runtime.Object{object("v1", "Pod", "a"), object("apps/v1", "Deployment", "web"), object("v1", "ConfigMap", "b"), object("v1", "ConfigMap", "a")},
			want: Content{Objects: []string{"configmaps/a", "deployments.apps/web", "pods/a"}}, says: "holds configmaps/a, deployments.apps/web, pods/a",
		},
		"a great many kinds": {
			reason: "it is looked no further than is said", objects: many, api: served{lists: append(kubernetes(), manyKinds)},
			want: Content{Objects: []string{"kind00s/a", "kind01s/a", "kind02s/a", "kind03s/a", "kind04s/a", "kind05s/a", "kind06s/a", "kind07s/a", "kind08s/a"}},
			says: "holds kind00s/a, kind01s/a, kind02s/a, kind03s/a, kind04s/a, kind05s/a, kind06s/a, kind07s/a and more",
		},
		"what is on its way out": {
			reason: "it is gone at another look", fails: true,
			objects: []runtime.Object{
				object("v1", "ConfigMap", "state", going), object("v1", "Pod", "web-1", going), object("v1", "Secret", "web-1-data", of("v1", "Pod")),
			},
			want: Content{Objects: []string{"configmaps/state", "pods/web-1", "secrets/web-1-data"}}, says: "holds configmaps/state, pods/web-1, secrets/web-1-data",
		},
		"something beside what is on its way out": {
			reason: "it stays, and is named before the rest", objects: []runtime.Object{object("v1", "ConfigMap", "a", going), object("v1", "ConfigMap", "settings"), object("v1", "Pod", "web-1", going)},
			want: Content{Objects: []string{"configmaps/settings", "pods/web-1"}}, says: "holds configmaps/settings, pods/web-1",
		},
		"what belongs to a pod that stays": {
			reason: "the pod is found itself", objects: []runtime.Object{object("v1", "Pod", "web-1"), object("v1", "Secret", "web-1-data", of("v1", "Pod"))},
			want: Content{Objects: []string{"pods/web-1", "secrets/web-1-data"}}, says: "holds pods/web-1, secrets/web-1-data",
		},
		"what belongs to a pod and to something else": {
			reason: "it outlives the pod", objects: []runtime.Object{object("v1", "Secret", "data", of("v1", "Pod", "apps/v1", "Deployment"))},
			want: Content{Objects: []string{"secrets/data"}}, says: "holds secrets/data",
		},
		"what belongs to another kind of that name": {
			reason: "nobody knows whether it goes", objects: []runtime.Object{object("v1", "Secret", "data", of("example.com/v1", "Pod"))},
			want: Content{Objects: []string{"secrets/data"}}, says: "holds secrets/data",
		},
		"more than a page": {reason: "somebody put it there", refuse: paged("configmaps"), want: Content{Objects: []string{"configmaps"}}, says: "holds configmaps"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) { synctest.Test(t, tc.check) })
	}
}

func TestReadReportsUnlistedKinds(t *testing.T) {
	forbidden := apierrors.NewForbidden(corev1.Resource("secrets"), "", errBoom)
	group := schema.GroupVersion{Group: "metrics.example.com", Version: "v1"}
	cases := map[string]contentCase{
		"what is on its way out beside a kind that may not be listed": {
			reason: "that keeps it in any case", objects: []runtime.Object{object("v1", "ConfigMap", "a", going)}, refuse: refusing("secrets", forbidden, 1000),
			want: Content{Objects: []string{"configmaps/a"}, Unlisted: []string{"secrets"}}, says: "holds configmaps/a; cannot list secrets",
		},
		"a kind that may not be listed": {
			reason: "something may be there", refuse: refusing("secrets", forbidden, 1000), want: Content{Unlisted: []string{"secrets"}}, says: "cannot list secrets",
		},
		"a right that is on its way": {
			reason: "it was given a moment ago", refuse: refusing("configmaps", forbidden, 8), grace: 5 * time.Second,
		},
		"a right that does not come": {
			reason: "it may take longer", refuse: refusing("configmaps", forbidden, 1000), grace: 5 * time.Second, want: Content{Unlisted: []string{"configmaps"}}, says: "cannot list configmaps", fails: true,
		},
		"a kind that is not found": {
			reason: "the API server that is asked may not serve it yet", refuse: refusing("deployments", apierrors.NewNotFound(schema.GroupResource{}, ""), 1),
			want: Content{Unlisted: []string{"deployments.apps"}}, says: "cannot list deployments.apps", fails: true,
		},
		"an API server that fails": {
			reason: "it heals", refuse: refusing("pods", apierrors.NewServiceUnavailable("boom"), 1), want: Content{Unlisted: []string{"pods"}}, says: "cannot list pods", fails: true,
		},
		"an aggregated API server that is away": {
			reason: "something may be there", objects: []runtime.Object{object("v1", "ConfigMap", "a")},
			api:  served{lists: kubernetes(), err: &discovery.ErrGroupDiscoveryFailed{Groups: map[schema.GroupVersion]error{group: errBoom}}},
			want: Content{Objects: []string{"configmaps/a"}, Unlisted: []string{"metrics.example.com/v1"}}, says: "holds configmaps/a; cannot list metrics.example.com/v1", fails: true,
		},
		"an API server that does not say what it serves": {reason: "it heals", api: served{err: errBoom}, fails: true},
		"an API server that says that it serves nothing": {
			reason: "it serves Secrets", api: served{lists: []*metav1.APIResourceList{}},
			want: Content{Unlisted: []string{"v1"}}, says: "cannot list v1", fails: true,
		},
		"an API server that leaves out its own kinds": {
			reason: "it serves Secrets", api: served{lists: []*metav1.APIResourceList{resources("apps/v1", "deployments"), resources("v1", "configmaps", "persistentvolumeclaims")}},
			want: Content{Unlisted: []string{"v1"}}, says: "cannot list v1", fails: true,
		},
		"an API server that cannot tell of its own kinds": {
			reason: "it serves Secrets", api: served{lists: []*metav1.APIResourceList{}, err: &discovery.ErrGroupDiscoveryFailed{Groups: map[schema.GroupVersion]error{corev1.SchemeGroupVersion: errBoom, group: errBoom}}},
			want: Content{Unlisted: []string{"metrics.example.com/v1", "v1"}}, says: "cannot list metrics.example.com/v1, v1", fails: true,
		},
		"a kind that does not go with the namespace": {
			reason: "figures are nobody's objects", objects: []runtime.Object{object("v1", "Figure", "a")},
			api: served{lists: append(kubernetes(), &metav1.APIResourceList{GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "figures", Verbs: metav1.Verbs{"list"}}}})},
		},
		"a kind that nobody can list": {
			reason: "something may be there",
			api:    served{lists: append(kubernetes(), &metav1.APIResourceList{GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "riddles", Verbs: metav1.Verbs{"delete"}}}})},
			want:   Content{Unlisted: []string{"riddles"}}, says: "cannot list riddles",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) { synctest.Test(t, tc.check) })
	}
}

func TestContentStringIsOneLine(t *testing.T) {
	c := Content{}
	for i := range 50 {
		c.Objects, c.Unlisted = append(c.Objects, fmt.Sprintf("configmaps/%0200d", i)), append(c.Unlisted, fmt.Sprintf("%060d", i))
	}
	if got := c.String(); len(got) > 256 || c.IsEmpty() {
		t.Errorf("%d bytes are said", len(got))
	}
}
