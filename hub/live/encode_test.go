// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"

	livev1alpha1 "github.com/spokelet/spokelet/api/live/v1alpha1"
)

func raw(s string) runtime.RawExtension { return runtime.RawExtension{Raw: []byte(s)} }

func TestEncodeViewEqualsJSONEncoding(t *testing.T) {
	table := raw(`{"kind":"Table","rows":[]}`)
	one := livev1alpha1.ClusterView{Cluster: "c1", Objects: []runtime.RawExtension{raw(`{"a":"<&>"}`), raw(`null`)}, ItemCount: 2, Complete: true}
	cases := map[string][]livev1alpha1.ClusterView{
		"no cluster": nil,
		"objects":    {one},
		"table":      {{Cluster: "c1", Table: &table, Message: "cut"}},
		"many":       {one, {Cluster: "c2", Error: &livev1alpha1.ViewError{Code: 429, Message: `"no" }}`}}, {Cluster: "c3"}, one},
	}
	for name, clusters := range cases {
		t.Run(name, func(t *testing.T) {
			v := &livev1alpha1.ViewWork{Spec: podsIn("a"), Status: summarize(clusters, 3)}
			v.Name = "look"
			var out bytes.Buffer
			if err := encodeView(&out, v); err != nil {
				t.Fatal(err)
			}
			v.APIVersion, v.Kind = livePath[len("/apis/"):], "ViewWork"
			whole, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			var want, got any
			if err := errors.Join(json.Unmarshal(whole, &want), json.Unmarshal(out.Bytes(), &got)); err != nil {
				t.Fatalf("%v: %s", err, out.String())
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// errWriter fails.
type errWriter struct{ err error }

func (w errWriter) Write([]byte) (int, error) { return 0, w.err }

func TestEncodeViewReportsWriteError(t *testing.T) {
	errBoom := errors.New("boom")
	v := &livev1alpha1.ViewWork{Status: summarize([]livev1alpha1.ClusterView{{Cluster: "c1", Objects: []runtime.RawExtension{raw(`"` + strings.Repeat("a", 2*writeBuffer) + `"`)}}}, 0)}
	if err := encodeView(errWriter{errBoom}, v); !errors.Is(err, errBoom) {
		t.Errorf("error %v, want that of the writer", err)
	}
}

// TestViewWorkIsServedAsCompactJSONOnly: other forms take many times the memory.
func TestViewWorkIsServedAsCompactJSONOnly(t *testing.T) {
	s := start(t, &fleet{clusters: map[string]Session{"c1": newTestAgent(t, newFakeCluster().serve)}}, allowAll, Limits{})
	cases := map[string]struct {
		reason string
		accept string
		query  string
		agent  string
		code   int
	}{
		"anything":        {reason: "JSON is something", accept: "*/*", code: 201},
		"browser":         {reason: "it gets no indentation", accept: "application/json", agent: "Mozilla/5.0", code: 201},
		"pretty":          {reason: "it gets no indentation", accept: "application/json;pretty=1", query: "?pretty=true", code: 201},
		"YAML or JSON":    {reason: "JSON will do", accept: "application/yaml, application/json", code: 201},
		"YAML alone":      {reason: "it is not made", accept: "application/yaml", code: 406},
		"Protobuf alone":  {reason: "it is not made", accept: "application/vnd.kubernetes.protobuf", code: 406},
		"table of itself": {reason: "a question has no table", accept: "application/json;as=Table;g=meta.k8s.io;v=v1", code: 406},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			res := s.do(t, http.MethodPost, livePath+"/namespaces/c1/viewworks"+tc.query, "alice",
				http.Header{"Content-Type": {"application/json"}, "Accept": {tc.accept}, "User-Agent": {tc.agent}}, podsQuestion)
			text, err := io.ReadAll(res.Body)
			if err != nil || res.StatusCode != tc.code {
				t.Fatalf("%s: answered %d %.200s, %v; want %d", tc.reason, res.StatusCode, text, err, tc.code)
			}
			if tc.code == 201 && (res.Header.Get("Content-Type") != "application/json" || strings.Count(string(text), "\n") != 1) {
				t.Errorf("%s: %s: %s", tc.reason, res.Header.Get("Content-Type"), text)
			}
		})
	}
}
