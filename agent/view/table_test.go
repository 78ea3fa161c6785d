// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/spokelet/spokelet/agent/refusals"
	"github.com/spokelet/spokelet/api/wire"
)

func asRows(v wire.View) wire.View {
	v.Table = true
	return v
}

func TestTableIsThatOfAPIServer(t *testing.T) {
	runSynctest(t, func(r *rig) {
		key := r.ask(asRows(configMaps("shop")), 1)
		const before = `{"apiVersion":"meta.k8s.io/v1","columnDefinitions":[{"name":"Name","type":"string"},{"name":"Data","type":"string"}],"kind":"Table","metadata":{},"rows":[`
		if got := string(r.onlyAnswer(key, "no objects").Result); got != before+"]}" {
			t.Errorf("%s, want the columns, which came with the bookmark", got)
		}
		r.sleep(time.Minute)
		r.server.set("configmaps", "shop", "b", data("k", "v"))
		r.server.set("configmaps", "shop", "a", nil)
		r.sleep(time.Second)
		all := r.nextAnswer(key)
		row := func(cells, name, version string) string {
			return `{"cells":[` + cells + `],"object":{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata","metadata":{"name":"` + name + `","namespace":"shop","resourceVersion":"` + version + `"}}}`
		}
		want := before + row(`"a",0`, "a", "102") + "," + row(`"b",1`, "b", "101") + "]}"
		if diff := cmp.Diff(want, string(all[len(all)-1].Result)); diff != "" {
			t.Errorf("two rows (-want +got):\n%s", diff)
		}
		r.sleep(time.Minute)
		r.server.remove("configmaps", "shop", "b")
		if got := r.onlyAnswer(key, "a deletion").names(t); !cmp.Equal(got, []string{"shop/a"}) {
			t.Errorf("%v, want the other row", got)
		}
	})
}

func TestChangedColumnsReloadRows(t *testing.T) {
	runSynctest(t, func(r *rig) {
		r.server.set("configmaps", "shop", "a", nil)
		key := r.ask(asRows(configMaps("shop")), 1)
		r.onlyAnswer(key, "the initial state")
		r.sleep(time.Minute)
		r.server.configure(func(s *server) { s.columns = []string{"Name", "Size"} })
		r.server.cut("configmaps") // as an API server does when a definition changes
		r.sleep(time.Second)
		r.server.set("configmaps", "shop", "b", nil)
		r.sleep(time.Minute)
		all := r.nextAnswer(key)
		if len(all) == 0 {
			t.Fatal("no answer")
		}
		for _, a := range all {
			if names := a.names(t); !strings.Contains(string(a.Result), "Size") || len(names) != 2 {
				t.Errorf("%s, want all rows with the new columns", a.Result)
			}
		}
	})
}

func TestOtherKindsAreNoTable(t *testing.T) {
	columns := `"columnDefinitions":[{"name":"` + strings.Repeat("n", wire.MaxViewBytes) + `"}]`
	objects := map[string]string{
		"columns without end": `{"apiVersion":"meta.k8s.io/v1","kind":"Table",` + columns + `,"rows":[{"object":{"metadata":{}}}]}`,
		"an object":           `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`,
		"no rows":             `{"apiVersion":"meta.k8s.io/v1","kind":"Table","rows":[]}`,
		"two rows":            `{"apiVersion":"meta.k8s.io/v1","kind":"Table","rows":[{"object":{"metadata":{}}},{"object":{"metadata":{}}}]}`,
		"a row of nothing":    `{"apiVersion":"meta.k8s.io/v1","kind":"Table","rows":[null]}`,
		"a row of no names":   `{"apiVersion":"meta.k8s.io/v1","kind":"Table","rows":[{"cells":[],"object":null}]}`,
	}
	for name, text := range objects {
		t.Run(name, func(t *testing.T) {
			var u unstructured.Unstructured
			if err := json.Unmarshal([]byte(text), &u.Object); err != nil {
				t.Fatal(err)
			}
			got := (&tableConverter{}).convertEvent(watch.Event{Type: watch.Added, Object: &u})
			status, ok := got.Object.(*metav1.Status)
			if got.Type != watch.Error || !ok || !refusals.IsFinal(status.Code) {
				t.Errorf("%.200s becomes %v %.200v, want a refusal", text, got.Type, got.Object)
			}
		})
	}
	typed := (&tableConverter{}).convertEvent(watch.Event{Type: watch.Added, Object: &metav1.Status{}})
	if typed.Type != watch.Error {
		t.Errorf("%v, want an error: it is no Table", typed)
	}
}

func TestConvertedWatchStopsWithPendingEvent(t *testing.T) {
	synctest.Test(t, func(*testing.T) {
		in := watch.NewFakeWithChanSize(2, false)
		in.Add(&unstructured.Unstructured{})
		in.Add(&unstructured.Unstructured{})
		out := convertWatch(in, func(e watch.Event) watch.Event { return e })
		synctest.Wait()
		out.Stop() // nobody reads; the bubble fails if a goroutine is left
		out.Stop()
	})
}

func TestSecretPolicyAppliesToTables(t *testing.T) {
	const value, applied = "bmVlZGxl", "needle in the annotation"
	cases := map[string]struct {
		reason string
		view   wire.View
		shown  bool
	}{
		"a list":          {reason: "values are masked", view: wire.View{}},
		"an object":       {reason: "values are masked", view: wire.View{Target: wire.Target{Name: "a"}}},
		"a Table":         {reason: "its metadata has the annotation", view: wire.View{Table: true}},
		"a list, shown":   {reason: "an option of the hub", view: wire.View{Secrets: wire.SecretsShown}, shown: true},
		"a Table, shown":  {reason: "an option of the hub", view: wire.View{Table: true, Secrets: wire.SecretsShown}, shown: true},
		"an object,shown": {reason: "an option of the hub", view: wire.View{Target: wire.Target{Name: "a"}, Secrets: wire.SecretsShown}, shown: true},
	}
	for name, tc := range cases {
		for _, pages := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				runSynctest(t, func(r *rig) {
					r.server.pages = pages
					r.server.set("secrets", "shop", "a", map[string]any{
						"data": map[string]any{"k": value},
						"metadata": map[string]any{"annotations": map[string]any{
							"kubectl.kubernetes.io/last-applied-configuration": applied, "other": "stays",
						}},
					})
					tc.view.Target.Resource, tc.view.Target.Namespace = "secrets", "shop"
					got := string(r.onlyAnswer(r.ask(tc.view, 1), tc.reason).Result)
					if shown := strings.Contains(got, value) || strings.Contains(got, applied); shown != tc.shown {
						t.Errorf("%s: %s", tc.reason, got)
					}
					if !strings.Contains(got, `"other":"stays"`) || !tc.view.Table && !tc.shown && !strings.Contains(got, `"data":{"k":"***"}`) {
						t.Errorf("%s: %s, want keys and other annotations", tc.reason, got)
					}
				})
			})
		}
	}
}

// FuzzTable looks for an event that the adaptor cannot take.
func FuzzTable(f *testing.F) {
	f.Fuzz(func(t *testing.T, text string) {
		var u unstructured.Unstructured
		if json.Unmarshal([]byte(text), &u.Object) != nil {
			return
		}
		got := (&tableConverter{}).convertEvent(watch.Event{Type: watch.Added, Object: &u})
		if got.Type == watch.Error {
			return
		}
		obj, ok := got.Object.(*unstructured.Unstructured)
		if !ok || obj.Object[rowField] == nil {
			t.Fatalf("%s becomes %v, without its row", text, got.Object)
		}
		s := &viewSink{view: &view{spec: wire.View{Table: true}}, mapping: secretsMapping()}
		if _, err := s.newItem(obj, false); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if _, err := (&tableConverter{}).convertList(&u); err != nil {
			t.Fatalf("%s is an event and no page: %v", text, err)
		}
	})
}
