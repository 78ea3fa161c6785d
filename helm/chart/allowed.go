// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"strings"
)

var (
	// ErrNotAllowed is returned for a URL that the owner of the cluster does not allow.
	ErrNotAllowed = errors.New("not in the list of URLs that this cluster allows (helm.charts in the values of the agent's chart)")
	// ErrURL is returned for a URL that cannot be used, whatever is allowed.
	ErrURL = errors.New("URL cannot be used")
)

const schemeOCI = "oci"

// Allowed is a list of URLs. URLs below the path of one of them are allowed: of
// "https://charts.example.com/stable" the archive ".../stable/a-1.0.0.tgz", and no
// ".../stable-not". "oci://registry.example.com/charts" allows the repositories below
// that path, as they are read by HTTPS (OCI distribution specification 1.1).
type Allowed []*url.URL

// ParseAllowed parses a list. An error names the entry.
func ParseAllowed(list []string) (Allowed, error) {
	all := make(Allowed, 0, len(list))
	for _, entry := range list {
		u, err := parseURL(entry)
		if err != nil {
			return nil, fmt.Errorf("allowed URL %q: %w", entry, err)
		}
		all = append(all, u)
	}
	return all, nil
}

// parseURL parses an absolute URL whose path is unambiguous: no server interprets it
// differently.
func parseURL(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, ErrURL
	}
	return u, checkURL(u)
}

func checkURL(u *url.URL) error {
	switch {
	case u.Scheme != "https" && u.Scheme != "http" && u.Scheme != schemeOCI:
		return fmt.Errorf("%w: it must begin with https://, http:// or oci://", ErrURL)
	case u.Host == "" || u.Opaque != "":
		return fmt.Errorf("%w: it has no host", ErrURL)
	case u.User != nil:
		return fmt.Errorf("%w: it must have no user and password", ErrURL)
	case u.Path != "" && strings.TrimSuffix(u.Path, "/") != strings.TrimSuffix(path.Clean(u.Path), "/"):
		return fmt.Errorf("%w: its path has empty or dotted segments", ErrURL)
	case strings.ContainsAny(u.Path, `\`) || strings.Contains(strings.ToLower(u.EscapedPath()), "%2f"):
		return fmt.Errorf("%w: its path has escaped separators", ErrURL)
	}
	return nil
}

// Check returns an error that wraps ErrNotAllowed or ErrURL if a URL is not allowed.
func (a Allowed) Check(u *url.URL) error {
	if err := checkURL(u); err != nil {
		return err
	}
	for _, allowed := range a {
		if isWithin(allowed, u) || allowed.Scheme == schemeOCI && u.Scheme == "https" && isWithinRegistry(allowed, u) {
			return nil
		}
	}
	return ErrNotAllowed
}

// isWithin reports whether u is the allowed URL or below it.
func isWithin(allowed, u *url.URL) bool {
	return u.Scheme == allowed.Scheme && hostPort(u) == hostPort(allowed) && isBelow(allowed.Path, u.Path)
}

func isBelow(dir, name string) bool {
	dir, name = strings.TrimSuffix(dir, "/"), strings.TrimSuffix(name, "/")
	return dir == "" || name == dir || strings.HasPrefix(name, dir+"/")
}

// isWithinRegistry reports whether u is of the API of a registry and names an allowed
// repository.
func isWithinRegistry(allowed, u *url.URL) bool {
	repository, ok := strings.CutPrefix(u.Path, "/v2/")
	if !ok || hostPort(u) != hostPort(allowed) {
		return false
	}
	return repository == "" || isBelow(strings.TrimPrefix(allowed.Path, "/"), repository)
}

// hostPort returns the host with its port.
func hostPort(u *url.URL) string {
	name, port := strings.ToLower(u.Hostname()), u.Port()
	if port == "" {
		port = map[string]string{"http": "80"}[u.Scheme]
	}
	if port == "" {
		port = "443"
	}
	return name + ":" + port
}
