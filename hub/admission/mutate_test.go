// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/hub/requester"
	"github.com/spokelet/spokelet/internal/rbacwatch"
)

const (
	workOfAlice = `{"metadata":{"annotations":{"mcm.ibm.com/user-identity":"YWxpY2U=","mcm.ibm.com/user-group":"cGxhdGZvcm0=","spokelet.io/author-registration":"uid"}},"spec":{"cluster":{"name":"store-1"}}}`
	workOfNone  = `{"metadata":{},"spec":{"cluster":{"name":"store-1"}}}`
	workForged  = `{"metadata":{"annotations":{"mcm.ibm.com/user-identity":"cm9vdA==","a":"b"}},"spec":{"cluster":{"name":"store-1"}}}`
	workChanged = `{"metadata":{"annotations":{"mcm.ibm.com/user-identity":"YWxpY2U=","mcm.ibm.com/user-group":"cGxhdGZvcm0=","spokelet.io/author-registration":"uid"}},"spec":{"cluster":{"name":"store-1"},"type":"Resource"}}`
	workAfar    = `{"metadata":{"annotations":{"mcm.ibm.com/user-identity":"YWxpY2U=","spokelet.io/author-registration":"uid"}},"spec":{"cluster":{"name":"store-2"}}}`
	workOfSet   = `{"metadata":{"annotations":{"mcm.ibm.com/user-identity":"YWxpY2U=","mcm.ibm.com/user-group":"cGxhdGZvcm0=","spokelet.io/author-registration":"uid","mcm.ibm.com/owners":"WorkSet.shop.greet","spokelet.io/owner-uid":"set"}},"spec":{"cluster":{"name":"store-1"}}}`
	workTaken   = `{"metadata":{"annotations":{"mcm.ibm.com/user-identity":"YWxpY2U=","mcm.ibm.com/user-group":"cGxhdGZvcm0=","spokelet.io/author-registration":"uid","mcm.ibm.com/owners":"WorkSet.shop.other","spokelet.io/owner-uid":"another"}},"spec":{"cluster":{"name":"store-1"}}}`

	// workStale is of a webhook that was registered before, or of whoever wrote when none was.
	workStale = `{"metadata":{"annotations":{"mcm.ibm.com/user-identity":"cm9vdA==","spokelet.io/author-registration":"before"}},"spec":{"cluster":{"name":"store-1"}}}`

	self = "system:serviceaccount:spokelet-system:spokelet-hub"
)

// newRecorder is one that knows its registration.
func newRecorder(access rbacwatch.AccessReviewer) *requesterRecorder {
	c := &requesterRecorder{access: access, self: self, registration: &requester.Registration{}, usage: StoredFunc(empty), limits: roomy}
	c.registration.Set("uid")
	return c
}

// roomy are limits that nothing here meets, as a hub has them by default.
var roomy = Limits{Spec: 512 << 10, Namespace: Usage{Objects: 1000, Bytes: 32 << 20}}

// empty is Stored of namespaces that hold nothing.
func empty(context.Context, metav1.GroupResource, string) (Usage, error) { return Usage{}, nil }

func mcmWorks() metav1.GroupVersionResource {
	return metav1.GroupVersionResource{Group: "mcm.ibm.com", Version: "v1alpha1", Resource: "works"}
}

// annotated are an object's annotations after a patch. It is false for what is no object.
func annotated(object rawJSON, patches []patch) (map[string]string, bool) {
	var o struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	if json.Unmarshal(object, &o) != nil {
		return nil, false
	}
	for _, p := range patches {
		key, one := strings.CutPrefix(p.Path, "/metadata/annotations/")
		key = strings.NewReplacer("~1", "/", "~0", "~").Replace(key)
		switch value := p.Value.(type) {
		case map[string]string:
			o.Metadata.Annotations = value
		case *string:
			o.Metadata.Annotations[key] = *value
		default:
			if p.Op != "remove" || !one {
				return nil, false
			}
			delete(o.Metadata.Annotations, key)
		}
	}
	return o.Metadata.Annotations, true
}

func patched(t *testing.T, object string, patches []patch) map[string]string {
	t.Helper()
	got, ok := annotated(rawJSON(object), patches)
	if !ok {
		t.Fatalf("%v is no patch of %s", patches, object)
	}
	return got
}

// ofAlice are the annotations of an object of hers, with others.
func ofAlice(others map[string]string) map[string]string {
	return with(others, map[string]string{"mcm.ibm.com/user-identity": "YWxpY2U=", "mcm.ibm.com/user-group": "cGxhdGZvcm0=", requester.AnnotationRegistration: "uid"})
}

// ofBob are those of an object of his.
func ofBob(others map[string]string) map[string]string {
	return with(others, map[string]string{"mcm.ibm.com/user-identity": "Ym9i", "mcm.ibm.com/user-group": "", requester.AnnotationRegistration: "uid"})
}

func with(others, annotations map[string]string) map[string]string {
	maps.Copy(annotations, others)
	return annotations
}

// recordingCase is a request, and what is to be recorded then.
type recordingCase struct {
	reason      string
	user        string
	groups      []string
	operation   admissionv1.Operation
	object, old string
	want        map[string]string
}

func (tc recordingCase) check(t *testing.T) {
	t.Helper()
	patches, err := newRecorder(&rights{allowed: true}).mutate(t.Context(), &reviewRequest{
		Resource: mcmWorks(), Operation: tc.operation, Namespace: "store-1",
		UserInfo: authenticationv1.UserInfo{Username: tc.user, Groups: tc.groups},
		Object:   rawJSON(tc.object), OldObject: rawJSON(tc.old),
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(tc.want, patched(t, tc.object, patches)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
	}
}

func TestMutateRecordsUserAsRequester(t *testing.T) {
	alice, bob := ofAlice(nil), ofBob(nil)
	cases := map[string]recordingCase{
		"a new object": {
			reason: "its author is whoever creates it", user: "alice", groups: []string{"platform"},
			operation: admissionv1.Create, object: workOfNone, want: alice,
		},
		"a new object with an author": {
			reason: "what a user says of it does not count", user: "bob",
			operation: admissionv1.Create, object: workForged,
			want: ofBob(map[string]string{"a": "b"}),
		},
		"a changed spec": {
			reason: "whoever changes what is asked asks it", user: "bob",
			operation: admissionv1.Update, object: workChanged, old: workOfAlice, want: bob,
		},
		"an unchanged spec": {
			reason: "who asked stays, whoever labels the object", user: "bob",
			operation: admissionv1.Update, object: workOfAlice, old: workOfAlice, want: alice,
		},
		"an author that is taken away": {
			reason: "it is put back", user: "bob",
			operation: admissionv1.Update, object: workOfNone, old: workOfAlice, want: alice,
		},
		"an author that is forged": {
			reason: "it is put back", user: "bob",
			operation: admissionv1.Update, object: workForged, old: workOfAlice,
			want: ofAlice(map[string]string{"a": "b"}),
		},
		"an object that has no author": {
			reason: "nobody asked, and now somebody does", user: "bob",
			operation: admissionv1.Update, object: workForged, old: workOfNone,
			want: ofBob(map[string]string{"a": "b"}),
		},
		"an author of another registration": {
			reason: "anybody may have written that", user: "bob",
			operation: admissionv1.Update, object: workOfNone, old: workStale, want: bob,
		},
		"an author of another registration that is forged to be of this": {
			reason: "its UID is no secret", user: "bob",
			operation: admissionv1.Update, object: strings.Replace(workStale, "before", "uid", 1), old: workStale, want: bob,
		},
		"a forged registration": {
			reason: "whoever takes it away makes an object nobody's", user: "bob",
			operation: admissionv1.Update, object: strings.Replace(workOfAlice, `"uid"`, `"another"`, 1), old: workOfAlice, want: alice,
		},
		"the hub's own account": {
			reason: "it makes works for others", user: self,
			operation: admissionv1.Create, object: workOfAlice, want: alice,
		},
		"the hub's own account, of the same spec": {
			reason: "somebody else asks for it now: a set whose selector alone was changed", user: self,
			operation: admissionv1.Update, object: workOfAlice, old: workOfNone, want: alice,
		},
	}
	for name, tc := range cases {
		t.Run(name, tc.check)
	}
}

// An authorizer of the hub may narrow by them what the user may do.
func TestMutateRecordsExtra(t *testing.T) {
	const scopes = "scopes.authorization.openshift.io"
	forged := `{"metadata":{"annotations":{"` + requester.AnnotationExtra + `":"{}"}},"spec":{"cluster":{"name":"store-1"}}}`
	cases := map[string]struct {
		reason string
		extra  map[string]authenticationv1.ExtraValue
		object string
		want   string
		code   int32
	}{
		"a scope":         {reason: "the author is asked about with it", extra: map[string]authenticationv1.ExtraValue{scopes: {"user:info"}, "authentication.kubernetes.io/credential-id": {"JTI=1"}}, object: workOfNone, want: `{"scopes.authorization.openshift.io":["user:info"]}`},
		"one that lies":   {reason: "what a user says of it does not count", extra: map[string]authenticationv1.ExtraValue{scopes: {"user:info"}}, object: forged, want: `{"scopes.authorization.openshift.io":["user:info"]}`},
		"none":            {reason: "nothing narrows", object: forged},
		"one without end": {reason: "what is left out might narrow", extra: map[string]authenticationv1.ExtraValue{scopes: {strings.Repeat("a", requester.MaxExtra)}}, object: workOfNone, code: 403},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			patches, err := newRecorder(&rights{allowed: true}).mutate(t.Context(), &reviewRequest{
				Resource: mcmWorks(), Operation: admissionv1.Create, Namespace: "store-1",
				UserInfo: authenticationv1.UserInfo{Username: "alice", Extra: tc.extra}, Object: rawJSON(tc.object),
			})
			if tc.code != 0 {
				if err == nil || newStatus(err).Code != tc.code {
					t.Errorf("%s: got %v", tc.reason, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := patched(t, tc.object, patches)[requester.AnnotationExtra]; got != tc.want {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

func TestChartRegistersAllRecordedResources(t *testing.T) {
	registration := &admissionregistrationv1.MutatingWebhookConfiguration{}
	fromChart(t, "MutatingWebhookConfiguration", registration)
	for resource, keys := range recordedResources {
		for _, name := range protectedAnnotations(resource, keys) {
			if condition := registration.Webhooks[0].MatchConditions[0].Expression; !strings.Contains(condition, "'"+name+"'") {
				t.Errorf("%s of %s is anybody's to write:\n%s", name, resource, condition)
			}
		}
	}
}

func TestMutateUsesAnnotationsOfAPI(t *testing.T) {
	c := newRecorder(&rights{})
	for resource, keys := range recordedResources {
		patches, err := c.mutate(t.Context(), &reviewRequest{
			Resource:  metav1.GroupVersionResource{Group: resource.Group, Version: "v1beta1", Resource: resource.Resource},
			Operation: admissionv1.Create, Namespace: "store-1", UserInfo: authenticationv1.UserInfo{Username: "alice"},
			Object: rawJSON(workOfNone),
		})
		if err != nil {
			t.Fatal(err)
		}
		want := base64.StdEncoding.EncodeToString([]byte("alice"))
		if got := patched(t, workOfNone, patches)[keys.User]; got != want {
			t.Errorf("%s: %q is recorded under %s, want %q", resource, got, keys.User, want)
		}
	}
}

func TestMutateOfUnchangedObjectReturnsNoPatch(t *testing.T) {
	c := newRecorder(&rights{allowed: true})
	alice := authenticationv1.UserInfo{Username: "alice", Groups: []string{"platform"}}
	cases := map[string]*reviewRequest{
		"its author says who it is": {Operation: admissionv1.Create, Object: rawJSON(workOfAlice), UserInfo: alice},
		"its author changes it":     {Operation: admissionv1.Update, Object: rawJSON(workChanged), OldObject: rawJSON(workOfAlice), UserInfo: alice},
		"another leaves it alone":   {Operation: admissionv1.Update, Object: rawJSON(workOfAlice), OldObject: rawJSON(workOfAlice)},
		"it is a set's":             {Operation: admissionv1.Update, Object: rawJSON(workOfSet), OldObject: rawJSON(workOfSet)},
	}
	for name, r := range cases {
		t.Run(name, func(t *testing.T) {
			r.Resource, r.Namespace = mcmWorks(), "store-1"
			if patches, err := c.mutate(t.Context(), r); err != nil || len(patches) != 0 {
				t.Errorf("got %v, %v, want no patch", patches, err)
			}
		})
	}
}

func TestWorkForOtherClusterNeedsRightThere(t *testing.T) {
	const forbidden = `works.mcm.ibm.com is forbidden: User "alice" cannot create resource "works" in API group "mcm.ibm.com" in the namespace "store-2"`
	cases := map[string]struct {
		reason string
		access rights
		user   string
		object string
		old    string
		in     string // the namespace, store-1 by default
		asked  string
		want   *metav1.Status
	}{
		"without the right": {
			reason: "the API server would say the same", object: workAfar, asked: "store-2",
			want: &metav1.Status{Status: "Failure", Reason: metav1.StatusReasonForbidden, Code: 403, Message: forbidden},
		},
		"with the right":               {reason: "that is all it takes", access: rights{allowed: true}, object: workAfar, asked: "store-2"},
		"a change without the right":   {reason: "whoever changes what is asked asks it", object: workAfar, old: workOfNone, asked: "store-2", want: &metav1.Status{Status: "Failure", Reason: metav1.StatusReasonForbidden, Code: 403, Message: forbidden}},
		"labels":                       {reason: "nothing new is asked", object: workAfar, old: workAfar},
		"labels of nobody's Work":      {reason: "whoever changes it asks it", object: strings.Replace(workAfar, "uid", "before", 1), old: strings.Replace(workAfar, "uid", "before", 1), asked: "store-2", want: &metav1.Status{Status: "Failure", Reason: metav1.StatusReasonForbidden, Code: 403, Message: forbidden}},
		"the cluster's own namespace":  {reason: "the API server has asked", object: workOfNone},
		"a change there, without":      {reason: "the API server has asked for update alone", object: workAfar, old: workOfNone, in: "store-2", asked: "store-2", want: &metav1.Status{Status: "Failure", Reason: metav1.StatusReasonForbidden, Code: 403, Message: forbidden}},
		"a change there, with":         {reason: "that is all it takes", access: rights{allowed: true}, object: workAfar, old: workOfNone, in: "store-2", asked: "store-2"},
		"the hub's own account":        {reason: "it asks about the author before", user: self, object: workAfar},
		"when nobody can say":          {reason: "who may not be known to is refused", access: rights{err: errBoom}, object: workAfar, asked: "store-2", want: &metav1.Status{Status: "Failure", Reason: metav1.StatusReasonInternalError, Code: 500, Message: `cannot decide: rights of user "alice": boom`}},
		"a cluster of many bytes":      {reason: "nothing of it is decoded", object: `{"spec":{"cluster":{"name":"` + strings.Repeat("a", maxReference) + `"}}}`, want: &metav1.Status{Status: "Failure", Reason: metav1.StatusReasonInternalError, Code: 500, Message: "cannot decide: the cluster cannot be read"}},
		"a cluster that is no object":  {reason: "nothing of it is known", object: `{"spec":{"cluster":"store-2"}}`, want: &metav1.Status{Status: "Failure", Reason: metav1.StatusReasonInternalError, Code: 500, Message: "cannot decide: the cluster cannot be read"}},
		"a spec that names no cluster": {reason: "the definition's rules refuse it", object: `{"spec":{}}`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := &reviewRequest{
				Resource: mcmWorks(), Operation: admissionv1.Create, Namespace: "store-1",
				UserInfo: authenticationv1.UserInfo{Username: "alice"}, Object: rawJSON(tc.object), OldObject: rawJSON(tc.old),
			}
			if tc.user != "" {
				r.UserInfo.Username = tc.user
			}
			if tc.in != "" {
				r.Namespace = tc.in
			}
			if tc.old != "" {
				r.Operation = admissionv1.Update
			}
			c := newRecorder(&tc.access)
			_, err := c.mutate(t.Context(), r)
			var got *metav1.Status
			if err != nil {
				got = newStatus(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			var asked []authorizationv1.SubjectAccessReviewSpec
			if tc.asked != "" {
				asked = []authorizationv1.SubjectAccessReviewSpec{{User: "alice", ResourceAttributes: &authorizationv1.ResourceAttributes{
					Verb: "create", Group: "mcm.ibm.com", Version: "v1alpha1", Resource: "works", Namespace: tc.asked,
				}}}
			}
			if diff := cmp.Diff(asked, tc.access.asked); diff != "" {
				t.Errorf("%s: what is asked (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// Of what is recorded now nobody could tell when.
func TestMutateFailsWithoutRegistration(t *testing.T) {
	c := newRecorder(&rights{allowed: true})
	c.registration.Set("")
	for operation, old := range map[admissionv1.Operation]string{admissionv1.Create: "", admissionv1.Update: workOfAlice} {
		r := &reviewRequest{
			Resource: mcmWorks(), Operation: operation, Namespace: "store-1",
			UserInfo: authenticationv1.UserInfo{Username: "alice"}, Object: rawJSON(workChanged), OldObject: rawJSON(old),
		}
		if _, err := c.mutate(t.Context(), r); !errors.Is(err, errInternal) {
			t.Errorf("%s: got %v, want errUndecided", operation, err)
		}
		r.UserInfo.Username = self
		if patches, err := c.mutate(t.Context(), r); err != nil || len(patches) > 0 {
			t.Errorf("%s by the hub itself: %v, %v", operation, patches, err)
		}
	}
}

func TestMutateFailsOnInvalidObject(t *testing.T) {
	c := newRecorder(&rights{allowed: true})
	cases := map[string]*reviewRequest{
		"no object":        {Resource: mcmWorks(), Operation: admissionv1.Create},
		"no old object":    {Resource: mcmWorks(), Operation: admissionv1.Update, Object: rawJSON(workOfNone)},
		"another resource": {Resource: manifestWorks, Operation: admissionv1.Create, Object: rawJSON(workOfNone)},
		"a deletion":       {Resource: mcmWorks(), Operation: admissionv1.Delete, OldObject: rawJSON(workOfNone)},
		"annotations":      {Resource: mcmWorks(), Operation: admissionv1.Create, Object: rawJSON(`{"metadata":{"annotations":{"a":1}}}`)},
	}
	for name, r := range cases {
		t.Run(name, func(t *testing.T) {
			if _, err := c.mutate(t.Context(), r); !errors.Is(err, errInternal) {
				t.Errorf("got %v, want errUndecided", err)
			}
		})
	}
}

func TestResponseHasPatch(t *testing.T) {
	r := &reviewRequest{
		UID: "1", Resource: mcmWorks(), Operation: admissionv1.Create, Namespace: "store-1",
		UserInfo: authenticationv1.UserInfo{Username: "bob"}, Object: rawJSON(workForged),
	}
	body := reviewOf(t, r)
	answer := post(t, newServer(t, &rights{}), RequestersPath, "192.0.2.1", bytes.NewReader(body), int64(len(body)))
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(answer.Body.Bytes(), &review); err != nil {
		t.Fatalf("%d %s: %v", answer.Code, answer.Body, err)
	}
	want := &admissionv1.AdmissionResponse{
		UID: "1", Allowed: true, PatchType: new(admissionv1.PatchTypeJSONPatch),
		Patch: []byte(`[{"op":"add","path":"/metadata/annotations/mcm.ibm.com~1user-group","value":""},` +
			`{"op":"add","path":"/metadata/annotations/mcm.ibm.com~1user-identity","value":"Ym9i"},` +
			`{"op":"add","path":"/metadata/annotations/spokelet.io~1author-registration","value":"uid"}]`),
	}
	if diff := cmp.Diff(want, review.Response); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
}

func TestMutateStaysWithinMemoryLimit(t *testing.T) {
	const head = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","namespace":"store-1","operation":"UPDATE",` +
		`"resource":{"group":"mcm.ibm.com","version":"v1alpha1","resource":"works"},`
	for name, body := range map[string][]byte{
		"a group":         []byte(head + `"userInfo":{"groups":["` + strings.Repeat("a", maxHeadBytes-500) + `"]},"object":{"spec":{}},"oldObject":{}}}`),
		"annotations":     padded(head+`"oldObject":{},"object":{"metadata":{"annotations":{`, `"a":"b",`, `}}}}}`),
		"old annotations": padded(head+`"object":{},"oldObject":{"metadata":{"annotations":{`, `"a":"b",`, `}}}}}`),
		"owners":          []byte(head + `"object":{"spec":{}},"oldObject":{"metadata":{"annotations":{"mcm.ibm.com/owners":"` + strings.Repeat("a", maxHeadBytes) + `"}}}}}`),
		"clusters":        padded(head+`"oldObject":{},"object":{"spec":{"cluster":{"a":[`, `{},`, `]}}}}}`),
		"a template":      padded(head+`"oldObject":{},"object":{"spec":{"kube":{"a":[`, `{},`, `]}}}}}`),
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, &rights{})
			reader, before, after := bytes.NewReader(body), runtime.MemStats{}, runtime.MemStats{}
			runtime.GC()
			runtime.ReadMemStats(&before)
			answer := post(t, s, RequestersPath, "192.0.2.1", reader, int64(len(body)))
			runtime.ReadMemStats(&after)
			if got := int64(after.TotalAlloc - before.TotalAlloc); got > mayTake(body) {
				t.Errorf("a review of %d bytes took %d, the limit is %d (%d %.100s)", len(body), got, mayTake(body), answer.Code, answer.Body)
			}
			if held := s.memory.Held(); held != 0 {
				t.Errorf("%d bytes are held of a review that was answered", held)
			}
		})
	}
}

// Whatever is sent: no panic, nobody but the hub's own account writes another author, and
// no change of the spec leaves the one who was.
func FuzzMutate(f *testing.F) {
	review := func(user, operation, before, after string) []byte {
		if before != "" {
			before = `"oldObject":` + before + `,`
		}
		return []byte(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","namespace":"store-1",` +
			`"resource":{"group":"mcm.ibm.com","version":"v1alpha1","resource":"works"},"userInfo":{"username":"` + user + `","groups":["a","b,c"]},` +
			`"operation":"` + operation + `",` + before + `"object":` + after + `}}`)
	}
	f.Add(review("eve", "CREATE", "", workOfNone))
	f.Add(review("eve", "CREATE", "", workForged))
	f.Add(review(self, "CREATE", "", workOfAlice))
	f.Add(review(self, "UPDATE", workOfNone, workOfAlice))
	f.Add(review("eve", "UPDATE", workOfAlice, workChanged))
	f.Add(review("eve", "UPDATE", workOfAlice, workForged))
	f.Add(review("eve", "UPDATE", workOfNone, workForged))
	f.Add(review("eve", "CREATE", "", workOfSet))
	f.Add(review("eve", "UPDATE", workOfSet, workTaken))
	f.Add(review("eve", "UPDATE", workStale, workStale))
	f.Add(review("eve", "UPDATE", workStale, workOfAlice))
	f.Add(review("eve", "UPDATE", workOfSet, workChanged))
	f.Add(review("eve", "UPDATE", workOfAlice, workOfSet))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := readReview(body, nil)
		if err != nil {
			return
		}
		c := newRecorder(&rights{allowed: true})
		patches, err := c.mutate(t.Context(), r)
		if err != nil {
			return
		}
		resource := metav1.GroupResource{Group: r.Resource.Group, Resource: r.Resource.Resource}
		keys := recordedResources[resource]
		got, ok := annotated(r.Object, patches)
		old, _ := annotated(r.OldObject, nil)
		if !ok {
			t.Fatalf("%v is no patch of %s", patches, r.Object)
		}
		if r.UserInfo.Username == self {
			if len(patches) > 0 {
				t.Errorf("of the hub's own object %v is changed", patches)
			}
			return
		}
		want := keepAnnotations(old, protectedAnnotations(resource, keys))
		asks := r.Operation == admissionv1.Create || !bytes.Equal(specOf(r.Object), specOf(r.OldObject))
		switch owners := want["mcm.ibm.com/owners"]; {
		case owners != "" && asks:
			t.Errorf("what a Work of %q asks is changed", owners)
		case owners == "" && (asks || old[requester.AnnotationRegistration] != "uid"):
			by, err := requesterAnnotations(r, keys, "uid")
			if err != nil {
				t.Fatal(err)
			}
			maps.Copy(want, by)
		}
		if diff := cmp.Diff(want, keepAnnotations(got, protectedAnnotations(resource, keys))); diff != "" {
			t.Errorf("what is protected (-want +got):\n%s", diff)
		}
	})
}

// specOf reads a spec as any client would.
func specOf(object rawJSON) json.RawMessage {
	var o struct {
		Spec json.RawMessage `json:"spec"`
	}
	_ = object.decode(&o)
	return o.Spec
}
