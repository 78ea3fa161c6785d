// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net/http"

	"github.com/spokelet/spokelet/agent/node"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// addGroups has the watcher show the cluster in groups of nodes, if its owner wants
// that.
func (a *agent) addGroups(config *node.WatcherConfig) {
	if a.opts.Config.Node.SplitLabel == "" {
		return
	}
	groups := &groupSource{agent: a, source: resource.NewSource(wire.NodeGroupKind), appeared: map[string]int64{}}
	config.SplitLabel, config.Groups = a.opts.Config.Node.SplitLabel, groups
	a.sources = append(a.sources, groups.source)
}

// newScraper makes the door "node", of the whole cluster or of its groups.
func (a *agent) newScraper(watcher *node.Watcher, config node.ScraperConfig) (http.Handler, error) {
	if a.opts.Config.Node.SplitLabel == "" {
		return node.NewScraper(config)
	}
	return node.NewScrapers(config, watcher, a.opts.Config.Node.SplitLabel)
}

// groupSource hands the summaries of groups to Sync. It belongs to the watcher's
// goroutine.
type groupSource struct {
	agent  *agent
	source *resource.Source
	// appeared numbers the times that a group has come; last is the latest. A group
	// that goes and comes back as it was is news to a hub that has forgotten it.
	appeared map[string]int64
	last     int64
}

// PublishGroups makes summaries all that there are.
func (g *groupSource) PublishGroups(summaries map[string][]byte) {
	for group := range g.appeared {
		if _, ok := summaries[group]; !ok {
			delete(g.appeared, group)
			g.source.Delete(group)
		}
	}
	for group, body := range summaries {
		if g.appeared[group] == 0 {
			g.last++
			g.appeared[group] = g.last
		}
		if err := g.source.Put(resource.Resource{Key: group, Generation: g.appeared[group], Body: body}); err != nil {
			g.agent.opts.Logger.Error(err, "summary of a group of nodes cannot be published", "group", group)
		}
	}
	g.source.Complete()
}
