// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package action

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/api/wire"
)

const oldMeta = `"metadata":{"name":"x","namespace":"app"}`

// oldVersion is a template of a version that clusters served once.
type oldVersion struct {
	reason string
	verb   wire.Verb // Create, if empty
	in     string
	want   string // without metadata
	use    string // what the refusal names
}

var oldVersions = map[string]oldVersion{
	"a deployment": {
		reason: "the selector was the labels of its pods",
		in: `{"apiVersion":"extensions/v1beta1","kind":"Deployment",` + oldMeta + `,
			"spec":{"rollbackTo":{"revision":1},"template":{"metadata":{"labels":{"app":"x"}}}}}`,
		want: `{"apiVersion":"apps/v1","kind":"Deployment",
			"spec":{"selector":{"matchLabels":{"app":"x"}},"template":{"metadata":{"labels":{"app":"x"}}}}}`,
	},
	"a deployment with a selector": {
		reason: "it has one already",
		in: `{"apiVersion":"apps/v1beta2","kind":"Deployment",` + oldMeta + `,
			"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b","c":"d"}}}}}`,
		want: `{"apiVersion":"apps/v1","kind":"Deployment",
			"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b","c":"d"}}}}}`,
	},
	"a deployment without labels": {
		reason: "no rule says what it selects",
		in:     `{"apiVersion":"apps/v1beta1","kind":"Deployment",` + oldMeta + `,"spec":{"template":{}}}`, use: "apps/v1",
	},
	"a deployment without a spec": {
		reason: "no rule says what it selects",
		in:     `{"apiVersion":"apps/v1beta1","kind":"Deployment",` + oldMeta + `}`, use: "apps/v1",
	},
	"an update of a deployment": {
		reason: "it has its selector, which cannot be changed", verb: wire.VerbUpdate,
		in:   `{"apiVersion":"extensions/v1beta1","kind":"Deployment",` + oldMeta + `,"spec":{"replicas":2,"selector":null}}`,
		want: `{"apiVersion":"apps/v1","kind":"Deployment","spec":{"replicas":2}}`,
	},
	"an update of its labels": {
		reason: "an update need not have a spec", verb: wire.VerbUpdate,
		in:   `{"apiVersion":"extensions/v1beta1","kind":"Deployment",` + oldMeta + `}`,
		want: `{"apiVersion":"apps/v1","kind":"Deployment"}`,
	},
	"an ingress": {
		reason: "backends name a service, paths have a type",
		in: `{"apiVersion":"networking.k8s.io/v1beta1","kind":"Ingress",` + oldMeta + `,"spec":{
			"backend":{"serviceName":"d","servicePort":"http"},
			"rules":[{"host":"a"},{"host":"b","http":{"paths":[
				{"path":"/","backend":{"serviceName":"s","servicePort":80}},
				{"path":"/","pathType":"Prefix","backend":{"resource":{"kind":"Bucket","name":"r"}}}]}}]}}`,
		want: `{"apiVersion":"networking.k8s.io/v1","kind":"Ingress","spec":{
			"defaultBackend":{"service":{"name":"d","port":{"name":"http"}}},
			"rules":[{"host":"a"},{"host":"b","http":{"paths":[
				{"path":"/","pathType":"ImplementationSpecific","backend":{"service":{"name":"s","port":{"number":80}}}},
				{"path":"/","pathType":"Prefix","backend":{"resource":{"kind":"Bucket","name":"r"}}}]}}]}}`,
	},
	"an ingress without rules": {
		reason: "there is nothing to convert",
		in:     `{"apiVersion":"extensions/v1beta1","kind":"Ingress",` + oldMeta + `,"spec":{"tls":[]}}`,
		want:   `{"apiVersion":"networking.k8s.io/v1","kind":"Ingress","spec":{"tls":[]}}`,
	},
	"an ingress without a port": {
		reason: "a backend needs one",
		in:     `{"apiVersion":"extensions/v1beta1","kind":"Ingress",` + oldMeta + `,"spec":{"backend":{"serviceName":"d"}}}`, use: "networking.k8s.io/v1",
	},
	"an ingress of two backends": {
		reason: "one of them would be lost",
		in:     `{"apiVersion":"extensions/v1beta1","kind":"Ingress",` + oldMeta + `,"spec":{"backend":{"serviceName":"d","servicePort":1,"resource":{"kind":"Bucket","name":"r"}}}}`, use: "networking.k8s.io/v1",
	},
	"an ingress of odd form": {
		reason: "no rule knows it",
		in:     `{"apiVersion":"extensions/v1beta1","kind":"Ingress",` + oldMeta + `,"spec":{"rules":[{"http":{"paths":["/"]}}]}}`, use: "networking.k8s.io/v1",
	},
	"a network policy": {
		reason: "it moved as it was",
		in:     `{"apiVersion":"extensions/v1beta1","kind":"NetworkPolicy",` + oldMeta + `,"spec":{"podSelector":{}}}`,
		want:   `{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","spec":{"podSelector":{}}}`,
	},
	"a disruption budget": {
		reason: "it moved as it was",
		in:     `{"apiVersion":"policy/v1beta1","kind":"PodDisruptionBudget",` + oldMeta + `,"spec":{"selector":{"matchLabels":{"a":"b"}}}}`,
		want:   `{"apiVersion":"policy/v1","kind":"PodDisruptionBudget","spec":{"selector":{"matchLabels":{"a":"b"}}}}`,
	},
	"a disruption budget of nothing": {
		reason: "its selector selects every pod today",
		in:     `{"apiVersion":"policy/v1beta1","kind":"PodDisruptionBudget",` + oldMeta + `,"spec":{"selector":{}}}`, use: "policy/v1",
	},
	"a cron job": {
		reason: "it moved as it was",
		in:     `{"apiVersion":"batch/v1beta1","kind":"CronJob",` + oldMeta + `,"spec":{"schedule":"@daily"}}`,
		want:   `{"apiVersion":"batch/v1","kind":"CronJob","spec":{"schedule":"@daily"}}`,
	},
	"a role binding": {
		reason: "subjects had a version",
		in: `{"apiVersion":"rbac.authorization.k8s.io/v1alpha1","kind":"RoleBinding",` + oldMeta + `,
			"subjects":[{"kind":"User","apiVersion":"rbac.authorization.k8s.io/v1alpha1","name":"a"},{"kind":"ServiceAccount","apiVersion":"v1","name":"b"},{"kind":"Group","name":"c"}]}`,
		want: `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"RoleBinding",
			"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"a"},{"kind":"ServiceAccount","name":"b"},{"kind":"Group","name":"c"}]}`,
	},
	"a role binding of everybody": {
		reason: "that user is nobody today",
		in:     `{"apiVersion":"rbac.authorization.k8s.io/v1alpha1","kind":"RoleBinding",` + oldMeta + `,"subjects":[{"kind":"User","name":"*"}]}`, use: "rbac.authorization.k8s.io/v1",
	},
	"a later role binding": {
		reason: "it moved as it was",
		in:     `{"apiVersion":"rbac.authorization.k8s.io/v1beta1","kind":"RoleBinding",` + oldMeta + `,"roleRef":{"kind":"Role"}}`,
		want:   `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"RoleBinding","roleRef":{"kind":"Role"}}`,
	},
}

func TestRemovedVersionsAreConverted(t *testing.T) {
	for name, tc := range oldVersions {
		t.Run(name, func(t *testing.T) {
			e := &Engine{cfg: newRig().config(nil)}
			verb := tc.verb
			if verb == "" {
				verb = wire.VerbCreate
			}
			p, err := e.buildPlan(decodeRequest(version(t, action(verb, tc.in), 1)))
			was, now := group(t, tc.in), tc.use
			if tc.use != "" {
				if want := was + `": the cluster has no such resource; use ` + now; err == nil || !hasSuffix(err, want) {
					t.Errorf("%s: %v, want an end of %s", tc.reason, err, want)
				}
				return
			}
			if err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			var want map[string]any
			if err := json.Unmarshal([]byte(tc.want), &want); err != nil {
				t.Fatal(err)
			}
			delete(p.object.Object, "metadata")
			if diff := cmp.Diff(want, floats(t, p.object.Object)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			warning := group(t, tc.want) + " is used in place of " + was + ", which is not served any more"
			if diff := cmp.Diff([]string{warning}, p.warnings.get()); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
		})
	}
}

// group returns the apiVersion of an object.
func group(t *testing.T, object string) string {
	t.Helper()
	var kind metav1.TypeMeta
	if err := json.Unmarshal([]byte(object), &kind); err != nil {
		t.Fatal(err)
	}
	return kind.APIVersion
}

// floats makes numbers what encoding/json makes of them.
func floats(t *testing.T, obj map[string]any) (out map[string]any) {
	t.Helper()
	raw, err := json.Marshal(obj)
	if err == nil {
		err = json.Unmarshal(raw, &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestServedVersionIsNotConverted(t *testing.T) {
	r := newRig()
	r.discovery.Resources = append(r.discovery.Resources, &metav1.APIResourceList{
		GroupVersion: "extensions/v1beta1", APIResources: []metav1.APIResource{{Name: "deployments", SingularName: "deployment", Kind: "Deployment", Namespaced: true}},
	})
	result := r.execute(t, action(wire.VerbCreate, `{"apiVersion":"extensions/v1beta1","kind":"Deployment","metadata":{"name":"x","namespace":"app"}}`))
	if got := decode(t, result)["apiVersion"]; got != "extensions/v1beta1" || len(result.Warnings) > 0 {
		t.Errorf("%v with warnings %v", got, result.Warnings)
	}
}

func TestRemovedVersionIsExecuted(t *testing.T) {
	r := newRig()
	const web = `{"apiVersion":"extensions/v1beta1","kind":"Deployment","metadata":{"name":"web","namespace":"app"},"spec":{"template":{"metadata":{"labels":{"app":"web"}}}}}`
	want := []string{"apps/v1 is used in place of extensions/v1beta1, which is not served any more"}
	for range 2 { // the second process has it of the action log
		result := r.execute(t, action(wire.VerbCreate, web))
		if got := decode(t, result)["apiVersion"]; got != "apps/v1" {
			t.Errorf("the object is of %v", got)
		}
		if diff := cmp.Diff(want, result.Warnings); diff != "" {
			t.Errorf("warnings (-want +got):\n%s", diff)
		}
	}
	// The hub names what the template of a deletion was.
	gone := deletion(wire.Target{Kind: "Deployment", Group: "extensions", Namespace: "app", Name: "web"})
	gone.Requester.User = "bob"
	r2 := newRig()
	r2.server.put(webPath, map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "web", "namespace": "app"}})
	if result := r2.execute(t, gone); result.Refusal != nil || r2.server.object(webPath) != nil {
		t.Errorf("%+v, want that it is deleted", result.Refusal)
	}
}
