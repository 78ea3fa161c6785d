// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/client-go/rest"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/agent/work/executor"
	"github.com/spokelet/spokelet/agent/work/manifest"
	"github.com/spokelet/spokelet/agent/work/plan"
)

// stands makes the refusal one that has stood for long.
func (d *denialBackoff) stands() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.deniedRuns = 20
}

func TestDenialBackoffGrows(t *testing.T) {
	d := &denialBackoff{}
	want := minDenialDelay
	for n := range 7 {
		if pause := d.delay(); pause < want/2 || pause > want {
			t.Errorf("after %d refusals: %s, want up to %s", n+1, pause, want)
		}
		d.recordRun(true)
		want = min(2*want, maxDenialDelay)
	}
	d.recordRun(false)
	if pause := d.delay(); pause > minDenialDelay {
		t.Errorf("what was allowed is refused: %s, want up to %s", pause, minDenialDelay)
	}
}

// An API server that answers no review is asked again less and less often, too.
func TestUnansweredReviewBacksOff(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
	}))
	t.Cleanup(server.Close)
	e, w, at := anchored(t, "A")
	var err error
	if e.executors, err = executor.New(executor.Config{REST: &rest.Config{Host: server.URL}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.executors.Close)
	account := &workv1.ManifestWorkSubjectServiceAccount{Namespace: "n", Name: "sa"}
	d := &plan.Spec{ManifestWork: workv1.ManifestWorkSpec{Executor: &workv1.ManifestWorkExecutor{
		Subject: workv1.ManifestWorkExecutorSubject{Type: workv1.ExecutorSubjectTypeServiceAccount, ServiceAccount: account},
	}}}
	w.spec, w.allowed = d, &allowedCache{allowed: map[manifest.ObjectID]bool{at.ObjectID: false}}
	manifest := manifest.Parse(0, []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"o","namespace":"n"}}`))
	e.inventory.AddClaim(at, w.key.String(), w.anchor.UID)
	e.inventory.RecordRead(at.ObjectID, w.key.String(), appliedContent, nil) // there is nothing to write
	want := minDenialDelay
	for n := range 7 {
		s := &plan.Step{Target: at, Manifest: manifest, ContentHash: appliedContent, Options: plan.Options{Executor: account}}
		_, wait, err := e.applyAll(t.Context(), w, d, []*plan.Step{s})
		if err != nil || s.Error != nil || wait < want/2 || wait > want {
			t.Errorf("after %d attempts: wait %s, want up to %s; %v, %v", n+1, wait, want, err, s.Error)
		}
		want = min(2*want, maxDenialDelay)
	}
}
