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

// run follows until ctx ends, and returns when nothing is followed any more.
func (f *follower) run(ctx context.Context) {
	bundles := bundlesOf(f.tails.clusters.Hub(), f.script.Namespace, f.selector())
	clusters := newGroup(ctx)
	defer clusters.wait()
	left := notice{say: func(words string) { f.warn("", "not all clusters are followed: "+words) }}
	h := newHealth(func(words string) { f.warn("", "the clusters of the account cannot be listed: "+words) })
	h.keep(ctx, "bundles", 1, func(ctx context.Context, ok func()) error {
		return bundles.follow(ctx, ok, func(current map[string]placed) {
			left.update(clusters.set(clustersOf(current), f.enter, f.runCluster))
		})
	})
}

func (f *follower) selector() string { return labels.Set{api.LabelAccount: f.script.Account}.String() }

// enter takes a place for something in a cluster.
func (f *follower) enter(cluster string) (leave func(), err error) {
	return f.tails.places.enter(f.id, f.script.Account, cluster)
}

// warn says something of a cluster, or of none.
func (f *follower) warn(cluster, text string) {
	f.queue.push(cluster, note(f.script.Name, text, time.Now()))
}

// line sends what is an event of the script.
func (f *follower) line(cluster string, line []byte) {
	if e, isEvent := parseLine(line); isEvent && e.Script == f.script.Name && f.filters.Match(e) {
		f.queue.push(cluster, e.JSON)
	}
}

// clustersOf returns the names of all clusters that bundles are placed on, sorted.
func clustersOf(bundles map[string]placed) []string {
	names := map[string]bool{}
	for _, b := range bundles {
		for _, c := range b.Status.Clusters {
			names[c.Name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// runCluster follows the pods of the account in one cluster until ctx ends.
func (f *follower) runCluster(ctx context.Context, name string) {
	reached, err := f.tails.clusters.Cluster(name)
	if err != nil {
		return
	}
	c := &cluster{
		follower: f, name: name, api: reached, namespace: placement.Name(f.script.Account), known: map[string]*pod{}, running: newGroup(ctx),
		health: newHealth(func(words string) { f.warn(name, "the logs of cluster "+name+" cannot be read: "+words) }),
		left:   notice{say: func(words string) { f.warn(name, "not all pods of cluster "+name+" are followed: "+words) }},
	}
	defer c.running.wait()
	pods := podsOf(reached, c.namespace, f.selector(), knownPods*f.tails.config.MaxPods)
	c.health.keep(ctx, "pods", 1, func(ctx context.Context, ok func()) error { return pods.follow(ctx, ok, c.changed) })
}

// A cluster is one in which pods are followed.
type cluster struct {
	*follower

	name, namespace string
	api             spoke.API
	health          *health
	left            notice
	known           map[string]*pod // by name; of the goroutine that calls changed
	running         *group
}

// A pod is one that is followed.
type pod struct {
	name string
	// leaving is set when the pod is to go: it is followed to its end, and fails no more.
	leaving atomic.Bool
}

// changed follows the pods that there are, as far as there are places.
func (c *cluster) changed(current map[string]podObject) {
	names, why := c.choose(current)
	known := map[string]*pod{}
	for _, name := range names {
		followed, exists := c.known[name]
		if !exists {
			followed = &pod{name: name}
		}
		followed.leaving.Store(bool(current[name].Metadata.DeletionTimestamp))
		known[name] = followed
	}
	c.known = known
	full := c.running.set(names, func(string) (func(), error) { return c.enter(c.name) }, func(ctx context.Context, name string) {
		c.runPod(ctx, known[name])
	})
	c.left.update(cmp.Or(why, full))
}

// choose returns the names of the pods to follow, and why others are not. Those that are
// followed already stay.
func (c *cluster) choose(current map[string]podObject) (names []string, why error) {
	names = slices.Collect(maps.Keys(current))
	if _, unnamed := current[""]; unnamed {
		names = slices.DeleteFunc(names, func(name string) bool { return name == "" })
		why = leftOutError("it names pods as Kubernetes does not allow")
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
	return names[:most], leftOutError(fmt.Sprintf("a tail follows at most %d of a cluster", most))
}

// runPod has a pod write events and reads them, until ctx ends. It does both at a time: a
// server begins to answer with a log when there is a line of it.
func (c *cluster) runPod(ctx context.Context, p *pod) {
	var parts sync.WaitGroup
	for part, once := range map[string]func(context.Context, *pod, func()) error{"events": c.requestEvents, "log": c.readLog} {
		parts.Go(func() {
			c.health.keep(ctx, p.name+"/"+part, podFailures, func(ctx context.Context, ok func()) error {
				err := once(ctx, p, ok)
				if err == nil || p.leaving.Load() {
					return nil
				}
				return &partError{part: "pod " + p.name, err: err}
			})
		})
	}
	parts.Wait()
}

// requestEvents asks the pod for events again and again until it fails. This is no polling: it
// renews what the pod ends by itself after 30 s, so that it writes nothing for who has gone.
func (c *cluster) requestEvents(ctx context.Context, p *pod, ok func()) error {
	path := podsPath(c.namespace) + "/" + p.name + ":" + strconv.Itoa(bundle.TailPort) + "/proxy/"
	for first := true; ctx.Err() == nil; first = false {
		if err := c.post(ctx, path); err != nil {
			return err
		}
		if first {
			ok()
		}
		sleep(ctx, renewal)
	}
	return ctx.Err()
}

func (c *cluster) post(ctx context.Context, path string) error {
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

// readLog reads what the pod writes from now on, until the log or its connection ends.
func (c *cluster) readLog(ctx context.Context, p *pod, ok func()) error {
	ok() // there may be nothing to read for a long time
	log, err := c.api.Stream(ctx, http.MethodGet, podsPath(c.namespace)+"/"+p.name+"/log",
		url.Values{"container": {container}, "follow": {"true"}, "tailLines": {"0"}})
	if err != nil {
		return err
	}
	defer log.Close()
	lines := &lines{account: c.api.Account(), each: func(line []byte) { c.line(c.name, line) }, dropped: func() { c.queue.drop(c.name) }}
	defer lines.account.Close()
	if err := lines.read(log); !errors.Is(err, io.EOF) {
		return err
	}
	return errLogEnded
}
