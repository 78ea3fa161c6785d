// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
)

const podsQuestion = `{"apiVersion":"live.spokelet.io/v1alpha1","kind":"ViewWork","metadata":{"name":"look"},"spec":{"scope":{"resource":"po","namespace":"a"}}}`

func TestAQuestionIsReadInFullOrRefused(t *testing.T) {
	s := start(t, &fleet{clusters: map[string]Session{"c1": broken{err: errors.New("must not be asked")}, "c2": newAgent(t, newSpoke().serve)}}, anything, Limits{})
	yaml := "apiVersion: live.spokelet.io/v1alpha1\nkind: ViewWork\nspec:\n  scope: {resource: po, namespace: a}\n"
	cases := map[string]struct {
		reason  string
		cluster string
		query   string
		media   string
		body    string
		code    int
		message string
	}{
		"JSON":               {reason: "the usual case", cluster: "c2", body: podsQuestion, code: 201, message: `"items":2`},
		"YAML":               {reason: "people write it", cluster: "c2", media: "application/yaml", body: yaml, code: 201, message: `"items":2`},
		"without a type":     {reason: "the path has it", cluster: "c2", body: `{"spec":{"scope":{"resource":"po","namespace":"a"}}}`, code: 201, message: `"kind":"ViewWork"`},
		"dry run":            {reason: "nothing is asked", query: "?dryRun=All", body: podsQuestion, code: 201, message: `"name":"look"`},
		"odd dry run":        {reason: "it may be meant to ask nothing", query: "?dryRun=Some", body: podsQuestion, code: 422, message: "dryRun"},
		"unknown field":      {reason: "a dropped selector selects everything", body: strings.Replace(podsQuestion, `"namespace"`, `"nameSpaces"`, 1), code: 400, message: "nameSpaces"},
		"field twice":        {reason: "which one?", body: strings.Replace(podsQuestion, `"scope":`, `"scope":{},"scope":`, 1), code: 400, message: "scope"},
		"other kind":         {reason: "it is no question", body: strings.Replace(podsQuestion, `"ViewWork"`, `"Cluster"`, 1), code: 400, message: "Cluster"},
		"other group":        {reason: "it is somebody else's", body: strings.Replace(podsQuestion, "live.spokelet.io", "x.io", 1), code: 400, message: "ViewWork"},
		"other namespace":    {reason: "one namespace is authorized and asked", body: strings.Replace(podsQuestion, `"name":"look"`, `"namespace":"c2"`, 1), code: 400, message: "namespace"},
		"unknown media type": {reason: "it cannot be read", media: "text/plain", body: podsQuestion, code: 415, message: "media type"},
		"no JSON":            {reason: "it cannot be read", body: "<html>", code: 400, message: "ViewWork"},
		"empty":              {reason: "nothing is asked", body: "", code: 400, message: "ViewWork"},
		"too large":          {reason: "memory is bounded", body: strings.Replace(podsQuestion, `"look"`, `"`+strings.Repeat("x", maxViewWork)+`"`, 1), code: 413, message: "limit"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			cluster, media := "c1", "application/json"
			if tc.cluster != "" {
				cluster = tc.cluster
			}
			if tc.media != "" {
				media = tc.media
			}
			res := s.do(t, http.MethodPost, livePath+"/namespaces/"+cluster+"/viewworks"+tc.query, "alice",
				http.Header{"Content-Type": {media}, "Accept": {"application/json"}}, tc.body)
			raw, err := io.ReadAll(res.Body)
			if err != nil || res.StatusCode != tc.code || !strings.Contains(string(raw), tc.message) {
				t.Errorf("%s: answered %d %.300s, %v; want %d naming %q", tc.reason, res.StatusCode, raw, err, tc.code, tc.message)
			}
		})
	}
}
