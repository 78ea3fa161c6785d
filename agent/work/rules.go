// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/agent/work/conditionrules"
	"github.com/spokelet/spokelet/agent/work/feedback"
	"github.com/spokelet/spokelet/agent/work/inventory"
	"github.com/spokelet/spokelet/agent/work/manifest"
	"github.com/spokelet/spokelet/agent/work/manifestconfig"
	"github.com/spokelet/spokelet/agent/work/plan"
	"github.com/spokelet/spokelet/api/wire"
)

// resolveOptions says of each step how it is taken, and what is read of its object.
func (e *Engine) resolveOptions(w *work, d *plan.Spec, steps []plan.Step) {
	for i := range steps {
		s := &steps[i]
		s.ContentHash = s.Hash
		s.Options = plan.Options{Strategy: w.policy.Strategy, Manager: w.policy.FieldManager, Force: w.policy.Force}
		if w.policy.Dialect == wire.DialectManifestWork && s.Target.Name != "" {
			e.applyManifestConfig(w, d, s)
		}
	}
}

// applyManifestConfig follows the work's manifestConfigs.
func (e *Engine) applyManifestConfig(w *work, d *plan.Spec, s *plan.Step) {
	id := s.Target.Identifier()
	o := manifestconfig.Match(d.ManifestWork.ManifestConfigs, id)
	s.Reader = e.readerFor(w, d, s.Target.ObjectID, o)
	s.Options.IsOrphaned = plan.IsOrphaned(d.ManifestWork.DeleteOption, id)
	if x := d.ManifestWork.Executor; x != nil {
		s.Options.Executor = x.Subject.ServiceAccount
		if s.Options.Executor == nil && s.Error == nil {
			s.Error = plan.ErrNoExecutor
		}
	}
	u := o.UpdateStrategy
	if u != nil && u.Type != "" {
		s.Options.Strategy = u.Type
	}
	if u != nil && u.Type == workv1.UpdateStrategyTypeServerSideApply && u.ServerSideApply != nil {
		if err := s.Options.SetServerSideApply(u.ServerSideApply); err != nil && s.Error == nil {
			s.Error = err
		}
	}
	s.ContentHash = plan.HashContent(s.Hash, s.Options, u)
}

// readerFor returns what a version of a work reads of an object, nil for nothing:
// always the same for one version, so that it can be told whether it has read.
func (e *Engine) readerFor(w *work, d *plan.Spec, id manifest.ObjectID, o manifestconfig.Options) *inventory.Reader {
	if w.readersFor != d {
		w.readersFor, w.readers = d, map[manifest.ObjectID]*inventory.Reader{}
	}
	if r, ok := w.readers[id]; ok {
		return r
	}
	// A rule by the name of a condition of ours would say two things under one name.
	rules := slices.DeleteFunc(slices.Clone(o.ConditionRules), func(r workv1.ConditionRule) bool { return slices.Contains(reservedConditions, r.Condition) })
	if d.ReportsHealth && !slices.ContainsFunc(rules, func(r workv1.ConditionRule) bool { return r.Condition == conditionrules.TypeHealthy }) {
		rules = append(rules, workv1.ConditionRule{Condition: conditionrules.TypeHealthy, Type: workv1.WellKnownConditionsType})
	}
	if len(rules) == 0 && len(o.FeedbackRules) == 0 {
		return nil
	}
	r := &inventory.Reader{Generation: d.Generation, Feedback: feedback.Compile(o.FeedbackRules, e.cfg.Feedback), Rules: e.rules.Compile(rules)}
	w.readers[id] = r
	return r
}

// reservedConditions are the conditions that the engine itself sets.
var reservedConditions = []string{conditionApplied, conditionAvailable, conditionDeleting, conditionShared, conditionContended, feedback.ConditionType}

// restoreCompletion finds out, before anything is written, whether a work that was applied
// before this process began is complete by now: then it is left alone.
func (e *Engine) restoreCompletion(ctx context.Context, w *work, d *plan.Spec, steps []plan.Step) (complete bool, err error) {
	if w.hasOutcomes() || w.anchor == nil {
		return false, nil
	}
	read := false
	for i := range steps {
		s := &steps[i]
		if s.Error != nil || w.anchor.Objects[s.Target.ObjectID].UID == "" || !s.HasCompletionRule(d) {
			continue
		}
		e.requeue(e.inventory.SetDesired(s.Target.ObjectID, w.key.String(), s.DesiredState()))
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

// readForRules reads an object for rules that have not read it yet.
func (e *Engine) readForRules(ctx context.Context, s *plan.Step) error {
	if s.Reader == nil || !e.inventory.NeedsRead(s.Target.ObjectID) {
		return nil
	}
	obj, err := e.spoke.getObject(ctx, s.Target)
	if obj == nil {
		return err
	}
	e.inventory.RecordReadings(s.Target.ObjectID, obj.GetResourceVersion(), inventory.ReadAll(e.inventory.Readers(s.Target.ObjectID), obj))
	return nil
}
