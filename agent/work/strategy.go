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
	"github.com/spokelet/spokelet/agent/work/manifestconfig"
	"github.com/spokelet/spokelet/api/wire"
)

// errFieldManager: works may only write under names that show whose they are.
var errFieldManager = errors.New("field manager must begin with " + FieldManager)

// errNoExecutor: a work acts for somebody, and does not say for whom. With the rights
// of the agent it may do nothing.
var errNoExecutor = errors.New("executor service account can not be nil")

// how is the way a manifest is brought to its object.
type how struct {
	strategy workv1.UpdateStrategyType
	manager  string
	force    bool
	// ignored fields of a server-side apply.
	ignored *ignorefields.Fields
	// orphan: the object is not ours to delete.
	orphan bool
	// executor is in whose name the work acts, nil for nobody in particular.
	executor *workv1.ManifestWorkSubjectServiceAccount
}

// passive: what is there is left as it is.
func (h *how) passive() bool {
	return h.strategy == workv1.UpdateStrategyTypeReadOnly || h.strategy == workv1.UpdateStrategyTypeCreateOnly
}

// owns: the work's anchor owns the object.
func (h *how) owns() bool { return !h.orphan && h.strategy != workv1.UpdateStrategyTypeReadOnly }

// guard says how drift of the object is noticed.
func (h *how) guard() guard {
	switch {
	case h.strategy == workv1.UpdateStrategyTypeCreateOnly, h.ignored != nil:
		return guardOwnership
	case h.strategy == workv1.UpdateStrategyTypeServerSideApply:
		return guardFields
	default:
		return guardEdits
	}
}

// equip says of each step how it is taken, and what is read of its object.
func (e *Engine) equip(w *work, d *desired, steps []step) {
	for i := range steps {
		s := &steps[i]
		s.content = s.hash
		s.how = how{strategy: w.policy.Strategy, manager: w.policy.FieldManager, force: w.policy.Force}
		if w.policy.Dialect == wire.DialectManifestWork && s.at.Name != "" {
			e.instruct(w, d, s)
		}
	}
}

// instruct follows the work's manifestConfigs.
func (e *Engine) instruct(w *work, d *desired, s *step) {
	id := s.at.identifier()
	o := manifestconfig.Match(d.spec.ManifestConfigs, id)
	s.read = e.readerOf(w, d, s.at.objectID, o)
	s.how.orphan = orphans(d.spec.DeleteOption, id)
	if x := d.spec.Executor; x != nil {
		s.how.executor = x.Subject.ServiceAccount
		if s.how.executor == nil && s.err == nil {
			s.err = errNoExecutor
		}
	}
	u := o.UpdateStrategy
	if u != nil && u.Type != "" {
		s.how.strategy = u.Type
	}
	if u != nil && u.Type == workv1.UpdateStrategyTypeServerSideApply && u.ServerSideApply != nil {
		if err := s.how.configure(u.ServerSideApply); err != nil && s.err == nil {
			s.err = err
		}
	}
	s.content = fingerprint(s.hash, s.how, u)
}

func (h *how) configure(c *workv1.ServerSideApplyConfig) (err error) {
	h.force = c.Force
	if c.FieldManager != "" {
		h.manager = c.FieldManager
	}
	if !strings.HasPrefix(h.manager, FieldManager) {
		return errFieldManager
	}
	h.ignored, err = ignorefields.Compile(c.IgnoreFields)
	return err
}

// owns tells whether the work's anchor owns an object that it lists.
func (d *desired) owns(id workv1.ResourceIdentifier) bool {
	h := how{orphan: orphans(d.spec.DeleteOption, id)}
	if u := manifestconfig.Match(d.spec.ManifestConfigs, id).UpdateStrategy; u != nil {
		h.strategy = u.Type
	}
	return h.owns()
}

// fingerprint changes with the manifest and with how it is written.
func fingerprint(manifest [sha256.Size]byte, h how, u *workv1.UpdateStrategy) [sha256.Size]byte {
	text, err := json.Marshal(struct {
		Manifest []byte                    `json:"manifest"`
		Orphan   bool                      `json:"orphan"`
		Strategy workv1.UpdateStrategyType `json:"strategy"`
		Options  *workv1.UpdateStrategy    `json:"options"`
	}{manifest[:], h.orphan, h.strategy, u})
	if err != nil {
		return manifest // cannot be: all of it came as JSON
	}
	return sha256.Sum256(text)
}

// orphans tells whether an object stays when its work, or its manifest, goes.
func orphans(o *workv1.DeleteOption, id workv1.ResourceIdentifier) bool {
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

func (t target) identifier() workv1.ResourceIdentifier {
	return workv1.ResourceIdentifier{Group: t.Group, Resource: t.Resource, Namespace: t.Namespace, Name: t.Name}
}

// readerOf returns what a version of a work reads of an object, nil for nothing:
// always the same for one version, so that it can be told whether it has read.
func (e *Engine) readerOf(w *work, d *desired, id objectID, o manifestconfig.Options) *reader {
	if w.readersOf != d {
		w.readersOf, w.readers = d, map[objectID]*reader{}
	}
	if r, ok := w.readers[id]; ok {
		return r
	}
	// A rule by the name of a condition of ours would say two things under one name.
	rules := slices.DeleteFunc(slices.Clone(o.ConditionRules), func(r workv1.ConditionRule) bool { return slices.Contains(ownTypes, r.Condition) })
	if d.healthy && !slices.ContainsFunc(rules, func(r workv1.ConditionRule) bool { return r.Condition == conditionrules.TypeHealthy }) {
		rules = append(rules, workv1.ConditionRule{Condition: conditionrules.TypeHealthy, Type: workv1.WellKnownConditionsType})
	}
	if len(rules) == 0 && len(o.FeedbackRules) == 0 {
		return nil
	}
	r := &reader{generation: d.generation, feedback: feedback.Compile(o.FeedbackRules, e.cfg.Feedback), rules: e.rules.Compile(rules)}
	w.readers[id] = r
	return r
}

// ownTypes are the conditions that the engine itself sets.
var ownTypes = []string{conditionApplied, conditionAvailable, conditionDeleting, conditionShared, conditionContended, feedback.ConditionType}

// completes tells whether a step's rules can complete its manifest.
func (s *step) completes(d *desired) bool {
	if s.read == nil {
		return false
	}
	o := manifestconfig.Match(d.spec.ManifestConfigs, s.at.identifier())
	return slices.ContainsFunc(o.ConditionRules, func(r workv1.ConditionRule) bool { return r.Condition == workv1.WorkComplete })
}

// resume finds out, before anything is written, whether a work that was applied
// before this process began is complete by now: then it is left alone.
func (e *Engine) resume(ctx context.Context, w *work, d *desired, steps []step) (complete bool, err error) {
	if w.hasConcluded() || w.anchor == nil {
		return false, nil
	}
	read := false
	for i := range steps {
		s := &steps[i]
		if s.err != nil || w.anchor.tracked[s.at.objectID].uid == "" || !s.completes(d) {
			continue
		}
		e.table.intend(s.at.objectID, w.key.String(), s.intent())
		if err := e.reread(ctx, s); err != nil {
			return false, err
		}
		read = true
	}
	if !read {
		return false, nil
	}
	w.conclude(d, steps, nil)
	w.status(e.table, metav1.Now())
	if w.isComplete() {
		return true, nil
	}
	w.clear()
	return false, nil
}

// intent of a step for its object.
func (s *step) intent() intent {
	return intent{
		content: s.content, desire: s.hash, manager: s.how.manager, applies: s.how.strategy == workv1.UpdateStrategyTypeServerSideApply,
		passive: s.how.passive(), owns: s.how.owns(), reader: s.read,
	}
}

// reread reads an object for rules that have not read it yet.
func (e *Engine) reread(ctx context.Context, s *step) error {
	if s.read == nil || !e.table.unread(s.at.objectID) {
		return nil
	}
	obj, err := e.spoke.fetch(ctx, s.at)
	if obj == nil {
		return err
	}
	e.table.note(s.at.objectID, obj.GetResourceVersion(), readAll(e.table.readers(s.at.objectID), obj))
	return nil
}
