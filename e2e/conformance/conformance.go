// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// Target is the implementation to be judged.
type Target struct {
	// Hub has the works and Spoke what they lead to; both may be one API server.
	Hub, Spoke *rest.Config
	// Namespace of the cluster on the hub. It exists.
	Namespace string
	// HubHash and AgentID are what AppliedManifestWorks must bear. An empty agent
	// ID is the hub hash.
	HubHash, AgentID string
	// RawFeedback: the gate RawFeedbackJsonString is on.
	RawFeedback bool
	// ExecutorCaches: the gate ExecutorValidatingCaches is on.
	ExecutorCaches bool
	// EvictionGrace of the agent, if it is short enough to be waited for; else
	// the cases of eviction are left out.
	EvictionGrace time.Duration
	// Patience with which something is waited for; zero is two minutes.
	Patience time.Duration
	// Sections to play; empty for all.
	Sections []string
}

// Case is one thing that must be so.
type Case struct {
	// reason says why, and where that is written down.
	reason string
	// ready prepares the spoke before the work is there.
	ready func(*stage)
	// spec of the work $w, in YAML.
	spec string
	// want is the status that it must come to have; see render.
	want string
	// then goes on.
	then func(*stage)
}

// section is the cases of one part of the API, by their name.
type section struct {
	name  string
	cases map[string]Case
}

// sections begins with those whose cases take the longest.
func sections(target Target) []section {
	all := []section{
		{"executor", together(executorCases(), judgementCases(), revocationCases())},
		{"many", manyCases()},
		{"refusals", together(refusalCases(), malformedCases())},
		{"definitions", definitionCases()},
		{"status", together(statusCases(), availabilityCases())},
		{"kinds", kindCases()},
		{"order", together(orderCases(), timeCases())},
		{"matching", matchingCases()},
		{"update", together(updateCases(), driftCases())},
		{"merge", together(mergeCases(), replaceCases())},
		{"strategies", together(strategyCases(), readOnlyCases())},
		{"apply", together(applyCases(), togetherCases())},
		{"ignore", together(ignoreCases(), presentCases(), brokenCases())},
		{"feedback", together(feedbackCases(), knownCases())},
		{"rules", together(ruleCases(), aggregateCases())},
		{"complete", together(completeCases(), completedCases())},
		{"healthy", healthyCases()},
		{"anchor", together(anchorCases(), nameCases())},
		{"deletion", together(deletionCases(), orphanCases())},
		{"shared", together(sharedCases(), releaseCases())},
	}
	if target.RawFeedback {
		all = append(all, section{"raw", rawCases()})
	} else {
		all = append(all, section{"gate", gateCases()})
	}
	if target.ExecutorCaches {
		all = append(all, section{"caches", watchedRightsCases()})
	}
	if target.Hub != nil && target.Spoke != nil && target.Hub.Host == target.Spoke.Host {
		all = append(all, section{"nested", nestedCases()})
	}
	if target.EvictionGrace > 0 {
		all = append(all, section{"eviction", evictionCases()})
	}
	if len(target.Sections) == 0 {
		return all
	}
	return slices.DeleteFunc(all, func(s section) bool { return !slices.Contains(target.Sections, s.name) })
}

// together is several tables as one; their names differ.
func together(sets ...map[string]Case) map[string]Case {
	all := map[string]Case{}
	for _, set := range sets {
		maps.Copy(all, set)
	}
	return all
}

// width is how many cases play at a time: they mostly wait.
const width = 8

// Run judges target, one subtest per case. It leaves nothing behind.
func Run(t *testing.T, target Target) {
	t.Helper()
	if target.AgentID == "" {
		target.AgentID = target.HubHash
	}
	if target.Patience == 0 {
		target.Patience = patience
	}
	f := newField(t, target)
	type play struct {
		name string
		Case
	}
	queue := make(chan play)
	var wg sync.WaitGroup
	for range width {
		wg.Go(func() {
			for p := range queue {
				t.Run(p.name, func(t *testing.T) { f.play(t, p.Case) })
			}
		})
	}
	for _, s := range sections(target) {
		for name, c := range s.cases {
			queue <- play{s.name + "/" + name, c}
		}
	}
	close(queue)
	wg.Wait()
}

func (f *field) play(t *testing.T, c Case) {
	t.Helper()
	s := newStage(t, f)
	// Registered last, it comes first: the works go before what they stand on.
	defer t.Cleanup(s.leave)
	defer func() {
		if t.Failed() {
			t.Logf("reason: %s", c.reason)
		}
	}()
	if c.ready != nil {
		c.ready(s)
	}
	if c.spec != "" {
		s.create("$w", c.spec)
	}
	if c.want != "" {
		s.shows("$w", c.want)
	}
	if c.then != nil {
		c.then(s)
	}
}
