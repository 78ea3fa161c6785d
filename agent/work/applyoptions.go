// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/agent/work/conditionrules"
	"github.com/spokelet/spokelet/agent/work/feedback"
	"github.com/spokelet/spokelet/agent/work/ignorefields"
	"github.com/spokelet/spokelet/agent/work/inventory"
	"github.com/spokelet/spokelet/agent/work/manifest"
	"github.com/spokelet/spokelet/agent/work/manifestconfig"
	"github.com/spokelet/spokelet/api/wire"
)

// errFieldManager: works may only write under names that show whose they are.
var errFieldManager = errors.New("field manager must begin with " + inventory.FieldManager)

// errNoExecutor: a work acts for somebody, and does not say for whom. With the rights
// of the agent it may do nothing.
var errNoExecutor = errors.New("executor service account can not be nil")

// applyOptions is the way a manifest is brought to its object.
type applyOptions struct {
	strategy workv1.UpdateStrategyType
	manager  string
	force    bool
	// ignoredFields fields of a server-side apply.
	ignoredFields *ignorefields.Fields
	// isOrphaned: the object is not ours to delete.
	isOrphaned bool
	// executor is in whose name the work acts, nil for nobody in particular.
	executor *workv1.ManifestWorkSubjectServiceAccount
}

// isPassive: what is there is left as it is.
func (h *applyOptions) isPassive() bool {
	return h.strategy == workv1.UpdateStrategyTypeReadOnly || h.strategy == workv1.UpdateStrategyTypeCreateOnly
}

// ownsObject: the work's anchor owns the object.
func (h *applyOptions) ownsObject() bool {
	return !h.isOrphaned && h.strategy != workv1.UpdateStrategyTypeReadOnly
}

// driftPolicy says how drift of the object is noticed.
func (h *applyOptions) driftPolicy() inventory.DriftPolicy {
	switch {
	case h.strategy == workv1.UpdateStrategyTypeCreateOnly, h.ignoredFields != nil:
		return inventory.DriftByOwnership
	case h.strategy == workv1.UpdateStrategyTypeServerSideApply:
		return inventory.DriftByFields
	default:
		return inventory.DriftByEdits
	}
}

// resolveOptions says of each step how it is taken, and what is read of its object.
func (e *Engine) resolveOptions(w *work, d *workSpec, steps []step) {
	for i := range steps {
		s := &steps[i]
		s.contentHash = s.Hash
		s.options = applyOptions{strategy: w.policy.Strategy, manager: w.policy.FieldManager, force: w.policy.Force}
		if w.policy.Dialect == wire.DialectManifestWork && s.at.Name != "" {
			e.applyManifestConfig(w, d, s)
		}
	}
}

// applyManifestConfig follows the work's manifestConfigs.
func (e *Engine) applyManifestConfig(w *work, d *workSpec, s *step) {
	id := s.at.Identifier()
	o := manifestconfig.Match(d.options.ManifestConfigs, id)
	s.reader = e.readerFor(w, d, s.at.ObjectID, o)
	s.options.isOrphaned = isOrphaned(d.options.DeleteOption, id)
	if x := d.options.Executor; x != nil {
		s.options.executor = x.Subject.ServiceAccount
		if s.options.executor == nil && s.err == nil {
			s.err = errNoExecutor
		}
	}
	u := o.UpdateStrategy
	if u != nil && u.Type != "" {
		s.options.strategy = u.Type
	}
	if u != nil && u.Type == workv1.UpdateStrategyTypeServerSideApply && u.ServerSideApply != nil {
		if err := s.options.setServerSideApply(u.ServerSideApply); err != nil && s.err == nil {
			s.err = err
		}
	}
	s.contentHash = hashContent(s.Hash, s.options, u)
}

func (h *applyOptions) setServerSideApply(c *workv1.ServerSideApplyConfig) (err error) {
	h.force = c.Force
	if c.FieldManager != "" {
		h.manager = c.FieldManager
	}
	if !strings.HasPrefix(h.manager, inventory.FieldManager) {
		return errFieldManager
	}
	h.ignoredFields, err = ignorefields.Compile(c.IgnoreFields)
	return err
}

// ownsObject tells whether the work's anchor owns an object that it lists.
func (d *workSpec) ownsObject(id workv1.ResourceIdentifier) bool {
	h := applyOptions{isOrphaned: isOrphaned(d.options.DeleteOption, id)}
	if u := manifestconfig.Match(d.options.ManifestConfigs, id).UpdateStrategy; u != nil {
		h.strategy = u.Type
	}
	return h.ownsObject()
}

// hashContent changes with the manifest and with how it is written.
func hashContent(manifest [sha256.Size]byte, h applyOptions, u *workv1.UpdateStrategy) [sha256.Size]byte {
	text, err := json.Marshal(struct {
		Manifest []byte                    `json:"manifest"`
		Orphan   bool                      `json:"orphan"`
		Strategy workv1.UpdateStrategyType `json:"strategy"`
		Options  *workv1.UpdateStrategy    `json:"options"`
	}{manifest[:], h.isOrphaned, h.strategy, u})
	if err != nil {
		return manifest // cannot be: all of it came as JSON
	}
	return sha256.Sum256(text)
}

// isOrphaned tells whether an object stays when its work, or its manifest, goes.
func isOrphaned(o *workv1.DeleteOption, id workv1.ResourceIdentifier) bool {
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

// readerFor returns what a version of a work reads of an object, nil for nothing:
// always the same for one version, so that it can be told whether it has read.
func (e *Engine) readerFor(w *work, d *workSpec, id manifest.ObjectID, o manifestconfig.Options) *inventory.Reader {
	if w.readersFor != d {
		w.readersFor, w.readers = d, map[manifest.ObjectID]*inventory.Reader{}
	}
	if r, ok := w.readers[id]; ok {
		return r
	}
	// A rule by the name of a condition of ours would say two things under one name.
	rules := slices.DeleteFunc(slices.Clone(o.ConditionRules), func(r workv1.ConditionRule) bool { return slices.Contains(reservedConditions, r.Condition) })
	if d.reportsHealth && !slices.ContainsFunc(rules, func(r workv1.ConditionRule) bool { return r.Condition == conditionrules.TypeHealthy }) {
		rules = append(rules, workv1.ConditionRule{Condition: conditionrules.TypeHealthy, Type: workv1.WellKnownConditionsType})
	}
	if len(rules) == 0 && len(o.FeedbackRules) == 0 {
		return nil
	}
	r := &inventory.Reader{Generation: d.generation, Feedback: feedback.Compile(o.FeedbackRules, e.cfg.Feedback), Rules: e.rules.Compile(rules)}
	w.readers[id] = r
	return r
}

// reservedConditions are the conditions that the engine itself sets.
var reservedConditions = []string{conditionApplied, conditionAvailable, conditionDeleting, conditionShared, conditionContended, feedback.ConditionType}

// hasCompletionRule tells whether a step's rules can complete its manifest.
func (s *step) hasCompletionRule(d *workSpec) bool {
	if s.reader == nil {
		return false
	}
	o := manifestconfig.Match(d.options.ManifestConfigs, s.at.Identifier())
	return slices.ContainsFunc(o.ConditionRules, func(r workv1.ConditionRule) bool { return r.Condition == workv1.WorkComplete })
}

// restoreCompletion finds out, before anything is written, whether a work that was applied
// before this process began is complete by now: then it is left alone.
func (e *Engine) restoreCompletion(ctx context.Context, w *work, d *workSpec, steps []step) (complete bool, err error) {
	if w.hasOutcomes() || w.anchor == nil {
		return false, nil
	}
	read := false
	for i := range steps {
		s := &steps[i]
		if s.err != nil || w.anchor.Objects[s.at.ObjectID].UID == "" || !s.hasCompletionRule(d) {
			continue
		}
		e.requeue(e.inventory.SetDesired(s.at.ObjectID, w.key.String(), s.desiredState()))
		if err := e.readForRules(ctx, s); err != nil {
			return false, err
		}
		read = true
	}
	if !read {
		return false, nil
	}
	w.recordOutcomes(d, steps, nil)
	w.status(e.inventory, metav1.Now())
	if w.isComplete() {
		return true, nil
	}
	w.reset()
	return false, nil
}

// desiredState of a step for its object.
func (s *step) desiredState() inventory.DesiredState {
	return inventory.DesiredState{
		ContentHash: s.contentHash, ManifestHash: s.Hash, Manager: s.options.manager, AppliesServerSide: s.options.strategy == workv1.UpdateStrategyTypeServerSideApply,
		IsPassive: s.options.isPassive(), IsOwner: s.options.ownsObject(), Reader: s.reader,
	}
}

// readForRules reads an object for rules that have not read it yet.
func (e *Engine) readForRules(ctx context.Context, s *step) error {
	if s.reader == nil || !e.inventory.NeedsRead(s.at.ObjectID) {
		return nil
	}
	obj, err := e.spoke.getObject(ctx, s.at)
	if obj == nil {
		return err
	}
	e.inventory.RecordReadings(s.at.ObjectID, obj.GetResourceVersion(), inventory.ReadAll(e.inventory.Readers(s.at.ObjectID), obj))
	return nil
}
