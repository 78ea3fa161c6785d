// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package fanout

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/api/mcm/v1alpha1"
	"github.com/spokelet/spokelet/hub/mcm"
)

// maxResults bounds the results of all clusters in one status, in bytes of JSON.
const maxResults = 512 << 10

// storedStatus is what is in the status of a parent. One reconciler has it at a time.
type storedStatus struct {
	uid types.UID
	// hasResults: it has results, so that others can be put beside.
	hasResults bool
	summary    summary
	// at is when it was written last. Guarded by the kind's mu.
	at time.Time
	// results are those of clusters, without what they are; size is that of the shown ones.
	results map[string]result
	size    int
}

// result is what is known of the result of one cluster.
type result struct {
	digest string
	// size in bytes.
	size  int
	shown bool
}

// loadStatus returns what is known of the status of a parent, from the API server when nothing is.
func (k *reconciler) loadStatus(ctx context.Context, p parent) (*storedStatus, error) {
	name := client.ObjectKeyFromObject(p.object)
	k.mu.Lock()
	st := k.statuses[name]
	k.mu.Unlock()
	if st != nil && st.uid == p.object.GetUID() {
		return st, nil
	}
	live := k.newObject()
	if err := k.cfg.Live.Get(ctx, name, live); err != nil {
		return nil, fmt.Errorf("get %s %s: %w", k.name, name, err)
	}
	s := k.newParent(live).observed
	st = &storedStatus{uid: live.GetUID(), summary: s, results: map[string]result{}}
	if v, ok := live.(*v1alpha1.ResourceView); ok {
		st.hasResults = len(v.Status.Results) > 0
		for cluster, raw := range v.Status.Results {
			digest, err := mcm.Digest(raw.Raw)
			if err != nil {
				return nil, fmt.Errorf("%s %s: result of %s: %w", k.name, name, cluster, err)
			}
			st.results[cluster] = result{digest: digest, size: len(raw.Raw), shown: true}
			st.size += len(raw.Raw)
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.statuses[name] = st
	return st, nil
}

// dropStatus has the next look begin with what the API server has.
func (k *reconciler) dropStatus(name types.NamespacedName) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.statuses, name)
}

// omittedMessage names the clusters whose results have no room.
func (s *storedStatus) omittedMessage() string {
	var names []string
	for _, cluster := range slices.Sorted(maps.Keys(s.results)) {
		if r := s.results[cluster]; r.size > 0 && !r.shown {
			names = append(names, cluster)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("results are left out, for all together are limited to %d KiB: %s", maxResults>>10, joinFirst(names, ", "))
}

// patchResults is the patch that brings the results of the clusters up to date.
func (k *reconciler) patchResults(ctx context.Context, p parent, st *storedStatus, works map[string]*v1alpha1.Work) (patch []operation, err error) {
	if !p.hasResults {
		return nil, nil
	}
	for _, cluster := range slices.Sorted(maps.Keys(st.results)) {
		if works[cluster] == nil {
			patch = append(patch, st.setResult(cluster, "", nil)...)
			delete(st.results, cluster)
		}
	}
	var news []string
	for _, cluster := range slices.Sorted(maps.Keys(works)) {
		if works[cluster].Annotations[mcm.AnnotationDigest] != st.results[cluster].digest {
			news = append(news, cluster)
		}
	}
	if patch, err = k.readResults(ctx, st, works, news, patch); err != nil {
		return nil, err
	}
	return k.readResults(ctx, st, works, st.resultsToAdd(), patch)
}

// readResults reads results of clusters, and adds to the patch what shows them.
func (k *reconciler) readResults(ctx context.Context, st *storedStatus, works map[string]*v1alpha1.Work, clusters []string, patch []operation) ([]operation, error) {
	for some := range slices.Chunk(clusters, writers) { // no more are in memory at once
		raws, err := k.getResults(ctx, works, some)
		if err != nil {
			return nil, err
		}
		for i, cluster := range some {
			digest, err := mcm.Digest(raws[i])
			if err != nil {
				return nil, fmt.Errorf("result of %s: %w", cluster, err)
			}
			patch = append(patch, st.setResult(cluster, digest, raws[i])...)
		}
	}
	return patch, nil
}

// resultsToAdd are the clusters whose results were left out, and have room now.
func (s *storedStatus) resultsToAdd() (clusters []string) {
	room := maxResults - s.size
	for _, cluster := range slices.Sorted(maps.Keys(s.results)) {
		if r := s.results[cluster]; r.size > 0 && !r.shown && r.size <= room {
			clusters = append(clusters, cluster)
			room -= r.size
		}
	}
	return clusters
}

// getResults reads results from the API server: the cache has their digests alone.
func (k *reconciler) getResults(ctx context.Context, works map[string]*v1alpha1.Work, clusters []string) ([][]byte, error) {
	raws := make([][]byte, len(clusters))
	group, ctx := errgroup.WithContext(ctx)
	for i, cluster := range clusters {
		if works[cluster].Annotations[mcm.AnnotationDigest] == "" {
			continue
		}
		group.Go(func() error {
			var w v1alpha1.Work
			err := k.cfg.Live.Get(ctx, client.ObjectKeyFromObject(works[cluster]), &w)
			if err != nil && !apierrors.IsNotFound(err) {
				return fmt.Errorf("get work of %s: %w", cluster, err)
			}
			if w.Status.Result != nil {
				raws[i] = w.Status.Result.Raw
			}
			return nil
		})
	}
	return raws, group.Wait()
}

// setResult shows the result of a cluster if there is room for it.
func (s *storedStatus) setResult(cluster, digest string, raw []byte) []operation {
	was := s.results[cluster]
	if was.shown {
		s.size -= was.size
	}
	now := result{digest: digest, size: len(raw), shown: len(raw) > 0 && s.size+len(raw) <= maxResults}
	if now.shown {
		s.size += now.size
	}
	s.results[cluster] = now
	path := "/status/results/" + escapePointer(cluster)
	switch {
	case now.shown && was.shown && now.digest == was.digest:
		return nil
	case now.shown:
		return []operation{{Op: "add", Path: path, Value: json.RawMessage(raw)}}
	case was.shown:
		return []operation{{Op: "remove", Path: path}}
	default:
		return nil
	}
}
