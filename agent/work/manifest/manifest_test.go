// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestParseManifests(t *testing.T) {
	tests := map[string]struct {
		reason string
		raw    string
		want   error
	}{
		"good":              {reason: "names are all that is read", raw: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`},
		"no kind":           {reason: "nothing can be resolved", raw: `{"apiVersion":"v1","metadata":{"name":"a"}}`, want: ErrNoKind},
		"no version":        {reason: "nothing can be resolved", raw: `{"kind":"ConfigMap","metadata":{"name":"a"}}`, want: ErrNoKind},
		"no name":           {reason: "an apply needs one", raw: `{"apiVersion":"v1","kind":"ConfigMap"}`, want: ErrNoName},
		"generated name":    {reason: "every apply would make another", raw: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"a-"}}`, want: ErrGenerateName},
		"a list":            {reason: "not an object", raw: `[]`, want: ErrNotObject},
		"null":              {reason: "not an object", raw: `null`, want: ErrNotObject},
		"nothing":           {reason: "not an object", raw: ``, want: ErrNotObject},
		"cut off":           {reason: "not JSON", raw: `{"apiVersion":"v1"`, want: nil},
		"a path for a name": {reason: "it would address something else", raw: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"../x"}}`, want: ErrInvalidName},
		"dots for a name":   {reason: "it would address something else", raw: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":".."}}`, want: ErrInvalidName},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			m := Parse(3, []byte(tc.raw))
			if name == "cut off" {
				if m.Err == nil {
					t.Error(tc.reason)
				}
				return
			}
			if !errors.Is(m.Err, tc.want) || m.Ordinal != 3 {
				t.Errorf("%s: %+v, want error %v", tc.reason, m, tc.want)
			}
		})
	}
}

func TestConfigurationOmitsForeignFields(t *testing.T) {
	raw := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"b","uid":"x","resourceVersion":"1","creationTimestamp":null,
		"ownerReferences":[{"apiVersion":"v1","kind":"X","name":"x","uid":"u"}]},
		"spec":{"big":12345678901234567890,"template":{"metadata":{"creationTimestamp":null,"name":"t"}}},"status":{"phase":"x"}}`
	at := Target{ObjectID: ObjectID{Namespace: "b", Name: "a", Resource: "pods"}, Version: "v1", Kind: "Pod"}
	owners := []metav1.OwnerReference{{APIVersion: "g/v1", Kind: "AppliedWork", Name: "w", UID: "anchor"}}
	got, err := Parse(0, []byte(raw)).Configuration(at, owners)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"b","ownerReferences":[` +
		`{"apiVersion":"g/v1","kind":"AppliedWork","name":"w","uid":"anchor"}]},` +
		`"spec":{"big":12345678901234567890,"template":{"metadata":{"name":"t"}}}}`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
}

func TestHashIsOfAppliedContent(t *testing.T) {
	const without = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"a"},"spec":{"note":"\u003c","template":{"metadata":{}}}}`
	tests := map[string]struct {
		reason string
		raw    string
		same   bool
	}{
		"a null":           {"it is not applied", strings.Replace(without, `{"name"`, `{"creationTimestamp":null,"name"`, 1), true},
		"a nested null":    {"a template's is not applied, either", strings.Replace(without, `"metadata":{}}`, `"metadata":{"creationTimestamp":null}}`, 1), true},
		"a time":           {"it is stripped from the object's own metadata alone", strings.Replace(without, `"metadata":{}}`, `"metadata":{"creationTimestamp":"2026-01-01T00:00:00Z"}}`, 1), false},
		"a null elsewhere": {"a field of that name is the kind's own", strings.Replace(without, `"note"`, `"creationTimestamp":null,"note"`, 1), false},
		"another null":     {"it takes a field away", strings.Replace(without, `"note"`, `"generation":null,"note"`, 1), false},
		"no JSON":          {"it differs, and says why elsewhere", `{"creationTimestamp":null`, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if same := Parse(0, []byte(tc.raw)).Hash == Parse(0, []byte(without)).Hash; same != tc.same {
				t.Errorf("%s: same is %t", tc.reason, same)
			}
		})
	}
}

func TestParseManifestReadsFieldNamesLikeAPIServer(t *testing.T) {
	for name, raw := range map[string]string{
		"another case":  `{"apiVersion":"v1","kind":"Other","metadata":{"name":"x","namespace":"a","Namespace":"b","Name":"y"},"Kind":"ClusterX","APIVersion":"v2"}`,
		"another K":     `{"apiVersion":"v1","kind":"Other","metadata":{"name":"x","namespace":"a"},"\u212aind":"ClusterX"}`,
		"another s":     `{"apiVersion":"v1","kind":"Other","metadata":{"name":"x","namespace":"a","name\u017fpace":"b"}}`,
		"other objects": `{"apiVersion":"v1","kind":"Other","metadata":{"name":"x","namespace":"a"},"Metadata":{"namespace":"b","name":"y"}}`,
	} {
		m := Parse(0, []byte(raw))
		if m.Err != nil || m.GVK.Kind != "Other" || m.GVK.Version != "v1" || m.Namespace != "a" || m.Name != "x" {
			t.Errorf("%s: the manifest is %s %s/%s, %v", name, m.GVK, m.Namespace, m.Name, m.Err)
		}
	}
}

// FuzzManifest reads what a hub's user may write: no input may panic, and what is
// applied names the target and nothing else.
func FuzzManifest(f *testing.F) {
	f.Add([]byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"b","ownerReferences":[]}}`))
	f.Add([]byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":null}`))
	f.Add([]byte(`{"metadata":{"name":"x","ownerReferences":7}} {}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		m := Parse(0, raw)
		if m.Err != nil {
			return
		}
		at := Target{ObjectID: ObjectID{Resource: "x", Namespace: "ns", Name: m.Name}, Version: "v1", Kind: m.GVK.Kind}
		out, err := m.Configuration(at, []metav1.OwnerReference{{UID: "anchor"}})
		if err != nil {
			return
		}
		var h header
		if err := json.Unmarshal(out, &h); err != nil {
			t.Fatalf("the configuration is no JSON: %v", err)
		}
		if h.Metadata.Name != m.Name || h.Metadata.Namespace != "ns" {
			t.Errorf("the configuration names %s/%s", h.Metadata.Namespace, h.Metadata.Name)
		}
	})
}
