// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package fanout

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/api/mcm/v1alpha1"
)

// updateStatus writes the status, if it has changed, or requeues the parent
// when it may be written. An error is one of all clusters together.
func (k *reconciler) updateStatus(ctx context.Context, p parent, d distribution, all error) (ctrl.Result, error) {
	st, err := k.loadStatus(ctx, p)
	if err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if left := time.Until(st.at.Add(statusInterval)); left > 0 {
		return ctrl.Result{RequeueAfter: left}, nil
	}
	s := summarize(d.outcomes, p.object.GetGeneration())
	s.forbidden = d.forbidden
	switch {
	case all != nil:
		s.kind, s.reason = v1alpha1.WorkFailed, all.Error()
	case d.none:
		s.kind, s.reason = v1alpha1.WorkFailed, ""
	}
	payers, left := k.selectPayers(st.changedClusters(p, &s, d.outcomes, d.works))
	if left > 0 {
		return ctrl.Result{RequeueAfter: left}, nil
	}
	patch, err := k.patchResults(ctx, p, st, d.works)
	if err != nil {
		k.dropStatus(client.ObjectKeyFromObject(p.object))
		return ctrl.Result{}, err
	}
	s.reason = joinReasons(joinReasons(s.reason, d.unnamed), st.omittedMessage())
	if len(patch) == 0 && s.equal(&st.summary) {
		return ctrl.Result{}, nil
	}
	// One that fails costs the API server as much.
	err = k.chargeWrites(payers, p, st, s)
	if err == nil {
		err = k.patchStatus(ctx, p, st, s, patch)
	}
	if err != nil {
		// What is stored now is not known.
		k.dropStatus(client.ObjectKeyFromObject(p.object))
		return ctrl.Result{}, client.IgnoreNotFound(fmt.Errorf("write status of %s %s: %w", k.name, p.object.GetName(), err))
	}
	return ctrl.Result{}, nil
}

// patchStatus writes the status by fields, so that results which stay are not sent.
func (k *reconciler) patchStatus(ctx context.Context, p parent, st *storedStatus, s summary, results []operation) error {
	raw, err := statusPatch(p, st.hasResults, s, results)
	if err != nil {
		return err
	}
	target := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: p.object.GetNamespace(), Name: p.object.GetName()}}
	target.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(p.kind))
	if err := k.cfg.Client.Status().Patch(ctx, target, client.RawPatch(types.JSONPatchType, raw), fieldOwner); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	st.summary, st.at, st.hasResults = s, time.Now(), st.size > 0
	return nil
}

func statusPatch(p parent, exists bool, s summary, results []operation) ([]byte, error) {
	ops := []operation{{Op: "test", Path: "/metadata/uid", Value: p.object.GetUID()}}
	status, err := fields(p.status(s, metav1.Now()))
	if err != nil {
		return nil, err
	}
	switch {
	case !p.hasResults:
		ops = append(ops, operation{Op: "add", Path: "/status", Value: status})
	case !exists:
		status["results"] = map[string]any{} // which the following are put into
		ops = append(ops, operation{Op: "add", Path: "/status", Value: status})
	default:
		if len(s.clusters) == 0 {
			status["clusters"] = []any{} // where there were some
		}
		for name, value := range status {
			ops = append(ops, operation{Op: "add", Path: "/status/" + name, Value: value})
		}
	}
	return json.Marshal(append(ops, results...))
}

// fields are those of a status by their JSON names.
func fields(status any) (map[string]any, error) {
	raw, err := json.Marshal(status)
	if err != nil {
		return nil, err
	}
	out := map[string]any{}
	return out, utiljson.Unmarshal(raw, &out) // integers stay what they are
}

func joinReasons(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}
