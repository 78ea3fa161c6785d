// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package mcm

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	livev1alpha1 "github.com/spokelet/spokelet/api/live/v1alpha1"
	"github.com/spokelet/spokelet/api/mcm/v1alpha1"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/hub/requester"
)

// mcmWorks is the dialect of mcm.ibm.com.
func mcmWorks() *dialect {
	return &dialect{
		name:           wire.DialectMCMWork,
		resource:       metav1.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "works"},
		annotationKeys: requester.MCM,
		newObject:      func() client.Object { return &v1alpha1.Work{} },
		parse:          func(obj client.Object, o options) request { return parseWork(obj.(*v1alpha1.Work), o) },            //nolint:forcetypeassert // of blank's type
		storedState:    func(obj client.Object) state { return storedWorkState(obj.(*v1alpha1.Work)) },                      //nolint:forcetypeassert // likewise
		nextState:      func(obj client.Object, _ state, o outcome) state { return nextWorkState(obj.(*v1alpha1.Work), o) }, //nolint:forcetypeassert // likewise
		newStatus:      newWorkStatus,
	}
}

// parseWork reads types and modes in any case, as the original's document writes them.
func parseWork(w *v1alpha1.Work, o options) request {
	in := request{cluster: w.Spec.Cluster.Name}
	switch {
	case strings.EqualFold(string(w.Spec.Type), string(v1alpha1.ResourceWorkType)):
		in.view, in.failure = parseScope(&w.Spec.Scope, o)
	case strings.EqualFold(string(w.Spec.Type), string(v1alpha1.ActionWorkType)):
		in.action, in.failure = parseAction(&w.Spec, o)
	default:
		in.failure = &failure{message: fmt.Sprintf("spec.type %q is neither Resource nor Action", w.Spec.Type)}
	}
	return in
}

func parseScope(s *v1alpha1.ResourceFilter, o options) (*wire.View, *failure) {
	if s.Mode != "" && !strings.EqualFold(string(s.Mode), string(v1alpha1.PeriodicResourceUpdate)) {
		return nil, &failure{message: fmt.Sprintf("spec.scope.mode %q is not Periodic", s.Mode)}
	}
	selector, err := parseSelector(s.LabelSelector)
	if err != nil {
		return nil, &failure{message: "spec.scope.labelSelector: " + err.Error()}
	}
	if isReleases(s) {
		return parseReleases(s, selector, o)
	}
	v := &wire.View{
		Target: wire.Target{
			Resource: s.ResourceType, Group: s.APIGroup, Version: s.Version, Namespace: s.NameSpace, Name: s.Name,
		},
		MaxBytes: o.maxBytes,
		Secrets:  secretPolicy(o),
	}
	if s.Name == "" {
		v.LabelSelector = formatSelector(selector)
		v.FieldSelector, v.Table = s.FieldSelector, s.ServerPrint
	}
	return v, nil
}

func secretPolicy(o options) wire.SecretPolicy {
	if o.showSecrets {
		return wire.SecretsShown
	}
	return wire.SecretsMasked
}

func formatSelector(selector *metav1.LabelSelector) string {
	if selector == nil || len(selector.MatchLabels)+len(selector.MatchExpressions) == 0 {
		return "" // it is formatted as a word
	}
	return metav1.FormatLabelSelector(selector)
}

// releases is the resource type of those of Helm.
const releases = "releases"

// isReleases tells them from a resource of the name, which has a group.
func isReleases(s *v1alpha1.ResourceFilter) bool {
	return strings.EqualFold(s.ResourceType, releases) && s.APIGroup == ""
}

func parseReleases(s *v1alpha1.ResourceFilter, selector *metav1.LabelSelector, o options) (*wire.View, *failure) {
	if s.FieldSelector != "" || s.ServerPrint {
		return nil, &failure{message: "spec.scope.fieldSelector and spec.scope.serverPrint are not for releases"}
	}
	return &wire.View{
		Releases: true, Target: wire.Target{Namespace: s.NameSpace, Name: s.Name}, LabelSelector: formatSelector(selector),
		MaxBytes: o.maxBytes, Secrets: secretPolicy(o),
	}, nil
}

// parseSelector reads a LabelSelector, or the labels of a bare map, which the original's
// document writes and its implementation dropped. It returns nil for none.
func parseSelector(raw *runtime.RawExtension) (*metav1.LabelSelector, error) {
	if raw == nil || len(raw.Raw) == 0 || string(raw.Raw) == "null" {
		return nil, nil
	}
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(raw.Raw, &fields); err != nil {
		return nil, errSelector
	}
	_, hasLabels := fields["matchLabels"]
	_, hasExpressions := fields["matchExpressions"]
	selector := &metav1.LabelSelector{}
	switch {
	case !hasLabels && !hasExpressions:
		if err := json.Unmarshal(raw.Raw, &selector.MatchLabels); err != nil {
			return nil, errSelector
		}
	case len(fields) == 2 && hasLabels && hasExpressions, len(fields) == 1:
		if err := json.Unmarshal(raw.Raw, selector); err != nil {
			return nil, errSelector
		}
	default:
		return nil, errSelector
	}
	if _, err := metav1.LabelSelectorAsSelector(selector); err != nil {
		return nil, err
	}
	return selector, nil
}

// errSelector is of what is no selector.
var errSelector = errors.New("it is neither a label selector nor a map of labels")

func parseAction(s *v1alpha1.WorkSpec, o options) (*wire.Action, *failure) {
	verb, ok := parseVerb(string(s.ActionType))
	switch {
	case !ok:
		return nil, &failure{message: fmt.Sprintf("spec.actionType %q is none of Create, Update and Delete", s.ActionType)}
	case s.HelmWork != nil:
		return parseHelm(verb, s.HelmWork, o)
	case s.KubeWork == nil:
		return nil, &failure{message: "spec.kube is missing"}
	}
	k := s.KubeWork
	return parseKube(verb, kubeAction{resource: k.Resource, name: k.Name, namespace: k.Namespace, template: k.ObjectTemplate.Raw}, o)
}

// helmTimeout is that of the original, in seconds.
const helmTimeout = 300

func parseHelm(verb wire.Verb, h *v1alpha1.HelmWorkSpec, o options) (*wire.Action, *failure) {
	r := &wire.Release{Name: h.ReleaseName, Namespace: h.Namespace, Wait: h.Wait, Timeout: cmp.Or(int(h.TimeoutSeconds), helmTimeout)}
	a := &wire.Action{Verb: verb, MaxBytes: o.maxBytes, Secrets: secretPolicy(o), Release: r}
	switch {
	case verb == wire.VerbDelete: // of which chart it is Helm knows
		return a, nil
	case h.ChartURL == "":
		return nil, &failure{message: "spec.helm.chartURL is missing"}
	case len(h.Values) > wire.MaxActionTemplate:
		return nil, &failure{message: fmt.Sprintf("spec.helm.values has %d bytes, the limit is %d", len(h.Values), wire.MaxActionTemplate)}
	}
	r.ChartURL, r.ChartName, r.Version, r.InsecureSkipVerify = h.ChartURL, h.ChartName, h.Version, h.InSecureSkipVerify
	r.Values, r.ValuesURL = h.Values, h.ValuesURL
	return a, nil
}

func parseVerb(text string) (wire.Verb, bool) {
	for _, v := range []wire.Verb{wire.VerbCreate, wire.VerbUpdate, wire.VerbDelete} {
		if strings.EqualFold(text, string(v)) {
			return v, true
		}
	}
	return "", false
}

// kubeAction is what both APIs say of the object of an action.
type kubeAction struct {
	resource, name, namespace string
	template                  []byte
}

func parseKube(verb wire.Verb, k kubeAction, o options) (*wire.Action, *failure) {
	a := &wire.Action{Verb: verb, MaxBytes: o.maxBytes, Secrets: secretPolicy(o)}
	if verb == wire.VerbDelete {
		target, f := parseTarget(k)
		if f != nil {
			return nil, f
		}
		a.Target = target
		return a, nil
	}
	if len(k.template) == 0 || string(k.template) == "null" {
		return nil, &failure{message: "spec.kube.template is missing"}
	}
	a.Template, a.Target.Namespace = k.template, k.namespace
	return a, nil
}

// parseTarget says what is deleted; what is not named comes from the template.
func parseTarget(k kubeAction) (wire.Target, *failure) {
	t := wire.Target{Resource: k.resource, Namespace: k.namespace, Name: k.name}
	var template metav1.PartialObjectMetadata
	if len(k.template) > 0 {
		if err := json.Unmarshal(k.template, &template); err != nil {
			return t, &failure{message: "spec.kube.template is no object"}
		}
	}
	if t.Resource == "" {
		gvk := template.GroupVersionKind()
		// Any version has the object; the template's may be one that was.
		t.Kind, t.Group = gvk.Kind, gvk.Group
	}
	if t.Namespace == "" {
		t.Namespace = template.Namespace
	}
	if t.Name == "" {
		t.Name = template.Name
	}
	if t.Name == "" {
		return t, &failure{message: "neither spec.kube.name nor the template names an object"}
	}
	if t.Resource == "" && t.Kind == "" {
		return t, &failure{message: "neither spec.kube.resource nor the template names a resource"}
	}
	return t, nil
}

func storedWorkState(w *v1alpha1.Work) state {
	return state{
		kind: string(w.Status.Type), reason: w.Status.Reason, observed: w.Status.ObservedGeneration,
		digest: w.Annotations[AnnotationDigest],
	}
}

func nextWorkState(w *v1alpha1.Work, o outcome) state {
	s := state{observed: o.generation}
	switch {
	case o.failure != nil:
		s.kind, s.reason = string(v1alpha1.WorkFailed), o.failure.message
	case o.waiting != "":
		s.kind, s.reason = string(v1alpha1.WorkProcessing), o.waiting
	case o.refusal() != nil:
		s.kind, s.reason = string(v1alpha1.WorkFailed), o.refusal().Message
	case o.view != nil && strings.EqualFold(string(w.Spec.Scope.Mode), string(v1alpha1.PeriodicResourceUpdate)):
		s.kind, s.reason = string(v1alpha1.WorkProcessing), truncationReason(w, o)
	default:
		s.kind, s.reason = string(v1alpha1.WorkCompleted), truncationReason(w, o)
	}
	return s
}

// truncationReason says what is left out of a result, and how to see it.
func truncationReason(w *v1alpha1.Work, o outcome) string {
	if o.action != nil && o.action.Omitted {
		return "the object is left out: there is no room for it in a result"
	}
	if o.view == nil || o.view.Cut == 0 {
		return ""
	}
	if isReleases(&w.Spec.Scope) {
		return fmt.Sprintf("%d releases are left out, for the result is limited: ask for fewer, by namespace, name or labels", o.view.Cut)
	}
	return fmt.Sprintf("%d items are left out, for the result is limited; this ViewWork asks for all: %s", o.view.Cut, viewWork(w, o))
}

// viewWork is the question of a Work as one of live.spokelet.io, in one line.
func viewWork(w *v1alpha1.Work, o outcome) string {
	s := w.Spec.Scope
	scope, spec := map[string]any{"resource": viewResource(s)}, map[string]any{}
	spec["scope"] = scope
	if s.ServerPrint {
		spec["output"] = livev1alpha1.OutputTable
	}
	switch {
	case o.view.ClusterScoped:
	case s.NameSpace != "":
		scope["namespace"] = s.NameSpace
	default:
		scope["allNamespaces"] = true
	}
	if selector, err := parseSelector(s.LabelSelector); err == nil && selector != nil {
		scope["labelSelector"] = selector
	}
	if s.FieldSelector != "" {
		scope["fieldSelector"] = s.FieldSelector
	}
	raw, err := json.Marshal(map[string]any{
		"apiVersion": "live.spokelet.io/v1alpha1", "kind": "ViewWork",
		"metadata": map[string]any{"namespace": w.Spec.Cluster.Name}, "spec": spec,
	})
	if err != nil {
		return ""
	}
	return string(raw)
}

// viewResource is the resource of a scope in one word.
func viewResource(s v1alpha1.ResourceFilter) string {
	switch {
	case strings.Contains(s.ResourceType, ".") || s.APIGroup == "":
		return s.ResourceType
	case s.Version == "":
		return s.ResourceType + "." + s.APIGroup
	default:
		return s.ResourceType + "." + s.Version + "." + s.APIGroup
	}
}

func newWorkStatus(_ client.Object, _, next state, result []byte, now time.Time) any {
	status := v1alpha1.WorkStatus{
		Type: v1alpha1.WorkStatusType(next.kind), Reason: next.reason, ObservedGeneration: next.observed,
		LastUpdateTime: &metav1.Time{Time: now},
	}
	if len(result) > 0 {
		status.Result = &runtime.RawExtension{Raw: result}
	}
	return status
}
