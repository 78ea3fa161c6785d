// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package address

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// None is the text of the Limit that allows no address.
const None = "none"

// limitMax bounds the CIDRs of a Limit.
const limitMax = 64

// errLimit: a text names no addresses.
var errLimit = errors.New("pod addresses are neither none nor a list of CIDRs")

// Limit is what the record of a cluster says of the addresses of its pods. The zero
// value says nothing.
type Limit struct {
	isSet    bool
	prefixes []netip.Prefix
}

// ParseLimit reads CIDRs, separated by commas, or "none". With an error it returns the
// Limit that allows none.
func ParseLimit(text string) (Limit, error) {
	none := Limit{isSet: true}
	if strings.TrimSpace(text) == None {
		return none, nil
	}
	parts := strings.Split(text, ",")
	if len(parts) > limitMax {
		return none, fmt.Errorf("%w: more than %d CIDRs", errLimit, limitMax)
	}
	limit := none
	for _, part := range parts {
		part = strings.TrimSpace(part)
		prefix, err := netip.ParsePrefix(part)
		switch {
		case err != nil || prefix.Addr().Is4In6():
			return none, fmt.Errorf("%w: %.64q", errLimit, part)
		case prefix != prefix.Masked():
			return none, fmt.Errorf("%w: %.64q has bits beyond its mask, want %s", errLimit, part, prefix.Masked())
		}
		limit.prefixes = append(limit.prefixes, prefix)
	}
	return limit, nil
}

// Equal reports whether two limits are the same.
func (l Limit) Equal(other Limit) bool {
	return l.isSet == other.isSet && slices.Equal(l.prefixes, other.prefixes)
}

func (l Limit) allows(addr netip.Addr) bool {
	return !l.isSet || slices.ContainsFunc(l.prefixes, func(p netip.Prefix) bool { return p.Contains(addr) })
}
