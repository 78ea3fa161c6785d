// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/spokelet/spokelet/internal/impersonation"
	"github.com/spokelet/spokelet/internal/jsonstream"
)

// What a cluster's discovery may cost. Documents are read piece by piece,
// because a JSON value may take a hundred times its bytes once it is read; and
// client-go's reader asks for all group versions at once, however many.
const (
	maxDiscovery = 16 << 20 // bytes of all documents together
	maxVersions  = 1000     // group versions
	maxResources = 20_000   // resources that can be looked at
	maxPiece     = 64 << 10 // bytes of a JSON value that is read whole
	maxShort     = 16       // short names of a resource
	maxCatalog   = 8 << 20  // bytes of memory that the resources take
	// documentCost is what the reading of one document takes at a time: a value of
	// maxPiece bytes may be 22,000 verbs.
	documentCost = 16 * maxPiece
	// discoveryConcurrency is how many documents are asked for at once.
	discoveryConcurrency = 8
	acceptJSON           = "application/json"
	// acceptWhole asks for everything in one document (KEP-3352), which API
	// servers before Kubernetes 1.30 do not know.
	acceptWhole = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList," + acceptJSON
)

// version is a group version that a cluster lists.
type version struct {
	gv        schema.GroupVersion
	read      bool // its resources are known, or cannot be had
	resources []resource
}

// discovery is one reading of what a cluster serves.
type discovery struct {
	cluster   string
	session   Session
	caller    impersonation.Principal
	held      holding
	left      atomic.Int64 // bytes
	versions  int
	resources atomic.Int64
	size      atomic.Int64 // of the resources
}

// discover reads what a cluster serves, as the caller. Group versions that
// cannot be read, as those of an extension that is down, are left out, and so is
// what has a name that Kubernetes does not allow: one odd extension does not keep
// callers from all that a cluster serves. Errors are those of the session, an
// APIStatus or wrap errDiscovery or errHeld. What is read is on the holding, which
// the caller closes.
func discover(ctx context.Context, cluster string, s Session, caller impersonation.Principal, held holding) (*catalog, error) {
	d := &discovery{cluster: cluster, session: s, caller: caller, held: held}
	d.left.Store(maxDiscovery)
	var versions []*version
	for _, path := range []string{"/api", "/apis"} {
		err := d.get(ctx, path, acceptWhole, func(dec *json.Decoder) error {
			listed, err := d.root(dec)
			versions = append(versions, listed...)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("discovery: %w", err)
		}
	}
	versions = slices.DeleteFunc(versions, func(v *version) bool { return !isValidVersion(v.gv) })
	if err := d.complete(ctx, versions); err != nil {
		return nil, fmt.Errorf("discovery: %w", err)
	}
	c := &catalog{session: s, size: d.size.Load()}
	for _, v := range versions {
		for _, r := range v.resources {
			r.gv = v.gv
			c.resources = append(c.resources, r)
		}
	}
	return c, nil
}

// complete reads the group versions that were listed without their resources, up to
// the first error.
func (d *discovery) complete(ctx context.Context, versions []*version) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	inParallel(discoveryConcurrency, len(versions), func(i int) {
		if versions[i].read || ctx.Err() != nil {
			return
		}
		if err := d.readVersion(ctx, versions[i]); err != nil {
			cancel(err)
		}
	})
	return context.Cause(ctx)
}

// readVersion reads the resources of one group version. One that cannot be read
// has none.
func (d *discovery) readVersion(ctx context.Context, v *version) error {
	path := "/apis/" + v.gv.Group + "/" + v.gv.Version
	if v.gv.Group == "" {
		path = "/api/" + v.gv.Version
	}
	var resources []resource
	err := d.get(ctx, path, acceptJSON, func(dec *json.Decoder) error {
		return jsonstream.Members(dec, func(key string) error {
			if key != "resources" {
				return jsonstream.Skip(dec)
			}
			return jsonstream.Elements(dec, func() error {
				r := listedResource{}
				if err := dec.Decode(&r); err != nil {
					return err
				}
				return d.keep(&resources, resource{plural: r.Name, singular: r.SingularName, kind: r.Kind, namespaced: r.Namespaced, shortNames: r.ShortNames}, r.Verbs)
			})
		})
	})
	switch {
	case err == nil:
		v.resources = resources
		return nil
	case errors.Is(err, errDiscovery), errors.Is(err, errHeld):
		return err
	default:
		return ctx.Err()
	}
}

// root reads the document of /api or /apis: group versions with all their
// resources, or their names alone. Preferred versions come first.
func (d *discovery) root(dec *json.Decoder) ([]*version, error) {
	var versions []*version
	collect := func(group func(*json.Decoder) ([]*version, error)) error {
		return jsonstream.Elements(dec, func() error {
			of, err := group(dec)
			versions = append(versions, of...)
			return err
		})
	}
	err := jsonstream.Members(dec, func(key string) error {
		switch key {
		case "items":
			return collect(d.whole)
		case "groups":
			return collect(d.listed)
		case "versions":
			return collect(func(dec *json.Decoder) ([]*version, error) {
				v := &version{}
				if err := dec.Decode(&v.gv.Version); err != nil {
					return nil, err
				}
				return []*version{v}, d.count()
			})
		default:
			return jsonstream.Skip(dec)
		}
	})
	return versions, err
}

// count takes in one more group version.
func (d *discovery) count() error {
	if d.versions++; d.versions > maxVersions {
		return fmt.Errorf("%w: more than %d group versions", errDiscovery, maxVersions)
	}
	return nil
}

// listed reads an APIGroup (meta.k8s.io/v1).
func (d *discovery) listed(dec *json.Decoder) ([]*version, error) {
	type forDiscovery struct {
		Version string `json:"version"`
	}
	var group string
	var preferred forDiscovery
	var versions []*version
	err := jsonstream.Members(dec, func(key string) error {
		switch key {
		case "name":
			return dec.Decode(&group)
		case "preferredVersion":
			return dec.Decode(&preferred)
		case "versions":
			return jsonstream.Elements(dec, func() error {
				var v forDiscovery
				if err := dec.Decode(&v); err != nil {
					return err
				}
				versions = append(versions, &version{gv: schema.GroupVersion{Version: v.Version}})
				return d.count()
			})
		default:
			return jsonstream.Skip(dec)
		}
	})
	for _, v := range versions {
		v.gv.Group = group
	}
	first := slices.IndexFunc(versions, func(v *version) bool { return v.gv.Version == preferred.Version })
	if first > 0 {
		v := versions[first]
		versions = slices.Insert(slices.Delete(versions, first, first+1), 0, v)
	}
	return versions, err
}

// whole reads an APIGroupDiscovery (apidiscovery.k8s.io/v2), whose versions are
// in order of preference.
func (d *discovery) whole(dec *json.Decoder) ([]*version, error) {
	var meta struct {
		Name string `json:"name"`
	}
	var versions []*version
	err := jsonstream.Members(dec, func(key string) error {
		switch key {
		case "metadata":
			return dec.Decode(&meta)
		case "versions":
			return jsonstream.Elements(dec, func() error {
				v := &version{read: true}
				versions = append(versions, v)
				if err := d.wholeVersion(dec, v); err != nil {
					return err
				}
				return d.count()
			})
		default:
			return jsonstream.Skip(dec)
		}
	})
	for _, v := range versions {
		v.gv.Group = meta.Name
	}
	return versions, err
}

// wholeVersion reads an APIVersionDiscovery. One that is stale, because its
// server did not answer, has no resources.
func (d *discovery) wholeVersion(dec *json.Decoder, v *version) error {
	freshness := ""
	err := jsonstream.Members(dec, func(key string) error {
		switch key {
		case "version":
			return dec.Decode(&v.gv.Version)
		case "freshness":
			return dec.Decode(&freshness)
		case "resources":
			return jsonstream.Elements(dec, func() error {
				r := wholeResource{}
				if err := dec.Decode(&r); err != nil {
					return err
				}
				return d.keep(&v.resources, resource{plural: r.Resource, singular: r.SingularResource, kind: r.ResponseKind.Kind, namespaced: r.Scope == "Namespaced", shortNames: r.ShortNames}, r.Verbs)
			})
		default:
			return jsonstream.Skip(dec)
		}
	})
	if freshness == "Stale" {
		v.resources = nil
	}
	return err
}

// listedResource is what views need of an APIResource (meta.k8s.io/v1).
type listedResource struct {
	Name         string   `json:"name"`
	SingularName string   `json:"singularName"`
	Kind         string   `json:"kind"`
	Namespaced   bool     `json:"namespaced"`
	Verbs        []string `json:"verbs"`
	ShortNames   []string `json:"shortNames"`
}

// wholeResource is what views need of an APIResourceDiscovery
// (apidiscovery.k8s.io/v2).
type wholeResource struct {
	Resource         string `json:"resource"`
	SingularResource string `json:"singularResource"`
	Scope            string `json:"scope"`
	ResponseKind     struct {
		Kind string `json:"kind"`
	} `json:"responseKind"`
	Verbs      []string `json:"verbs"`
	ShortNames []string `json:"shortNames"`
}

// keep takes in a resource that can be looked at.
func (d *discovery) keep(into *[]resource, r resource, verbs []string) error {
	if strings.Contains(r.plural, "/") || !slices.Contains(verbs, "get") && !slices.Contains(verbs, "list") {
		return nil
	}
	if d.resources.Add(1) > maxResources {
		return fmt.Errorf("%w: more than %d resources", errDiscovery, maxResources)
	}
	if len(r.shortNames) > maxShort {
		r.shortNames = slices.Clone(r.shortNames[:maxShort])
	}
	if !r.hasValidNames() {
		return nil
	}
	size := r.size()
	if d.size.Add(size) > maxCatalog {
		return fmt.Errorf("%w: resources of more than %d bytes", errDiscovery, maxCatalog)
	}
	if err := d.held.grow(size); err != nil {
		return err
	}
	*into = append(*into, r)
	return nil
}

// get reads a document as the caller. There being none is no error: API servers
// that serve no core group have no /api.
func (d *discovery) get(ctx context.Context, path, accept string, read func(*json.Decoder) error) error {
	req := (&http.Request{
		Method: http.MethodGet,
		URL:    &url.URL{Scheme: "http", Host: kubeDoor, Path: path},
		Host:   kubeDoor,
		Header: http.Header{"Accept": {accept}, "User-Agent": {"spokelet-hub"}},
		Proto:  "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(ctx)
	assert(ctx, req.Header, d.caller)
	if err := d.held.grow(documentCost); err != nil {
		return err
	}
	defer d.held.shrink(documentCost)
	res, err := d.session.RoundTrip(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	switch res.StatusCode {
	case http.StatusOK:
		return read(d.decoder(res.Body))
	case http.StatusNotFound:
		return nil
	default:
		return statusOf(d.cluster, res)
	}
}

// decoder reads a document. It ends in an error once all documents have used up what they
// share, or when one value is too large to be read whole.
func (d *discovery) decoder(body io.Reader) *json.Decoder {
	return jsonstream.NewDecoder(&sharing{from: body, left: &d.left}, func(pending int64) error {
		if pending > maxPiece {
			return fmt.Errorf("%w: a value of more than %d bytes", errDiscovery, maxPiece)
		}
		return nil
	})
}

// sharing reads what all documents together may have.
type sharing struct {
	from io.Reader
	left *atomic.Int64
}

// Read implements io.Reader.
func (s *sharing) Read(b []byte) (int, error) {
	n, err := s.from.Read(b)
	if s.left.Add(-int64(n)) < 0 {
		return 0, fmt.Errorf("%w: more than %d bytes", errDiscovery, maxDiscovery)
	}
	return n, err
}
