// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"net/http"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/spokelet/spokelet/api/wire"
)

// Groups tells the nodes of each group; a Watcher does.
type Groups interface {
	Nodes
	// NodesOf returns the nodes of a group, those of the rest for "".
	NodesOf(group string) []*corev1.Node
}

// groupNodes are the Nodes of one group.
type groupNodes struct {
	groups Groups
	group  string
}

func (n groupNodes) Nodes() []*corev1.Node { return n.groups.NodesOf(n.group) }

// Scrapers is the door "node" of a cluster that is to be shown in groups: a Scraper for
// each, under wire.NodeGroupPath, and one for the rest, or for the whole cluster where the
// hub does not consent to the label.
type Scrapers struct {
	config ScraperConfig
	groups Groups
	mux    *http.ServeMux

	mu      sync.Mutex
	byGroup map[string]*Scraper // guarded by mu; of groups that have nodes
}

// NewScrapers returns a door of groups by a label. Of config, Nodes is not looked at.
func NewScrapers(config ScraperConfig, groups Groups, label string) (*Scrapers, error) {
	config.Nodes = groups
	whole, err := NewScraper(config)
	if err != nil {
		return nil, err
	}
	s := &Scrapers{config: config, groups: groups, mux: http.NewServeMux(), byGroup: map[string]*Scraper{}}
	s.config.AllowEmpty = true // a rest without nodes is no fault
	rest, err := s.newGroupScraper("")
	if err != nil {
		return nil, err
	}
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(wire.SplitLabelHeader) == label {
			rest.ServeHTTP(w, r)
			return
		}
		whole.ServeHTTP(w, r)
	})
	s.mux.HandleFunc("GET "+wire.NodeGroupPath("{group}")+"/", s.serveGroup)
	return s, nil
}

// ServeHTTP answers the hub.
func (s *Scrapers) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

func (s *Scrapers) serveGroup(w http.ResponseWriter, r *http.Request) {
	group := r.PathValue("group")
	scraper := s.groupScraper(group)
	if scraper == nil {
		http.Error(w, "the cluster has no such group of nodes", http.StatusNotFound)
		return
	}
	http.StripPrefix(wire.NodeGroupPath(group), scraper).ServeHTTP(w, r)
}

// groupScraper returns the Scraper of a group, nil when that has no nodes. Its counters last
// as long as the group has some.
func (s *Scrapers) groupScraper(group string) *Scraper {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !wire.IsNodeGroup(group) || len(s.groups.NodesOf(group)) == 0 {
		delete(s.byGroup, group)
		return nil
	}
	if opened, ok := s.byGroup[group]; ok {
		return opened
	}
	made, err := s.newGroupScraper(group)
	if err != nil {
		s.config.Logger.Error(err, "figures of a group of nodes cannot be had", "group", group)
		return nil
	}
	s.byGroup[group] = made
	return made
}

func (s *Scrapers) newGroupScraper(group string) (*Scraper, error) {
	config := s.config
	config.Name, config.Nodes = wire.NodeName(s.config.Name, group), groupNodes{groups: s.groups, group: group}
	return NewScraper(config)
}
