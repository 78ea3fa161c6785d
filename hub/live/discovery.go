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
	maxDiscovery  = 16 << 20 // bytes of all documents together
	maxVersions   = 1000     // group versions
	maxResources  = 20_000   // resources that can be looked at
	maxValue      = 64 << 10 // bytes of a JSON value that is read whole
	maxShortNames = 16       // short names of a resource
	maxCatalog    = 8 << 20  // bytes of memory that the resources take
	// documentCost is what the reading of one document takes at a time: a value of
	// maxValue bytes may be 22,000 verbs.
	documentCost = 16 * maxValue
	// discoveryConcurrency is how many documents are asked for at once.
	discoveryConcurrency = 8
	acceptJSON           = "application/json"
	// acceptAggregated asks for everything in one document (KEP-3352), which API
	// servers before Kubernetes 1.30 do not know.
	acceptAggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList," + acceptJSON
)

// groupVersion is a group version that a cluster lists.
type groupVersion struct {
	gv         schema.GroupVersion
	isComplete bool // its resources are known, or cannot be had
	resources  []resource
}

// discoveryReader is one reading of what a cluster serves.
type discoveryReader struct {
	cluster    string
	session    Session
	caller     impersonation.Principal
	memory     memoryReservation
	remaining  atomic.Int64 // bytes
	versions   int
	resources  atomic.Int64
	memorySize atomic.Int64 // of the resources
}

// readCatalog reads what a cluster serves, as the caller. Group versions that
// cannot be read, as those of an extension that is down, are left out, and so is
// what has a name that Kubernetes does not allow: one odd extension does not keep
// callers from all that a cluster serves. Errors are those of the session, an
// APIStatus or wrap errDiscoveryLimit or errMemory. What is read counts against the reservation, which
// the caller closes.
func readCatalog(ctx context.Context, cluster string, s Session, caller impersonation.Principal, held memoryReservation) (*catalog, error) {
	d := &discoveryReader{cluster: cluster, session: s, caller: caller, memory: held}
	d.remaining.Store(maxDiscovery)
	var versions []*groupVersion
	for _, path := range []string{"/api", "/apis"} {
		err := d.get(ctx, path, acceptAggregated, func(dec *json.Decoder) error {
			listed, err := d.decodeRoot(dec)
			versions = append(versions, listed...)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("discovery: %w", err)
		}
	}
	versions = slices.DeleteFunc(versions, func(v *groupVersion) bool { return !isValidVersion(v.gv) })
	if err := d.readVersions(ctx, versions); err != nil {
		return nil, fmt.Errorf("discovery: %w", err)
	}
	c := &catalog{session: s, size: d.memorySize.Load()}
	for _, v := range versions {
		for _, r := range v.resources {
			r.gv = v.gv
			c.resources = append(c.resources, r)
		}
	}
	return c, nil
}

// readVersions reads the group versions that were listed without their resources, up to
// the first error.
func (d *discoveryReader) readVersions(ctx context.Context, versions []*groupVersion) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	runParallel(discoveryConcurrency, len(versions), func(i int) {
		if versions[i].isComplete || ctx.Err() != nil {
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
func (d *discoveryReader) readVersion(ctx context.Context, v *groupVersion) error {
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
				r := legacyResource{}
				if err := dec.Decode(&r); err != nil {
					return err
				}
				return d.addResource(&resources, resource{plural: r.Name, singular: r.SingularName, kind: r.Kind, namespaced: r.Namespaced, shortNames: r.ShortNames}, r.Verbs)
			})
		})
	})
	switch {
	case err == nil:
		v.resources = resources
		return nil
	case errors.Is(err, errDiscoveryLimit), errors.Is(err, errMemory):
		return err
	default:
		return ctx.Err()
	}
}

// decodeRoot reads the document of /api or /apis: group versions with all their
// resources, or their names alone. Preferred versions come first.
func (d *discoveryReader) decodeRoot(dec *json.Decoder) ([]*groupVersion, error) {
	var versions []*groupVersion
	collect := func(group func(*json.Decoder) ([]*groupVersion, error)) error {
		return jsonstream.Elements(dec, func() error {
			of, err := group(dec)
			versions = append(versions, of...)
			return err
		})
	}
	err := jsonstream.Members(dec, func(key string) error {
		switch key {
		case "items":
			return collect(d.decodeAggregatedGroup)
		case "groups":
			return collect(d.decodeLegacyGroup)
		case "versions":
			return collect(func(dec *json.Decoder) ([]*groupVersion, error) {
				v := &groupVersion{}
				if err := dec.Decode(&v.gv.Version); err != nil {
					return nil, err
				}
				return []*groupVersion{v}, d.countVersion()
			})
		default:
			return jsonstream.Skip(dec)
		}
	})
	return versions, err
}

// countVersion takes in one more group version.
func (d *discoveryReader) countVersion() error {
	if d.versions++; d.versions > maxVersions {
		return fmt.Errorf("%w: more than %d group versions", errDiscoveryLimit, maxVersions)
	}
	return nil
}

// decodeLegacyGroup reads an APIGroup (meta.k8s.io/v1).
func (d *discoveryReader) decodeLegacyGroup(dec *json.Decoder) ([]*groupVersion, error) {
	type forDiscovery struct {
		Version string `json:"version"`
	}
	var group string
	var preferred forDiscovery
	var versions []*groupVersion
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
				versions = append(versions, &groupVersion{gv: schema.GroupVersion{Version: v.Version}})
				return d.countVersion()
			})
		default:
			return jsonstream.Skip(dec)
		}
	})
	for _, v := range versions {
		v.gv.Group = group
	}
	first := slices.IndexFunc(versions, func(v *groupVersion) bool { return v.gv.Version == preferred.Version })
	if first > 0 {
		v := versions[first]
		versions = slices.Insert(slices.Delete(versions, first, first+1), 0, v)
	}
	return versions, err
}

// decodeAggregatedGroup reads an APIGroupDiscovery (apidiscovery.k8s.io/v2), whose versions are
// in order of preference.
func (d *discoveryReader) decodeAggregatedGroup(dec *json.Decoder) ([]*groupVersion, error) {
	var meta struct {
		Name string `json:"name"`
	}
	var versions []*groupVersion
	err := jsonstream.Members(dec, func(key string) error {
		switch key {
		case "metadata":
			return dec.Decode(&meta)
		case "versions":
			return jsonstream.Elements(dec, func() error {
				v := &groupVersion{isComplete: true}
				versions = append(versions, v)
				if err := d.decodeAggregatedVersion(dec, v); err != nil {
					return err
				}
				return d.countVersion()
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

// decodeAggregatedVersion reads an APIVersionDiscovery. One that is stale, because its
// server did not answer, has no resources.
func (d *discoveryReader) decodeAggregatedVersion(dec *json.Decoder, v *groupVersion) error {
	freshness := ""
	err := jsonstream.Members(dec, func(key string) error {
		switch key {
		case "version":
			return dec.Decode(&v.gv.Version)
		case "freshness":
			return dec.Decode(&freshness)
		case "resources":
			return jsonstream.Elements(dec, func() error {
				r := aggregatedResource{}
				if err := dec.Decode(&r); err != nil {
					return err
				}
				return d.addResource(&v.resources, resource{plural: r.Resource, singular: r.SingularResource, kind: r.ResponseKind.Kind, namespaced: r.Scope == "Namespaced", shortNames: r.ShortNames}, r.Verbs)
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

// legacyResource is what views need of an APIResource (meta.k8s.io/v1).
type legacyResource struct {
	Name         string   `json:"name"`
	SingularName string   `json:"singularName"`
	Kind         string   `json:"kind"`
	Namespaced   bool     `json:"namespaced"`
	Verbs        []string `json:"verbs"`
	ShortNames   []string `json:"shortNames"`
}

// aggregatedResource is what views need of an APIResourceDiscovery
// (apidiscovery.k8s.io/v2).
type aggregatedResource struct {
	Resource         string `json:"resource"`
	SingularResource string `json:"singularResource"`
	Scope            string `json:"scope"`
	ResponseKind     struct {
		Kind string `json:"kind"`
	} `json:"responseKind"`
	Verbs      []string `json:"verbs"`
	ShortNames []string `json:"shortNames"`
}

// addResource takes in a resource that can be looked at.
func (d *discoveryReader) addResource(into *[]resource, r resource, verbs []string) error {
	if strings.Contains(r.plural, "/") || !slices.Contains(verbs, "get") && !slices.Contains(verbs, "list") {
		return nil
	}
	if d.resources.Add(1) > maxResources {
		return fmt.Errorf("%w: more than %d resources", errDiscoveryLimit, maxResources)
	}
	if len(r.shortNames) > maxShortNames {
		r.shortNames = slices.Clone(r.shortNames[:maxShortNames])
	}
	if !r.hasValidNames() {
		return nil
	}
	size := r.memorySize()
	if d.memorySize.Add(size) > maxCatalog {
		return fmt.Errorf("%w: resources of more than %d bytes", errDiscoveryLimit, maxCatalog)
	}
	if err := d.memory.grow(size); err != nil {
		return err
	}
	*into = append(*into, r)
	return nil
}

// get reads a document as the caller. There being none is no error: API servers
// that serve no core group have no /api.
func (d *discoveryReader) get(ctx context.Context, path, accept string, read func(*json.Decoder) error) error {
	req := (&http.Request{
		Method: http.MethodGet,
		URL:    &url.URL{Scheme: "http", Host: kubeDoor, Path: path},
		Host:   kubeDoor,
		Header: http.Header{"Accept": {accept}, "User-Agent": {"spokelet-hub"}},
		Proto:  "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(ctx)
	setIdentity(ctx, req.Header, d.caller)
	if err := d.memory.grow(documentCost); err != nil {
		return err
	}
	defer d.memory.shrink(documentCost)
	res, err := d.session.RoundTrip(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	switch res.StatusCode {
	case http.StatusOK:
		return read(d.newDecoder(res.Body))
	case http.StatusNotFound:
		return nil
	default:
		return readError(d.cluster, res)
	}
}

// newDecoder reads a document. It ends in an error once all documents have used up what they
// share, or when one value is too large to be read whole.
func (d *discoveryReader) newDecoder(body io.Reader) *json.Decoder {
	return jsonstream.NewDecoder(&sharedLimitReader{from: body, remaining: &d.remaining}, func(pending int64) error {
		if pending > maxValue {
			return fmt.Errorf("%w: a value of more than %d bytes", errDiscoveryLimit, maxValue)
		}
		return nil
	})
}

// sharedLimitReader reads what all documents together may have.
type sharedLimitReader struct {
	from      io.Reader
	remaining *atomic.Int64
}

func (s *sharedLimitReader) Read(b []byte) (int, error) {
	n, err := s.from.Read(b)
	if s.remaining.Add(-int64(n)) < 0 {
		return 0, fmt.Errorf("%w: more than %d bytes", errDiscoveryLimit, maxDiscovery)
	}
	return n, err
}
