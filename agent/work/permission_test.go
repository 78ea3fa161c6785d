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
)

// stands makes the refusal one that has stood for long.
func (d *denied) stands() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.runs = 20
}

func TestARefusalIsAskedAboutSoonAndThenLessAndLess(t *testing.T) {
	d := &denied{}
	want := permissionLag
	for n := range 7 {
		if pause := d.wait(); pause < want/2 || pause > want {
			t.Errorf("after %d refusals: %s, want up to %s", n+1, pause, want)
		}
		d.ended(true)
		want = min(2*want, permissionRetry)
	}
	d.ended(false)
	if pause := d.wait(); pause > permissionLag {
		t.Errorf("what was allowed is refused: %s, want up to %s", pause, permissionLag)
	}
}

// An API server that answers no review is asked again less and less often, too.
func TestAReviewThatIsNotAnsweredIsRepeatedLessAndLess(t *testing.T) {
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
	d := &desired{spec: workv1.ManifestWorkSpec{Executor: &workv1.ManifestWorkExecutor{
		Subject: workv1.ManifestWorkExecutorSubject{Type: workv1.ExecutorSubjectTypeServiceAccount, ServiceAccount: account},
	}}}
	w.want, w.permits = d, &permits{confirmed: map[objectID]bool{at.objectID: false}}
	manifest := parseManifest(0, []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"o","namespace":"n"}}`))
	e.table.claim(at, w.key.String(), w.anchor.uid)
	e.table.found(at.objectID, w.key.String(), body, nil) // there is nothing to write
	want := permissionLag
	for n := range 7 {
		s := &step{at: at, manifest: manifest, content: body, how: how{executor: account}}
		_, wait, err := e.take(t.Context(), w, d, []*step{s})
		if err != nil || s.err != nil || wait < want/2 || wait > want {
			t.Errorf("after %d attempts: wait %s, want up to %s; %v, %v", n+1, wait, want, err, s.err)
		}
		want = min(2*want, permissionRetry)
	}
}
