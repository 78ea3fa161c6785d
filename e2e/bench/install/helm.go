// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/spokelet/spokelet/e2e/bench/figure"
	"github.com/spokelet/spokelet/e2e/env"
)

const (
	// installs is how many releases are installed each way, one at a time, and followed
	// how many are installed while memory is looked at.
	installs, followed = 10, 5
	// chartObjects is how many objects a release has.
	chartObjects = 20
	chartFile    = "bench-1.0.0.tgz"

	lookEvery = 150 * time.Millisecond
)

// helm measures what an installation by a work takes, against one of the same chart by
// the helm command at the spoke, and what the agent's memory grows by meanwhile.
func (s *suite) helm(ctx context.Context) ([]figure.Figure, error) {
	archive, err := env.Archive(map[string]string{
		"bench/Chart.yaml": env.ChartFile("bench", "1.0.0"),
		"bench/templates/all.yaml": fmt.Sprintf("{{ range until %d }}\n---\napiVersion: v1\nkind: ConfigMap\n"+
			"metadata: {name: \"{{ $.Release.Name }}-{{ . }}\"}\ndata: {k: v}\n{{ end }}\n", chartObjects),
	})
	if err != nil {
		return nil, err
	}
	stop, err := env.ServeCharts(ctx, s.spoke.cluster, map[string][]byte{chartFile: archive})
	if err != nil {
		return nil, err
	}
	defer stop()
	m, err := s.asMCM()
	if err != nil {
		return nil, err
	}
	idle, err := s.settled(ctx, s.spoke, agentPods())
	if err != nil {
		return nil, err
	}
	overhead, err := s.installOverhead(ctx, m)
	if err != nil {
		return nil, err
	}
	most, err := s.installPeak(ctx, m)
	return []figure.Figure{overhead, {
		Name: "helm.agent.growth.mib", Value: most - idle, Unit: "MiB",
		Detail: fmt.Sprintf("%.1f MiB at most while %d releases are installed, %.1f before", most, followed, idle),
	}}, err
}

// installOverhead installs releases in turns, by the command and by works.
func (s *suite) installOverhead(ctx context.Context, m *mcm) (figure.Figure, error) {
	var commands, works figure.Durations
	command := s.env.Helm(s.spoke.cluster)
	for i := range installs + 1 {
		start := time.Now()
		if _, err := command.Run(ctx, "install", fmt.Sprintf("command-%d", i), env.ChartsURL(s.spoke.cluster)+chartFile, "-n", "bench"); err != nil {
			return figure.Figure{}, err
		}
		commands = append(commands, time.Since(start))
		taken, err := s.installed(ctx, m, fmt.Sprintf("work-%d", i))
		if err != nil {
			return figure.Figure{}, err
		}
		works = append(works, taken)
	}
	// The rights of the first are new, and its program is not in memory.
	commands, works = commands[1:], works[1:]
	a, b := works.Percentile(50), commands.Percentile(50)
	return figure.Figure{
		Name: "helm.install.overhead.s", Value: (a - b).Seconds(), Unit: "s",
		Detail: fmt.Sprintf("n=%d, %d objects; by a work p50 %s, p90 %s; by the command p50 %s, p90 %s", installs, chartObjects,
			a.Round(time.Millisecond), works.Percentile(90).Round(time.Millisecond), b.Round(time.Millisecond), commands.Percentile(90).Round(time.Millisecond)),
	}, nil
}

// installed has a work install a release, and returns how long it takes until that is said.
func (s *suite) installed(ctx context.Context, m *mcm, name string) (time.Duration, error) {
	events, stop, err := open(ctx, m.works)
	if err != nil {
		return 0, err
	}
	defer stop()
	start := time.Now()
	err = create(ctx, m.works, mcmWork(name, map[string]any{"type": "Action", "actionType": "Create", "helm": map[string]any{
		"releaseName": name, "namespace": "bench", "chartURL": env.ChartsURL(s.spoke.cluster) + chartFile,
	}}))
	if err != nil {
		return 0, err
	}
	var failed error
	err = await(events, func(e watch.Event) bool {
		if is(e, name) && statusType(e) == "Failed" {
			failed = errors.New("it is Failed")
		}
		return is(e, name) && (completed(e) || failed != nil)
	})
	if err := errors.Join(err, failed); err != nil {
		return 0, fmt.Errorf("work %s: %w", name, err)
	}
	return time.Since(start), nil
}

// installPeak is the most that the agent's memory is while releases are installed.
func (s *suite) installPeak(ctx context.Context, m *mcm) (most float64, err error) {
	done := make(chan error, 1)
	go func() {
		for i := range followed {
			if _, err := s.installed(ctx, m, fmt.Sprintf("followed-%d", i)); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for {
		select {
		case err := <-done:
			return most, err
		case <-time.After(lookEvery):
		}
		now, err := s.rss(ctx, s.spoke, agentPods())
		if err != nil {
			return most, errors.Join(err, <-done)
		}
		most = max(most, now)
	}
}
