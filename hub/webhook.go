// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedadmissionregistrationv1 "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/hub/admission"
	"github.com/spokelet/spokelet/hub/authority"
	"github.com/spokelet/spokelet/hub/registration"
)

// webhooks is the name of the ValidatingWebhookConfiguration of the chart.
const webhooks = "spokelet-manifestworks"

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
		Listener:              listener,
		Certificate:           certificate.GetCertificate,
		Access:                h.kube.AuthorizationV1().SubjectAccessReviews(),
		Clusters:              admission.ClustersFunc(h.foreign),
		ManifestLimit:         config.ManifestLimit,
		NilExecutorValidating: config.NilExecutorValidating,
		Logger:                h.opts.Logger.WithName("admission"),
		Registerer:            registerer(),
	})
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	return h.mgr.Add(server)
}

// foreign tells whether the cluster of a namespace is another controller's.
func (h *hub) foreign(ctx context.Context, namespace string) (bool, error) {
	record := &clusterv1.ManagedCluster{}
	err := h.mgr.GetClient().Get(ctx, client.ObjectKey{Name: namespace}, record)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return record.Annotations[registration.AnnotationManaged] != "true", nil
}

// publishWebhooks puts the CA into the registration of the webhooks that the
// chart made. Where there is none, as without the chart, nothing is judged.
func (h *hub) publishWebhooks(ctx context.Context) error {
	if !*h.opts.Config.Admission.Enabled {
		return nil
	}
	configurations := h.kube.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	err := trustWebhooks(ctx, configurations, h.authority.Bundle())
	if apierrors.IsNotFound(err) {
		h.opts.Logger.Info("admission of manifestworks is not registered", "validatingwebhookconfiguration", webhooks)
		return nil
	}
	if err != nil {
		return fmt.Errorf("validatingwebhookconfiguration %s: %w", webhooks, err)
	}
	return nil
}

// trustWebhooks patches the bundle alone, by the webhooks' names: the rest is
// the chart's, which in turn does not declare the bundle.
func trustWebhooks(ctx context.Context, client typedadmissionregistrationv1.ValidatingWebhookConfigurationInterface, bundle []byte) error {
	registered, err := client.Get(ctx, webhooks, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("cannot get: %w", err)
	}
	patch, err := json.Marshal(map[string]any{"webhooks": bundles(registered.Webhooks, bundle)})
	if err != nil {
		return err
	}
	if _, err := client.Patch(ctx, webhooks, types.StrategicMergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager}); err != nil {
		return fmt.Errorf("cannot patch: %w", err)
	}
	return nil
}

func bundles(registered []admissionregistrationv1.ValidatingWebhook, bundle []byte) []map[string]any {
	out := make([]map[string]any, 0, len(registered))
	for _, webhook := range registered {
		out = append(out, map[string]any{"name": webhook.Name, "clientConfig": map[string]any{"caBundle": bundle}})
	}
	return out
}
