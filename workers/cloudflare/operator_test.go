// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudflare

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/spokelet/spokelet/workers/api"
	deploymentv1alpha1 "github.com/spokelet/spokelet/workers/api/deployment/v1alpha1"
	release "github.com/spokelet/spokelet/workers/api/release/v1alpha1"
)

// withOperator is a hub whose operator serves each WorkerDeployment as soon as it is written.
func withOperator(hub client.WithWatch) client.WithWatch {
	return interceptor.NewClient(hub, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			obj.SetUID(types.UID(uuid.NewString()))
			obj.SetCreationTimestamp(metav1.Now())
			if err := operate(ctx, c, obj); err != nil {
				return err
			}
			return c.Create(ctx, obj, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
			if err := operate(ctx, c, obj); err != nil {
				return err
			}
			return c.Update(ctx, obj, opts...)
		},
		Watch: func(ctx context.Context, c client.WithWatch, _ client.ObjectList, opts ...client.ListOption) (watch.Interface, error) {
			var options client.ListOptions
			options.ApplyOptions(opts)
			name, _ := options.FieldSelector.RequiresExactMatch("metadata.name")
			var wd deploymentv1alpha1.WorkerDeployment
			if err := c.Get(ctx, client.ObjectKey{Namespace: options.Namespace, Name: name}, &wd); err != nil {
				return nil, err
			}
			w := watch.NewRaceFreeFake()
			w.Add(&wd)
			return w, nil
		},
	})
}

// operate makes a WorkerRelease of a template that is new, and says that it is served.
func operate(ctx context.Context, c client.Client, obj client.Object) error {
	wd, ok := obj.(*deploymentv1alpha1.WorkerDeployment)
	if !ok {
		return nil
	}
	wd.Generation++
	var releases release.WorkerReleaseList
	if err := c.List(ctx, &releases, client.InNamespace(wd.Namespace)); err != nil {
		return err
	}
	wd.Status.Release = ""
	for _, r := range releases.Items {
		if metav1.IsControlledBy(&r, wd) && equality.Semantic.DeepEqual(r.Spec.Script, wd.Spec.Template) {
			wd.Status.Release, wd.Status.Revision = r.Name, r.Status.Revision
		}
	}
	if wd.Status.Release == "" {
		wd.Status.Revision = int64(len(releases.Items)) + 1
		wd.Status.Release = fmt.Sprintf("%s-%d", wd.Name, wd.Status.Revision)
		owner := metav1.NewControllerRef(wd, deploymentv1alpha1.GroupVersion.WithKind("WorkerDeployment"))
		if err := c.Create(ctx, &release.WorkerRelease{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: wd.Namespace, Name: wd.Status.Release, UID: types.UID(uuid.NewString()), CreationTimestamp: metav1.Now(),
				Labels: map[string]string{api.LabelScript: wd.Spec.Template.ScriptName}, OwnerReferences: []metav1.OwnerReference{*owner},
			},
			Spec:   release.WorkerReleaseSpec{Script: wd.Spec.Template},
			Status: release.WorkerReleaseStatus{Revision: wd.Status.Revision},
		}); err != nil {
			return err
		}
	}
	wd.Status.Served = wd.Status.Release
	for kind, reason := range map[string]string{api.ConditionAccepted: api.ReasonAccepted, api.ConditionBuilt: api.ReasonBuilt, api.ConditionReady: api.ReasonServed} {
		meta.SetStatusCondition(&wd.Status.Conditions, metav1.Condition{
			Type: kind, Status: metav1.ConditionTrue, Reason: reason, ObservedGeneration: wd.Generation,
		})
	}
	return nil
}
