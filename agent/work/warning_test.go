// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"encoding/json"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/agent/work/manifest"
)

func TestWarningNamesFieldsNotApplied(t *testing.T) {
	o := outcome{warning: warningText([]string{"metadata.ownerReferences"}, []string{`unknown field "spec.replica"`})}
	want := `Apply manifest complete; not applied, for they are of another cluster or of Kubernetes itself: metadata.ownerReferences; not taken by the API server: unknown field "spec.replica"`
	if got := o.appliedCondition(1); got.Message != want || got.Status != metav1.ConditionTrue {
		t.Errorf("%+v, want the message %q", got, want)
	}
	if got := (&outcome{}).appliedCondition(1).Message; got != "Apply manifest complete" {
		t.Errorf("nothing was left out, and the message is %q", got)
	}
	raw, err := json.Marshal(map[string]any{"apiVersion": "v1"})
	if err != nil || manifest.Parse(0, raw).OmittedFields() != nil {
		t.Errorf("something is left out of %s", raw)
	}
}
