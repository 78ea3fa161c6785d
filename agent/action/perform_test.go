// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package action

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/spokelet/spokelet/api/wire"
)

func TestResultHasCreatedObject(t *testing.T) {
	r := newRig()
	got := decode(t, r.execute(t, action(wire.VerbCreate, settingsTemplate)))
	live := r.server.object(settingsPath)
	unstructured.RemoveNestedField(live.Object, "metadata", "managedFields")
	if diff := cmp.Diff(live.Object, got); diff != "" {
		t.Errorf("the result is not the object of the cluster without managed fields (-want +got):\n%s", diff)
	}
	if mark := live.GetAnnotations()[Annotation]; mark != actionUID+"/1" {
		t.Errorf("the mark is %q", mark)
	}
	if diff := cmp.Diff([]string{"POST /api/v1/namespaces/app/configmaps as alice"}, r.server.writes("/api/v1/namespaces/app")); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
}

func TestTargetNamespaceOverridesTemplate(t *testing.T) {
	r := newRig()
	a := action(wire.VerbCreate, settingsTemplate)
	a.Target.Namespace = "other"
	decode(t, r.execute(t, a))
	if r.server.object("/api/v1/namespaces/other/configmaps/settings") == nil {
		t.Errorf("it is not in the namespace other: %v", r.server.done)
	}
}

func TestClusterScopedKindNeedsNoNamespace(t *testing.T) {
	r := newRig()
	a := action(wire.VerbCreate, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"app","namespace":"x"}}`)
	a.Target.Namespace = "y"
	decode(t, r.execute(t, a))
	if r.server.object("/api/v1/namespaces/app") == nil {
		t.Errorf("it is not there: %v", r.server.done)
	}
}

func TestNameIsGeneratedBeforeCreate(t *testing.T) {
	r := newRig()
	long := strings.Repeat("a", 62) + "-"
	synctest.Test(t, func(t *testing.T) {
		first := r.start(t, unrecorded())
		a := action(wire.VerbCreate, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"`+long+`","namespace":"app"}}`)
		first.send(t, version(t, a, 1))
		synctest.Wait()
		first.stop()
		next := r.start(t, nil)
		next.send(t, version(t, a, 1))
		synctest.Wait()
		name, _, _ := unstructured.NestedString(decode(t, next.result(t)), "metadata", "name")
		if len(name) != 63 || !strings.HasPrefix(name, long[:58]) {
			t.Errorf("the name is %q", name)
		}
		if got := r.server.writes("/api/v1/namespaces/app"); len(got) != 1 {
			t.Errorf("writes are %v, want one", got)
		}
	})
}

// TestActionRefusals has actions that cannot be done.
func TestActionRefusals(t *testing.T) {
	limited := action(wire.VerbCreate, settingsTemplate)
	limited.Requester.User = "nobody"
	cases := map[string]struct {
		reason string
		action wire.Action
		before func(*rig)
		want   wire.Refusal
	}{
		"it exists": {
			reason: "as the API server says it", action: action(wire.VerbCreate, settingsTemplate),
			before: func(r *rig) { r.server.put(settingsPath, settings(nil)) },
			want:   wire.Refusal{Cause: wire.CauseRequest, Status: metav1.StatusReasonAlreadyExists, Message: `configmaps "settings" already exists`},
		},
		"nothing to update": {
			reason: "an update creates nothing", action: action(wire.VerbUpdate, settingsTemplate),
			want: wire.Refusal{Cause: wire.CauseRequest, Status: metav1.StatusReasonNotFound, Message: `configmaps "settings" not found`},
		},
		"nothing to delete": {
			reason: "as the API server says it", action: deletion(settingsTarget()),
			want: wire.Refusal{Cause: wire.CauseRequest, Status: metav1.StatusReasonNotFound, Message: `configmaps "settings" not found`},
		},
		"forbidden": {
			reason: "the requester's rights count", action: action(wire.VerbCreate, settingsTemplate),
			before: func(r *rig) {
				r.server.refuse = refuseOnce("POST", "/api/v1/namespaces/app/configmaps", 403, metav1.StatusReasonForbidden)
			},
			want: wire.Refusal{Cause: wire.CauseRequest, Status: metav1.StatusReasonForbidden, Message: "Forbidden"},
		},
		"not let in": {
			reason: "the door has refused the requester", action: limited,
			want: wire.Refusal{Cause: wire.CauseRequest, Status: metav1.StatusReasonForbidden, Message: errAnonymous.Error()},
		},
		"no namespace": {
			reason: "no default is taken", action: action(wire.VerbCreate, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"settings"}}`),
			want: wire.Refusal{Cause: wire.CauseTarget, Message: `configmaps "settings": namespace must be set`},
		},
		"no namespace of a deletion": {
			reason: "no default is taken", action: deletion(wire.Target{Resource: "cm", Name: "settings"}),
			want: wire.Refusal{Cause: wire.CauseTarget, Message: `configmaps "settings": namespace must be set`},
		},
		"no such kind": {
			reason: "it is named", action: action(wire.VerbCreate, `{"apiVersion":"a.b/v1","kind":"Foo","metadata":{"name":"x"}}`),
			want: wire.Refusal{Cause: wire.CauseTarget, Status: metav1.StatusReasonNotFound, Message: `kind "Foo" of "a.b/v1": the cluster has no such resource`},
		},
		"another version": {
			reason: "the one to use is named", action: action(wire.VerbCreate, `{"apiVersion":"example.com/v1alpha1","kind":"Widget","metadata":{"name":"x","namespace":"app"}}`),
			want: wire.Refusal{Cause: wire.CauseTarget, Status: metav1.StatusReasonNotFound, Message: `kind "Widget" of "example.com/v1alpha1": the cluster has no such resource; use example.com/v1`},
		},
		"no such resource": {
			reason: "it is named", action: deletion(wire.Target{Resource: "foos", Namespace: "app", Name: "x"}),
			want: wire.Refusal{Cause: wire.CauseTarget, Status: metav1.StatusReasonNotFound, Message: `resource "foos": the cluster has no such resource`},
		},
		"no name": {
			reason: "an update generates none", action: action(wire.VerbUpdate, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"x-","namespace":"app"}}`),
			want: wire.Refusal{Cause: wire.CauseTarget, Message: `template cannot be used: it has no name`},
		},
		"no metadata": {
			reason: "so no name", action: action(wire.VerbCreate, `{"apiVersion":"v1","kind":"ConfigMap"}`),
			want: wire.Refusal{Cause: wire.CauseTarget, Message: `template cannot be used: it has no name`},
		},
		"no kind": {
			reason: "nothing says what it is", action: action(wire.VerbCreate, `{"metadata":{"name":"x"}}`),
			want: wire.Refusal{Cause: wire.CauseTarget, Message: `template cannot be used: it is no object with apiVersion and kind`},
		},
		"a list": {
			reason: "an action is about one object", action: action(wire.VerbCreate, `{"apiVersion":"v1","kind":"List","items":[],"metadata":{"name":"x"}}`),
			want: wire.Refusal{Cause: wire.CauseTarget, Message: `template cannot be used: it is a list`},
		},
		"annotations that are none": {
			reason: "there is no place for the mark", action: action(wire.VerbCreate, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","namespace":"app","annotations":"a"}}`),
			want: wire.Refusal{Cause: wire.CauseTarget, Message: `template cannot be used: its annotations are no object`},
		},
		"a name that is a path": {
			reason: "a path would name another object", action: deletion(wire.Target{Resource: "cm", Namespace: "app", Name: "../secrets/x"}),
			want: wire.Refusal{Cause: wire.CauseTarget, Message: `name "../secrets/x": target cannot be used: it may not contain '/'`},
		},
		"a namespace that is a path": {
			reason: "likewise", action: deletion(wire.Target{Resource: "cm", Namespace: "..", Name: "x"}),
			want: wire.Refusal{Cause: wire.CauseTarget, Message: `name "..": target cannot be used: it may not be '..'`},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := newRig()
			if tc.before != nil {
				tc.before(r)
			}
			result := r.execute(t, tc.action)
			if diff := cmp.Diff(&tc.want, result.Refusal); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if got := r.server.writes("/api/v1/namespaces/app"); len(got) > 0 {
				t.Errorf("writes are %v, want none", got)
			}
		})
	}
}

func TestUpdateKeepsFieldsOfOthers(t *testing.T) {
	const web = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"app"},
		"spec":{"template":{"spec":{"containers":[{"name":"web","image":"web:2"}]}}}}`
	container := func(name, image string) any { return map[string]any{"name": name, "image": image} }
	r := newRig()
	r.server.put(webPath, map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": map[string]any{"name": "web", "namespace": "app", "labels": map[string]any{"theirs": "yes"}, "annotations": map[string]any{"a": "b"}},
		"spec": map[string]any{
			"replicas": int64(3),
			"template": map[string]any{"spec": map[string]any{"containers": []any{container("web", "web:1"), container("sidecar", "proxy:1")}}},
		},
		"status": map[string]any{"replicas": int64(3)},
	})
	got := decode(t, r.execute(t, action(wire.VerbUpdate, web)))
	want := map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": map[string]any{
			"name": "web", "namespace": "app", "uid": "uid-1", "resourceVersion": "3", // the action log's entry is the second write

			"labels": map[string]any{"theirs": "yes"}, "annotations": map[string]any{"a": "b", Annotation: actionUID + "/1"},
		},
		"spec": map[string]any{
			"replicas": float64(3),
			"template": map[string]any{"spec": map[string]any{"containers": []any{container("web", "web:2"), container("sidecar", "proxy:1")}}},
		},
		"status": map[string]any{"replicas": float64(3)},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestCustomResourceGetsJSONMergePatch(t *testing.T) {
	r := newRig()
	r.server.put(widgetPath, map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": "w", "namespace": "app"},
		"spec": map[string]any{"size": int64(1), "theirs": "yes", "list": []any{"a", "b"}},
	})
	got := decode(t, r.execute(t, action(wire.VerbUpdate, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w","namespace":"app"},"spec":{"size":2,"list":["c"]}}`)))
	if diff := cmp.Diff(map[string]any{"size": float64(2), "theirs": "yes", "list": []any{"c"}}, got["spec"]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestUpdateFallsBackToJSONMergePatch(t *testing.T) {
	r := newRig()
	r.server.put(settingsPath, settings(map[string]any{"theirs": "2"}))
	r.server.refuse = refuseOnce("PATCH", settingsPath, http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType)
	got := decode(t, r.execute(t, action(wire.VerbUpdate, settingsTemplate)))
	if diff := cmp.Diff(map[string]any{"theirs": "2", "ours": "1"}, got["data"]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestUpdateIsRepeatedAfterConflict(t *testing.T) {
	r := newRig()
	r.server.put(settingsPath, settings(map[string]any{"theirs": "1"}))
	times := 0
	r.server.refuse = func(method, _ string) *metav1.Status {
		if method == "PATCH" && times < 3 { // with the server's lock held
			times++
			obj := r.server.objects[settingsPath].DeepCopy()
			_ = unstructured.SetNestedField(obj.Object, strings.Repeat("2", times), "data", "theirs")
			r.server.store(settingsPath, obj)
		}
		return nil
	}
	got := decode(t, r.execute(t, action(wire.VerbUpdate, settingsTemplate)))
	if diff := cmp.Diff(map[string]any{"theirs": "222", "ours": "1"}, got["data"]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !strings.Contains(r.server.object(entryPath(1)).Object["data"].(map[string]any)[entryKey].(string), `"version":"7"`) {
		t.Errorf("the action log has not the version that was patched: %v", r.server.object(entryPath(1)))
	}
}

func TestUpdateGivesUpAfterManyConflicts(t *testing.T) {
	r := newRig()
	r.server.put(settingsPath, settings(nil))
	r.server.refuse = func(method, _ string) *metav1.Status {
		if method == "PATCH" {
			r.server.store(settingsPath, r.server.objects[settingsPath].DeepCopy())
		}
		return nil
	}
	if result := r.execute(t, action(wire.VerbUpdate, settingsTemplate)); result.Refusal == nil || result.Refusal.Status != metav1.StatusReasonConflict {
		t.Errorf("%+v, want a refusal for the conflict", result)
	}
}

func TestDuplicatePatchIsDetected(t *testing.T) {
	r := newRig()
	r.server.put(settingsPath, settings(nil))
	r.server.refuse = func(method, _ string) *metav1.Status {
		obj := r.server.objects[settingsPath]
		if method == "PATCH" && obj.GetAnnotations()[Annotation] == "" {
			obj = obj.DeepCopy()
			obj.SetAnnotations(map[string]string{Annotation: actionUID + "/1"})
			r.server.store(settingsPath, obj) // the first copy of the request; this is the second
		}
		return nil
	}
	decode(t, r.execute(t, action(wire.VerbUpdate, settingsTemplate)))
	if got := r.server.writes(settingsPath); len(got) > 0 {
		t.Errorf("writes are %v after the first", got)
	}
}

func TestDeleteHasUIDPrecondition(t *testing.T) {
	r := newRig()
	r.server.put(settingsPath, settings(nil))
	swapped := false
	r.server.refuse = func(method, path string) *metav1.Status {
		if method == "DELETE" && path == settingsPath && !swapped {
			swapped = true
			obj := r.server.objects[settingsPath].DeepCopy()
			obj.SetUID("another")
			r.server.store(settingsPath, obj)
		}
		return nil
	}
	if result := r.execute(t, deletion(settingsTarget())); result.Refusal != nil || result.Result != nil || result.Omitted {
		t.Errorf("%+v, want an empty result", result)
	}
	if r.server.object(settingsPath) == nil {
		t.Error("an object was deleted that has taken the place of the one that was found")
	}
}

func TestResultOmissions(t *testing.T) {
	const secret = `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s","namespace":"app"},"data":{"password":"c2VjcmV0"}}`
	large := action(wire.VerbCreate, settingsTemplate)
	large.MaxBytes = 50
	shown := action(wire.VerbCreate, secret)
	shown.Secrets = wire.SecretsShown
	refused := action(wire.VerbCreate, secret)
	refused.Secrets = wire.SecretsRefused
	cases := map[string]struct {
		reason  string
		action  wire.Action
		omitted bool
		want    string // is in the result
		never   string // is not
	}{
		"a secret's values":    {reason: "masked unless asked for", action: action(wire.VerbCreate, secret), want: `"password"`, never: "c2VjcmV0"},
		"a secret":             {reason: "an action is no view: the result counts as masked", action: refused, want: `"password"`, never: "c2VjcmV0"},
		"nothing of a secret":  {reason: "the hub shows secrets", action: shown, want: "c2VjcmV0"},
		"a large object":       {reason: "above the limit", action: large, omitted: true},
		"the fields' managers": {reason: "nobody reads them", action: action(wire.VerbCreate, settingsTemplate), want: `"ours"`, never: "managedFields"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			result := newRig().execute(t, tc.action)
			text := string(result.Result)
			if result.Refusal != nil || result.Omitted != tc.omitted || !strings.Contains(text, tc.want) || tc.never != "" && strings.Contains(text, tc.never) {
				t.Errorf("%s: %+v %s", tc.reason, result, text)
			}
		})
	}
}

func TestRefusalHasNoSecretValues(t *testing.T) {
	const secretPath = "/api/v1/namespaces/app/secrets/s"
	r := newRig()
	r.server.put(secretPath, map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "s", "namespace": "app"}})
	r.server.refuse = func(method, path string) *metav1.Status {
		if method != http.MethodPatch || path != secretPath {
			return nil
		}
		invalid := field.Invalid(field.NewPath("patch"), "map[data:map[password:hunter2]]", "illegal base64 data at input byte 4")
		status := apierrors.NewInvalid(schema.GroupKind{}, "", field.ErrorList{invalid}).Status()
		return &status
	}
	result := r.execute(t, action(wire.VerbUpdate, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s","namespace":"app"},"data":{"password":"hunter2"}}`))
	want := wire.Refusal{Cause: wire.CauseRequest, Status: metav1.StatusReasonBadRequest, Message: "the template cannot be read as a Secret"}
	if diff := cmp.Diff(&want, result.Refusal); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if entry := fmt.Sprint(r.server.object(entryPath(1)).Object); strings.Contains(entry, "hunter2") {
		t.Errorf("the action log has the value: %s", entry)
	}
}

func TestPrintedObjectIsValidTemplate(t *testing.T) {
	const printed = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"settings","namespace":"app","uid":"u","resourceVersion":"7","generation":3,
		"creationTimestamp":"2026-01-01T00:00:00Z","deletionTimestamp":"2026-01-01T00:00:00Z","deletionGracePeriodSeconds":30,"selfLink":"/x",
		"managedFields":[{"manager":"kubectl"}],"annotations":null,"labels":{"a":"b"}},"data":{"ours":"1"},"status":{"x":1}}`
	obj, err := decodeTemplate([]byte(printed))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"ours": "1"},
		"metadata": map[string]any{"name": "settings", "namespace": "app", "labels": map[string]any{"a": "b"}},
	}
	if diff := cmp.Diff(want, obj.Object); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	decode(t, newRig().execute(t, action(wire.VerbCreate, printed)))
}

func TestOwnersOfTemplateAreRemoved(t *testing.T) {
	const (
		owned = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"settings","namespace":"app","ownerReferences":` +
			`[{"apiVersion":"v1","kind":"Secret","name":"long-gone","uid":"11111111-2222-4333-8444-555555555555"}]},"data":{"ours":"1"}}`
		unowned = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"settings","namespace":"app","ownerReferences":[]},"data":{"ours":"1"}}`
	)
	theirs := []any{map[string]any{"apiVersion": "v1", "kind": "Pod", "name": "theirs", "uid": "of-this-cluster"}}
	cases := map[string]struct {
		reason string
		action wire.Action
		there  bool
		want   []any
		warned []string
	}{
		"create": {
			reason: "the garbage collector would delete the object at once", action: action(wire.VerbCreate, owned), warned: []string{ownersRemovedWarning},
		},
		"update": {
			reason: "it keeps the owners that it has here", action: action(wire.VerbUpdate, owned), there: true, want: theirs, warned: []string{ownersRemovedWarning},
		},
		"none is named":  {reason: "nothing is missing", action: action(wire.VerbCreate, unowned)},
		"none is at all": {reason: "nothing is missing", action: action(wire.VerbCreate, settingsTemplate)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := newRig()
			if tc.there {
				obj := settings(nil)
				obj["metadata"].(map[string]any)["ownerReferences"] = theirs
				r.server.put(settingsPath, obj)
			}
			result := r.execute(t, tc.action)
			if diff := cmp.Diff(tc.warned, result.Warnings); diff != "" {
				t.Errorf("%s: warnings (-want +got):\n%s", tc.reason, diff)
			}
			got, _, err := unstructured.NestedSlice(decode(t, result), "metadata", "ownerReferences")
			if diff := cmp.Diff(tc.want, got); err != nil || diff != "" {
				t.Errorf("%s: %v, owners (-want +got):\n%s", tc.reason, err, diff)
			}
			// Another process knows of the action log what was said.
			if diff := cmp.Diff(tc.warned, r.execute(t, tc.action).Warnings); diff != "" {
				t.Errorf("%s: warnings after a restart (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestResultHasWarnings(t *testing.T) {
	r := newRig()
	r.server.put(settingsPath, settings(nil))
	r.server.warn = "v1 is old"
	if diff := cmp.Diff([]string{"v1 is old"}, r.execute(t, action(wire.VerbUpdate, settingsTemplate)).Warnings); diff != "" {
		t.Errorf("it comes with two answers, and is to be said once (-want +got):\n%s", diff)
	}
	// Another process knows them of the action log.
	r.server.warn = ""
	if diff := cmp.Diff([]string{"v1 is old"}, r.execute(t, action(wire.VerbUpdate, settingsTemplate)).Warnings); diff != "" {
		t.Errorf("after a restart (-want +got):\n%s", diff)
	}
}

func TestWarningsAreBounded(t *testing.T) {
	var w warnings
	for i := range 100 {
		w.HandleWarningHeader(299, "-", strings.Repeat("x", 10_000)+string(rune('a'+i)))
		w.HandleWarningHeader(299, "-", string(rune('a'+i)))
		w.HandleWarningHeader(199, "-", "not of Kubernetes")
	}
	var bytes int
	for _, text := range w.get() {
		bytes += len(text)
	}
	if n := len(w.get()); n != maxWarnings || bytes > maxWarnings*maxWarning {
		t.Errorf("%d warnings of %d bytes", n, bytes)
	}
}

func TestRefusalOf(t *testing.T) {
	if refusalOf(errors.New("reset by peer")) != nil {
		t.Error("a cut connection leaves open what was done")
	}
	if r := refusalOf(errUnknown); r == nil || r.Cause != wire.CauseUnknown {
		t.Errorf("%+v", r)
	}
}

func TestDuplicateCreateSucceeds(t *testing.T) {
	r := newRig()
	r.server.refuse = r.sentTwice
	decode(t, r.execute(t, action(wire.VerbCreate, settingsTemplate)))
}
