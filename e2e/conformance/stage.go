// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	workv1 "open-cluster-management.io/api/work/v1"
)

// patience bounds every wait, unless the target asks for another.
const patience = 2 * time.Minute

var (
	errAbsent    = errors.New("it is not there")
	errPresent   = errors.New("it is still there")
	errWatchOver = errors.New("the watch ended")
)

// stage is where one case plays.
type stage struct {
	*field
	t   *testing.T
	ctx context.Context
	// ns is the case's namespace on the spoke, and the name of its first work.
	ns       string
	works    []string
	marks    int
	patience time.Duration
}

func newStage(t *testing.T, f *field) *stage {
	t.Helper()
	s := &stage{field: f, t: t, ctx: t.Context(), ns: fmt.Sprintf("%s-%d", f.run, f.count.Add(1))}
	s.namespace(s.ns)
	return s
}

// namespace makes one on the spoke, in which controllers are quiet.
func (s *stage) namespace(name string) {
	s.t.Helper()
	s.make("{apiVersion: v1, kind: Namespace, metadata: {name: " + name + ", labels: {" + quietLabel + ": " + s.run + "}}}")
	s.t.Cleanup(func() {
		ctx := context.WithoutCancel(s.t.Context())
		if err := s.on("Namespace").Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			s.t.Errorf("cannot delete namespace: %v", err)
		}
	})
}

// leave deletes the works of the case. Whatever a case was about: its works go,
// and their anchors with them.
func (s *stage) leave() {
	s.ctx = context.WithoutCancel(s.t.Context())
	for _, name := range s.works {
		if err := s.onHub().Delete(s.ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			s.t.Errorf("cannot delete work %s: %v", name, err)
		}
	}
	if s.t.Failed() {
		return
	}
	for _, name := range s.works {
		s.gone("work "+name, s.onHub(), name)
		if _, err := s.on("AppliedManifestWork").Get(s.ctx, s.anchorOf(name), metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			s.t.Errorf("the work %s is gone, its anchor is not: %v", name, err)
		}
	}
}

// text fills in the case's own names. YAML has no tabs, Go's source does.
func (s *stage) text(template string) string {
	return strings.NewReplacer("$w", s.ns, "$ns", s.ns, "$group", s.ns+".example.com", "\t", "  ").Replace(template)
}

func (s *stage) object(template string) map[string]any {
	s.t.Helper()
	out := map[string]any{}
	if err := utilyaml.Unmarshal([]byte(s.text(template)), &out); err != nil {
		s.t.Fatalf("%v in:\n%s", err, s.text(template))
	}
	return out
}

// on is the spoke's objects of a kind, those of the case's namespace if it has any.
func (s *stage) on(kind string) dynamic.ResourceInterface { return s.at(s.spoke, kind) }

func (s *stage) at(c dynamic.Interface, kind string) dynamic.ResourceInterface {
	s.t.Helper()
	gvr, ok := resources[kind]
	switch {
	case !ok:
		s.t.Fatalf("the suite has no kind %s", kind)
		return nil
	case clusterScoped[kind]:
		return c.Resource(gvr)
	default:
		return c.Resource(gvr).Namespace(s.ns)
	}
}

func (s *stage) onHub() dynamic.ResourceInterface {
	return s.hub.Resource(resources["ManifestWork"]).Namespace(s.target.Namespace)
}

// anchorOf names the AppliedManifestWork of a work.
func (s *stage) anchorOf(name string) string { return s.target.HubHash + "-" + s.text(name) }

// until watches an object until so is content with it; obj is nil while there is
// none.
func (s *stage) until(what string, in dynamic.ResourceInterface, name string, so func(obj *unstructured.Unstructured) error) *unstructured.Unstructured {
	s.t.Helper()
	limit := cmp.Or(s.patience, s.target.Patience, patience)
	ctx, cancel := context.WithTimeout(s.ctx, limit)
	defer cancel()
	w := &waiter{in: in, only: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String(), so: so}
	obj, err := w.wait(ctx)
	if err != nil {
		s.t.Fatalf("%s: not so within %s: %v", what, limit, err)
	}
	return obj
}

type waiter struct {
	in   dynamic.ResourceInterface
	only string
	so   func(*unstructured.Unstructured) error
	last error
}

func (w *waiter) wait(ctx context.Context) (*unstructured.Unstructured, error) {
	for {
		obj, err := w.once(ctx)
		if err == nil {
			return obj, nil
		}
		select {
		case <-ctx.Done():
			if w.last != nil {
				return nil, w.last
			}
			return nil, err
		case <-time.After(20 * time.Millisecond): // a kind that is not served yet, or a watch that ended
		}
	}
}

func (w *waiter) once(ctx context.Context) (*unstructured.Unstructured, error) {
	list, err := w.in.List(ctx, metav1.ListOptions{FieldSelector: w.only})
	if err != nil {
		return nil, err
	}
	var obj *unstructured.Unstructured
	if len(list.Items) > 0 {
		obj = &list.Items[0]
	}
	if w.last = w.so(obj); w.last == nil {
		return obj, nil
	}
	watcher, err := w.in.Watch(ctx, metav1.ListOptions{FieldSelector: w.only, ResourceVersion: list.GetResourceVersion()})
	if err != nil {
		return nil, err
	}
	defer watcher.Stop()
	for e := range watcher.ResultChan() {
		obj, ok := e.Object.(*unstructured.Unstructured)
		switch e.Type {
		case watch.Error, watch.Bookmark:
			continue
		case watch.Deleted:
			obj = nil
		case watch.Added, watch.Modified:
		}
		if w.last = w.so(obj); (ok || obj == nil) && w.last == nil {
			return obj, nil
		}
	}
	return nil, errWatchOver
}

// gone waits until an object is.
func (s *stage) gone(what string, in dynamic.ResourceInterface, name string) {
	s.t.Helper()
	s.until(what+" is gone", in, s.text(name), func(obj *unstructured.Unstructured) error {
		if obj != nil {
			return errPresent
		}
		return nil
	})
}

// tick waits until the API's clock, which counts in seconds, shows another time.
func (s *stage) tick() {
	s.t.Helper()
	select {
	case <-s.ctx.Done():
		s.t.Fatal(s.ctx.Err())
	case <-time.After(1100 * time.Millisecond):
	}
}

// create makes a work of a spec in YAML; labels are pairs.
func (s *stage) create(name, spec string, labels ...string) {
	s.t.Helper()
	if err := s.tryCreate(name, spec, labels...); err != nil {
		s.t.Fatalf("cannot create the work: %v", err)
	}
}

func (s *stage) tryCreate(name, spec string, labels ...string) error {
	s.t.Helper()
	return s.tryCreateSpec(name, s.object(spec), labels...)
}

func (s *stage) tryCreateSpec(name string, spec map[string]any, labels ...string) error {
	s.t.Helper()
	obj := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "work.open-cluster-management.io/v1", "kind": "ManifestWork", "spec": spec,
	}}
	obj.SetName(s.text(name))
	pairs := map[string]string{}
	for i := 0; i+1 < len(labels); i += 2 {
		pairs[labels[i]] = labels[i+1]
	}
	obj.SetLabels(pairs)
	_, err := s.onHub().Create(s.ctx, obj, metav1.CreateOptions{})
	if err == nil {
		s.works = append(s.works, obj.GetName())
	}
	return err
}

// update replaces the spec of a work.
func (s *stage) update(name, spec string) {
	s.t.Helper()
	body, err := json.Marshal([]map[string]any{{"op": "replace", "path": "/spec", "value": s.object(spec)}})
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := s.onHub().Patch(s.ctx, s.text(name), types.JSONPatchType, body, metav1.PatchOptions{}); err != nil {
		s.t.Fatalf("cannot update the work: %v", err)
	}
}

// delete asks for the end of a work; it does not wait.
func (s *stage) delete(name string) {
	s.t.Helper()
	if err := s.onHub().Delete(s.ctx, s.text(name), metav1.DeleteOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

// ends deletes a work and waits until it is gone.
func (s *stage) ends(name string) {
	s.t.Helper()
	s.delete(name)
	s.gone("work "+name, s.onHub(), name)
}

// untilWork waits until so is content with a work.
func (s *stage) untilWork(name, what string, so func(*workv1.ManifestWork) error) *workv1.ManifestWork {
	s.t.Helper()
	var mw *workv1.ManifestWork
	s.until("work "+name+" "+what, s.onHub(), s.text(name), func(obj *unstructured.Unstructured) error {
		if obj == nil {
			return errAbsent
		}
		mw = &workv1.ManifestWork{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, mw); err != nil {
			return fmt.Errorf("not as its types say: %w", err)
		}
		return so(mw)
	})
	return mw
}

// shows waits until the status of a work is exactly what want says.
func (s *stage) shows(name, want string) *workv1.ManifestWork {
	s.t.Helper()
	lines := expand(s.text(want))
	return s.untilWork(name, "shows", func(mw *workv1.ManifestWork) error { return differ(lines, render(mw.Status)) })
}

// told waits until a work is good, and of each of its manifests all is told: feedback
// may come later.
func (s *stage) told(name string) *workv1.ManifestWork {
	s.t.Helper()
	s.good(name)
	return s.untilWork(name, "tells of feedback", func(mw *workv1.ManifestWork) error {
		for _, m := range mw.Status.ResourceStatus.Manifests {
			if meta.FindStatusCondition(m.Conditions, "StatusFeedbackSynced") == nil {
				return fmt.Errorf("it shows:\n%s", strings.Join(render(mw.Status), "\n"))
			}
		}
		return nil
	})
}

// good waits until a work is applied and available, in its present generation.
func (s *stage) good(name string) *workv1.ManifestWork {
	s.t.Helper()
	return s.untilWork(name, "is applied and available", func(mw *workv1.ManifestWork) error {
		for _, kind := range []string{"Applied", "Available"} {
			c := meta.FindStatusCondition(mw.Status.Conditions, kind)
			if c == nil || c.Status != metav1.ConditionTrue || c.ObservedGeneration != mw.Generation {
				return fmt.Errorf("%s is not True at %d:\n%s", kind, mw.Generation, strings.Join(render(mw.Status), "\n"))
			}
		}
		return nil
	})
}
