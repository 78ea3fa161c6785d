// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/hub/values"
	"github.com/spokelet/spokelet/internal/statuswriter"
)

// rendering is what is known of a work whose manifests refer to its cluster.
type rendering struct {
	uid        types.UID
	generation int64
	// references are the references that it was made with, or failed with.
	references values.References
	// size is that of its manifests, in bytes, before they are replaced.
	size int
	// refusal is the condition Applied of a work that is not sent; nil where it is sent.
	refusal *metav1.Condition
	// agentApplied is the condition Applied that the agent gave a work which is refused: of what
	// was applied before. Nil while that is not known.
	agentApplied *metav1.Condition
	// needsWrite: the refusal, or its end, is still to be written. version counts what there
	// was to be written, from 1.
	needsWrite bool
	version    int
}

// renderings are those of all clusters. An agent goes on to report on what it was sent
// before a work was refused, so the refusal is kept here and laid over each report. The
// zero value is ready.
type renderings struct {
	mu sync.Mutex
	// clusters has the renderings by the name of the cluster; guarded by mu.
	clusters map[string]map[wire.WorkKey]*rendering
}

// set stores the rendering of a work, and reports whether there is something to write.
func (r *renderings) set(key wire.WorkKey, next rendering) (unsaid bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	works := r.clusters[key.Namespace]
	if works == nil {
		works = map[wire.WorkKey]*rendering{}
		if r.clusters == nil {
			r.clusters = map[string]map[wire.WorkKey]*rendering{}
		}
		r.clusters[key.Namespace] = works
	}
	if before := works[key]; before != nil && before.uid == next.uid {
		next.agentApplied, next.needsWrite, next.version = before.agentApplied, before.needsWrite, before.version
		if !equality.Semantic.DeepEqual(before.refusal, next.refusal) {
			next.needsWrite = true
			next.version++
		}
	} else {
		next.needsWrite, next.version = next.refusal != nil, 1
	}
	works[key] = &next
	return next.needsWrite
}

// clear removes the references of a work. It reports whether there is
// something to write.
func (r *renderings) clear(key wire.WorkKey) (unsaid bool) {
	r.mu.Lock()
	before := r.clusters[key.Namespace][key]
	r.mu.Unlock()
	// Of one work nothing else is done at the same time: its key is locked.
	switch {
	case before == nil:
		return false
	case before.refusal == nil && !before.needsWrite:
		r.delete(key)
		return false
	}
	return r.set(key, rendering{uid: before.uid, generation: before.generation})
}

// delete drops what is kept of a work.
func (r *renderings) delete(key wire.WorkKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	works := r.clusters[key.Namespace]
	delete(works, key)
	if len(works) == 0 {
		delete(r.clusters, key.Namespace)
	}
}

// deleteCluster drops what is kept of the works of a cluster.
func (r *renderings) deleteCluster(cluster string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.clusters, cluster)
}

// listStale returns the works that were made with other values than a cluster has, in order,
// and the size of their manifests, in bytes.
func (r *renderings) listStale(cluster values.Cluster) (keys []wire.WorkKey, size int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, of := range r.clusters[cluster.Name] {
		if !cluster.Matches(of.references) {
			keys, size = append(keys, key), size+of.size
		}
	}
	slices.SortFunc(keys, func(a, b wire.WorkKey) int { return strings.Compare(a.String(), b.String()) })
	return keys, size
}

// get returns what is known of a work.
func (r *renderings) get(key wire.WorkKey, uid types.UID) (rendering, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.clusters[key.Namespace][key]
	if known == nil || known.uid != uid {
		return rendering{}, false
	}
	return *known, true
}

// pendingReport returns what the hub has to write of a work: that it is refused, or what the
// agent said of it before it was.
func (r *renderings) pendingReport(key wire.WorkKey) (report statuswriter.Report, version int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.clusters[key.Namespace][key]
	if known == nil || !known.needsWrite {
		return statuswriter.Report{}, 0, false
	}
	is := known.refusal
	if is == nil {
		is = known.agentApplied
	}
	// What the agent said of an earlier generation says nothing of this one, nor is
	// anything to be taken back that nobody knows: the agent's next report does it.
	if is == nil || is.ObservedGeneration != known.generation {
		known.needsWrite, known.agentApplied = false, nil
		return statuswriter.Report{}, 0, false
	}
	return newHubReport(known.uid, *is), known.version, true
}

// markWritten records that what there was to be written is written, and what the agent says.
func (r *renderings) markWritten(key wire.WorkKey, uid types.UID, version int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.clusters[key.Namespace][key]
	if known == nil || known.uid != uid || known.version != version {
		return
	}
	known.needsWrite = false
	if known.refusal == nil {
		known.agentApplied = nil
	}
}

// recordAgentApplied stores the agent's Applied of a work that is refused.
func (r *renderings) recordAgentApplied(key wire.WorkKey, uid types.UID, applied *metav1.Condition) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.clusters[key.Namespace][key]
	if known == nil || known.uid != uid || applied == nil {
		return
	}
	known.agentApplied = applied.DeepCopy()
}

// setRefusal puts a refusal in the place of what the agent says. It has the time of a
// refusal that was there before.
func setRefusal(conditions *[]metav1.Condition, refusal metav1.Condition, before *metav1.Condition, now metav1.Time) {
	refusal.LastTransitionTime = now
	if before != nil && before.Status == refusal.Status {
		refusal.LastTransitionTime = before.LastTransitionTime
	}
	if at := meta.FindStatusCondition(*conditions, refusal.Type); at != nil {
		*at = refusal
		return
	}
	*conditions = append(*conditions, refusal)
}
