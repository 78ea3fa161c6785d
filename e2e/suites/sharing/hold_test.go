// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/e2e/testbed"
)

// definitionIsDeleted: with it go all objects of the spoke, which nobody deleted. The
// deletions are held when it is back, until the annotation confirms them.
func (s *tests) definitionIsDeleted(t *testing.T) {
	hub, spoke := s.sides(gadgets)
	s.Hub.Apply(t, testbed.Gadget("spoke1", "kept-1", "a: one")+testbed.Gadget("spoke1", "kept-2", "a: two"))
	spoke.until(t, "kept-2", "is created", map[string]string{"spec.a": "two"})
	spoke.until(t, "kept-1", "is created", map[string]string{"spec.a": "one"})
	s.Spoke().Kubectl(t, "delete", "crd", "gadgets.example.com")
	var token string
	s.untilStatus(t, "gadgets", "the definition is brought again, and deletions are held", func(got status) error {
		return got.first(func(_, _ int, _ string, conditions []metav1.Condition) error {
			for _, c := range conditions {
				if c.Type == "DeletionsHeld" {
					_, token, _ = strings.Cut(c.Message, "sync.spokelet.io/confirm=")
					token, _, _ = strings.Cut(token, " ")
				}
			}
			return condition(conditions, "DeletionsHeld", "True", "Unproven", "2 of 2", "sync.spokelet.io/confirm=")
		})
	})
	hub.until(t, "kept-1", "is there", map[string]string{"spec.a": "one"})
	hub.until(t, "kept-2", "is there", map[string]string{"spec.a": "two"})
	s.Hub.Kubectl(t, "annotate", "sharedresource", "gadgets", "sync.spokelet.io/confirm="+strings.Trim(token, `".,`), "--overwrite")
	hub.untilGone(t, "kept-1")
	hub.untilGone(t, "kept-2")
	s.untilStatus(t, "gadgets", "nothing is held", func(got status) error {
		return got.first(func(_, _ int, _ string, conditions []metav1.Condition) error {
			if condition(conditions, "DeletionsHeld", "True", "Unproven") == nil {
				return fmt.Errorf("deletions are held")
			}
			return condition(conditions, "Ready", "True", "Shared")
		})
	})
}

// end: what is no longer shared stays where it is.
func (s *tests) end(t *testing.T) {
	hub, spoke := s.sides(gadgets)
	s.Hub.Apply(t, testbed.Gadget("spoke1", "left", "a: one"))
	spoke.until(t, "left", "is created", map[string]string{"spec.a": "one"})
	s.Hub.Kubectl(t, "delete", "sharedresources", "--all")
	// The hub learns of the deletion after kubectl's answer.
	tries := 0
	testbed.Until(t, "a change stays on the hub", testbed.Settle, func(ctx context.Context) error {
		tries++
		value := fmt.Sprint("alone-", tries)
		hub.merge(t, "left", `{"spec":{"a":"`+value+`"}}`)
		testbed.Wait(t, 2*time.Second)
		there, err := spoke.Get(ctx, "left", metav1.GetOptions{})
		if err == nil && field(there, "spec.a") == value {
			err = errors.New("it was shared")
		}
		return err
	})
	s.Hub.Kubectl(t, "delete", "gadgets,findings,requeststates.com.redhat.ecosystem.sample", "-A", "--all")
	for _, spoke := range s.Spokes {
		spoke.Kubectl(t, "delete", "crd", "findings.example.com")
	}
	s.Spoke().Kubectl(t, "delete", "crd", "gadgets.example.com", "requeststates.com.redhat.ecosystem.sample")
	s.Hub.Kubectl(t, "delete", "crd", "gadgets.example.com", "findings.example.com", "requeststates.com.redhat.ecosystem.sample")
}
