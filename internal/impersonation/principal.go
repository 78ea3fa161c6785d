// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package impersonation

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Headers in which the hub states the principal, in canonical form.
const (
	// HeaderKind carries the Kind, exactly once.
	HeaderKind = "Spokelet-Principal"
	// HeaderUser carries the user name of a User principal, exactly once.
	HeaderUser = "Spokelet-Principal-User"
	// HeaderGroup carries one group of a User principal; it may be repeated.
	HeaderGroup = "Spokelet-Principal-Group"
	// HeaderPodUID carries the hub's UID of the pod that a Node asks for.
	HeaderPodUID = "Spokelet-Pod-Uid"
)

// Kind is the sort of caller a principal stands for.
type Kind string

const (
	// User is a caller whom the hub's API server authenticated.
	User Kind = "user"
	// Node is the hub's virtual kubelet itself.
	Node Kind = "node"
)

var (
	// ErrMissing is returned when a request states no principal at all.
	ErrMissing = errors.New("principal is not stated")
	// ErrAmbiguous is returned when a request states more than one principal,
	// or assertions that do not belong together.
	ErrAmbiguous = errors.New("principal is stated ambiguously")
	// ErrInvalid is returned when a name in the principal is empty or holds
	// characters that a header cannot carry unchanged.
	ErrInvalid = errors.New("principal is invalid")
)

// Principal is the caller on whose behalf a request is made.
type Principal struct {
	Kind Kind
	// User is the caller's name on the hub; empty for a Node.
	User string
	// Groups are the caller's groups on the hub; empty for a Node.
	Groups []string
	// PodUID is the hub's UID of the pod that a Node asks for, if it asks for
	// one; empty for a User.
	PodUID string
}

// Validate says whether the principal survives the trip in headers unchanged.
// The error wraps ErrInvalid.
func (p Principal) Validate() error {
	switch p.Kind {
	case Node:
		if p.User != "" || len(p.Groups) > 0 {
			return fmt.Errorf("%w: a node has neither user nor groups", ErrInvalid)
		}
		if p.PodUID == "" {
			return nil
		}
		return checkName("pod", p.PodUID)
	case User:
		if p.PodUID != "" {
			return fmt.Errorf("%w: a user does not ask as a pod's node", ErrInvalid)
		}
		if err := checkName("user", p.User); err != nil {
			return err
		}
		for _, g := range p.Groups {
			if err := checkName("group", g); err != nil {
				return err
			}
		}
		return nil
	default:
		return fmt.Errorf("%w: kind %q is unknown", ErrInvalid, p.Kind)
	}
}

// checkName refuses whatever HTTP/1.1 or HTTP/2 would change or drop on the
// way: a trimmed or rewritten name is the name of somebody else.
func checkName(what, name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: %s is empty", ErrInvalid, what)
	case !utf8.ValidString(name):
		return fmt.Errorf("%w: %s is not UTF-8", ErrInvalid, what)
	case strings.TrimSpace(name) != name:
		return fmt.Errorf("%w: %s has surrounding space", ErrInvalid, what)
	case strings.ContainsFunc(name, unicode.IsControl):
		return fmt.Errorf("%w: %s has control characters", ErrInvalid, what)
	default:
		return nil
	}
}

// Set states p in h, which the caller has scrubbed. A principal that is not
// valid is not stated, so that the reader refuses the request.
func Set(h http.Header, p Principal) {
	if p.Validate() != nil {
		return
	}
	h[HeaderKind] = []string{string(p.Kind)}
	if p.PodUID != "" {
		h[HeaderPodUID] = []string{p.PodUID}
	}
	if p.Kind != User {
		return
	}
	h[HeaderUser] = []string{p.User}
	if len(p.Groups) > 0 {
		h[HeaderGroup] = append([]string(nil), p.Groups...)
	}
}

// From reads the principal that h states. Anything short of exactly one valid
// principal is an error that wraps ErrMissing, ErrAmbiguous or ErrInvalid, and
// the request must be refused.
func From(h http.Header) (Principal, error) {
	if err := checkAssertions(h); err != nil {
		return Principal{}, err
	}
	kinds := h[HeaderKind]
	switch len(kinds) {
	case 0:
		return Principal{}, ErrMissing
	case 1:
	default:
		return Principal{}, fmt.Errorf("%w: %d kinds", ErrAmbiguous, len(kinds))
	}
	users := h[HeaderUser]
	if len(users) > 1 {
		return Principal{}, fmt.Errorf("%w: %d users", ErrAmbiguous, len(users))
	}
	p := Principal{Kind: Kind(kinds[0]), Groups: append([]string(nil), h[HeaderGroup]...)}
	if len(users) == 1 {
		p.User = users[0]
	}
	pods := h[HeaderPodUID]
	switch {
	case len(pods) > 1:
		return Principal{}, fmt.Errorf("%w: %d pods", ErrAmbiguous, len(pods))
	case len(pods) == 1 && p.Kind != Node:
		return Principal{}, fmt.Errorf("%w: a user with a node's pod", ErrAmbiguous)
	case len(pods) == 1 && pods[0] == "":
		return Principal{}, fmt.Errorf("%w: pod is empty", ErrInvalid)
	case len(pods) == 1:
		p.PodUID = pods[0]
	}
	if p.Kind == Node && len(users)+len(p.Groups) > 0 {
		return Principal{}, fmt.Errorf("%w: a node with a user", ErrAmbiguous)
	}
	if err := p.Validate(); err != nil {
		return Principal{}, err
	}
	return p, nil
}

// checkAssertions refuses assertion headers that this version does not know: a
// newer or forged one might narrow or widen what the known ones say.
func checkAssertions(h http.Header) error {
	for k := range h {
		switch k {
		case HeaderKind, HeaderUser, HeaderGroup, HeaderPodUID:
			continue
		}
		if isAssertion(normalize(k)) {
			return fmt.Errorf("%w: header %q is unknown", ErrAmbiguous, k)
		}
	}
	return nil
}
