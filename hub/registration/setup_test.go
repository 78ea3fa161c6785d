// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/spokelet/spokelet/hub/registration/token"
)

// informedManager is a manager whose cache tells what a test tells it.
type informedManager struct {
	manager.Manager

	cache  *informertest.FakeInformers
	scheme *runtime.Scheme
}

func (m informedManager) GetCache() cache.Cache      { return m.cache }
func (m informedManager) GetScheme() *runtime.Scheme { return m.scheme }
func (m informedManager) GetLogger() logr.Logger     { return logr.Discard() }
func (m informedManager) Add(manager.Runnable) error { return nil }

func (m informedManager) GetControllerOptions() config.Controller {
	return config.Controller{SkipNameValidation: new(true)} // a test may run more than once
}

func TestSetupWatchesTokens(t *testing.T) {
	h := newHarness(t, fresh())
	mgr := informedManager{cache: &informertest.FakeInformers{Scheme: h.client.Scheme()}, scheme: h.client.Scheme()}
	if err := h.SetupWithManager(mgr); err != nil {
		t.Fatal(err)
	}
	issued, secret := h.issueToken(store1), &corev1.Secret{}
	if err := h.client.Get(t.Context(), client.ObjectKey{Namespace: hubNamespace, Name: token.SecretName(store1)}, secret); err != nil {
		t.Fatal(err)
	}
	informer, err := mgr.cache.FakeInformerFor(t.Context(), secret)
	if err != nil {
		t.Fatal(err)
	}
	informer.Add(secret)
	if !h.enroller.limiter.tokenLimiter.allow(store1, issued.Reveal()) {
		t.Error("nobody is known to hold the token whose record the cache has told of")
	}
}
