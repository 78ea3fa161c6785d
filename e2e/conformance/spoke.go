// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	workv1 "open-cluster-management.io/api/work/v1"
)

// somebody is the field manager of what cases write on the spoke themselves.
const somebody = "somebody"

// make creates an object on the spoke, as somebody.
func (s *stage) make(template string) *unstructured.Unstructured {
	s.t.Helper()
	obj := &unstructured.Unstructured{Object: s.object(template)}
	live, err := s.on(obj.GetKind()).Create(s.ctx, obj, metav1.CreateOptions{FieldManager: somebody})
	if err != nil {
		s.t.Fatalf("cannot create %s %s: %v", obj.GetKind(), obj.GetName(), err)
	}
	return live
}

func (s *stage) tryMake(template string) error {
	s.t.Helper()
	obj := &unstructured.Unstructured{Object: s.object(template)}
	_, err := s.on(obj.GetKind()).Create(s.ctx, obj, metav1.CreateOptions{FieldManager: somebody})
	return err
}

// get reads an object of the spoke, which is there.
func (s *stage) get(kind, name string) *unstructured.Unstructured {
	s.t.Helper()
	obj, err := s.on(kind).Get(s.ctx, s.text(name), metav1.GetOptions{})
	if err != nil {
		s.t.Fatalf("cannot get: %v", err)
	}
	return obj
}

// absent fails the case if an object of the spoke is there.
func (s *stage) absent(kind, name string) {
	s.t.Helper()
	if _, err := s.on(kind).Get(s.ctx, s.text(name), metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		s.t.Errorf("%s %s: got %v, want it absent", kind, name, err)
	}
}

// patch merges JSON, or YAML, into an object of the spoke, as somebody.
func (s *stage) patch(kind, name, body string, subresources ...string) *unstructured.Unstructured {
	s.t.Helper()
	raw, err := json.Marshal(s.object(body))
	if err != nil {
		s.t.Fatal(err)
	}
	obj, err := s.on(kind).Patch(s.ctx, s.text(name), types.MergePatchType, raw, metav1.PatchOptions{FieldManager: somebody}, subresources...)
	if err != nil {
		s.t.Fatalf("cannot patch %s %s: %v", kind, name, err)
	}
	return obj
}

// remove deletes an object of the spoke, as somebody; it does not wait.
func (s *stage) remove(kind, name string) {
	s.t.Helper()
	if err := s.on(kind).Delete(s.ctx, s.text(name), metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}); err != nil {
		s.t.Fatalf("cannot delete %s %s: %v", kind, name, err)
	}
}

// has waits until fields of an object of the spoke are as want says, in YAML: what
// it does not name may be anything, and null stands for absence.
func (s *stage) has(kind, name, want string) *unstructured.Unstructured {
	s.t.Helper()
	return s.until(kind+" "+name+" has what is wanted", s.on(kind), s.text(name), content(s.object(want)))
}

// content is content with an object that has what fields say.
func content(fields map[string]any) func(*unstructured.Unstructured) error {
	return func(obj *unstructured.Unstructured) error {
		if obj == nil {
			return errAbsent
		}
		return within(fields, obj.Object)
	}
}

// resource is the spoke's objects of any resource, those of the case's namespace if
// it has any.
func (s *stage) resource(gvr schema.GroupVersionResource, cluster bool) dynamic.ResourceInterface {
	if cluster {
		return s.spoke.Resource(gvr)
	}
	return s.spoke.Resource(gvr).Namespace(s.ns)
}

// still fails the case unless fields of an object of the spoke are as want says now.
func (s *stage) still(kind, name, want string) *unstructured.Unstructured {
	s.t.Helper()
	obj := s.get(kind, name)
	if err := within(s.object(want), obj.Object); err != nil {
		s.t.Errorf("%s %s: %v", kind, name, err)
	}
	return obj
}

// within tells how got differs from what want names.
func within(want, got map[string]any) error {
	if diff := cmp.Diff(want, project(want, got)); diff != "" {
		return fmt.Errorf("fields (-want +got):\n%s", diff)
	}
	return nil
}

// project leaves of got what want names.
func project(want, got map[string]any) map[string]any {
	out := map[string]any{}
	for key, w := range want {
		g := got[key]
		wm, isMap := w.(map[string]any)
		gm, areMaps := g.(map[string]any)
		if isMap && (areMaps || g == nil) {
			g = project(wm, gm)
		}
		out[key] = g
	}
	return out
}

// managers of an object, in order, each once.
func managers(obj *unstructured.Unstructured) string {
	var out []string
	seen := map[string]bool{}
	for _, e := range obj.GetManagedFields() {
		if !seen[e.Manager] {
			seen[e.Manager] = true
			out = append(out, e.Manager)
		}
	}
	return strings.Join(out, " ")
}

// onlyManager fails the case if anybody but the agent wrote an object.
func (s *stage) onlyManager(kind, name string) {
	s.t.Helper()
	if got := managers(s.get(kind, name)); got != workv1.DefaultFieldManager {
		s.t.Errorf("%s %s: field managers %q, want %q alone (facts 4.1)", kind, name, got, workv1.DefaultFieldManager)
	}
}

// anchor waits until the AppliedManifestWork of a work is there.
func (s *stage) anchor(name string) *workv1.AppliedManifestWork {
	s.t.Helper()
	return s.untilAnchor(name, "is there", func(*workv1.AppliedManifestWork) error { return nil })
}

func (s *stage) untilAnchor(name, what string, so func(*workv1.AppliedManifestWork) error) *workv1.AppliedManifestWork {
	s.t.Helper()
	var amw *workv1.AppliedManifestWork
	s.until("anchor of "+name+" "+what, s.on("AppliedManifestWork"), s.anchorOf(name), func(obj *unstructured.Unstructured) error {
		if obj == nil {
			return errAbsent
		}
		amw = &workv1.AppliedManifestWork{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, amw); err != nil {
			return fmt.Errorf("not as its types say: %w", err)
		}
		return so(amw)
	})
	return amw
}

// lists waits until an anchor lists exactly these objects, as "resource/name", each
// with the UID that it has.
func (s *stage) lists(work string, want ...string) {
	s.t.Helper()
	if want == nil {
		want = []string{}
	}
	s.untilAnchor(work, fmt.Sprintf("lists %v", want), func(amw *workv1.AppliedManifestWork) error {
		got := []string{}
		for _, r := range amw.Status.AppliedResources {
			got = append(got, r.Resource+"/"+r.Name)
			if r.UID == "" || r.Version == "" {
				return fmt.Errorf("%s/%s has no uid, or no version", r.Resource, r.Name)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("applied resources (-want +got):\n%s", diff)
		}
		return nil
	})
}

// owners of an object are anchors, each owner given by the name of its work.
func (s *stage) owned(kind, name string, works ...string) {
	s.t.Helper()
	want := map[string]metav1.OwnerReference{}
	for _, w := range works {
		amw := s.anchor(w)
		want[amw.Name] = metav1.OwnerReference{
			APIVersion: "work.open-cluster-management.io/v1", Kind: "AppliedManifestWork", Name: amw.Name, UID: amw.UID,
		}
	}
	s.until(fmt.Sprintf("%s %s is owned by %v", kind, name, works), s.on(kind), s.text(name), func(obj *unstructured.Unstructured) error {
		if obj == nil {
			return errAbsent
		}
		got := map[string]metav1.OwnerReference{}
		for _, o := range obj.GetOwnerReferences() {
			// Neither a controller nor blocking, said or not.
			if o.Controller != nil && !*o.Controller {
				o.Controller = nil
			}
			if o.BlockOwnerDeletion != nil && !*o.BlockOwnerDeletion {
				o.BlockOwnerDeletion = nil
			}
			got[o.Name] = o
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("owners (-want +got):\n%s", diff)
		}
		return nil
	})
}

// untilRefused waits until the API server refuses to create an object, in words
// that hold the given ones; nothing is created.
func (s *stage) untilRefused(as dynamic.Interface, kind, template, words string) {
	s.t.Helper()
	obj := &unstructured.Unstructured{Object: s.object(template)}
	s.repeat("the API server refuses a "+kind, func() error {
		_, err := s.at(as, kind).Create(s.ctx, obj, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		switch {
		case err == nil:
			return errAdmitted
		case !strings.Contains(err.Error(), words):
			return err
		}
		return nil
	})
}

var errAdmitted = errors.New("it is admitted")

// repeat asks again until it hears no error: for what no watch tells.
func (s *stage) repeat(what string, ask func() error) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	defer cancel()
	for {
		err := ask()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			s.t.Fatalf("%s: not so within %s: %v", what, patience, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// own is the spoke's objects of a kind in the API group of the case itself.
func (s *stage) own(version, plural string) dynamic.ResourceInterface {
	gvr := schema.GroupVersionResource{Group: s.text("$group"), Version: version, Resource: plural}
	return s.spoke.Resource(gvr).Namespace(s.ns)
}

// makeOwn creates an object there, once the kind is served.
func (s *stage) makeOwn(version, plural, template string) {
	s.t.Helper()
	obj := &unstructured.Unstructured{Object: s.object(template)}
	s.repeat("created "+plural, func() error {
		_, err := s.own(version, plural).Create(s.ctx, obj, metav1.CreateOptions{FieldManager: somebody})
		return err
	})
}

// define makes a definition of the case's own group, and removes it in the end.
func (s *stage) define(template string) {
	s.t.Helper()
	s.undefine(s.make(template).GetName())
}

// undefine removes a definition when the case has ended.
func (s *stage) undefine(name string) {
	s.t.Helper()
	s.t.Cleanup(func() {
		err := s.on("CustomResourceDefinition").Delete(context.WithoutCancel(s.t.Context()), name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			s.t.Errorf("cannot delete definition: %v", err)
		}
	})
}

// lift takes the finalizers off an object that may be gone already.
func (s *stage) lift(kind, name string) {
	s.t.Helper()
	_, err := s.on(kind).Patch(s.ctx, s.text(name), types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{FieldManager: somebody})
	if err != nil && !apierrors.IsNotFound(err) {
		s.t.Errorf("cannot lift the finalizers of %s %s: %v", kind, name, err)
	}
}

// nested is a field of an object, nil where there is none.
func nested(obj *unstructured.Unstructured, path ...string) any {
	value, _, err := unstructured.NestedFieldNoCopy(obj.Object, path...)
	if err != nil {
		return err
	}
	return value
}

// hold applies an object on the spoke server-side, as another field manager.
func (s *stage) hold(manager, template string) *unstructured.Unstructured {
	s.t.Helper()
	obj := &unstructured.Unstructured{Object: s.object(template)}
	live, err := s.on(obj.GetKind()).Apply(s.ctx, obj.GetName(), obj, metav1.ApplyOptions{FieldManager: manager, Force: true})
	if err != nil {
		s.t.Fatalf("cannot apply: %v", err)
	}
	return live
}

// deleting is content with an object that is on its way out.
func deleting(obj *unstructured.Unstructured) error {
	switch {
	case obj == nil:
		return errAbsent
	case obj.GetDeletionTimestamp() == nil:
		return errPresent
	}
	return nil
}

// nothing fails the case if the objects a, b and t are there.
func (s *stage) nothing() {
	s.t.Helper()
	s.absent("ConfigMap", "a")
	s.absent("ConfigMap", "b")
	s.absent("Thing", "t")
}
