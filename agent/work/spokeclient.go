// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/spokelet/spokelet/agent/work/inventory"
	"github.com/spokelet/spokelet/agent/work/manifest"
	"github.com/spokelet/spokelet/agent/work/plan"
	"github.com/spokelet/spokelet/internal/watcher"
)

// pageSize anchors are held at once when they are listed.
const pageSize = 500

// spokeClient is the spoke's API server as the works' service account sees it: every
// request, discovery and watches among them, goes out under that name, over one
// shared connection pool.
type spokeClient struct {
	metadata metadata.Interface
	dynamic  dynamic.Interface
	kinds    *plan.KindResolver
	pool     *http.Client
}

// newSpokeClient impersonates user when it is not empty.
func newSpokeClient(cfg *rest.Config, user string) (*spokeClient, error) {
	cfg = rest.CopyConfig(cfg)
	// The API server's priority and fairness is the limiter.
	cfg.QPS, cfg.Burst, cfg.RateLimiter = -1, 0, nil
	if user != "" {
		cfg.Impersonate = rest.ImpersonationConfig{UserName: user}
	}
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return noRetryAfter{next} })
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return responseRecorder{next} })
	// They are told in conditions, where they matter.
	cfg.WarningHandler = rest.NoWarnings{}
	pool, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("client of the cluster: %w", err)
	}
	m, err := metadata.NewForConfigAndClient(cfg, pool)
	if err != nil {
		return nil, fmt.Errorf("metadata client: %w", err)
	}
	d, err := dynamic.NewForConfigAndClient(cfg, pool)
	if err != nil {
		return nil, fmt.Errorf("dynamic client: %w", err)
	}
	disco, err := discovery.NewDiscoveryClientForConfigAndClient(cfg, pool)
	if err != nil {
		return nil, fmt.Errorf("discovery client: %w", err)
	}
	return &spokeClient{metadata: m, dynamic: d, kinds: plan.NewKindResolver(disco), pool: pool}, nil
}

// noRetryAfter returns a refused watch to whoever asked for it. The API server refuses
// the first watch of a new kind until it has made its storage, for some
// milliseconds, and says to come back after a second; the client would wait that
// long, and nothing of the kind would be seen meanwhile.
type noRetryAfter struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (p noRetryAfter) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := p.next.RoundTrip(r)
	if err == nil && resp.StatusCode == http.StatusTooManyRequests && r.URL.Query().Get("watch") != "" {
		resp.Header.Del("Retry-After")
	}
	return resp, err
}

// WrappedRoundTripper lets idle connections be closed.
func (p noRetryAfter) WrappedRoundTripper() http.RoundTripper { return p.next }

// close gives up idle connections.
func (s *spokeClient) close() { utilnet.CloseIdleConnectionsFor(s.pool.Transport) }

// apply writes a configuration by server-side apply and returns what it became,
// and what that says of who made it.
func (s *spokeClient) apply(ctx context.Context, at manifest.Target, configuration []byte, h plan.Options, complete bool) (writeResult, error) {
	o := metav1.PatchOptions{FieldManager: h.Manager, Force: &h.Force}
	ctx, a := withResponse(ctx)
	if inventory.IsMetadataOnly(at.Group, at.Resource) && !complete {
		obj, err := s.metadata.Resource(at.GVR()).Namespace(at.Namespace).Patch(ctx, at.Name, types.ApplyPatchType, configuration, o)
		if err != nil {
			return writeResult{}, err
		}
		return newMetadataResult(obj, a.code).withUnknownFields(a), nil
	}
	obj, err := s.dynamic.Resource(at.GVR()).Namespace(at.Namespace).Patch(ctx, at.Name, types.ApplyPatchType, configuration, o)
	if err != nil {
		return writeResult{}, err
	}
	return newWriteResult(obj, a.code).withUnknownFields(a), nil
}

// getObject reads an object with its content; nil when there is none.
func (s *spokeClient) getObject(ctx context.Context, at manifest.Target) (*unstructured.Unstructured, error) {
	obj, err := s.dynamic.Resource(at.GVR()).Namespace(at.Namespace).Get(ctx, at.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return obj, nil
}

// getMetadata reads an object's metadata.
func (s *spokeClient) getMetadata(ctx context.Context, at manifest.Target) (*metav1.PartialObjectMetadata, error) {
	return s.metadata.Resource(at.GVR()).Namespace(at.Namespace).Get(ctx, at.Name, metav1.GetOptions{})
}

// delete removes an object as it was seen, dependents in the background.
func (s *spokeClient) delete(ctx context.Context, at manifest.Target, uid types.UID, version string) error {
	background := metav1.DeletePropagationBackground
	return s.metadata.Resource(at.GVR()).Namespace(at.Namespace).Delete(ctx, at.Name,
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}, PropagationPolicy: &background})
}

// errChanged: the object is not as it was seen any more.
var errChanged = errors.New("object has changed")

// setOwners replaces the owners of an object as it was seen; errChanged says that it is
// another one, or another version, by now.
func (s *spokeClient) setOwners(ctx context.Context, at manifest.Target, live *metav1.PartialObjectMetadata, refs []metav1.OwnerReference) (*metav1.PartialObjectMetadata, error) {
	change := map[string]any{"op": "add", "path": "/metadata/ownerReferences", "value": refs} // or replace
	if len(refs) == 0 {
		change = map[string]any{"op": "remove", "path": "/metadata/ownerReferences"}
	}
	patch, err := json.Marshal([]map[string]any{
		{"op": "test", "path": "/metadata/uid", "value": live.UID},
		{"op": "test", "path": "/metadata/resourceVersion", "value": live.ResourceVersion},
		change,
	})
	if err != nil {
		return nil, fmt.Errorf("encode patch: %w", err)
	}
	got, err := s.metadata.Resource(at.GVR()).Namespace(at.Namespace).Patch(ctx, at.Name, types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: inventory.FieldManager})
	// A failed test is an Invalid.
	if apierrors.IsInvalid(err) || apierrors.IsConflict(err) {
		return nil, fmt.Errorf("%w: %w", errChanged, err)
	}
	return got, err
}

// newFeed reads a scope as metadata where that says enough.
func (s *spokeClient) newFeed(sc inventory.Scope) watcher.ListWatch {
	if inventory.IsMetadataOnly(sc.Group, sc.Resource) && !sc.HasContent {
		return s.newMetadataFeed(sc)
	}
	return watcher.NewListWatch(s.dynamic.Resource(sc.GroupVersionResource).Namespace(sc.Namespace), nil)
}

// newMetadataFeed reads any scope as metadata.
func (s *spokeClient) newMetadataFeed(sc inventory.Scope) watcher.ListWatch {
	return watcher.NewListWatch(s.metadata.Resource(sc.GroupVersionResource).Namespace(sc.Namespace), nil)
}
