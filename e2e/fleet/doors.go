// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/tunnel"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// What an honest cluster answers at its door "kube".
const (
	// ListPath lists ten ConfigMaps.
	ListPath = "/api/v1/namespaces/default/configmaps"
	// ObjectPath is one of them.
	ObjectPath = ListPath + "/small"
	// EarlyHintsPath is answered with Early Hints (status 103, RFC 8297) without end, as
	// any extension of a cluster's API may be.
	EarlyHintsPath = "/apis/hints"
)

// maxEarlyHints bounds the informational answers to one request.
const maxEarlyHints = 1_000_000

// Doors are those of an honest cluster with a node of a usual size.
func Doors() (map[string]http.Handler, error) {
	summary, err := Summary(nil)
	if err != nil {
		return nil, err
	}
	nodes := resource.NewSource(wire.NodeSummaryKind)
	if err := nodes.Put(resource.Resource{Key: wire.NodeSummaryKey, Body: summary}); err != nil {
		return nil, err
	}
	nodes.Complete()
	reports := resource.NewSource(wire.KindWorkStatus)
	works := resource.NewMirror(wire.KindWork, resource.Receiver{
		Put:    func(r resource.Resource) { report(reports, r) },
		Delete: reports.Delete,
		Synced: reports.Complete,
	})
	replicator, err := resource.NewAgent([]*resource.Source{nodes, reports}, []*resource.Mirror{works})
	if err != nil {
		return nil, err
	}
	return map[string]http.Handler{tunnel.DoorSync: replicator, tunnel.DoorKube: Kube()}, nil
}

// Summary is that of a cluster's nodes as it travels.
func Summary(split *wire.NodeSplit) ([]byte, error) {
	return wire.NodeSummary{
		KubernetesVersion: "v1.36.3",
		Nodes:             wire.NodeCounts{Total: 3, Ready: 3},
		Capacity:          wire.Quantities{"cpu": "12", "memory": "48Gi", "pods": "330", "ephemeral-storage": "300Gi"},
		Allocatable:       wire.Quantities{"cpu": "12", "memory": "47Gi", "pods": "330", "ephemeral-storage": "290Gi"},
		Conditions:        []wire.NodeCondition{{Type: "Ready", Status: "True", Reason: "NodesReady", Message: "3 of 3 nodes are ready"}},
		Split:             split,
	}.Encode()
}

// report says of a work that it is applied, and of one that is deleted that nothing
// is left. What cannot be read is not reported on.
func report(to *resource.Source, r resource.Resource) {
	work, err := wire.DecodeWork(r.Body)
	if err != nil {
		return
	}
	body, err := json.Marshal(wire.WorkStatus{
		ObservedGeneration: work.Generation,
		Finalized:          work.Deleting,
		Conditions: []metav1.Condition{{
			Type: workv1.WorkApplied, Status: metav1.ConditionTrue, Reason: "AppliedManifestWorkComplete",
			ObservedGeneration: work.Generation, LastTransitionTime: metav1.Now(),
		}},
	})
	if err == nil {
		_ = to.Put(resource.Resource{Key: r.Key, UID: r.UID, Generation: r.Generation, Body: body}) // as small as it is, it fits
	}
}

// Kube answers as an API server that has ConfigMaps and nothing else.
func Kube() http.Handler {
	mux := http.NewServeMux()
	for path, answer := range map[string]string{
		"/version":           `{"major":"1","minor":"36","gitVersion":"v1.36.3"}`,
		"/api":               `{"kind":"APIVersions","versions":["v1"]}`,
		"/apis":              `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`,
		"/api/v1":            Resources("ConfigMap"),
		ListPath:             `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[` + strings.Repeat(`{"metadata":{"name":"some"}},`, 9) + `{"metadata":{"name":"small"}}]}`,
		"/api/v1/configmaps": `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}`,
		ObjectPath:           `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"small","namespace":"default","resourceVersion":"1"},"data":{"k":"v"}}`,
	} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { Answer(w, answer) })
	}
	mux.HandleFunc("GET "+EarlyHintsPath, serveEarlyHints)
	return mux
}

// Resources is the discovery of core/v1 with ConfigMaps alone, of that kind.
func Resources(kind string) string {
	return fmt.Sprintf(`{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"v1","resources":[`+
		`{"name":"configmaps","singularName":"configmap","namespaced":true,"kind":%q,"verbs":["get","list"],"shortNames":["cm"]}]}`, kind)
}

// Answer writes an answer of JSON.
func Answer(w http.ResponseWriter, body string) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte(body)) // who went away needs no answer
}

// serveEarlyHints sends maxEarlyHints hints of 3 KB each, and then the answer.
func serveEarlyHints(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Link", "<"+strings.Repeat("/style", 500)+".css>; rel=preload")
	for i := 0; i < maxEarlyHints && r.Context().Err() == nil; i++ {
		w.WriteHeader(http.StatusEarlyHints)
	}
}
