// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/spokelet/spokelet/agent/work/manifest"
	"github.com/spokelet/spokelet/agent/work/merge"
	"github.com/spokelet/spokelet/api/wire"
)

// maxDifferences bounds how many fields a condition names.
const maxDifferences = 8

// Comparison is what an object is compared with. It is never changed.
type Comparison struct {
	Required *unstructured.Unstructured
	IsSecret bool
	// Err says why there is nothing to compare with.
	Err error
}

// Compare says in which fields an object is not what the manifest says. It names no values:
// they may be secret.
func (c *Comparison) Compare(obj *unstructured.Unstructured) metav1.Condition {
	if c.Err != nil {
		return NotComparedCondition(manifest.DescribeError(c.Err, c.IsSecret))
	}
	found, err := merge.Compare(c.Required, obj, maxDifferences)
	switch {
	case err != nil:
		return NotComparedCondition(manifest.DescribeError(err, c.IsSecret))
	case found.Total == 0:
		return metav1.Condition{Type: wire.ConditionDrifted, Status: metav1.ConditionFalse, Reason: wire.ReasonNoDifference, Message: "The object is as the manifest says"}
	}
	text := "Fields that differ from the manifest: " + strings.Join(found.Paths, ", ")
	if more := found.Total - len(found.Paths); more > 0 {
		text += fmt.Sprintf(", and %d more", more)
	}
	return metav1.Condition{Type: wire.ConditionDrifted, Status: metav1.ConditionTrue, Reason: wire.ReasonFieldsDiffer, Message: manifest.Printable(text)}
}

// NotComparedCondition is Drifted=Unknown, with the reason why nothing was compared.
func NotComparedCondition(why string) metav1.Condition {
	return metav1.Condition{Type: wire.ConditionDrifted, Status: metav1.ConditionUnknown, Reason: wire.ReasonNotCompared, Message: "Not compared: " + why}
}
