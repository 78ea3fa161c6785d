// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package mcm

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/spokelet/spokelet/api/mcm/v1alpha1"
	"github.com/spokelet/spokelet/api/wire"
)

// What no API server takes even without its result is tried again, less and less often;
// whoever looks for the cause finds it in the log.
func TestRefusedStatusIsLogged(t *testing.T) {
	kind := schema.GroupKind{Group: v1alpha1.GroupVersion.Group, Kind: "Work"}
	for name, tc := range map[string]struct {
		reason  string
		refusal error
		logged  bool
	}{
		"invalid":   {reason: "it will be again", refusal: apierrors.NewInvalid(kind, "w", nil), logged: true},
		"too large": {reason: "as before", refusal: apierrors.NewRequestEntityTooLargeError("limit is 1"), logged: true},
		"forbidden": {reason: "somebody has to give a right", refusal: apierrors.NewForbidden(schema.GroupResource{Resource: "works"}, "w", nil), logged: true},
		"a timeout": {reason: "the API server recovers", refusal: apierrors.NewTimeoutError("boom", 1)},
	} {
		t.Run(name, func(t *testing.T) {
			w := resourceWork("w")
			r := newRig(t, w)
			var lines []string
			r.cfg.Logger = funcr.New(func(_, line string) {
				if strings.Contains(line, `"msg"="status is refused"`) && strings.Contains(line, objectKeyOf(w).String()) {
					lines = append(lines, line)
				}
			}, funcr.Options{})
			r.reconcileObjects(t, w)
			r.refused = func() error { return tc.refusal }
			r.answerView(t, managed, wire.ViewResult{Result: json.RawMessage(configMap)})
			if logged := len(lines) > 0; logged != tc.logged {
				t.Errorf("%s: logged %q", tc.reason, lines)
			}
			r.refused = nil
			r.answerView(t, managed, wire.ViewResult{Result: json.RawMessage(configMap)})
			if got := stored(t, r, w).Status; got.Type != v1alpha1.WorkCompleted {
				t.Errorf("%s: %+v once it is taken", tc.reason, got)
			}
		})
	}
}
