// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package requester

import (
	"context"
	"fmt"
	"sync"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	informersv1 "k8s.io/client-go/informers/admissionregistration/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// RegistrationWatcher keeps a Registration at what an API server has: one MutatingWebhookConfiguration,
// which it reads and watches by its name. It is a manager.Runnable.
type RegistrationWatcher struct {
	client       kubernetes.Interface
	name         string
	registration *Registration
	log          logr.Logger

	// mu has what the registration is set to be in the order of what was seen.
	mu sync.Mutex
}

// NewRegistrationWatcher returns a Follower of the MutatingWebhookConfiguration of a name.
func NewRegistrationWatcher(client kubernetes.Interface, name string, registration *Registration, log logr.Logger) *RegistrationWatcher {
	return &RegistrationWatcher{client: client, name: name, registration: registration, log: log}
}

// NeedLeaderElection says that every replica follows it.
func (*RegistrationWatcher) NeedLeaderElection() bool { return false }

// Read reads it once: what is begun before Start knows that it is there, and does not take
// all objects for nobody's for a moment.
func (f *RegistrationWatcher) Read(ctx context.Context) error {
	is, err := f.client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, f.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		f.set("", reasonNotRegistered)
	case err != nil:
		return fmt.Errorf("mutatingwebhookconfiguration %s: cannot get: %w", f.name, err)
	default:
		f.handleConfiguration(is)
	}
	return nil
}

// Start follows it until ctx ends. While the API server cannot be asked, what was known
// last stays.
func (f *RegistrationWatcher) Start(ctx context.Context) error {
	informer := informersv1.NewFilteredMutatingWebhookConfigurationInformer(f.client, 0, nil, func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, f.name).String()
	})
	handler, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    f.handleConfiguration,
		UpdateFunc: func(_, is any) { f.handleConfiguration(is) },
		DeleteFunc: func(any) { f.set("", reasonNotRegistered) },
	})
	if err != nil {
		return fmt.Errorf("mutatingwebhookconfiguration %s: cannot be watched: %w", f.name, err)
	}
	var background sync.WaitGroup
	defer background.Wait()
	background.Go(func() { informer.RunWithContext(ctx) })
	if cache.WaitFor(ctx, "", handler.HasSyncedChecker()) {
		f.handleInitialList(informer.GetStore())
	}
	<-ctx.Done()
	return nil
}

// handleInitialList takes note of a registration that was deleted between Read and the first list: of
// it there is no event. One that the store has is in one.
func (f *RegistrationWatcher) handleInitialList(store cache.Store) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(store.ListKeys()) == 0 {
		f.registration.Set("")
	}
}

// Why nobody is an author.
const (
	reasonNotRegistered = "the webhook is not registered"
	reasonFailsOpen     = "the webhook may fail without stopping a write"
)

// handleConfiguration takes what is registered. A webhook that may fail without stopping a write records
// nobody while it does: it counts as none.
func (f *RegistrationWatcher) handleConfiguration(obj any) {
	is, ok := obj.(*admissionregistrationv1.MutatingWebhookConfiguration)
	if !ok {
		return
	}
	if len(is.Webhooks) == 0 {
		f.set("", reasonNotRegistered)
		return
	}
	for i := range is.Webhooks {
		if policy := is.Webhooks[i].FailurePolicy; policy == nil || *policy != admissionregistrationv1.Fail {
			f.set("", reasonFailsOpen)
			return
		}
	}
	f.set(string(is.UID), "")
}

func (f *RegistrationWatcher) set(uid, otherwise string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if uid == "" {
		f.log.Info("nobody is an author of views and actions", "mutatingwebhookconfiguration", f.name, "reason", otherwise)
	}
	f.registration.Set(uid)
}
