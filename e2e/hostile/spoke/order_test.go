// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package spoke

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/spokelet/spokelet/e2e/fleet"
)

func TestAnAttackThatTheHubNeverAskedForIsAnError(t *testing.T) {
	s := &spoke{kube: door{honest: fleet.Kube()}}
	for _, do := range []string{Restore, Kinds, Restore, "dance"} {
		_, err := s.carryOut(t.Context(), Order{Do: do})
		switch do {
		case Restore:
			if !errors.Is(err, errIdle) {
				t.Errorf("nothing was asked: got %v, want %v", err, errIdle)
			}
		case Kinds:
			if err != nil {
				t.Error(err)
			}
		default:
			if !errors.Is(err, errors.ErrUnsupported) {
				t.Errorf("an order that nobody knows: got %v", err)
			}
		}
	}
}

func TestWhatIsAskedIsAnsweredAsOrderedUntilRestore(t *testing.T) {
	s := &spoke{kube: door{honest: fleet.Kube()}}
	ask := func() int {
		w := httptest.NewRecorder()
		s.kube.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, fleet.ObjectPath, strings.NewReader("")))
		return w.Body.Len()
	}
	honest := ask()
	if _, err := s.carryOut(t.Context(), Order{Do: ManagedFields}); err != nil {
		t.Fatal(err)
	}
	if got := ask(); got > hugeBody || got < hugeBody-3 {
		t.Errorf("got %d bytes, want about %d", got, hugeBody)
	}
	if text, err := s.carryOut(t.Context(), Order{Do: Restore}); text != "1" || err != nil {
		t.Errorf("got %q, %v; want 1 request", text, err)
	}
	if got := ask(); got != honest {
		t.Errorf("got %d bytes after its end, want %d", got, honest)
	}
}
