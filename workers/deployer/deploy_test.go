// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package deployer

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/workers/api"
	deploymentv1alpha1 "github.com/spokelet/spokelet/workers/api/deployment/v1alpha1"
	releasev1alpha1 "github.com/spokelet/spokelet/workers/api/release/v1alpha1"
)

// syntaxError is what workerd says of a script.
const syntaxError = "Uncaught SyntaxError: Unexpected token '}' at index.js:3:1"

// refusals are what cannot be served, and what it is to a developer.
func refusals() map[string]struct {
	reason   string
	operator func(*fakeOperator)
	is       error
	says     string
	// released: there is a release with it, which can be deployed.
	released bool
} {
	type refusal = struct {
		reason   string
		operator func(*fakeOperator)
		is       error
		says     string
		released bool
	}
	return map[string]refusal{
		"rejected": {
			reason:   "workerd's words name the line of the script",
			operator: func(o *fakeOperator) { o.rejects = syntaxError }, is: ErrRejected, says: syntaxError,
		},
		"invalid": {
			reason:   "the message names the field",
			operator: func(o *fakeOperator) { o.refused = &answer{api.ReasonInvalid, "mainModule: there is none"} }, is: ErrInvalid, says: "mainModule: there is none",
		},
		"another script has its name": {
			reason:   "waiting does not help",
			operator: func(o *fakeOperator) { o.refused = &answer{api.ReasonNameTaken, "served under the same name"} }, is: ErrInvalid, says: "served under the same name",
		},
		"no account": {
			reason:   "waiting does not help: somebody has to create the WorkerAccount",
			operator: func(o *fakeOperator) { o.built = &answer{api.ReasonNoAccount, "there is no WorkerAccount"} }, is: ErrInvalid, says: "there is no WorkerAccount", released: true,
		},
	}
}

func TestInvalidDeploymentIsRolledBack(t *testing.T) {
	for name, tc := range refusals() {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			good := w.served(module(secrets("TOKEN", hush+"1")))
			annotation := w.deployment().Annotations[api.AnnotationDeployment]
			bad := w.upload(module(secrets("TOKEN", hush+"2")))
			tc.operator(w.hub.operator)
			_, err := w.Deploy(t.Context(), team, "hello", bad.ID, jane, false)
			is(t, err, tc.is, tc.says)
			w.asks(tc.reason, good.Script, annotation)
			if diff := cmp.Diff([]string{good.ID}, w.listed()); diff != "" {
				t.Errorf("%s: listed (-want +got):\n%s", tc.reason, diff)
			}
			order := w.order()
			if tc.released {
				order = order[:1]
			}
			if diff := cmp.Diff([]string{good.ID}, order); diff != "" {
				t.Errorf("%s: deployments (-want +got):\n%s", tc.reason, diff)
			}
			// The Secret of the version goes with the WorkerDeployment, or when it is old.
			if s := w.secret(bad.Script.SecretRef); len(s.OwnerReferences) != 1 {
				t.Errorf("%s: the Secret has the owners %+v", tc.reason, s.OwnerReferences)
			}
		})
	}
}

func TestRollBackKeepsOlderVersion(t *testing.T) {
	w := newWorld(t)
	older := w.served(module(secrets("TOKEN", hush+"1")))
	newer := w.served(module(secrets("TOKEN", hush+"2")))
	w.hub.operator.refused = &answer{api.ReasonNameTaken, "served under the same name"}
	_, err := w.Deploy(t.Context(), team, "hello", older.ID, jane, true)
	is(t, err, ErrInvalid, "served under the same name")
	if diff := cmp.Diff([]string{newer.ID, older.ID}, w.listed()); diff != "" {
		t.Errorf("listed (-want +got):\n%s", diff)
	}
}

func TestRollBackDeletesNewScript(t *testing.T) {
	for name, tc := range refusals() {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			bad := w.upload(module())
			tc.operator(w.hub.operator)
			_, err := w.Deploy(t.Context(), team, "hello", bad.ID, jane, false)
			is(t, err, tc.is, tc.says)
			if w.deployment() != nil || len(w.listed()) > 0 {
				t.Errorf("%s: there are %+v and the versions %q", tc.reason, w.deployment(), w.listed())
			}
		})
	}
}

func TestRollBackRestoresMissingAnnotation(t *testing.T) {
	w := newWorld(t)
	template := releasev1alpha1.Script{ScriptName: "hello", CompatibilityDate: "01/15/2026", ScriptURLs: []string{"s3://workers/1234/mine"}}
	w.kubectl(template)
	bad := w.upload(module())
	w.hub.operator.rejects = syntaxError
	_, err := w.Deploy(t.Context(), team, "hello", bad.ID, jane, false)
	is(t, err, ErrRejected)
	w.asks("taken back", template, "")
	if _, there := w.deployment().Annotations[api.AnnotationDeployment]; there {
		t.Error("there is an empty annotation")
	}
}

func TestFailedRollBackIsReported(t *testing.T) {
	w := newWorld(t)
	good, bad := w.served(module()), w.upload(module())
	w.hub.operator.rejects = syntaxError
	w.hub.opened = append(w.hub.opened, func(context.Context, *watch.RaceFreeFakeWatcher) {
		w.hub.faults["update WorkerDeployment"] = errors.New("boom")
	})
	_, err := w.Deploy(t.Context(), team, "hello", bad.ID, jane, false)
	is(t, err, ErrRejected, syntaxError, "boom", "not written again")
	if wd := w.deployment(); wd.Status.Served != "hello-1" {
		t.Errorf("release %s of another version than %s is served", wd.Status.Served, good.ID)
	}
}

func TestRollBackSurvivesCanceledRequest(t *testing.T) {
	w := newWorld(t)
	good, bad := w.served(module()), w.upload(module())
	annotation := w.deployment().Annotations[api.AnnotationDeployment]
	w.hub.operator.rejects = syntaxError
	ctx, cancel := context.WithCancel(t.Context())
	w.config.Client = hangUp{WithWatch: w.config.Client, cancel: cancel}
	_, err := w.Deploy(ctx, team, "hello", bad.ID, jane, false)
	is(t, err, ErrRejected)
	if ctx.Err() == nil {
		t.Error("the developer is not gone")
	}
	w.asks("taken back", good.Script, annotation)
}

// hangUp cancels the request when the release was read, and refuses what belongs to it.
type hangUp struct {
	client.WithWatch
	cancel context.CancelFunc
}

func (h hangUp) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	err := h.WithWatch.Get(ctx, key, obj, opts...)
	if _, ok := obj.(*releasev1alpha1.WorkerRelease); ok {
		h.cancel()
	}
	return err
}

func (h hangUp) Update(ctx context.Context, obj client.Object, opts ...client.UpdateOption) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return h.WithWatch.Update(ctx, obj, opts...)
}

func TestConcurrentWriteIsKept(t *testing.T) {
	theirs := releasev1alpha1.Script{ScriptName: "hello", CompatibilityDate: "2026-02-01", ScriptURLs: []string{"s3://workers/1234/theirs"}}
	const annotation = `{"id":"1","version":"2","createdOn":"2026-11-27T10:00:00Z","author":"joe"}`
	cases := map[string]struct {
		reason string
		change func(w *world)
		says   string
		after  string // annotation; empty: whatever it is
	}{
		"a deployment": {
			reason: "the last one to deploy is right, as in Cloudflare",
			change: func(w *world) {
				wd := w.deployment()
				wd.Annotations[api.AnnotationDeployment], wd.Spec.Template = annotation, theirs
				if err := w.hub.client.Update(w.t.Context(), wd); err != nil {
					w.t.Fatal(err)
				}
			},
			says: "by joe as version 2", after: annotation,
		},
		"kubectl edit": {
			reason: "the annotation stays, and the template is another one",
			change: func(w *world) { w.kubectl(theirs) },
			says:   "changed meanwhile",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.served(module())
			v := w.upload(module())
			w.hub.operator.silent = true
			w.hub.opened = append(w.hub.opened, func(context.Context, *watch.RaceFreeFakeWatcher) {
				w.hub.operator.silent = false
				tc.change(w)
			})
			_, err := w.Deploy(t.Context(), team, "hello", v.ID, jane, false)
			is(t, err, ErrConflict, tc.says)
			after := tc.after
			if after == "" {
				after = w.deployment().Annotations[api.AnnotationDeployment]
			}
			w.asks(tc.reason, theirs, after)
			if w.listed()[0] != v.ID {
				t.Errorf("%s: the version is gone, which may be a good one", tc.reason)
			}
		})
	}
}

func TestRollBackKeepsConcurrentWrite(t *testing.T) {
	theirs := releasev1alpha1.Script{ScriptName: "hello", CompatibilityDate: "2026-02-01", ScriptURLs: []string{"s3://workers/1234/theirs"}}
	again := func(w *world) {
		wd := w.deployment()
		wd.Annotations[api.AnnotationDeployment] = `{"id":"1","version":"2","author":"joe"}`
		if err := w.hub.client.Update(w.t.Context(), wd); err != nil {
			w.t.Fatal(err)
		}
	}
	edited := func(w *world) { w.kubectl(theirs) }
	cases := map[string]struct {
		reason string
		isNew  bool
		edits  edits
		change func(*world)
	}{
		"edited":         {reason: "the template is not ours", edits: edits{read: true}, change: edited},
		"deployed again": {reason: "the template is ours, and was asked for by somebody else", edits: edits{read: true}, change: again},
		"edited at the last moment": {
			reason: "the hub compares resource versions", edits: edits{updated: true}, change: edited,
		},
		"a new one": {reason: "it is not deleted", isNew: true, edits: edits{read: true}, change: edited},
		"a new one, at the last moment": {
			reason: "the hub compares resource versions", isNew: true, edits: edits{deleted: true}, change: edited,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if !tc.isNew {
				w.served(module())
			}
			v := w.upload(module())
			w.hub.operator.rejects = syntaxError
			var after *deploymentv1alpha1.WorkerDeployment
			tc.edits.WithWatch, tc.edits.then = w.config.Client, func() { tc.change(w); after = w.deployment() }
			w.config.Client = &tc.edits
			_, err := w.Deploy(t.Context(), team, "hello", v.ID, jane, false)
			is(t, err, ErrRejected)
			if diff := cmp.Diff(after, w.deployment()); diff != "" || after == nil {
				t.Errorf("%s: (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// edits changes something once: when a release was read, or before a WorkerDeployment that was
// rejected is updated or deleted.
type edits struct {
	client.WithWatch
	read, updated, deleted bool
	rejected               bool
	then                   func()
}

func (e *edits) once(now *bool) {
	if *now {
		*now = false
		e.then()
	}
}

func (e *edits) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	err := e.WithWatch.Get(ctx, key, obj, opts...)
	if _, ok := obj.(*releasev1alpha1.WorkerRelease); ok {
		e.rejected = true
		e.once(&e.read)
	}
	return err
}

func (e *edits) Update(ctx context.Context, obj client.Object, opts ...client.UpdateOption) error {
	if e.rejected {
		e.once(&e.updated)
	}
	return e.WithWatch.Update(ctx, obj, opts...)
}

func (e *edits) Delete(ctx context.Context, obj client.Object, opts ...client.DeleteOption) error {
	e.once(&e.deleted)
	return e.WithWatch.Delete(ctx, obj, opts...)
}

func TestScriptDeletedDuringDeployIsConflict(t *testing.T) {
	remove := func(w *world, _ *watch.RaceFreeFakeWatcher) {
		if err := w.hub.client.Delete(w.t.Context(), w.deployment()); err != nil {
			w.t.Fatal(err)
		}
	}
	for name, change := range map[string]func(*world, *watch.RaceFreeFakeWatcher){
		"deleted": remove,
		"deleted and created while no watch is open": func(w *world, watcher *watch.RaceFreeFakeWatcher) {
			watcher.Stop()
			wd := w.deployment()
			remove(w, watcher)
			wd.ResourceVersion = ""
			w.create(wd)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			v := w.upload(module())
			w.hub.operator.silent = true
			w.hub.opened = append(w.hub.opened, func(_ context.Context, watcher *watch.RaceFreeFakeWatcher) { change(w, watcher) })
			_, err := w.Deploy(t.Context(), team, "hello", v.ID, jane, false)
			is(t, err, ErrConflict, "hello was deleted meanwhile")
			if diff := cmp.Diff([]string{v.ID}, w.listed()); diff != "" {
				t.Errorf("listed (-want +got):\n%s", diff)
			}
		})
	}
}

func TestConcurrentDeploysRetryConflict(t *testing.T) {
	w := newWorld(t)
	w.served(module())
	v := w.upload(module())
	w.config.Client = &busy{WithWatch: w.config.Client, conflicts: 2}
	w.deploy(v.ID)
	if diff := cmp.Diff(v.Script, w.deployment().Spec.Template); diff != "" {
		t.Errorf("template (-want +got):\n%s", diff)
	}
}

// busy has some updates meet a conflict.
type busy struct {
	client.WithWatch
	conflicts int
}

func (b *busy) Update(ctx context.Context, obj client.Object, opts ...client.UpdateOption) error {
	if b.conflicts > 0 {
		b.conflicts--
		return apierrors.NewConflict(schema.GroupResource{Resource: "workerdeployments"}, obj.GetName(), errors.New("modified"))
	}
	return b.WithWatch.Update(ctx, obj, opts...)
}

func forbidden(verb string) error {
	return apierrors.NewForbidden(schema.GroupResource{Group: "api.worker-deployment", Resource: "workerdeployments"}, "hello", errors.New("cannot "+verb))
}

func TestForbiddenHubIsReported(t *testing.T) {
	for _, what := range []string{
		"list WorkerDeployment", "create WorkerDeployment", "watch WorkerDeployment", "get WorkerRelease", "get Secret", "patch Secret",
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t)
			v := w.upload(module(secrets("TOKEN", hush+"1")))
			w.hub.faults[what] = forbidden(what)
			_, err := w.Deploy(t.Context(), team, "hello", v.ID, jane, false)
			is(t, err, ErrNotOpened, "cannot "+what)
		})
	}
	for _, what := range []string{"create Secret", "update WorkerDeployment", "list WorkerRelease"} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t)
			w.served(module())
			w.hub.faults[what] = forbidden(what)

			err := w.SetSecrets(t.Context(), team, "hello", map[string]*string{"TOKEN": new(hush + "1")}, jane)
			is(t, err, ErrNotOpened, "cannot "+what)
		})
	}
	for _, what := range []string{"delete WorkerDeployment", "list Secret", "delete Secret"} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t)
			w.served(module(secrets("TOKEN", hush+"1")))
			w.hub.faults[what] = forbidden(what)
			is(t, w.Delete(t.Context(), team, "hello"), ErrNotOpened, "cannot "+what)
		})
	}
}

func TestInvalidTemplateIsReported(t *testing.T) {
	w := newWorld(t)
	v := w.upload(module())
	w.hub.faults["create WorkerDeployment"] = apierrors.NewInvalid(schema.GroupKind{Kind: "WorkerDeployment"}, "hello", nil)
	_, err := w.Deploy(t.Context(), team, "hello", v.ID, jane, false)
	is(t, err, ErrInvalid, "hello")
}
