// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tail

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/spokelet/spokelet/workers/api"
	bundlev1alpha1 "github.com/spokelet/spokelet/workers/api/bundle/v1alpha1"
	"github.com/spokelet/spokelet/workers/bundle"
	"github.com/spokelet/spokelet/workers/place"
)

const (
	// container of a pod whose log is followed: the only one, see package place.
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
)

// A follower follows the logs of one account for one tail.
type follower struct {
	hub     *hub
	script  Script
	filters Filters
	send    func(frame []byte)
}

// run follows until ctx ends, and returns when nothing is followed any more.
func (f *follower) run(ctx context.Context) {
	bundles, err := f.hub.bundles(f.script.Namespace, f.selector())
	if err != nil {
		f.warn("the clusters of the account cannot be listed: " + reasonOf(err))
		return
	}
	clusters := newGroup(ctx)
	defer clusters.wait()
	h := newHealth(func(words string) { f.warn("the clusters of the account cannot be listed: " + words) })
	h.keep(ctx, "bundles", 1, func(ctx context.Context, ok func()) error {
		return bundles.follow(ctx, ok, func(current map[string]metav1.Object) {
			clusters.set(clustersOf(current), f.runCluster)
		})
	})
}

func (f *follower) selector() string { return labels.Set{api.LabelAccount: f.script.Account}.String() }

func (f *follower) warn(text string) { f.send(note(f.script.Name, text, time.Now())) }

// line sends what is an event of the script.
func (f *follower) line(line []byte) {
	if e, isEvent := parseLine(line); isEvent && e.Script == f.script.Name && f.filters.Match(e) {
		f.send(e.JSON)
	}
}

// clustersOf returns the names of all clusters that bundles are placed on.
func clustersOf(bundles map[string]metav1.Object) []string {
	names := map[string]bool{}
	for _, object := range bundles {
		b, isBundle := object.(*bundlev1alpha1.WorkerBundle)
		if !isBundle {
			continue
		}
		for _, c := range b.Status.Clusters {
			// The name becomes part of a path.
			names[c.Name] = len(validation.IsDNS1123Subdomain(c.Name)) == 0
		}
	}
	maps.DeleteFunc(names, func(_ string, valid bool) bool { return !valid })
	return slices.Collect(maps.Keys(names))
}

// runCluster follows the pods of the account in one cluster until ctx ends.
func (f *follower) runCluster(ctx context.Context, name string) {
	h := newHealth(func(words string) { f.warn("the logs of cluster " + name + " cannot be read: " + words) })
	pods, err := f.hub.pods(name, place.Name(f.script.Account), f.selector())
	if err != nil {
		h.failed("pods", reasonOf(err))
		return
	}
	c := &cluster{follower: f, health: h, pods: pods, known: map[string]*pod{}, running: newGroup(ctx)}
	defer c.running.wait()
	h.keep(ctx, "pods", 1, func(ctx context.Context, ok func()) error { return pods.follow(ctx, ok, c.changed) })
}

// A cluster is one in which pods are followed.
type cluster struct {
	*follower

	health  *health
	pods    objects
	known   map[string]*pod // by name; of the goroutine that calls changed
	running *group
}

// A pod is one that is followed.
type pod struct {
	name string
	// leaving is set when the pod is to go: it is followed to its end, and fails no more.
	leaving atomic.Bool
}

// changed follows the pods that run, and no others.
func (c *cluster) changed(current map[string]metav1.Object) {
	known := map[string]*pod{}
	for _, object := range current {
		p, isPod := object.(*corev1.Pod)
		if !isPod || p.Status.Phase != corev1.PodRunning {
			continue
		}
		followed, exists := c.known[p.Name]
		if !exists {
			followed = &pod{name: p.Name}
		}
		followed.leaving.Store(p.DeletionTimestamp != nil)
		known[p.Name] = followed
	}
	c.known = known
	c.running.set(slices.Collect(maps.Keys(known)), func(ctx context.Context, name string) {
		c.runPod(ctx, known[name])
	})
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
	path := "/api/v1/namespaces/" + c.pods.namespace + "/pods/" + p.name + ":" + strconv.Itoa(bundle.TailPort) + "/proxy/"
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
	body, err := c.pods.client.Post().AbsPath(path).MaxRetries(0).Stream(ctx)
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
	log, err := c.pods.get().Name(p.name).SubResource("log").
		Param("container", container).Param("follow", "true").Param("tailLines", "0").Stream(ctx)
	if err != nil {
		return err
	}
	defer log.Close()
	if err := readLines(log, c.line); !errors.Is(err, io.EOF) {
		return err
	}
	return errLogEnded
}
