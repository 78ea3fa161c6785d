// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	typedadmissionregistrationv1 "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	actionv1beta1 "github.com/spokelet/spokelet/api/action/v1beta1"
	mcmv1alpha1 "github.com/spokelet/spokelet/api/mcm/v1alpha1"
	viewv1beta1 "github.com/spokelet/spokelet/api/view/v1beta1"
	"github.com/spokelet/spokelet/hub/admission"
	"github.com/spokelet/spokelet/hub/authority"
	"github.com/spokelet/spokelet/hub/mcm"
	"github.com/spokelet/spokelet/hub/requester"
	"github.com/spokelet/spokelet/internal/managedcluster"
)

// validatingWebhooks and authors are the names of the chart's ValidatingWebhookConfiguration and
// MutatingWebhookConfiguration.
const (
	validatingWebhooks = "spokelet-manifestworks"
	mutatingWebhooks   = "spokelet-authors"
)

// publishPause is how long to wait before the bundle is published again that could not be.
const publishPause = 5 * time.Second

func (h *hub) addAdmission(ctx context.Context) error {
	config := h.opts.Config.Admission
	if !*config.Enabled {
		return nil
	}
	service := config.ServiceName + "." + h.opts.Config.Namespace + ".svc"
	certificate, err := h.authority.Serving(authority.Names{DNS: []string{service}})
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", h.opts.Config.Listen.Webhooks)
	if err != nil {
		return fmt.Errorf("admission: %w", err)
	}
	server, err := admission.New(admission.Config{
		Listener:     listener,
		Certificate:  certificate.GetCertificate,
		Self:         h.userName(),
		Registration: h.requesters,
		Access:       h.kube.AuthorizationV1().SubjectAccessReviews(),
		Clusters:     admission.ClustersFunc(h.isForeign),
		Stored:       admission.StoredFunc(h.namespaceUsage),
		Limits: admission.Limits{
			Spec:      h.opts.Config.MCM.SpecLimit,
			Namespace: admission.Usage{Objects: h.opts.Config.MCM.NamespaceObjects, Bytes: h.opts.Config.MCM.NamespaceBytes.Value()},
		},
		ManifestLimit:         config.ManifestLimit,
		NilExecutorValidating: config.NilExecutorValidating,
		Logger:                h.opts.Logger.WithName("admission"),
		Registerer:            registerer(),
	})
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	return errors.Join(h.mgr.Add(server), h.watchRegistration(ctx))
}

// watchRegistration follows the registration of the webhook that records authors. One that is
// created again, as after an outage in which somebody deleted it, does not have the bundle yet.
func (h *hub) watchRegistration(ctx context.Context) error {
	follower := requester.NewRegistrationWatcher(h.kube, mutatingWebhooks, h.requesters, h.opts.Logger.WithName("authors"))
	if err := follower.Read(ctx); err != nil {
		return err
	}
	h.publishToNewRegistrations(ctx, h.publishWebhooks)
	return h.mgr.Add(follower)
}

// publishToNewRegistrations publishes whenever there is a registration of another UID.
func (h *hub) publishToNewRegistrations(ctx context.Context, publish func(context.Context) error) {
	h.requesters.Subscribe(func() {
		if h.requesters.UID() == "" {
			return
		}
		// What subscribes must not block; the hub outlives the write.
		go func() {
			_ = wait.PollUntilContextCancel(ctx, publishPause, true, func(ctx context.Context) (bool, error) {
				err := publish(ctx)
				if err != nil && ctx.Err() == nil {
					h.opts.Logger.Error(err, "webhooks were registered and are not trusted yet")
				}
				return err == nil, nil
			})
		}()
	})
}

// isForeign reports whether the cluster of a namespace is another controller's.
func (h *hub) isForeign(ctx context.Context, namespace string) (bool, error) {
	record := &clusterv1.ManagedCluster{}
	err := h.mgr.GetClient().Get(ctx, client.ObjectKey{Name: namespace}, record)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return !managedcluster.IsManaged(record), nil
}

// newUsageLists are those of the views and actions that namespaces hold.
func newUsageLists() map[metav1.GroupResource]client.ObjectList {
	return map[metav1.GroupResource]client.ObjectList{
		{Group: mcmv1alpha1.GroupVersion.Group, Resource: "works"}:                   &mcmv1alpha1.WorkList{},
		{Group: mcmv1alpha1.GroupVersion.Group, Resource: "worksets"}:                &mcmv1alpha1.WorkSetList{},
		{Group: mcmv1alpha1.GroupVersion.Group, Resource: "resourceviews"}:           &mcmv1alpha1.ResourceViewList{},
		{Group: viewv1beta1.GroupVersion.Group, Resource: "managedclusterviews"}:     &viewv1beta1.ManagedClusterViewList{},
		{Group: actionv1beta1.GroupVersion.Group, Resource: "managedclusteractions"}: &actionv1beta1.ManagedClusterActionList{},
	}
}

// namespaceUsage is what a namespace holds of views or actions, as the cache has it.
func (h *hub) namespaceUsage(ctx context.Context, resource metav1.GroupResource, namespace string) (admission.Usage, error) {
	return countUsage(ctx, h.mgr.GetClient(), resource, namespace)
}

func countUsage(ctx context.Context, cached client.Reader, resource metav1.GroupResource, namespace string) (admission.Usage, error) {
	list := newUsageLists()[resource]
	if list == nil {
		return admission.Usage{}, fmt.Errorf("%s are none of views and actions", resource.String())
	}
	if err := cached.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return admission.Usage{}, fmt.Errorf("list %s: %w", resource.Resource, err)
	}
	usage := admission.Usage{Objects: meta.LenList(list)}
	err := meta.EachListItem(list, func(o runtime.Object) error {
		if obj, ok := o.(client.Object); ok {
			usage.Bytes += int64(mcm.SizeOf(obj))
		}
		return nil
	})
	return usage, err
}

// publishWebhooks puts the CA into the registrations of the webhooks that the chart made.
// Where there is none, as without the chart, nothing is judged, and nobody counts as an
// author, whatever objects say, so that views and actions fail.
func (h *hub) publishWebhooks(ctx context.Context) error {
	if !*h.opts.Config.Admission.Enabled {
		return nil
	}
	registrations, bundle := h.kube.AdmissionregistrationV1(), h.authority.Bundle()
	return errors.Join(
		h.wrapPublishError("validatingwebhookconfiguration", validatingWebhooks, patchValidatingWebhooks(ctx, registrations.ValidatingWebhookConfigurations(), bundle)),
		h.wrapPublishError("mutatingwebhookconfiguration", mutatingWebhooks, patchMutatingWebhooks(ctx, registrations.MutatingWebhookConfigurations(), bundle)),
	)
}

// wrapPublishError names the registration in the error of publishing to it. One that is missing
// is none.
func (h *hub) wrapPublishError(kind, name string, err error) error {
	if apierrors.IsNotFound(err) {
		h.opts.Logger.Info("webhooks are not registered", "kind", kind, "name", name)
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", kind, name, err)
	}
	return nil
}

// patchValidatingWebhooks patches the bundle alone, by the webhooks' names: the rest is
// the chart's, which in turn does not declare the bundle.
func patchValidatingWebhooks(ctx context.Context, client typedadmissionregistrationv1.ValidatingWebhookConfigurationInterface, bundle []byte) error {
	registration, err := client.Get(ctx, validatingWebhooks, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("cannot get: %w", err)
	}
	var names []string
	for i := range registration.Webhooks {
		names = append(names, registration.Webhooks[i].Name)
	}
	return patchBundle(ctx, client.Patch, validatingWebhooks, names, bundle)
}

// patchMutatingWebhooks does the same for the webhook that records authors.
func patchMutatingWebhooks(ctx context.Context, client typedadmissionregistrationv1.MutatingWebhookConfigurationInterface, bundle []byte) error {
	registration, err := client.Get(ctx, mutatingWebhooks, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("cannot get: %w", err)
	}
	var names []string
	for i := range registration.Webhooks {
		names = append(names, registration.Webhooks[i].Name)
	}
	return patchBundle(ctx, client.Patch, mutatingWebhooks, names, bundle)
}

// patchFunc is the method Patch of a typed client.
type patchFunc[T any] func(ctx context.Context, name string, kind types.PatchType, data []byte, opts metav1.PatchOptions, subresources ...string) (T, error)

// patchBundle sets the bundle of the webhooks of a registration.
func patchBundle[T any](ctx context.Context, patch patchFunc[T], registration string, names []string, bundle []byte) error {
	list := make([]map[string]any, 0, len(names))
	for _, name := range names {
		list = append(list, map[string]any{"name": name, "clientConfig": map[string]any{"caBundle": bundle}})
	}
	data, err := json.Marshal(map[string]any{"webhooks": list})
	if err != nil {
		return err
	}
	if _, err := patch(ctx, registration, types.StrategicMergePatchType, data, metav1.PatchOptions{FieldManager: fieldManager}); err != nil {
		return fmt.Errorf("cannot patch: %w", err)
	}
	return nil
}
