// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	workv1 "open-cluster-management.io/api/work/v1"
)

const (
	// KindWork is the Sync kind of [Work], hub to agent.
	KindWork = "work"
	// KindWorkStatus is the Sync kind of [WorkStatus], agent to hub; a status has
	// the key and the UID of its work.
	KindWorkStatus = "work.status"

	// DialectMulticluster names the Work of multicluster.x-k8s.io/v1alpha1.
	DialectMulticluster = "multicluster"
	// DialectManifestWork names OCM's ManifestWork, work.open-cluster-management.io/v1.
	DialectManifestWork = "manifestwork"

	// AnnotationSubstitute is "true" on a work in whose manifests the hub replaces
	// references such as $(cluster.name). The agent does not hear of it.
	AnnotationSubstitute = "spokelet.io/substitute"

	// maxWorkConditions bounds the conditions of a work or of a manifest.
	maxWorkConditions = 64
	// maxWorkMessage is the bound of metav1.Condition, in bytes.
	maxWorkMessage = 32768
)

// ErrInvalidWork: a key, work or status is not one that a peer may send.
var ErrInvalidWork = errors.New("invalid work")

// WorkKey names a work in Sync.
type WorkKey struct {
	// Dialect is the API that the work is written in.
	Dialect string
	// Namespace and Name are those of the object on the hub.
	Namespace, Name string
}

// String is the key in Sync: "<dialect>/<namespace>/<name>".
func (k WorkKey) String() string { return k.Dialect + "/" + k.Namespace + "/" + k.Name }

// ParseWorkKey is the inverse of String.
func ParseWorkKey(s string) (WorkKey, error) {
	parts := strings.Split(s, "/")
	if len(parts) != 3 || parts[0] == "" || parts[1] == "" || parts[2] == "" {
		return WorkKey{}, fmt.Errorf("key %.256q is not dialect/namespace/name: %w", s, ErrInvalidWork)
	}
	return WorkKey{Dialect: parts[0], Namespace: parts[1], Name: parts[2]}, nil
}

// Work is what one work asks of a spoke. Its canonical form is the spec of OCM's
// ManifestWork; every dialect maps to it.
type Work struct {
	// Generation of the object on the hub, for observedGeneration.
	Generation int64 `json:"generation"`
	// Deleting asks for everything to be collected; the answer is Finalized.
	Deleting bool `json:"deleting,omitempty"`
	// HubHash is the first part of the name of a ManifestWork's anchor; empty in
	// other dialects.
	HubHash string `json:"hubHash,omitempty"`
	// Labels of a ManifestWork, which its anchor bears too.
	Labels map[string]string `json:"labels,omitempty"`
	// Healthy asks for the rule of that name on every manifest.
	Healthy bool `json:"healthy,omitempty"`
	// Suspended asks to leave everything in the spoke as it is, and to go on telling of it.
	// An agent that does not know the field applies and deletes.
	Suspended bool `json:"suspended,omitempty"`
	// AppliedGeneration is what Applied on the hub says of a suspended work: an agent that
	// was restarted does not know. 0 is nothing.
	AppliedGeneration int64 `json:"appliedGeneration,omitempty"`
	// ReportDrift asks to compare the manifests with what is in the spoke, and to write
	// nothing. An agent that does not know the field applies.
	ReportDrift bool `json:"reportDrift,omitempty"`
	// Spec has nothing but the delete option when Deleting and not Suspended.
	Spec workv1.ManifestWorkSpec `json:"spec"`
}

// DecodeWork reads the body of a [KindWork].
func DecodeWork(body []byte) (Work, error) {
	var w Work
	if err := json.Unmarshal(body, &w); err != nil {
		return Work{}, fmt.Errorf("decode work: %w: %w", ErrInvalidWork, err)
	}
	if w.Generation < 0 || w.AppliedGeneration < 0 {
		return Work{}, fmt.Errorf("generation %d, applied %d: %w", w.Generation, w.AppliedGeneration, ErrInvalidWork)
	}
	if w.HubHash != "" && !hubHash.MatchString(w.HubHash) {
		return Work{}, fmt.Errorf("hub hash %.128q is not a SHA-256 in hex: %w", w.HubHash, ErrInvalidWork)
	}
	return w, nil
}

var hubHash = regexp.MustCompile(`^[0-9a-f]{64}$`)

// WorkStatus is what became of one work in the spoke.
type WorkStatus struct {
	// ObservedGeneration is the generation that the status is about.
	ObservedGeneration int64 `json:"observedGeneration"`
	// Finalized: the work was deleted and nothing of it is left in the spoke.
	Finalized bool `json:"finalized,omitempty"`
	// Conditions of the work.
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Manifests are in the order of the spec.
	Manifests []workv1.ManifestCondition `json:"manifests,omitempty"`
}

// DecodeWorkStatus reads the body of a [KindWorkStatus] and refuses what the
// hub's API server would refuse later.
func DecodeWorkStatus(body []byte) (WorkStatus, error) {
	var s WorkStatus
	if err := json.Unmarshal(body, &s); err != nil {
		return WorkStatus{}, fmt.Errorf("decode work status: %w: %w", ErrInvalidWork, err)
	}
	if s.ObservedGeneration < 0 {
		return WorkStatus{}, fmt.Errorf("observed generation %d: %w", s.ObservedGeneration, ErrInvalidWork)
	}
	if err := checkConditions(s.Conditions); err != nil {
		return WorkStatus{}, err
	}
	for i, m := range s.Manifests {
		if int(m.ResourceMeta.Ordinal) != i {
			return WorkStatus{}, fmt.Errorf("manifest %d has ordinal %d: %w", i, m.ResourceMeta.Ordinal, ErrInvalidWork)
		}
		if err := checkConditions(m.Conditions); err != nil {
			return WorkStatus{}, fmt.Errorf("manifest %d: %w", i, err)
		}
		if err := checkFeedback(m.StatusFeedbacks.Values); err != nil {
			return WorkStatus{}, fmt.Errorf("manifest %d: %w", i, err)
		}
	}
	return s, nil
}

// checkFeedback holds values to ManifestWork's CRD.
func checkFeedback(values []workv1.FeedbackValue) error {
	seen := map[string]struct{}{}
	for _, v := range values {
		if _, twice := seen[v.Name]; twice || v.Name == "" {
			return fmt.Errorf("feedback value %.64q is empty or comes twice: %w", v.Name, ErrInvalidWork)
		}
		seen[v.Name] = struct{}{}
		if !hasType(v.Value) {
			return fmt.Errorf("feedback value %.64q is not one of type %.16q: %w", v.Name, v.Value.Type, ErrInvalidWork)
		}
	}
	return nil
}

// hasType tells whether a value is of the type that it says.
func hasType(v workv1.FieldValue) bool {
	switch v.Type {
	case workv1.Integer:
		return v.Integer != nil
	case workv1.String:
		return v.String != nil
	case workv1.Boolean:
		return v.Boolean != nil
	case workv1.JsonRaw:
		return v.JsonRaw != nil
	default:
		return false
	}
}

// The patterns of metav1.Condition.
var (
	conditionType   = regexp.MustCompile(`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$`)
	conditionReason = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`)
)

func checkConditions(conditions []metav1.Condition) error {
	if len(conditions) > maxWorkConditions {
		return fmt.Errorf("%d conditions, limit is %d: %w", len(conditions), maxWorkConditions, ErrInvalidWork)
	}
	seen := map[string]struct{}{}
	for _, c := range conditions {
		if err := checkCondition(c); err != nil {
			return err
		}
		if _, ok := seen[c.Type]; ok {
			return fmt.Errorf("condition %s comes twice: %w", c.Type, ErrInvalidWork)
		}
		seen[c.Type] = struct{}{}
	}
	return nil
}

func checkCondition(c metav1.Condition) error {
	switch {
	case len(c.Type) > 316 || !conditionType.MatchString(c.Type):
		return fmt.Errorf("condition type %.64q: %w", c.Type, ErrInvalidWork)
	case c.Status != metav1.ConditionTrue && c.Status != metav1.ConditionFalse && c.Status != metav1.ConditionUnknown:
		return fmt.Errorf("condition %s has status %.64q: %w", c.Type, c.Status, ErrInvalidWork)
	case len(c.Reason) > 1024 || !conditionReason.MatchString(c.Reason):
		return fmt.Errorf("condition %s has reason %.64q: %w", c.Type, c.Reason, ErrInvalidWork)
	case len(c.Message) > maxWorkMessage:
		return fmt.Errorf("condition %s has a message of %d bytes: %w", c.Type, len(c.Message), ErrInvalidWork)
	case c.ObservedGeneration < 0:
		return fmt.Errorf("condition %s has generation %d: %w", c.Type, c.ObservedGeneration, ErrInvalidWork)
	case c.LastTransitionTime.IsZero():
		return fmt.Errorf("condition %s has no transition time: %w", c.Type, ErrInvalidWork)
	}
	return nil
}
