// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package action

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/spokelet/spokelet/agent/mapping"
	"github.com/spokelet/spokelet/agent/refusals"
	"github.com/spokelet/spokelet/api/wire"
)

const (
	// maxGenerated is how long the base of a generated name may be, and suffix how long
	// the rest is: both as in Kubernetes.
	maxGenerated = 58
	suffixLength = 5
	ownersField  = "ownerReferences"
	// ownersRemovedWarning is the warning that the owners in a template are removed.
	ownersRemovedWarning = "metadata.ownerReferences of the template is left out: an object whose owners have the UIDs of another cluster is deleted as one whose owners are gone"
)

// plan is what an action writes in this cluster.
type plan struct {
	request  request
	entry    *logEntry
	object   *unstructured.Unstructured // of Create and Update, with the annotation
	objects  dynamic.ResourceInterface  // nil before connect
	warnings *warnings
}

// newPlan returns a plan for an entry.
func newPlan(r request, known *logEntry) *plan {
	p := &plan{request: r, entry: known, warnings: &warnings{}}
	p.warnings.add(known.Warnings...)
	return p
}

// buildPlan decides what to write where. It sends no requests besides those of discovery. The
// plan is never nil.
func (e *Engine) buildPlan(r request) (*plan, error) {
	p := newPlan(r, &logEntry{Verb: r.action.Verb})
	m, err := e.resolveTarget(p)
	if err != nil {
		return p, checkStale(r, err)
	}
	p.entry.Resource = m.Resource
	if m.Scope.Name() != meta.RESTScopeNameNamespace {
		p.entry.Namespace = ""
	} else if p.entry.Namespace == "" {
		return p, fmt.Errorf("%s %q: %w", m.Resource.GroupResource(), p.entry.Name, errNamespace)
	}
	if p.object != nil {
		p.object.SetNamespace(p.entry.Namespace)
	}
	for _, segment := range []string{p.entry.Namespace, p.entry.Name} {
		if problems := content.IsPathSegmentName(segment); len(problems) > 0 {
			return p, fmt.Errorf("name %q: %w: it %s", segment, errTarget, problems[0])
		}
	}
	return p, nil
}

// connect makes a client that acts as the requester.
func (e *Engine) connect(p *plan) error {
	config, err := e.cfg.Door.Config(p.request.action.Requester)
	if err != nil {
		return &refusals.AccessError{Err: err}
	}
	config = rest.CopyConfig(config)
	config.Timeout = requestTimeout
	config.WarningHandler = p.warnings
	if e.cfg.Guard != nil {
		config.Wrap(e.cfg.Guard)
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return &refusals.AccessError{Err: err}
	}
	p.objects = client.Resource(p.entry.Resource)
	if p.entry.Namespace != "" {
		p.objects = client.Resource(p.entry.Resource).Namespace(p.entry.Namespace)
	}
	return nil
}

func (p *plan) get(ctx context.Context) (*unstructured.Unstructured, error) {
	return p.objects.Get(ctx, p.entry.Name, metav1.GetOptions{})
}

// readObject reads the object, and records its UID and version in the entry.
func (p *plan) readObject(ctx context.Context) (*unstructured.Unstructured, error) {
	obj, err := p.get(ctx)
	if err != nil {
		return nil, err
	}
	p.entry.UID, p.entry.Version = obj.GetUID(), obj.GetResourceVersion()
	return obj, nil
}

// resolveTarget resolves the resource, the namespace and the name.
func (e *Engine) resolveTarget(p *plan) (*meta.RESTMapping, error) {
	a := p.request.action
	if a.Verb == wire.VerbDelete {
		p.entry.Name, p.entry.Namespace = a.Target.Name, a.Target.Namespace
		return e.findForDelete(a.Target)
	}
	var err error
	if p.object, err = decodeTemplate(a.Template); err != nil {
		return nil, err
	}
	p.removeOwners()
	if err := p.setName(); err != nil {
		return nil, err
	}
	p.entry.Name, p.entry.Namespace = p.object.GetName(), p.object.GetNamespace()
	if a.Target.Namespace != "" {
		p.entry.Namespace = a.Target.Namespace
	}
	if err := p.annotate(); err != nil {
		return nil, err
	}
	return e.resolveVersion(p)
}

// findForDelete resolves the resource of a deletion, whose group may have been removed.
func (e *Engine) findForDelete(t wire.Target) (*meta.RESTMapping, error) {
	m, err := e.cfg.Resources.Resource(t)
	if t.Kind == "" || !errors.Is(err, mapping.ErrNoMatch) {
		return m, err
	}
	now, ok := replacementOf(t.Group, t.Kind)
	if !ok {
		return nil, err
	}
	return e.cfg.Resources.Resource(wire.Target{Kind: t.Kind, Group: now.Group})
}

// setName generates the name if the template has a generateName: an object with a name from the API
// server could not be found after an interruption.
func (p *plan) setName() error {
	base := p.object.GetGenerateName()
	if p.object.GetName() == "" && p.request.action.Verb == wire.VerbCreate && base != "" {
		p.object.SetName(base[:min(len(base), maxGenerated)] + utilrand.String(suffixLength))
	}
	if p.object.GetName() == "" {
		return fmt.Errorf("%w: it has no name", errTemplate)
	}
	return nil
}

// removeOwners removes the owners in a template: their UIDs are mostly those of another cluster, and
// here the garbage collector would delete the object, even one that an update only changes.
func (p *plan) removeOwners() {
	metadata, _ := p.object.Object["metadata"].(map[string]any)
	owners, ok := metadata[ownersField]
	if !ok {
		return
	}
	delete(metadata, ownersField)
	if list, is := owners.([]any); owners != nil && (!is || len(list) > 0) {
		p.warnings.add(ownersRemovedWarning)
	}
}

// annotate sets the annotation of the action on the object.
func (p *plan) annotate() error {
	err := unstructured.SetNestedField(p.object.Object, p.request.annotationValue(), "metadata", "annotations", Annotation)
	if err != nil {
		return fmt.Errorf("%w: its annotations are no object", errTemplate)
	}
	return nil
}

// decodeTemplate removes the fields that only an API server sets, so that what kubectl prints can be a
// template.
func decodeTemplate(raw json.RawMessage) (*unstructured.Unstructured, error) {
	obj := &unstructured.Unstructured{}
	if err := obj.UnmarshalJSON(raw); err != nil || obj.GetAPIVersion() == "" {
		return nil, fmt.Errorf("%w: it is no object with apiVersion and kind", errTemplate)
	}
	if obj.IsList() {
		return nil, fmt.Errorf("%w: it is a list", errTemplate)
	}
	metadata, ok := obj.Object["metadata"].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%w: it has no name", errTemplate)
	}
	for _, field := range []string{
		"uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp",
		"deletionGracePeriodSeconds", "selfLink", "managedFields",
	} {
		delete(metadata, field)
	}
	if metadata["annotations"] == nil {
		delete(metadata, "annotations") // null is none
	}
	delete(obj.Object, "status")
	return obj, nil
}
