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

func TestAnOrderThatCannotBeCarriedOutIsAnError(t *testing.T) {
	s := &spoke{kube: door{honest: fleet.Kube()}}
	for _, order := range []struct {
		reason, do, text string
		err              error
	}{
		{"nothing was changed", Restore, "0", ErrIdle},
		{"it has no condition", Kinds, "", nil},
		{"nothing was asked meanwhile", Restore, "0", nil},
		{"nobody knows it", "dance", "", errors.ErrUnsupported},
	} {
		if text, err := s.carryOut(t.Context(), Order{Do: order.do}); text != order.text || !errors.Is(err, order.err) {
			t.Errorf("%s: %s: got %q, %v; want %q, %v", order.reason, order.do, text, err, order.text, order.err)
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
