// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	workv1 "open-cluster-management.io/api/work/v1"
)

const (
	configMap  = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"default","name":"a"}}`
	other      = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"default","name":"b"}}`
	deployment = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"namespace":"default","name":"a"}}`
	roleOfBob  = `{"subject":{"type":"ServiceAccount","serviceAccount":{"namespace":"team","name":"bob"}}}`
	roleOfEve  = `{"subject":{"type":"ServiceAccount","serviceAccount":{"namespace":"team","name":"eve"}}}`
)

// object is a ManifestWork with the manifests and the executor, if any.
func object(executor string, manifests ...string) string {
	if executor != "" {
		executor = `"executor":` + executor + `,`
	}
	return `{"apiVersion":"work.open-cluster-management.io/v1","kind":"ManifestWork","metadata":{"name":"w","namespace":"store-1"},` +
		`"spec":{` + executor + `"workload":{"manifests":[` + strings.Join(manifests, ",") + `]}}}`
}

// withField is a ManifestWork with one more field of its spec.
func withField(field, object string) string {
	return strings.Replace(object, `"spec":{`, `"spec":{`+field+`,`, 1)
}

func requestOf(before, after string) *reviewRequest {
	r := &reviewRequest{
		UID: "1", Operation: admissionv1.Create, Namespace: "store-1", Name: "w",
		Resource: metav1.GroupVersionResource{Group: "work.open-cluster-management.io", Version: "v1", Resource: "manifestworks"},
		UserInfo: authenticationv1.UserInfo{Username: "alice", UID: "7", Groups: []string{"staff"}, Extra: map[string]authenticationv1.ExtraValue{"scopes": {"x"}}},
		Object:   rawJSON(after),
	}
	if before != "" {
		r.Operation, r.OldObject = admissionv1.Update, rawJSON(before)
	}
	return r
}

// sized returns manifests of so many bytes, in the count of the limit.
func sized(t *testing.T, bytes int) string {
	t.Helper()
	empty := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":""}}`
	filled := strings.Replace(empty, `""`, `"`+strings.Repeat("x", bytes-len(empty)-4)+`"`, 1)
	if got := (&workv1.Manifest{RawExtension: runtime.RawExtension{Raw: []byte(filled)}}).Size(); got != bytes {
		t.Fatalf("made %d bytes, want %d", got, bytes)
	}
	return filled
}

// The messages are those of Open Cluster Management.
func TestValidateManifests(t *testing.T) {
	cases := map[string]struct {
		reason    string
		manifests []string
		want      string
	}{
		"two of one name and other kinds": {reason: "these are two objects", manifests: []string{configMap, deployment, other}},
		"none":                            {reason: "there is nothing to do", want: "manifests should not be empty"},
		"at the limit":                    {reason: "the limit is part of what is allowed", manifests: []string{sized(t, DefaultManifestLimit)}},
		"over the limit": {
			reason: "it would not fit in the hub", manifests: []string{sized(t, DefaultManifestLimit+1)},
			want: "the size of manifests is 512001 bytes which exceeds the 512000 limit",
		},
		"over the limit together": {
			reason: "the sum counts", manifests: []string{sized(t, 300_000), sized(t, 300_000)},
			want: "the size of manifests is 600000 bytes which exceeds the 512000 limit",
		},
		"without a name": {
			reason: "it could not be found again", manifests: []string{`{"apiVersion":"v1","kind":"ConfigMap","metadata":{}}`},
			want: "name must be set in manifest",
		},
		"with a generated name alone": {
			reason: "each apply would make another", manifests: []string{`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"a-"}}`},
			want: "name must be set in manifest",
		},
		"with a generated name too": {
			reason: "the two contradict", manifests: []string{`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","generateName":"a-"}}`},
			want: "generateName must not be set in manifest",
		},
		"twice": {
			reason: "they would fight", manifests: []string{configMap, other, configMap},
			want: "duplicate manifest for resource default/a with resource type v1.ConfigMap",
		},
		"twice in a group": {
			reason: "the type has its group", manifests: []string{deployment, deployment},
			want: "duplicate manifest for resource default/a with resource type apps/v1.Deployment",
		},
		"no object": {reason: "YAML may be anything", manifests: []string{`"text"`}, want: "manifest is not an object"},
		"a list":    {reason: "a list is no object", manifests: []string{`[]`}, want: "manifest is not an object"},
		"no kind":   {reason: "it is nothing to apply", manifests: []string{`{"metadata":{"name":"a"}}`}, want: "manifest is not an object"},
		"a name that is a number": {
			reason: "no API server takes it", manifests: []string{`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":5}}`},
			want: "name must be set in manifest",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			j := &validator{access: &rights{}, limit: DefaultManifestLimit}
			err := j.validate(t.Context(), requestOf("", object("", tc.manifests...)))
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.HasPrefix(err.Error(), tc.want)) {
				t.Fatalf("%s: got %v, want %q", tc.reason, err, tc.want)
			}
			if err != nil && errors.Is(err, errInternal) {
				t.Errorf("%s: %v is a fault, want a refusal", tc.reason, err)
			}
		})
	}
}

func TestValidateManifestsCountsBeyondLimitWithoutMemory(t *testing.T) {
	many := make([]string, 100_000)
	for i := range many {
		many[i] = fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a%d"}}`, i)
	}
	request := requestOf("", object("", many...))
	j := &validator{access: &rights{}, limit: DefaultManifestLimit}
	var err error
	allocated := testing.AllocsPerRun(1, func() { err = j.validate(t.Context(), request) })
	if err == nil || !strings.HasSuffix(err.Error(), "which exceeds the 512000 limit") {
		t.Errorf("got %v, want a refusal for the size", err)
	}
	if allocated > 100 {
		t.Errorf("%.0f allocations for manifests that are refused", allocated)
	}
}

func TestExecutorNeedsExecuteAsRight(t *testing.T) {
	deny := "user alice cannot manipulate the Manifestwork with executor team/bob in namespace store-1"
	cases := map[string]struct {
		reason        string
		before, after string
		may, gate     bool
		asked         string // name of the account that is asked for
		want          string
	}{
		"nobody is named":               {reason: "the works' account executes", after: object("", configMap)},
		"without the right":             {reason: "the account may do more than its user", after: object(roleOfBob, configMap), asked: "team:bob", want: deny},
		"with the right":                {reason: "it was granted", after: object(roleOfBob, configMap), may: true, asked: "team:bob"},
		"the manifests are others":      {reason: "they are what the account executes", before: object(roleOfBob, configMap), after: object(roleOfBob, other), asked: "team:bob", want: deny},
		"others, with the right":        {reason: "it was granted", before: object(roleOfBob, configMap), after: object(roleOfBob, other), may: true, asked: "team:bob"},
		"a manifest more":               {reason: "each is executed", before: object(roleOfBob, configMap), after: object(roleOfBob, configMap, other), asked: "team:bob", want: deny},
		"how they are applied":          {reason: "the account is made to do something else", before: object(roleOfBob, configMap), after: withField(`"manifestConfigs":[]`, object(roleOfBob, configMap)), asked: "team:bob", want: deny},
		"how they are deleted":          {reason: "orphans need fewer rights of the account", before: object(roleOfBob, configMap), after: withField(`"deleteOption":{"propagationPolicy":"Orphan"}`, object(roleOfBob, configMap)), asked: "team:bob", want: deny},
		"the spec is kept":              {reason: "labels are no manifests", before: object(roleOfBob, configMap), after: strings.Replace(object(roleOfBob, configMap), `"name":"w"`, `"labels":{"a":"b"},"name":"w"`, 1)},
		"others, of nobody":             {reason: "without the gate nobody is asked for nobody", before: object("", configMap), after: object("", other)},
		"the executor is another":       {reason: "each needs the right", before: object(roleOfEve, configMap), after: object(roleOfBob, configMap), asked: "team:bob", want: deny},
		"the executor is new":           {reason: "each needs the right", before: object("", configMap), after: object(roleOfBob, configMap), asked: "team:bob", want: deny},
		"the executor goes":             {reason: "without the gate nobody is asked for nobody", before: object(roleOfBob, configMap), after: object("", configMap)},
		"nobody is named, with gate":    {reason: "the default has a name", after: object("", configMap), gate: true, asked: ":klusterlet-work-sa", want: "user alice cannot manipulate the Manifestwork with executor /klusterlet-work-sa in namespace store-1"},
		"the executor goes, with gate":  {reason: "the default is another", before: object(roleOfBob, configMap), after: object("", configMap), gate: true, asked: ":klusterlet-work-sa", want: "user alice cannot manipulate the Manifestwork with executor /klusterlet-work-sa in namespace store-1"},
		"others of nobody, with gate":   {reason: "the default executes them", before: object("", configMap), after: object("", other), gate: true, asked: ":klusterlet-work-sa", want: "user alice cannot manipulate the Manifestwork with executor /klusterlet-work-sa in namespace store-1"},
		"the account is missing":        {reason: "there is nobody to ask for", after: object(`{"subject":{"type":"ServiceAccount"}}`, configMap), may: true, want: "executor service account can not be nil"},
		"the type is unknown":           {reason: "what it means is not known", after: object(`{"subject":{"type":"User","serviceAccount":{"namespace":"team","name":"bob"}}}`, configMap), may: true, want: `executor type "User" is not supported`},
		"a name that holds another":     {reason: "it would be read as team of bob", after: object(`{"subject":{"type":"ServiceAccount","serviceAccount":{"namespace":"te:am","name":"bob"}}}`, configMap), may: true, want: `executor service account "te:am"/"bob" is not a valid one`},
		"no name":                       {reason: "there is nobody to ask for", after: object(`{"subject":{"type":"ServiceAccount","serviceAccount":{"namespace":"team","name":""}}}`, configMap), may: true, want: `executor service account "team"/"" is not a valid one`},
		"what was before is not a spec": {reason: "it is not the same executor then", before: `{"spec":[]}`, after: object(roleOfBob, configMap), asked: "team:bob", want: deny},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			access := &rights{allowed: tc.may}
			j := &validator{access: access, limit: DefaultManifestLimit, nilExecutor: tc.gate}
			got := ""
			if err := j.validate(t.Context(), requestOf(tc.before, tc.after)); err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			var want []authorizationv1.SubjectAccessReviewSpec
			if tc.asked != "" {
				want = append(want, authorizationv1.SubjectAccessReviewSpec{
					User: "alice", UID: "7", Groups: []string{"staff"}, Extra: map[string]authorizationv1.ExtraValue{"scopes": {"x"}},
					ResourceAttributes: &authorizationv1.ResourceAttributes{
						Verb: "execute-as", Group: "work.open-cluster-management.io", Resource: "manifestworks",
						Namespace: "store-1", Name: "system:serviceaccount:" + tc.asked,
					},
				})
			}
			if diff := cmp.Diff(want, access.asked); diff != "" {
				t.Errorf("%s: questions (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// Works of multicluster.x-k8s.io name no executor, and are executed by the same account
// as ManifestWorks that name none.
func TestMissingExecutorIsCheckedAsDefault(t *testing.T) {
	deny := "user alice cannot manipulate the Manifestwork with executor /klusterlet-work-sa in namespace store-1"
	cases := map[string]struct {
		reason        string
		before, after string
		may, gate     bool
		want          string
	}{
		"without the gate":        {reason: "nobody is asked for nobody", after: object("", configMap)},
		"without the right":       {reason: "the account may do more than its user", after: object("", configMap), gate: true, want: deny},
		"with the right":          {reason: "it was granted", after: object("", configMap), gate: true, may: true},
		"other manifests":         {reason: "they are what the account executes", before: object("", configMap), after: object("", other), gate: true, want: deny},
		"the spec is kept":        {reason: "labels are no manifests", before: object("", configMap), after: strings.Replace(object("", configMap), `"name":"w"`, `"labels":{"a":"b"},"name":"w"`, 1), gate: true},
		"a name for the executor": {reason: "a Work has no such field", after: object(roleOfBob, configMap), gate: true, want: deny},
		"no manifests":            {reason: "what a Work consists of is not the webhook's", after: object(""), gate: true, may: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			access := &rights{allowed: tc.may}
			j := &validator{access: access, limit: 1, nilExecutor: tc.gate}
			r := requestOf(tc.before, tc.after)
			r.Resource = metav1.GroupVersionResource{Group: "multicluster.x-k8s.io", Version: "v1alpha1", Resource: "works"}
			got := ""
			if err := j.validate(t.Context(), r); err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			for _, question := range access.asked {
				if got, want := question.ResourceAttributes.Name, "system:serviceaccount::klusterlet-work-sa"; got != want {
					t.Errorf("%s: asked for %q, want %q", tc.reason, got, want)
				}
			}
		})
	}
}

func TestValidateReportsInvalidRequestsAsInternalErrors(t *testing.T) {
	good := object(roleOfBob, configMap)
	cases := map[string]struct {
		reason  string
		request *reviewRequest
		change  func(*reviewRequest)
		access  *rights
	}{
		"another resource":       {reason: "it was registered wrongly", request: requestOf("", good), change: func(r *reviewRequest) { r.Resource.Resource = "pods" }},
		"another version":        {reason: "its spec may mean something else", request: requestOf("", good), change: func(r *reviewRequest) { r.Resource.Version = "v2" }},
		"a deletion":             {reason: "nothing of it is judged", request: requestOf("", good), change: func(r *reviewRequest) { r.Operation = admissionv1.Delete }},
		"no namespace":           {reason: "works have one", request: requestOf("", good), change: func(r *reviewRequest) { r.Namespace = "" }},
		"no object":              {reason: "there is nothing to read", request: requestOf("", "")},
		"an object that is none": {reason: "it cannot be read", request: requestOf("", "[]")},
		"an old one that is none": {
			reason: "what changed cannot be told", request: requestOf("[]", good),
		},
		"manifests that are no list": {reason: "they cannot be read", request: requestOf("", `{"spec":{"workload":{"manifests":{}}}}`)},
		"an executor that is none":   {reason: "whom to ask for cannot be told", request: requestOf("", object(`[]`, configMap))},
		"an executor of 5 KiB":       {reason: "no account has such a name", request: requestOf("", object(`{"subject":{"type":"`+strings.Repeat("x", 5<<10)+`"}}`, configMap))},
		"a spec that is none":        {reason: "it cannot be read", request: requestOf("", `{"spec":[]}`)},
		"the rights cannot be asked": {reason: "no answer is no yes", request: requestOf("", good), access: &rights{allowed: true, err: errBoom}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.change != nil {
				tc.change(tc.request)
			}
			if tc.access == nil {
				tc.access = &rights{allowed: true}
			}
			j := &validator{access: tc.access, limit: DefaultManifestLimit}
			if err := j.validate(t.Context(), tc.request); !errors.Is(err, errInternal) {
				t.Errorf("%s: got %v, want %v", tc.reason, err, errInternal)
			}
		})
	}
}

func TestUpdateWithSameSpecIsAllowed(t *testing.T) {
	before := object(roleOfBob) // no manifests: it would be refused
	after := strings.Replace(before, `"name":"w"`, `"finalizers":["x"],"name":"w"`, 1)
	access := &rights{}
	j := &validator{access: access, limit: 1}
	if err := j.validate(t.Context(), requestOf(before, after)); err != nil {
		t.Errorf("a finalizer must be able to go from any work: %v", err)
	}
	if len(access.asked) != 0 {
		t.Errorf("asked %v for a work that is as it was", access.asked)
	}
}

func TestWorksInForeignNamespacesAreAllowed(t *testing.T) {
	cases := map[string]struct {
		reason  string
		foreign bool
		err     error
		pass    bool
		fault   bool
	}{
		"theirs":    {reason: "their own webhook judges", foreign: true, pass: true},
		"ours":      {reason: "the cluster moved to this hub"},
		"not known": {reason: "no answer is no yes", err: errBoom, fault: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			j := &validator{access: &rights{}, limit: 1, clusters: ClustersFunc(func(_ context.Context, namespace string) (bool, error) {
				if namespace != "store-1" {
					t.Errorf("asked about namespace %q", namespace)
				}
				return tc.foreign, tc.err
			})}
			err := j.validateAdopted(t.Context(), requestOf("", object("")))
			if (err == nil) != tc.pass || errors.Is(err, errInternal) != tc.fault {
				t.Errorf("%s: got %v", tc.reason, err)
			}
		})
	}
}
