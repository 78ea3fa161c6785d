// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// preparePod puts what the manifest says of a pod over what the pod has, as kubectl apply
// does: of the rest much was filled in by the API server, by admission and by the
// scheduler, and cannot be changed. What the API server does not take of it, it says.
func preparePod(required, live map[string]any) (map[string]any, error) {
	want, err := mapField(required, "spec")
	if err != nil || want == nil {
		return required, err
	}
	have, err := mapField(live, "spec")
	if err != nil {
		return nil, err
	}
	want = shallowCopy(want)
	// Gates are only ever taken away, and not by whoever wrote the manifest.
	delete(want, "schedulingGates")
	if want["tolerations"] != nil {
		if want["tolerations"], err = mergeTolerations(want, have); err != nil {
			return nil, err
		}
	}
	// The patch would change both.
	patch := map[string]any{"spec": runtime.DeepCopyJSON(want)}
	spec, err := strategicpatch.StrategicMergeMapPatch(map[string]any{"spec": runtime.DeepCopyJSON(have)}, patch, corev1.Pod{})
	if err != nil {
		return nil, fmt.Errorf("spec: %w: %w", ErrMalformed, err)
	}
	out := shallowCopy(required)
	out["spec"] = spec["spec"]
	return out, nil
}

// mergeTolerations are those of live and what they lack: admission adds some, and none can be
// taken away.
func mergeTolerations(want, have map[string]any) (any, error) {
	list, ok := want["tolerations"].([]any)
	if !ok {
		return nil, fmt.Errorf("spec.tolerations is not a list: %w", ErrMalformed)
	}
	there, _ := have["tolerations"].([]any)
	out := slices.Clone(there)
	for _, t := range list {
		if !slices.ContainsFunc(there, func(h any) bool { return equal(h, t) }) {
			out = append(out, t)
		}
	}
	return out, nil
}
