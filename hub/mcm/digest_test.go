// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package mcm

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"

	actionv1beta1 "github.com/spokelet/spokelet/api/action/v1beta1"
	"github.com/spokelet/spokelet/api/mcm/v1alpha1"
	viewv1beta1 "github.com/spokelet/spokelet/api/view/v1beta1"
)

func TestDigestIgnoresEncoding(t *testing.T) {
	tests := map[string]struct {
		reason, a, b string
		same         bool
	}{
		"members in another order":  {reason: "maps have none", a: `{"a":1,"b":2}`, b: `{"b":2,"a":1}`, same: true},
		"white space":               {reason: "it is no content", a: `{"a":[1,2]}`, b: "{ \"a\": [1,\n2] }", same: true},
		"characters escaped":        {reason: "they are the same text", a: `{"a":"<é"}`, b: `{"a":"\u003c\u00e9"}`, same: true},
		"a whole floating point":    {reason: "an API server writes it as an integer", a: `{"a":2.0}`, b: `{"a":2}`, same: true},
		"an exponent":               {reason: "it is the same number", a: `{"a":1e3}`, b: `{"a":1000}`, same: true},
		"items in another order":    {reason: "lists have one", a: `{"a":[1,2]}`, b: `{"a":[2,1]}`},
		"another value":             {reason: "it is another", a: `{"a":1}`, b: `{"a":2}`},
		"a large integer, by one":   {reason: "API servers keep 64 bits", a: `{"a":9007199254740992}`, b: `{"a":9007199254740993}`},
		"a null that is not there":  {reason: "an unstructured object keeps it", a: `{"a":null}`, b: `{}`},
		"a number that is no text":  {reason: "types differ", a: `{"a":1}`, b: `{"a":"1"}`},
		"nothing, and an empty map": {reason: "one is a result", a: ``, b: `{}`},
		"nothing, and null":         {reason: "neither is a result", a: ``, b: `null`, same: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			a, err := Digest([]byte(tc.a))
			if err != nil {
				t.Fatal(err)
			}
			b, err := Digest([]byte(tc.b))
			if err != nil {
				t.Fatal(err)
			}
			if (a == b) != tc.same {
				t.Errorf("%s: %s has %q, %s has %q", tc.reason, tc.a, a, tc.b, b)
			}
		})
	}
	for _, bad := range []string{`{`, `{"a":1e999}`, `{}{}`} {
		if got, err := Digest([]byte(bad)); err == nil {
			t.Errorf("Digest(%s) = %s, want an error", bad, got)
		}
	}
}

func TestStripReplacesResultWithDigest(t *testing.T) {
	const result = `{"kind":"Pod"}`
	want, err := Digest([]byte(result))
	if err != nil {
		t.Fatal(err)
	}
	spoil := func(o metav1.Object) {
		o.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "m"}})
		annotations := o.GetAnnotations()
		annotations[corev1.LastAppliedConfigAnnotation] = "{}"
		annotations[AnnotationDigest] = "somebody's word"
	}
	work, view, action := resourceWork("w"), clusterView("v"), clusterAction("a")
	work.Status.Result = newRaw(result)
	view.Status.Result.Raw = []byte(result)
	action.Status.Result.Raw = []byte(result)
	for _, obj := range []client.Object{work, view, action} {
		spoil(obj)
		got, err := Strip(obj)
		if err != nil {
			t.Fatal(err)
		}
		stripped, ok := got.(client.Object)
		if !ok {
			t.Fatalf("a %T became a %T", obj, got)
		}
		annotations := stripped.GetAnnotations()
		if _, is := annotations[corev1.LastAppliedConfigAnnotation]; is || len(stripped.GetManagedFields()) > 0 || annotations[AnnotationDigest] != want {
			t.Errorf("%T: annotations %v, managed fields %v", obj, annotations, stripped.GetManagedFields())
		}
		if text := string(mustEncode(t, stripped)); strings.Contains(text, `"kind":"Pod"`) {
			t.Errorf("%T: the result is still there: %s", obj, text)
		}
	}
}

func TestStripLeavesObjectsWithoutResult(t *testing.T) {
	bare := &v1alpha1.Work{ObjectMeta: metav1.ObjectMeta{Name: "w"}}
	got, err := Strip(bare.DeepCopy())
	if diff := cmp.Diff(any(bare), got, cmpopts.EquateEmpty()); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	forged := resourceWork("w", func(w *v1alpha1.Work) { w.Annotations[AnnotationDigest] = "somebody's word" })
	if _, err := Strip(forged); err != nil || forged.Annotations[AnnotationDigest] != "" {
		t.Errorf("%v, a digest that nobody made: %v", err, forged.Annotations)
	}
	if got, err := Strip("text"); got != "text" || err != nil {
		t.Errorf("what is no object became %v, %v", got, err)
	}
	// A cache whose transformation fails is never filled.
	odd := &viewv1beta1.ManagedClusterView{Status: viewv1beta1.ViewStatus{Result: runtime.RawExtension{Raw: []byte(`{`)}}}
	if _, err := Strip(odd); err != nil || odd.Annotations[AnnotationDigest] == "" {
		t.Errorf("%v, annotations %v", err, odd.Annotations)
	}
	if _, err := Strip(&actionv1beta1.ManagedClusterAction{}); err != nil {
		t.Error(err)
	}
}

func FuzzDigest(f *testing.F) {
	f.Add([]byte(`{"a":[1,2.0,-0,"\u003c"],"b":{"c":null}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		digest, err := Digest(body)
		if err != nil || digest == "" {
			return
		}
		// What an API server makes of it has the same.
		var value any
		if err := utiljson.Unmarshal(body, &value); err != nil {
			t.Fatal(err)
		}
		stored, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := Digest(stored); again != digest || err != nil {
			t.Errorf("%s has %s, stored as %s it has %s: %v", body, digest, stored, again, err)
		}
	})
}

// client-go transforms what a first list streams when it comes, and again when it is
// queued.
func TestStripIsIdempotent(t *testing.T) {
	w := resourceWork("w", func(w *v1alpha1.Work) { w.Status.Result = &runtime.RawExtension{Raw: []byte(`{"a":"b"}`)} })
	for range 2 {
		if _, err := Strip(w); err != nil {
			t.Fatal(err)
		}
	}
	want, err := Digest([]byte(`{"a":"b"}`))
	if got := w.Annotations[AnnotationDigest]; err != nil || got != want {
		t.Errorf("the digest is %q, %v; want %q", got, err, want)
	}
}
