// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package mcm

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	actionv1beta1 "github.com/spokelet/spokelet/api/action/v1beta1"
	viewv1beta1 "github.com/spokelet/spokelet/api/view/v1beta1"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/hub/requester"
)

const (
	// actionTTL is how long a ManagedClusterAction stays after its condition is there.
	// Conditions have no fraction of their second.
	actionTTL = 61 * time.Second

	messageWatching = "Watching resources successfully"
	messageDone     = "Resource action is done."
	// reasonWaiting and reasonRefused are ours: the original says nothing then.
	reasonWaiting = "ClusterNotConnected"
)

// clusterViews is the dialect of view.open-cluster-management.io.
func clusterViews() *dialect {
	return &dialect{
		name:           dialectClusterView,
		resource:       metav1.GroupResource{Group: viewv1beta1.GroupVersion.Group, Resource: "managedclusterviews"},
		annotationKeys: requester.ACM,
		newObject:      func() client.Object { return &viewv1beta1.ManagedClusterView{} },
		parse:          parseClusterView,
		storedState: func(obj client.Object) state {
			v := obj.(*viewv1beta1.ManagedClusterView) //nolint:forcetypeassert // of blank's type
			return stateFromCondition(v.Status.Conditions, viewv1beta1.ConditionViewProcessing, v.Annotations)
		},
		nextState: nextClusterViewState,
		newStatus: func(obj client.Object, last, next state, result []byte, now time.Time) any {
			v := obj.(*viewv1beta1.ManagedClusterView) //nolint:forcetypeassert // of blank's type
			conditions := conditionsWithState(v.Status.Conditions, viewv1beta1.ConditionViewProcessing, last, next, now)
			if next.digest == last.digest {
				return conditions
			}
			return viewv1beta1.ViewStatus{Conditions: conditions, Result: runtime.RawExtension{Raw: result}}
		},
		keepsResult: true, sharesKind: true,
	}
}

func parseClusterView(obj client.Object, o options) request {
	v := obj.(*viewv1beta1.ManagedClusterView) //nolint:forcetypeassert // of blank's type
	s, in := v.Spec.Scope, request{cluster: v.Namespace}
	switch {
	case s.Name == "":
		in.failure = &failure{reason: viewv1beta1.ReasonResourceNameInvalid, message: "resource name is empty"}
	case s.Kind == "" && s.Resource == "":
		in.failure = &failure{reason: viewv1beta1.ReasonResourceTypeInvalid, message: "resource type is empty"}
	default:
		in.view = &wire.View{
			Target:   wire.Target{Group: s.Group, Version: s.Version, Kind: s.Kind, Namespace: s.Namespace, Name: s.Name},
			MaxBytes: o.maxBytes, Secrets: wire.SecretsRefused,
		}
		if s.Kind == "" {
			in.view.Target.Resource = s.Resource
		}
		if o.showSecrets {
			in.view.Secrets = wire.SecretsShown
		}
	}
	return in
}

// A state of these APIs has the condition's status and reason as its kind, joined by a
// slash, and its message as its reason.

func nextClusterViewState(obj client.Object, last state, o outcome) state {
	v := obj.(*viewv1beta1.ManagedClusterView) //nolint:forcetypeassert // of blank's type
	next := state{observed: o.generation, digest: last.digest}
	switch {
	case o.failure != nil:
		next.kind, next.reason = "False/"+reasonOr(o.failure.reason, viewv1beta1.ReasonGetResourceFailed), o.failure.message
	case o.waiting != "":
		next.kind, next.reason = "False/"+reasonWaiting, o.waiting
	case o.refusal() == nil:
		next.kind, next.reason = "True/"+viewv1beta1.ReasonGetResource, messageWatching
	case o.refusal().Cause == wire.CauseTarget && v.Spec.Scope.Kind != "":
		next.kind, next.reason = "False/"+viewv1beta1.ReasonResourceGVKInvalid, o.refusal().Message
	case o.refusal().Cause == wire.CauseTarget:
		next.kind, next.reason = "False/"+viewv1beta1.ReasonResourceTypeInvalid, o.refusal().Message
	default:
		next.kind, next.reason = "False/"+viewv1beta1.ReasonGetResourceFailed, "failed to get resource with err: "+o.refusal().Message
	}
	return next
}

func reasonOr(reason, other string) string {
	if reason != "" {
		return reason
	}
	return other
}

// clusterActions is the dialect of action.open-cluster-management.io.
func clusterActions() *dialect {
	return &dialect{
		name:           wire.DialectClusterAction,
		resource:       metav1.GroupResource{Group: actionv1beta1.GroupVersion.Group, Resource: "managedclusteractions"},
		annotationKeys: requester.ACM,
		newObject:      func() client.Object { return &actionv1beta1.ManagedClusterAction{} },
		parse:          parseClusterAction,
		storedState: func(obj client.Object) state {
			a := obj.(*actionv1beta1.ManagedClusterAction) //nolint:forcetypeassert // of blank's type
			return stateFromCondition(a.Status.Conditions, actionv1beta1.ConditionActionCompleted, a.Annotations)
		},
		nextState: nextClusterActionState,
		newStatus: func(obj client.Object, last, next state, result []byte, now time.Time) any {
			a := obj.(*actionv1beta1.ManagedClusterAction) //nolint:forcetypeassert // of blank's type
			if last.observed != next.observed {
				last.kind = "" // done again, it has its time again
			}
			conditions := conditionsWithState(a.Status.Conditions, actionv1beta1.ConditionActionCompleted, last, next, now)
			if next.digest == last.digest {
				return conditions
			}
			return actionv1beta1.ActionStatus{Conditions: conditions, Result: runtime.RawExtension{Raw: result}}
		},
		keepsResult: true, sharesKind: true,
		remainingLife: func(obj client.Object, now time.Time) (time.Duration, bool) {
			a := obj.(*actionv1beta1.ManagedClusterAction) //nolint:forcetypeassert // of blank's type
			c := meta.FindStatusCondition(a.Status.Conditions, actionv1beta1.ConditionActionCompleted)
			if c == nil || c.Reason == reasonWaiting || c.ObservedGeneration != a.Generation {
				return 0, false
			}
			return c.LastTransitionTime.Add(actionTTL).Sub(now), true
		},
	}
}

func parseClusterAction(obj client.Object, o options) request {
	a := obj.(*actionv1beta1.ManagedClusterAction) //nolint:forcetypeassert // of blank's type
	in := request{cluster: a.Namespace}
	verb, ok := parseVerb(a.Spec.ActionType)
	switch {
	case !ok:
		in.failure = &failure{reason: actionv1beta1.ReasonActionTypeInvalid, message: "action type is invalid"}
	case a.Spec.KubeWork == nil:
		in.failure = &failure{reason: actionv1beta1.ReasonActionTypeInvalid, message: "spec.kube is missing"}
	default:
		k := a.Spec.KubeWork
		in.action, in.failure = parseKube(verb, kubeAction{resource: k.Resource, name: k.Name, namespace: k.Namespace, template: k.ObjectTemplate.Raw}, o)
		if in.failure != nil {
			in.failure.reason = failureReason(verb)
		}
	}
	return in
}

func failureReason(verb wire.Verb) string { return string(verb) + "ResourceFailed" }

func nextClusterActionState(obj client.Object, last state, o outcome) state {
	a := obj.(*actionv1beta1.ManagedClusterAction) //nolint:forcetypeassert // of blank's type
	verb, _ := parseVerb(a.Spec.ActionType)
	next := state{observed: o.generation, digest: last.digest}
	switch {
	case o.failure != nil:
		next.kind, next.reason = "False/"+reasonOr(o.failure.reason, failureReason(verb)), o.failure.message
		next.observed = obj.GetGeneration() // nothing else will be said of it
	case o.waiting != "":
		next.kind, next.reason = "False/"+reasonWaiting, o.waiting
	case o.refusal() != nil:
		next.kind, next.reason = "False/"+failureReason(verb), o.refusal().Message
	default:
		next.kind, next.reason = "True/"+actionv1beta1.ReasonActionDone, messageDone
	}
	return next
}

func stateFromCondition(conditions []metav1.Condition, kind string, annotations map[string]string) state {
	s := state{digest: annotations[AnnotationDigest]}
	if c := meta.FindStatusCondition(conditions, kind); c != nil {
		s.kind, s.reason = string(c.Status)+"/"+c.Reason, c.Message
		if c.Reason != reasonWaiting {
			s.observed = c.ObservedGeneration
		}
	}
	return s
}

// conditionsWithState are the conditions with one that says a state.
func conditionsWithState(all []metav1.Condition, kind string, last, next state, now time.Time) []metav1.Condition {
	status, reason, _ := strings.Cut(next.kind, "/")
	conditions := append([]metav1.Condition(nil), all...)
	if was, _, _ := strings.Cut(last.kind, "/"); was != status {
		meta.RemoveStatusCondition(&conditions, kind) // the stored one may be older than the last
	}
	meta.SetStatusCondition(&conditions, metav1.Condition{
		Type: kind, Status: metav1.ConditionStatus(status), Reason: reason, Message: next.reason,
		ObservedGeneration: next.observed, LastTransitionTime: metav1.Time{Time: now},
	})
	return conditions
}
