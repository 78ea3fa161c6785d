// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"net/http"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/spokelet/spokelet/e2e/env"
)

// Servers starts an object store and a registry that run as long as the test.
func (s *Testbed) Servers(t *testing.T) (*env.Store, *env.ImageRegistry) {
	t.Helper()
	dir := t.TempDir()
	store, err := env.StartStore(t.Context(), s.Env.Set, dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Stop() })
	images, err := env.StartRegistry(t.Context(), s.Env.Set, dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = images.Stop() })
	return store, images
}

// ScriptsEndSoon are arguments for the operator of worker bundles by which the pods of scripts
// are soon gone: a namespace is looked at again only after half of their grace.
func ScriptsEndSoon() []string {
	// A pod has to serve until requests are sent elsewhere, also by clusters that are busy.
	return []string{"--set", "workers.drain=4s", "--set", "workers.terminationGrace=7s"}
}

// HTTPAs is a client of the hub's API server as somebody else.
func (s *Testbed) HTTPAs(t *testing.T, user string) *http.Client {
	t.Helper()
	config := rest.CopyConfig(s.Hub.REST)
	config.Impersonate.UserName = user
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}
