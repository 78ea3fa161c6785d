// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/agent/work/ignorefields"
	"github.com/spokelet/spokelet/agent/work/inventory"
	"github.com/spokelet/spokelet/agent/work/manifestconfig"
)

// errFieldManager: works may only write under names that show whose they are.
var errFieldManager = errors.New("field manager must begin with " + inventory.FieldManager)

// ErrNoExecutor: a work acts for somebody, and does not say for whom. With the rights
// of the agent it may do nothing.
var ErrNoExecutor = errors.New("executor service account can not be nil")

// Options is the way a manifest is brought to its object.
type Options struct {
	Strategy workv1.UpdateStrategyType
	Manager  string
	Force    bool
	// IgnoredFields fields of a server-side apply.
	IgnoredFields *ignorefields.Fields
	// IsOrphaned: the object is not ours to delete.
	IsOrphaned bool
	// Executor is in whose name the work acts, nil for nobody in particular.
	Executor *workv1.ManifestWorkSubjectServiceAccount
}

// isPassive: what is there is left as it is.
func (h *Options) isPassive() bool {
	return h.Strategy == workv1.UpdateStrategyTypeReadOnly || h.Strategy == workv1.UpdateStrategyTypeCreateOnly
}

// OwnsObject: the work's anchor owns the object.
func (h *Options) OwnsObject() bool {
	return !h.IsOrphaned && h.Strategy != workv1.UpdateStrategyTypeReadOnly
}

// DriftPolicy says how drift of the object is noticed.
func (h *Options) DriftPolicy() inventory.DriftPolicy {
	switch {
	case h.Strategy == workv1.UpdateStrategyTypeCreateOnly, h.IgnoredFields != nil:
		return inventory.DriftByOwnership
	case h.Strategy == workv1.UpdateStrategyTypeServerSideApply:
		return inventory.DriftByFields
	default:
		return inventory.DriftByEdits
	}
}

// SetServerSideApply takes over the configuration of a server-side apply.
func (h *Options) SetServerSideApply(c *workv1.ServerSideApplyConfig) (err error) {
	h.Force = c.Force
	if c.FieldManager != "" {
		h.Manager = c.FieldManager
	}
	if !strings.HasPrefix(h.Manager, inventory.FieldManager) {
		return errFieldManager
	}
	h.IgnoredFields, err = ignorefields.Compile(c.IgnoreFields)
	return err
}

// HashContent changes with the manifest and with how it is written.
func HashContent(manifest [sha256.Size]byte, h Options, u *workv1.UpdateStrategy) [sha256.Size]byte {
	text, err := json.Marshal(struct {
		Manifest []byte                    `json:"manifest"`
		Orphan   bool                      `json:"orphan"`
		Strategy workv1.UpdateStrategyType `json:"strategy"`
		Options  *workv1.UpdateStrategy    `json:"options"`
	}{manifest[:], h.IsOrphaned, h.Strategy, u})
	if err != nil {
		return manifest // cannot be: all of it came as JSON
	}
	return sha256.Sum256(text)
}

// IsOrphaned tells whether an object stays when its work, or its manifest, goes.
func IsOrphaned(o *workv1.DeleteOption, id workv1.ResourceIdentifier) bool {
	switch {
	case o == nil:
		return false
	case o.PropagationPolicy == workv1.DeletePropagationPolicyTypeOrphan:
		return true
	case o.PropagationPolicy != workv1.DeletePropagationPolicyTypeSelectivelyOrphan || o.SelectivelyOrphan == nil:
		return false
	}
	return slices.Contains(o.SelectivelyOrphan.OrphaningRules, workv1.OrphaningRule(id))
}

// HasCompletionRule tells whether a step's rules can complete its manifest.
func (s *Step) HasCompletionRule(d *Spec) bool {
	if s.Reader == nil {
		return false
	}
	o := manifestconfig.Match(d.ManifestWork.ManifestConfigs, s.Target.Identifier())
	return slices.ContainsFunc(o.ConditionRules, func(r workv1.ConditionRule) bool { return r.Condition == workv1.WorkComplete })
}

// DesiredState of a step for its object.
func (s *Step) DesiredState() inventory.DesiredState {
	return inventory.DesiredState{
		ContentHash: s.ContentHash, ManifestHash: s.Hash, Manager: s.Options.Manager, AppliesServerSide: s.Options.Strategy == workv1.UpdateStrategyTypeServerSideApply,
		IsPassive: s.Options.isPassive(), IsOwner: s.Options.OwnsObject(), Reader: s.Reader,
	}
}
