// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/url"
	"strings"
)

const (
	scheme      = "spiffe://"
	hubPath     = "hub"
	clusterPath = "cluster"

	maxNameLength = 63
	idLength      = 36
)

// Hub is the identity of a hub: spiffe://<ID>/hub.
type Hub struct {
	// ID is the hub's UUID in canonical lower case.
	ID string
}

// Cluster is the identity of one managed cluster of one hub:
// spiffe://<HubID>/cluster/<Name>/<ID>. Values are comparable with ==.
type Cluster struct {
	// HubID is the UUID of the hub that admitted the cluster.
	HubID string
	// Name is the cluster's name on the hub, a DNS label.
	Name string
	// ID is the cluster's UUID. A cluster that is created again under the same
	// name has another ID, and is a stranger to the old certificates.
	ID string
}

// String returns the identity's URI.
func (h Hub) String() string {
	return scheme + h.ID + "/" + hubPath
}

// URI returns the identity as a certificate carries it.
func (h Hub) URI() *url.URL {
	return &url.URL{Scheme: "spiffe", Host: h.ID, Path: "/" + hubPath}
}

// Validate returns an error wrapping ErrID when the ID is not a canonical UUID.
func (h Hub) Validate() error {
	if err := ValidateID(h.ID); err != nil {
		return fmt.Errorf("hub: %w", err)
	}
	return nil
}

// String returns the identity's URI.
func (c Cluster) String() string {
	return scheme + c.HubID + c.path()
}

// URI returns the identity as a certificate carries it.
func (c Cluster) URI() *url.URL {
	return &url.URL{Scheme: "spiffe", Host: c.HubID, Path: c.path()}
}

func (c Cluster) path() string {
	return "/" + clusterPath + "/" + c.Name + "/" + c.ID
}

// Validate returns an error wrapping ErrID or ErrName when a part does not
// follow the grammar.
func (c Cluster) Validate() error {
	if err := ValidateID(c.HubID); err != nil {
		return fmt.Errorf("hub: %w", err)
	}
	if err := ValidateName(c.Name); err != nil {
		return err
	}
	if err := ValidateID(c.ID); err != nil {
		return fmt.Errorf("cluster: %w", err)
	}
	return nil
}

// ParseHub reads a hub's URI. Errors wrap ErrURI.
func ParseHub(uri string) (Hub, error) {
	id, path, err := splitURI(uri)
	if err != nil {
		return Hub{}, err
	}
	if path != hubPath {
		return Hub{}, fmt.Errorf("%w: %.200q is not a hub", ErrURI, uri)
	}
	h := Hub{ID: id}
	if err := h.Validate(); err != nil {
		return Hub{}, fmt.Errorf("%w: %w", ErrURI, err)
	}
	return h, nil
}

// ParseCluster reads a cluster's URI. Errors wrap ErrURI.
func ParseCluster(uri string) (Cluster, error) {
	hub, path, err := splitURI(uri)
	if err != nil {
		return Cluster{}, err
	}
	parts := strings.Split(path, "/")
	if len(parts) != 3 || parts[0] != clusterPath {
		return Cluster{}, fmt.Errorf("%w: %.200q is not a cluster", ErrURI, uri)
	}
	c := Cluster{HubID: hub, Name: parts[1], ID: parts[2]}
	if err := c.Validate(); err != nil {
		return Cluster{}, fmt.Errorf("%w: %w", ErrURI, err)
	}
	return c, nil
}

// splitURI works on the bytes and not on a url.URL: net/url lowers the scheme,
// decodes escapes and drops an empty fragment, so that several spellings would
// become one identity.
func splitURI(uri string) (authority, path string, err error) {
	rest, ok := strings.CutPrefix(uri, scheme)
	if !ok {
		return "", "", fmt.Errorf("%w: %.200q has another scheme than spiffe", ErrURI, uri)
	}
	authority, path, ok = strings.Cut(rest, "/")
	if !ok {
		return "", "", fmt.Errorf("%w: %.200q has no path", ErrURI, uri)
	}
	return authority, path, nil
}

// ValidateName returns an error wrapping ErrName when the name is not a DNS
// label (RFC 1123): 1 to 63 of a-z, 0-9 and '-', with no '-' at either end.
func ValidateName(name string) error {
	if name == "" || len(name) > maxNameLength {
		return fmt.Errorf("cluster name %.80q: %w", name, ErrName)
	}
	if name[0] == '-' || name[len(name)-1] == '-' {
		return fmt.Errorf("cluster name %q: %w", name, ErrName)
	}
	for i := range len(name) {
		if c := name[i]; !isDigit(c) && (c < 'a' || c > 'z') && c != '-' {
			return fmt.Errorf("cluster name %q: %w", name, ErrName)
		}
	}
	return nil
}

// ValidateID returns an error wrapping ErrID when the id is not a UUID in
// canonical lower case (8-4-4-4-12 hexadecimal digits).
func ValidateID(id string) error {
	if len(id) != idLength {
		return fmt.Errorf("id %.80q: %w", id, ErrID)
	}
	for i := range len(id) {
		if !isUUIDByte(i, id[i]) {
			return fmt.Errorf("id %q: %w", id, ErrID)
		}
	}
	return nil
}

func isUUIDByte(at int, c byte) bool {
	switch at {
	case 8, 13, 18, 23:
		return c == '-'
	default:
		return isDigit(c) || (c >= 'a' && c <= 'f')
	}
}

func isDigit(c byte) bool {
	return c >= '0' && c <= '9'
}

// NewID returns a random id for a hub or a cluster: a UUID of version 4
// (RFC 9562, section 5.4).
func NewID() string {
	var b [16]byte
	rand.Read(b[:])
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	h := hex.EncodeToString(b[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}
