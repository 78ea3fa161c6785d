// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	livev1alpha1 "github.com/spokelet/spokelet/api/live/v1alpha1"
)

const podList = `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}]}`

func body(s string) io.ReadCloser { return io.NopCloser(strings.NewReader(s)) }

// readResponseUnaccounted reads an answer on no account.
func (q *viewQuery) readResponseUnaccounted(answer string, limit int64, r resource) (*livev1alpha1.ClusterView, error) {
	return q.readResponse(body(answer), limit, memoryReservation{}, r)
}

func TestViewQueryReadsResponse(t *testing.T) {
	pods := resource{gv: schema.GroupVersion{Version: "v1"}, kind: "Pod"}
	one, two := int64(1), int64(2)
	cases := map[string]struct {
		reason  string
		output  livev1alpha1.ViewWorkOutput
		name    string
		answer  string
		limit   int64
		want    livev1alpha1.ClusterView
		objects []string
	}{
		"list": {
			reason: "items of built-in types are given theirs", answer: podList,
			want:    livev1alpha1.ClusterView{ResourceVersion: "7", ItemCount: 2, Complete: true},
			objects: []string{`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}`, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"b"}}`},
		},
		"typed items": {
			reason: "items that say what they are stay as they are", answer: `{"items":[{"apiVersion":"x/v1","kind":"T"},{"kind":"T","apiVersion":"x/v1"}],"metadata":{}}`,
			want:    livev1alpha1.ClusterView{ItemCount: 2, Complete: true},
			objects: []string{`{"apiVersion":"x/v1","kind":"T"}`, `{"kind":"T","apiVersion":"x/v1"}`},
		},
		"page": {
			reason: "a page is not the list", answer: `{"metadata":{"continue":"c","remainingItemCount":2},"items":[{"kind":"Pod","apiVersion":"v1"}]}`,
			want:    livev1alpha1.ClusterView{ItemCount: 1, Continue: "c", Remaining: &two},
			objects: []string{`{"kind":"Pod","apiVersion":"v1"}`},
		},
		"empty": {reason: "no items is an answer", answer: `{"metadata":{"resourceVersion":"1"},"items":[]}`, want: livev1alpha1.ClusterView{ResourceVersion: "1", Complete: true}},
		"null":  {reason: "some servers write an empty list so", answer: `{"metadata":{},"items":null}`, want: livev1alpha1.ClusterView{Complete: true}},
		"cut in an item": {
			reason: "whole items are of use, and it is stated", answer: strings.NewReplacer(`"a"`, `"`+strings.Repeat("a", 900)+`"`, `"b"`, `"`+strings.Repeat("b", 900)+`"`).Replace(podList), limit: 1200,
			want:    livev1alpha1.ClusterView{ResourceVersion: "7", ItemCount: 1},
			objects: []string{`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"` + strings.Repeat("a", 900) + `"}}`},
		},
		"cut page": {
			reason: "its token would skip what was cut", answer: `{"metadata":{"continue":"c"},"items":[{"kind":"P"},{"kind":"Q"}]}`, limit: itemOverhead + 60,
			want:    livev1alpha1.ClusterView{ItemCount: 1},
			objects: []string{`{"kind":"P"}`},
		},
		"one object": {
			reason: "it is passed on as it is", name: "a", answer: `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","resourceVersion":"9"}}`,
			want:    livev1alpha1.ClusterView{ResourceVersion: "9", ItemCount: 1, Complete: true},
			objects: []string{`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","resourceVersion":"9"}}`},
		},
		"table": {
			reason: "rows are the items", output: livev1alpha1.OutputTable, name: "a",
			answer: `{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"remainingItemCount":1,"continue":"x"},"columnDefinitions":[{"name":"Name"}],"rows":[{"cells":["a"]}]}`,
			want:   livev1alpha1.ClusterView{ItemCount: 1, Continue: "x", Remaining: &one},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			limit := tc.limit
			if limit == 0 {
				limit = 1 << 20
			}
			q := &viewQuery{name: tc.name, output: tc.output}
			got, err := q.readResponseUnaccounted(tc.answer, limit, pods)
			if err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			var objects []string
			for _, o := range got.Objects {
				objects = append(objects, string(o.Raw))
			}
			if diff := cmp.Diff(tc.objects, objects); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if tc.output == livev1alpha1.OutputTable && !json.Valid(got.Table.Raw) {
				t.Errorf("%s: table is %s", tc.reason, got.Table.Raw)
			}
			got.Objects, got.Table = nil, nil
			if diff := cmp.Diff(&tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestViewQueryFailsOnCutResponse(t *testing.T) {
	object := `{"kind":"Pod","metadata":{"name":"a"}}`
	errBoom := errors.New("boom")
	for n := range len(podList) {
		q := &viewQuery{}
		if _, err := q.readResponseUnaccounted(podList[:n], 1<<20, resource{}); err == nil {
			t.Errorf("a list that ends at byte %d is complete", n)
		}
	}
	for n := range len(object) {
		q := &viewQuery{name: "a"}
		if _, err := q.readResponseUnaccounted(object[:n], 1<<20, resource{}); err == nil {
			t.Errorf("an object that ends at byte %d is complete", n)
		}
	}
	// The connection breaks behind the last byte: there may have been more.
	broken := io.NopCloser(io.MultiReader(strings.NewReader(podList), iotest.ErrReader(errBoom)))
	if _, err := (&viewQuery{}).readResponse(broken, 1<<20, memoryReservation{}, resource{}); !errors.Is(err, errBoom) {
		t.Errorf("error = %v, want that of the connection", err)
	}
	if _, err := (&viewQuery{name: "a"}).readResponseUnaccounted(object, 10, resource{}); !errors.Is(err, errTooLarge) {
		t.Errorf("error = %v, want that an object is too large", err)
	}
}

func FuzzReadResponse(f *testing.F) {
	for _, s := range []string{podList, `{"items":null}`, `{"rows":[{}],"columnDefinitions":[]}`, `[]`, `{"items":{}}`, `<html>`, `{"items":[1,"x",[]]}`} {
		f.Add(s, int64(100), false)
		f.Add(s, int64(20), true)
	}
	f.Fuzz(func(t *testing.T, answer string, limit int64, table bool) {
		q := &viewQuery{}
		if table {
			q.output = livev1alpha1.OutputTable
		}
		view, err := q.readResponseUnaccounted(answer, limit, resource{gv: schema.GroupVersion{Version: "v1"}, kind: "Pod"})
		if err != nil {
			return
		}
		if _, err := json.Marshal(view); err != nil {
			t.Errorf("%q: answer cannot be encoded: %v", answer, err)
		}
		if json.Valid([]byte(answer)) && int64(len(strings.TrimSpace(answer))) > limit && view.Complete {
			t.Errorf("%q: complete within %d bytes", answer, limit)
		}
	})
}

func BenchmarkReadResponse(b *testing.B) {
	item := `{"metadata":{"name":"a","namespace":"b","labels":{"x":"y"}},"spec":{"nodeName":"n"}}`
	answer := `{"metadata":{},"items":[` + strings.Repeat(item+",", 999) + item + `]}`
	b.SetBytes(int64(len(answer)))
	for b.Loop() {
		q := &viewQuery{}
		if v, err := q.readResponseUnaccounted(answer, 1<<20, resource{kind: "Pod"}); err != nil || v.ItemCount != 1000 {
			b.Fatal(fmt.Sprint(v, err))
		}
	}
}
