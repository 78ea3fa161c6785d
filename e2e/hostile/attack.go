// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/e2e/fleet"
	"github.com/spokelet/spokelet/tunnel/resource"
)

const (
	// maxAttack bounds the time of one attack.
	maxAttack = time.Minute
	// mebibytes8 is the greatest body of most of what an agent may send.
	mebibytes8 = 8 << 20
	// viewsPerUser is how many views one user may ask for at once.
	viewsPerUser = 4
)

// Attack is one way to make the hub pay.
type Attack struct {
	Name string
	// Run attacks once. That it is refused is no error: an error says that it did not
	// take place.
	Run func(context.Context) (Outcome, error)
}

// Outcome is how an attack went.
type Outcome struct {
	Text string
	// Written is what the hub wrote because of it, where that is what it is about.
	Written Written
}

// outcome makes an attack of one whose outcome is a text.
func outcome(run func(context.Context) (string, error)) func(context.Context) (Outcome, error) {
	return func(ctx context.Context) (Outcome, error) {
		text, err := run(ctx)
		return Outcome{Text: text}, err
	}
}

// Attacks are all attacks, the mildest first.
func (s *Site) Attacks() []Attack {
	return []Attack{
		{"role frames without end", outcome(s.roles)},
		{"inventories of long keys without end", outcome(s.inventories)},
		{"kinds of 60 KB before each of 30000 items", outcome(s.kinds)},
		{"an object of 2.8 million managed fields", outcome(s.managedFields)},
		{"a status of 2.8 million manifests", outcome(s.reports)},
		{"32 MiB of figures for each of 65 nodes", outcome(s.figures)},
		{"informational answers to a caller that reads nothing", outcome(s.hints)},
		{"questions that are short of a byte", outcome(s.neighbours("bodies"))},
		{"reviews of 2.8 million manifests", outcome(s.neighbours("reviews"))},
		{"a large work whose feedback always changes", s.rewriting},
	}
}

// roles says, as often as it can, that the agent ceases to execute works and does so
// again; each time the hub opens another stream of Sync.
func (s *Site) roles(ctx context.Context) (string, error) {
	const lasting = 5 * time.Second
	before, changes := s.spoke.feed.begun(), 0
	for end := time.Now().Add(lasting); time.Now().Before(end) && ctx.Err() == nil; changes++ {
		s.spoke.agent.SetStandby(changes%2 == 0)
		pause(ctx, 100*time.Microsecond) // else the changes are merged before they are sent
	}
	s.spoke.agent.SetStandby(false)
	return fmt.Sprintf("%d changes, %d streams of Sync", changes, s.spoke.feed.begun()-before), s.spoke.connected(ctx)
}

// inventories claims to hold as much as a mirror may, of every kind that a hub
// publishes, and never says that it is done.
func (s *Site) inventories(ctx context.Context) (string, error) {
	const lasting = 3 * time.Second
	defer s.spoke.feed.drop()
	chunks := 0
	for chunk := range resource.MaxResources / 1000 {
		for _, kind := range []string{wire.KindWork, wire.KindPod, wire.KindPodObject} {
			if err := s.spoke.feed.send(ctx, "", held(kind, chunk)); err != nil {
				return fmt.Sprintf("cut after %d chunks", chunks), atLeast(chunks, 1)
			}
			chunks++
		}
	}
	pause(ctx, lasting)
	return fmt.Sprintf("%d chunks of 1000", chunks), nil
}

// kinds has an honest user look at all clusters, of which one gives its ConfigMaps a
// kind that is as long as a piece of discovery may be.
func (s *Site) kinds(ctx context.Context) (string, error) {
	const items = 30_000
	list := `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{},"items":[` + strings.Repeat(`{},`, items) + `{}]}`
	return s.views(ctx, `{"clusterSelector":{},"scope":{"resource":"configmaps","namespace":"default"}}`, map[string]string{
		"/api/v1":      fleet.Resources(strings.Repeat("K", 60_000)),
		fleet.ListPath: list,
	})
}

// managedFields has a user look at one object, whose metadata are read.
func (s *Site) managedFields(ctx context.Context) (string, error) {
	const head, tail = `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"small","managedFields":[`, `{}]}}`
	object := head + strings.Repeat(`{},`, (mebibytes8-len(head)-len(tail))/3) + tail
	return s.views(ctx, `{"scope":{"resource":"configmaps","namespace":"default","name":"small"}}`, map[string]string{fleet.ObjectPath: object})
}

// views has a user ask for as many views at once as one user may, while the hostile
// cluster answers some paths its own way.
func (s *Site) views(ctx context.Context, spec string, answers map[string]string) (string, error) {
	rest := s.spoke.kube.answer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if body, found := answers[r.URL.Path]; found {
			fleet.Answer(w, body)
			return
		}
		s.spoke.kube.resting.ServeHTTP(w, r)
	}))
	var users sync.WaitGroup
	errs := make([]error, viewsPerUser)
	for i := range viewsPerUser {
		users.Go(func() { errs[i] = s.attacker.view(ctx, cluster, spec) })
	}
	users.Wait()
	served := rest()
	if served == 0 {
		return "", errIdle
	}
	return fmt.Sprintf("%d views, %d failed", viewsPerUser, failures(errs)), nil
}

// reports tells of a work that exists, in 8.5 KB that become a gigabyte.
func (s *Site) reports(ctx context.Context) (string, error) {
	const times, head, tail = 4, `{"observedGeneration":1,"manifests":[`, `{}]}`
	body := []byte(head + strings.Repeat(`{},`, (mebibytes8-len(head)-len(tail))/3) + tail)
	sent := 0
	for range times {
		if err := s.spoke.feed.send(ctx, wire.KindWorkStatus, put(wire.KindWorkStatus, s.work.key, s.work.uid, body)); err != nil {
			return fmt.Sprintf("cut after %d reports", sent), atLeast(sent, 1)
		}
		sent++
		pause(ctx, time.Second)
	}
	return fmt.Sprintf("%d reports", sent), nil
}

// figures has all nodes of the hostile cluster scraped at once.
func (s *Site) figures(ctx context.Context) (string, error) {
	const most = 32 << 20
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	line := strings.Repeat("# "+strings.Repeat("x", 1021)+"\n", 32)
	rest := s.spoke.node.answer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for sent := len(line); sent <= most && r.Context().Err() == nil; sent += len(line) {
			if _, err := w.Write([]byte(line)); err != nil {
				return
			}
		}
	}))
	nodes := []string{wire.NodeName(cluster, "")}
	for i := range groups {
		nodes = append(nodes, wire.NodeName(cluster, groupName(i)))
	}
	errs := make([]error, len(nodes))
	var scrapers sync.WaitGroup
	for i, node := range nodes {
		scrapers.Go(func() { errs[i] = s.admin.drain(ctx, "/api/v1/nodes/"+node+"/proxy/metrics/resource") })
	}
	scrapers.Wait()
	served := rest()
	if served == 0 {
		return "", errIdle
	}
	return fmt.Sprintf("%d nodes asked, %d answered by the cluster, %d failed", len(nodes), served, failures(errs)), nil
}

func failures(errs []error) int {
	n := 0
	for _, err := range errs {
		if err != nil {
			n++
		}
	}
	return n
}

func atLeast(got, want int) error {
	if got < want {
		return errIdle
	}
	return nil
}

// pause lets time pass: an attack lasts.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
