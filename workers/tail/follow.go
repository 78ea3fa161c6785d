// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tail

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/spokelet/spokelet/workers/api"
	"github.com/spokelet/spokelet/workers/bundle"
	"github.com/spokelet/spokelet/workers/placement"
	"github.com/spokelet/spokelet/workers/spoke"
)

const (
	// container of a pod whose log is followed: the only one, see package placement.
	container = "workers"
	// renewal is a third of what a pod writes events for after it was asked to.
	renewal = 10 * time.Second
	// renewalTimeout bounds one such request.
	renewalTimeout = 10 * time.Second
	// maxAnswer bounds what is read of its answer, so that the connection can be used again.
	maxAnswer = 4 << 10
	// podFailures in a row are a failure of a pod. One that starts or goes refuses
	// connections for a moment.
	podFailures = 3
	// knownPods are how many pods of a cluster are known for each that is followed, so that
	// another one takes the place of one that goes.
	knownPods = 4
)

// A follower follows the logs of one account for one tail.
type follower struct {
	tails   *Tails
	id      string // of the tail
	script  Script
	filters Filters
	queue   *queue
}

// run follows the logs until ctx ends and all goroutines have stopped.
func (f *follower) run(ctx context.Context) {
	bundles := accountBundles(f.tails.clusters.Hub(), f.script.Namespace, f.selector())
	clusters := newGroup(ctx)
	defer clusters.stop()
	left := limitNotice{report: func(words string) { f.warn("", "not all clusters are followed: "+words) }}
	h := newHealthReporter(func(words string) { f.warn("", "the clusters of the account cannot be listed: "+words) })
	h.runWithRetry(ctx, "bundles", 1, func(ctx context.Context, ok func()) error {
		return bundles.run(ctx, ok, func(current map[string]bundleObject) {
			left.update(clusters.sync(clusterNames(current), f.acquireSlot, f.followCluster))
		})
	})
}

func (f *follower) selector() string { return labels.Set{api.LabelAccount: f.script.Account}.String() }

// acquireSlot takes a slot for a pod or a watch of a cluster.
func (f *follower) acquireSlot(cluster string) (leave func(), err error) {
	return f.tails.slots.acquire(f.id, f.script.Account, cluster)
}

// warn sends a warning about a cluster, or about none if cluster is empty.
func (f *follower) warn(cluster, text string) {
	f.queue.push(cluster, newNote(f.script.Name, text, time.Now()))
}

// handleLine queues a line if it is an event of the script that matches the filters.
func (f *follower) handleLine(cluster string, line []byte) {
	if e, isEvent := parseLine(line); isEvent && e.Script == f.script.Name && f.filters.Match(e) {
		f.queue.push(cluster, e.JSON)
	}
}

// clusterNames returns the names of all clusters that bundles are placed on, sorted.
func clusterNames(bundles map[string]bundleObject) []string {
	names := map[string]bool{}
	for _, b := range bundles {
		for _, c := range b.Status.Clusters {
			names[c.Name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// followCluster follows the pods of the account in one cluster until ctx ends.
func (f *follower) followCluster(ctx context.Context, name string) {
	reached, err := f.tails.clusters.Cluster(name)
	if err != nil {
		return
	}
	c := &cluster{
		follower: f, name: name, api: reached, namespace: placement.Name(f.script.Account), known: map[string]*pod{}, running: newGroup(ctx),
		health:     newHealthReporter(func(words string) { f.warn(name, "the logs of cluster "+name+" cannot be read: "+words) }),
		podsNotice: limitNotice{report: func(words string) { f.warn(name, "not all pods of cluster "+name+" are followed: "+words) }},
	}
	defer c.running.stop()
	pods := accountPods(reached, c.namespace, f.selector(), knownPods*f.tails.config.MaxPods)
	c.health.runWithRetry(ctx, "pods", 1, func(ctx context.Context, ok func()) error { return pods.run(ctx, ok, c.syncPods) })
}

// A cluster follows the pods of the account in one cluster.
type cluster struct {
	*follower

	name, namespace string
	api             spoke.API
	health          *healthReporter
	podsNotice      limitNotice
	known           map[string]*pod // by name; of the goroutine that calls changed
	running         *group
}

// A pod is a followed pod.
type pod struct {
	name string
	// deleting is set when the pod is being deleted: its log is read to the end, and failures are not reported.
	deleting atomic.Bool
}

// syncPods follows the current pods, as far as there are free slots.
func (c *cluster) syncPods(current map[string]podObject) {
	names, why := c.selectPods(current)
	known := map[string]*pod{}
	for _, name := range names {
		followed, exists := c.known[name]
		if !exists {
			followed = &pod{name: name}
		}
		followed.deleting.Store(bool(current[name].Metadata.DeletionTimestamp))
		known[name] = followed
	}
	c.known = known
	full := c.running.sync(names, func(string) (func(), error) { return c.acquireSlot(c.name) }, func(ctx context.Context, name string) {
		c.followPod(ctx, known[name])
	})
	c.podsNotice.update(cmp.Or(why, full))
}

// selectPods returns the names of the pods to follow, and why others are not followed. Pods that are
// followed already stay.
func (c *cluster) selectPods(current map[string]podObject) (names []string, why error) {
	names = slices.Collect(maps.Keys(current))
	if _, unnamed := current[""]; unnamed {
		names = slices.DeleteFunc(names, func(name string) bool { return name == "" })
		why = limitError("it names pods as Kubernetes does not allow")
	}
	most := c.tails.config.MaxPods
	if len(names) <= most {
		return names, why
	}
	slices.SortFunc(names, func(a, b string) int {
		if c.known[a] != nil != (c.known[b] != nil) {
			if c.known[a] != nil {
				return -1
			}
			return 1
		}
		return cmp.Compare(a, b)
	})
	return names[:most], limitError(fmt.Sprintf("a tail follows at most %d of a cluster", most))
}

// followPod requests events from a pod and reads its log until ctx ends. Both run concurrently,
// because a server starts to answer a log request with the first line.
func (c *cluster) followPod(ctx context.Context, p *pod) {
	var parts sync.WaitGroup
	for part, once := range map[string]func(context.Context, *pod, func()) error{"events": c.requestEvents, "log": c.readLog} {
		parts.Go(func() {
			c.health.runWithRetry(ctx, p.name+"/"+part, podFailures, func(ctx context.Context, ok func()) error {
				err := once(ctx, p, ok)
				if err == nil || p.deleting.Load() {
					return nil
				}
				return &partError{part: "pod " + p.name, err: err}
			})
		})
	}
	parts.Wait()
}

// requestEvents requests events periodically until a request fails. The tail worker stops writing
// 30 s after the last request, so that it writes nothing for a client that has gone.
func (c *cluster) requestEvents(ctx context.Context, p *pod, ok func()) error {
	path := podsPath(c.namespace) + "/" + p.name + ":" + strconv.Itoa(bundle.TailPort) + "/proxy/"
	for first := true; ctx.Err() == nil; first = false {
		if err := c.requestOnce(ctx, path); err != nil {
			return err
		}
		if first {
			ok()
		}
		sleep(ctx, renewal)
	}
	return ctx.Err()
}

func (c *cluster) requestOnce(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, renewalTimeout)
	defer cancel()
	body, err := c.api.Stream(ctx, http.MethodPost, path, nil)
	if err != nil {
		return err
	}
	defer body.Close()
	_, err = io.Copy(io.Discard, io.LimitReader(body, maxAnswer))
	return err
}

// readLog reads the log of the pod from now on, until the log or the connection ends.
func (c *cluster) readLog(ctx context.Context, p *pod, ok func()) error {
	ok() // there may be nothing to read for a long time
	log, err := c.api.Stream(ctx, http.MethodGet, podsPath(c.namespace)+"/"+p.name+"/log",
		url.Values{"container": {container}, "follow": {"true"}, "tailLines": {"0"}})
	if err != nil {
		return err
	}
	defer log.Close()
	lines := &lineReader{account: c.api.Account(), onEvent: func(line []byte) { c.handleLine(c.name, line) }, onDropped: func() { c.queue.countDropped(c.name) }}
	defer lines.account.Close()
	if err := lines.read(log); !errors.Is(err, io.EOF) {
		return err
	}
	return errLogEnded
}
