// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/spokelet/spokelet/workers/api"
)

var (
	// ErrNoHost says that an account names no host, and that it has no name of its own.
	ErrNoHost = errors.New("spec.host is empty, and accounts have no names of their own: the operator has no route.hostSuffix")
	// ErrHostNotAllowed says that nobody gave the account's namespace the host.
	ErrHostNotAllowed = errors.New("hosts are an administrator's to give")
	// ErrHostTaken says that another account has the host. Which one the account does not
	// learn.
	ErrHostTaken = errors.New("another account has it")
)

const (
	maxHost = validation.DNS1123SubdomainMaxLength
	// maxSuffix leaves room for the longest account and a dot.
	maxSuffix = maxHost - maxAccount - 1
)

// CheckHost says what is wrong with a host. There is one spelling of each: in lower case, and
// without a dot at its end. Addresses are no hosts: the last label begins with a letter.
func CheckHost(host string) error {
	if len(host) > maxHost {
		return fmt.Errorf("host has %d characters, at most %d are possible", len(host), maxHost)
	}
	last := ""
	for label := range strings.SplitSeq(host, ".") {
		if len(validation.IsDNS1123Label(label)) > 0 {
			return fmt.Errorf("host %q: %q is not 1 to 63 lower-case letters, digits and inner hyphens", host, label)
		}
		last = label
	}
	if last[0] < 'a' {
		return fmt.Errorf("host %q: its last part %q does not begin with a letter", host, last)
	}
	return nil
}

// CheckSuffix says what is wrong with what the own names of accounts end in.
func CheckSuffix(suffix string) error {
	if len(suffix) > maxSuffix {
		return fmt.Errorf("host has %d characters, with an account before it at most %d are possible", len(suffix), maxSuffix)
	}
	return CheckHost(suffix)
}

// AllowedHosts are the hosts that an administrator allows a namespace.
type AllowedHosts struct{ names, parents map[string]bool }

// ParseHosts reads the annotation of a namespace: hosts with commas between them. "*." and a
// name stand for all names that have one label more, as in an Ingress and in a certificate.
// Spaces around a host are ignored. Empty text is no host; a host that is none is an error,
// and then none is given.
func ParseHosts(text string) (AllowedHosts, error) {
	allowed := AllowedHosts{names: map[string]bool{}, parents: map[string]bool{}}
	if text == "" {
		return allowed, nil
	}
	for entry := range strings.SplitSeq(text, ",") {
		entry = strings.Trim(entry, " ")
		into, name := allowed.names, entry
		if parent, wildcard := strings.CutPrefix(entry, "*."); wildcard {
			into, name = allowed.parents, parent
		}
		if err := CheckHost(name); err != nil {
			return AllowedHosts{}, err
		}
		into[name] = true
	}
	return allowed, nil
}

// Contains tells whether a host, one that [CheckHost] takes, is among them.
func (a AllowedHosts) Contains(host string) bool {
	_, parent, _ := strings.Cut(host, ".")
	return a.names[host] || a.parents[parent]
}

// HostRequest is the request of an account for a host.
type HostRequest struct {
	Account string
	// Host that the account names. Empty: the account's own name.
	Host string
	// Allowed is what an administrator gave the account's namespace, as [ParseHosts] reads it.
	Allowed string
	// Current is the host that the account has had up to now.
	Current string
	// Created is when the account asked.
	Created time.Time
}

// HostAssignment is the host of one account.
type HostAssignment struct {
	// Host of the account alone. Empty: there is none, and Err says why: [ErrNoHost],
	// [ErrHostNotAllowed] or [ErrHostTaken], or something is no host.
	Host string
	Err  error
}

// AssignHosts assigns hosts to accounts; the keys of the result are accounts. A host belongs to one
// account, with all its paths. An account keeps its host as long as it requests it and is allowed to;
// otherwise the oldest request gets it. Names below the suffix are reserved for the accounts of that
// name.
func AssignHosts(claims []HostRequest, suffix string) map[string]HostAssignment {
	owners := map[string]string{}
	out := make(map[string]HostAssignment, len(claims))
	for _, c := range slices.SortedFunc(slices.Values(claims), compareRequests) {
		host, err := c.resolveHost(suffix)
		if err != nil {
			out[c.Account] = HostAssignment{Err: err}
			continue
		}
		if _, taken := owners[host]; taken {
			out[c.Account] = HostAssignment{Err: fmt.Errorf("host %s: %w", host, ErrHostTaken)}
			continue
		}
		owners[host] = c.Account
		out[c.Account] = HostAssignment{Host: host}
	}
	return out
}

// resolveHost returns the host that an account may have unless another account has it.
func (c HostRequest) resolveHost(suffix string) (string, error) {
	own := ""
	if suffix != "" {
		own = c.Account + "." + suffix
	}
	switch {
	case c.Host == "" && own == "":
		return "", ErrNoHost
	case c.Host == "" || c.Host == own:
		return own, nil
	}
	if err := CheckHost(c.Host); err != nil {
		return "", fmt.Errorf("spec.host: %w", err)
	}
	if own != "" && strings.HasSuffix("."+c.Host, "."+suffix) {
		return "", fmt.Errorf("host %s: names of %s are the accounts' own: %w", c.Host, suffix, ErrHostNotAllowed)
	}
	allowed, err := ParseHosts(c.Allowed)
	if err != nil {
		return "", fmt.Errorf("annotation %s of the namespace: %w", api.AnnotationHosts, err)
	}
	if !allowed.Contains(c.Host) {
		return "", fmt.Errorf("host %s: annotation %s of the namespace does not have it: %w", c.Host, api.AnnotationHosts, ErrHostNotAllowed)
	}
	return c.Host, nil
}

// compareRequests orders requests: first those of accounts that have the host already, then by age,
// then by account.
func compareRequests(a, b HostRequest) int {
	return cmp.Or(
		cmp.Compare(a.rank(), b.rank()),
		a.Created.Compare(b.Created),
		cmp.Compare(a.Account, b.Account),
	)
}

// rank is 0 for an account that has the host already, else 1.
func (c HostRequest) rank() int {
	if c.Current != "" && c.Current == c.Host {
		return 0
	}
	return 1
}
