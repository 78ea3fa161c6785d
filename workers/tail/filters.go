// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tail

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
)

const (
	maxFilterBody = 64 << 10
	maxFilters    = 32
	// maxQuoted bounds what an error repeats of a request, in bytes.
	maxQuoted = 64
)

// Filters say which events a tail sends. The zero value matches all.
type Filters struct{ all []filter }

// A filter is one of these, or several at a time.
type filter struct {
	samplingRate *float64
	outcomes     []string
	methods      []string
	headerKey    string // in lower case; empty for any
	headerQuery  string
	clients      []netip.Addr
	query        string
}

// ParseFilters reads what wrangler sends when it creates a tail, at most 64 KiB and 32
// filters:
//
//	{"filters":[{"sampling_rate":0.5},{"outcome":["ok"]},{"method":["GET"]},
//	{"header":{"key":"x-a","query":"b"}},{"client_ip":["192.0.2.1"]},{"query":"text"}]}
//
// Nothing, {} and null are no filters. Any error is of the request; it is an
// errors.ErrUnsupported for what Cloudflare has and this has not: a version of the script,
// and "self" as an address.
func ParseFilters(body []byte) (Filters, error) {
	if len(body) > maxFilterBody {
		return Filters{}, fmt.Errorf("filters: there are more than %d bytes", maxFilterBody)
	}
	if len(bytes.TrimSpace(body)) == 0 {
		return Filters{}, nil
	}
	var parsed struct {
		Filters []map[string]json.RawMessage `json:"filters"`
	}
	if err := json.Unmarshal(body, &parsed); err != nil {
		return Filters{}, fmt.Errorf("filters: %w", err)
	}
	if len(parsed.Filters) > maxFilters {
		return Filters{}, fmt.Errorf("filters: %d are more than %d", len(parsed.Filters), maxFilters)
	}
	var f Filters
	for i, fields := range parsed.Filters {
		one, err := parseFilter(fields)
		if err != nil {
			return Filters{}, fmt.Errorf("filters[%d]%w", i, err)
		}
		f.all = append(f.all, one)
	}
	return f, nil
}

// parseFilter returns an error that continues the name of the filter.
func parseFilter(fields map[string]json.RawMessage) (filter, error) {
	if len(fields) == 0 {
		return filter{}, errors.New(": is empty")
	}
	var f filter
	for _, name := range slices.Sorted(maps.Keys(fields)) { // the first error is always the same
		if err := f.parseField(name, fields[name]); err != nil {
			return filter{}, err
		}
	}
	return f, nil
}

func (f *filter) parseField(name string, value json.RawMessage) error {
	var err error
	switch name {
	case "sampling_rate":
		err = f.parseRate(value)
	case "outcome":
		f.outcomes, err = parseList(value)
	case "method":
		f.methods, err = parseList(value)
	case "header":
		err = f.parseHeader(value)
	case "client_ip":
		err = f.parseClients(value)
	case "query":
		err = json.Unmarshal(value, &f.query)
	case "scriptVersion":
		err = fmt.Errorf("a tail is of all versions of a script: %w", errors.ErrUnsupported)
	default:
		return fmt.Errorf(": %q is no filter", name[:min(len(name), maxQuoted)])
	}
	if err != nil {
		return fmt.Errorf(".%s: %w", name, err)
	}
	return nil
}

func (f *filter) parseRate(value json.RawMessage) error {
	if err := json.Unmarshal(value, &f.samplingRate); err != nil {
		return err
	}
	if f.samplingRate == nil || *f.samplingRate < 0 || *f.samplingRate > 1 {
		return errors.New("is not a number from 0 to 1")
	}
	return nil
}

// parseList reads texts, one at least: none would match nothing.
func parseList(value json.RawMessage) ([]string, error) {
	var list []string
	if err := json.Unmarshal(value, &list); err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, errors.New("is empty")
	}
	return list, nil
}

func (f *filter) parseHeader(value json.RawMessage) error {
	var header struct {
		Key   string `json:"key"`
		Query string `json:"query"`
	}
	if err := json.Unmarshal(value, &header); err != nil {
		return err
	}
	if header.Key == "" {
		return errors.New("has no key")
	}
	f.headerKey, f.headerQuery = strings.ToLower(header.Key), header.Query
	return nil
}

func (f *filter) parseClients(value json.RawMessage) error {
	list, err := parseList(value)
	if err != nil {
		return err
	}
	for _, s := range list {
		if s == "self" {
			return fmt.Errorf("the address of who asks is not known as scripts see it: %w", errors.ErrUnsupported)
		}
		ip, err := netip.ParseAddr(s)
		if err != nil {
			return fmt.Errorf("%q is no IP address", s[:min(len(s), maxQuoted)])
		}
		f.clients = append(f.clients, ip.Unmap())
	}
	return nil
}

// Match is whether an event is sent: all filters match it. Of several values in one filter one
// is enough. A query is a part of a text of a log or an exception, in the same case; a header
// is there, and the query, if any, is a part of its value. Sampling draws at each call.
func (f Filters) Match(e Event) bool {
	for _, one := range f.all {
		if !one.match(e, rand.Float64()) { //nolint:gosec // a sample need not be unpredictable
			return false
		}
	}
	return true
}

// match has a draw from 0 to below 1.
func (f *filter) match(e Event, draw float64) bool {
	return (f.samplingRate == nil || draw < *f.samplingRate) &&
		(f.outcomes == nil || slices.Contains(f.outcomes, e.Outcome)) &&
		(f.methods == nil || slices.ContainsFunc(f.methods, func(m string) bool { return strings.EqualFold(m, e.Method) })) &&
		(f.headerKey == "" || f.matchHeader(e)) &&
		(f.clients == nil || slices.Contains(f.clients, e.ClientIP)) &&
		(f.query == "" || slices.ContainsFunc(e.Texts, func(s string) bool { return strings.Contains(s, f.query) }))
}

func (f *filter) matchHeader(e Event) bool {
	for key, value := range e.Headers {
		if strings.EqualFold(key, f.headerKey) && strings.Contains(value, f.headerQuery) {
			return true
		}
	}
	return false
}
