// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/api/crds"
	"github.com/spokelet/spokelet/hub/mutation"
	"github.com/spokelet/spokelet/hub/placement"
	"github.com/spokelet/spokelet/hub/registration"
	"github.com/spokelet/spokelet/hub/toleration"
)

const (
	// fieldManager owns what the hub writes of the objects of its chart.
	fieldManager = "spokelet-hub"

	// joinConfigMap is the ConfigMap that says how to join this hub.
	joinConfigMap = "spokelet-hub"

	// liveAPIService is the name of the APIService of the live API.
	liveAPIService = "v1alpha1.live.spokelet.io"
)

// Keys of the page that says how to join; "kubectl spokelet join" reads it.
const (
	keyHubID       = "hubID"
	keyAddress     = "address"
	keyFingerprint = "caFingerprint"
	keyBundle      = "caBundle"
	// keyHubHash is written once, for good: anchors in the spokes bear it.
	keyHubHash = "hubHash"
)

// install brings the definitions and the admission policy up to date, before
// anything relies on them.
func (h *hub) install(ctx context.Context) error {
	if err := crds.Install(ctx, h.dyn, crds.Hub()); err != nil {
		return err
	}
	return h.installPolicy(ctx)
}

func (h *hub) installPolicy(ctx context.Context) error {
	scheme, err := newScheme()
	if err != nil {
		return err
	}
	writer, err := client.New(h.opts.Client, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("hub client: %w", err)
	}
	objects, err := registration.AdmissionPolicy(h.userName())
	if err != nil {
		return err
	}
	for _, obj := range objects {
		if err := apply(ctx, writer, obj); err != nil {
			return err
		}
	}
	if err := h.installPlacement(ctx, writer); err != nil {
		return err
	}
	return h.installTolerations(ctx, writer)
}

// userName is the name of the hub's own account.
func (h *hub) userName() string {
	return "system:serviceaccount:" + h.opts.Config.Namespace + ":" + h.opts.Config.ServiceAccount
}

// installPlacement keeps off virtual nodes what does not ask for them, and follows the
// DaemonSets that were there before.
func (h *hub) installPlacement(ctx context.Context, writer client.Client) error {
	err := placement.Install(ctx, writer)
	if err != nil && !errors.Is(err, mutation.ErrNotServed) {
		return err
	}
	h.daemonSets, err = placement.NewDaemonSets(h.kube, err, func() { h.nodes.DaemonSetsChanged() })
	return err
}

// installTolerations has pods stay on a lost virtual node as long as configured.
func (h *hub) installTolerations(ctx context.Context, writer client.Client) error {
	seconds := h.opts.Config.Pods.UnreachableTolerationSeconds
	err := toleration.Install(ctx, writer, seconds)
	if errors.Is(err, mutation.ErrNotServed) {
		h.opts.Logger.Info("pods leave lost virtual nodes after 300 s: the API server serves no mutating admission policies",
			"configured", *seconds)
		return nil
	}
	return err
}

// apply writes a whole object of ours.
func apply(ctx context.Context, writer client.Client, obj client.Object) error {
	// Server-side apply by patch takes any object; it needs no generated type.
	err := writer.Patch(ctx, obj, client.Apply, client.FieldOwner(fieldManager), client.ForceOwnership) //nolint:staticcheck // the typed form needs an apply configuration of each type
	if err != nil {
		return fmt.Errorf("%s %s: cannot apply: %w", obj.GetObjectKind().GroupVersionKind().Kind, obj.GetName(), err)
	}
	return nil
}

// startPublishing publishes how to join, and the CA to the API server and the agents, now and
// after each change of the CA.
func (h *hub) startPublishing(ctx context.Context) error {
	if err := h.publishAll(ctx); err != nil {
		return err
	}
	h.authority.OnChange(func() {
		// The callback must not block; the hub outlives the write.
		go func() {
			h.tunnel.Trust(h.authority.Bundle())
			if err := h.publishAll(ctx); err != nil {
				h.opts.Logger.Error(err, "CA was replaced and could not be published")
			}
		}()
	})
	return nil
}

func (h *hub) publishAll(ctx context.Context) error {
	if err := h.applyJoinConfigMap(ctx); err != nil {
		return err
	}
	if err := h.patchAPIService(ctx); err != nil {
		return err
	}
	return h.publishWebhooks(ctx)
}

func (h *hub) applyJoinConfigMap(ctx context.Context) error {
	page := applycorev1.ConfigMap(joinConfigMap, h.opts.Config.Namespace).WithData(map[string]string{
		keyHubID:       h.authority.HubID(),
		keyAddress:     h.opts.Config.PublicAddress,
		keyFingerprint: h.authority.Fingerprint(),
		keyBundle:      string(h.authority.Bundle()),
		keyHubHash:     h.hash,
	})
	_, err := h.kube.CoreV1().ConfigMaps(h.opts.Config.Namespace).Apply(ctx, page, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	if err != nil {
		return fmt.Errorf("configmap %s: cannot apply: %w", joinConfigMap, err)
	}
	return nil
}

// patchAPIService puts the CA into the APIService that the chart made. Where
// there is none, as without the chart, nobody reaches the live API.
func (h *hub) patchAPIService(ctx context.Context) error {
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"caBundle": h.authority.Bundle()}})
	if err != nil {
		return fmt.Errorf("apiservice %s: %w", liveAPIService, err)
	}
	services := h.dyn.Resource(schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"})
	_, err = services.Patch(ctx, liveAPIService, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
	if apierrors.IsNotFound(err) {
		h.opts.Logger.Info("live API is not registered", "apiservice", liveAPIService)
		return nil
	}
	if err != nil {
		return fmt.Errorf("apiservice %s: cannot patch: %w", liveAPIService, err)
	}
	return nil
}
