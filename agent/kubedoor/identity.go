// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package kubedoor

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/spokelet/spokelet/internal/impersonation"
)

// errIdentity is wrapped by everything that keeps a principal from being
// mapped.
var errIdentity = errors.New("kube door refuses the caller")

// identity is whom the API server is to take the caller for.
type identity struct {
	user   string
	groups []string
}

// mapUser maps a user of the hub to an identity here. Any error is a refusal.
func (d *Door) mapUser(p impersonation.Principal) (identity, error) {
	switch {
	case p.Kind != impersonation.User:
		return identity{}, fmt.Errorf("%w: a %s is no user", errIdentity, p.Kind)
	case p.User == "system:anonymous":
		// The API server counts every impersonated user as authenticated, which
		// this one is not.
		return identity{}, fmt.Errorf("%w: it is anonymous on the hub", errIdentity)
	case strings.HasPrefix(p.User, d.cfg.UserPrefix):
		// A name that looks mapped already would read as someone else's in this
		// cluster's audit log.
		return identity{}, fmt.Errorf("%w: its name bears the prefix %q already", errIdentity, d.cfg.UserPrefix)
	}
	id := identity{user: d.cfg.UserPrefix + p.User}
	for _, g := range p.Groups {
		if d.passesGroup(g) {
			id.groups = append(id.groups, d.cfg.UserPrefix+g)
		}
	}
	return id, nil
}

// passesGroup reports whether a group of the hub is passed on. The system groups mean
// the hub's own components, which are nobody here.
func (d *Door) passesGroup(group string) bool {
	if strings.HasPrefix(group, "system:") || strings.HasPrefix(group, d.cfg.UserPrefix) {
		return false
	}
	return slices.Contains(d.cfg.Groups, anyGroup) || slices.Contains(d.cfg.Groups, group)
}

// setHeaders replaces every statement about the caller in h by id. The agent's own
// credential is added by the transport, which would keep one found here.
func (id identity) setHeaders(h http.Header) {
	impersonation.Scrub(h)
	delete(h, "Authorization")
	for k := range h {
		if strings.HasPrefix(k, "X-Remote-") {
			delete(h, k)
		}
	}
	h["Impersonate-User"] = []string{id.user}
	if len(id.groups) > 0 {
		h["Impersonate-Group"] = id.groups
	}
}
